/* SPDX-License-Identifier: BSD-2-Clause */
/* The frame of every public call: turns internal results into -1 and errno.
 * Nothing else in the library sets errno. */
#ifndef EXI_API_H
#define EXI_API_H

#include <errno.h>
#include <sys/exs.h>
#include <sys/exs_ext.h>

#include "core/base/util.h"
#include "core/life/core.h"

/* Exported from libexs.so: named in api/exs.map. */
#define EXI_PUBLIC __attribute__((visibility("default")))

static inline ssize_t exi_result(ssize_t ret)
{
	if (exi_likely(ret >= 0))
		return ret;
	errno = (int)-ret;
	return -1;
}

/* Submit an operation of exs_x_submit() that is not a transfer. 0 or -errno. */
int exi_api_connect(exs_qhandle_t q, const exs_x_op_t *o);
int exi_api_accept(exs_qhandle_t q, const exs_x_op_t *o);
int exi_api_poll(exs_qhandle_t q, const exs_x_op_t *o);

#define EXI_NEEDS_INIT()                                                       \
	do {                                                                   \
		if (!exi_core_ready())                                         \
			return (int)exi_result(-ENXIO);                        \
	} while (0)

#endif
