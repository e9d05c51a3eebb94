/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the C library's functions: all of them when the first is called, which
 * may be before any constructor of ours runs. */
#include "preload/native.h"

#include <dlfcn.h>
#include <stdarg.h>

static void find_all(void);

#define STUB(ret, name, params, args)                                          \
	static ret stub_##name params                                          \
	{                                                                      \
		find_all();                                                    \
		return native.name args;                                       \
	}
NATIVE_CALLS(STUB)
#undef STUB

/* A stub passes on as many words as any of these calls takes. */
#define STUB(ret, name, params, last, args)                                    \
	static ret stub_##name params                                          \
	{                                                                      \
		unsigned long a[6];                                            \
		va_list ap;                                                    \
                                                                               \
		va_start(ap, last);                                            \
		for (int i = 0; i < 6; i++)                                    \
			a[i] = va_arg(ap, unsigned long);                      \
		va_end(ap);                                                    \
		find_all();                                                    \
		return native.name args;                                       \
	}
NATIVE_VARIADIC(STUB)
#undef STUB

#define MEMBER(ret, name, ...) .calls.name = stub_##name,
#define PAGE		       4096
_Alignas(PAGE) struct near shim_near = { NATIVE_CALLS(MEMBER)
						 NATIVE_VARIADIC(MEMBER) };
_Static_assert(sizeof(struct near) <= PAGE, "one page");
#undef MEMBER

static void find_all(void)
{
#define FIND(ret, name, ...) native.name = dlsym(RTLD_NEXT, #name);
	NATIVE_CALLS(FIND)
	NATIVE_VARIADIC(FIND)
#undef FIND
}
