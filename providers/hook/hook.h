/* SPDX-License-Identifier: BSD-2-Clause */
/* The calls by which a test controls the hook. The settings belong to the
 * process; a forked child has its parent's settings and counts. */
#ifndef PROVIDERS_HOOK_H
#define PROVIDERS_HOOK_H

#include <stdbool.h>

#include "providers/hook/hook_ops.h"

#define HOOKP_OP(table, name)		    HOOKP_##table##_##name,
#define HOOKP_OP_OF(type, table, name, ...) HOOKP_##table##_##name,
#define HOOKP_OP_VOID(table, name, ...)	    HOOKP_##table##_##name,
enum hookp_op {
	HOOKP_EACH(HOOKP_OP_OF, HOOKP_OP_OF, HOOKP_OP_VOID, HOOKP_OP) HOOKP_OPS
};
#undef HOOKP_OP
#undef HOOKP_OP_OF
#undef HOOKP_OP_VOID

/* "conn send". */
const char *hookp_name(enum hookp_op op);

/* The errors with which an operation may fail according to provider.h, a list
 * that ends with 0. A call that fails moves nothing. */
const int *hookp_errors(enum hookp_op op);

/* Makes the n-th call of the operation from here on, counted from 1, fail with
 * this error, a negative number; counts calls of the fabric of that name. n is
 * 0: none fails. */
void hookp_fail(const char *fabric, enum hookp_op op, unsigned int n,
		int error);

/* Whether there was such a call since hookp_fail(). */
bool hookp_failed(void);

/* What T_HOOK says at the start of a process, a list such as
 * "short=3,delay=50,trace":
 *
 *	short=N	no transfer moves more than N bytes; most move fewer
 *	delay=N	one call of eight lasts up to N microseconds longer
 *	trace	each call is logged
 *
 * The hook sets T_HOOKED when it has read it. */

#endif
