/* SPDX-License-Identifier: BSD-2-Clause */
/* The start, and the version. */
#include "api/api.h"
#include "core/life/core.h"
#include "core/sock/table.h"
#include "exi_build.h"

EXI_PUBLIC int exs_init(int version)
{
	if (version != EXS_VERSION1)
		return (int)exi_result(-EPROTONOSUPPORT);
	exi_sock_track_all();
	return (int)exi_result(exi_core_init());
}

_Static_assert(EXS_X_VERSION_NUM == EXI_VERSION_NUM,
	       "the header's version is that of the build");

EXI_PUBLIC int exs_x_version(void)
{
	return EXS_X_VERSION_NUM;
}
