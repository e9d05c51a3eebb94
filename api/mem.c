/* SPDX-License-Identifier: BSD-2-Clause */
/* Registered memory. */
#include "core/transfer/mem.h"

#include "api/api.h"

EXI_PUBLIC exs_mhandle_t exs_mregister(void *addr, size_t len, int flags)
{
	exs_mhandle_t m = EXS_MHANDLE_INVALID;
	int ret;

	EXI_NEEDS_INIT();
	ret = exi_mem_register(addr, len, flags, &m);
	return ret ? (int)exi_result(ret) : m;
}

EXI_PUBLIC int exs_mderegister(exs_mhandle_t m, int flags)
{
	EXI_NEEDS_INIT();
	if (flags)
		return (int)exi_result(-EINVAL);
	return (int)exi_result(exi_mem_deregister(m));
}
