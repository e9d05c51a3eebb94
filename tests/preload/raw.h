/* SPDX-License-Identifier: BSD-2-Clause */
/* A system call by its instruction, as in a program that has it compiled in:
 * neither the library nor the shim intercepts it. */
#ifndef EXI_TESTS_PRELOAD_RAW_H
#define EXI_TESTS_PRELOAD_RAW_H

#ifdef __x86_64__
#define T_HAVE_RAW 1

/* The result, or -errno. */
static inline long t_raw(long nr, long a, long b, long c, long d, long e)
{
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e,
			  r9 __asm__("r9") = 0;

	__asm__("syscall"
		: "+a"(nr)
		: "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
		: "rcx", "r11", "memory");
	return nr;
}
#else
#define T_HAVE_RAW 0

static inline long t_raw(long nr, long a, long b, long c, long d, long e)
{
	return -38; /* ENOSYS */
}
#endif

#endif
