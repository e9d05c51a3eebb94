/* SPDX-License-Identifier: BSD-2-Clause */
/* What the counted programs share. */
#ifndef EXS_TESTS_COUNT_H
#define EXS_TESTS_COUNT_H

#define SIZE	    8
#define TIMES	    1000
#define MOVES_AFTER 100000 /* messages */

#define OP(name) static __attribute__((noinline)) void name(void)

#endif
