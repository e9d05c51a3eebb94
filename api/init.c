/* SPDX-License-Identifier: BSD-2-Clause */
/* exs_init. */
#include "api/api.h"
#include "core/life/core.h"
#include "core/sock/table.h"

EXI_PUBLIC int exs_init(int version)
{
	if (version != EXS_VERSION1)
		return (int)exi_result(-EPROTONOSUPPORT);
	exi_sock_track_all();
	return (int)exi_result(exi_core_init());
}
