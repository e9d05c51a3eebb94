/* SPDX-License-Identifier: BSD-2-Clause */
/* Finding the C library's functions: all at once, when the first is called,
 * which may be before any constructor of ours. */
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

static int stub_fcntl64(int s, int cmd, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	find_all();
	return native.fcntl64(s, cmd, arg);
}

static int stub_ioctl(int s, unsigned long request, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	find_all();
	return native.ioctl(s, request, arg);
}

static int stub_prctl(int option, ...)
{
	unsigned long a[4];
	va_list ap;

	va_start(ap, option);
	for (int i = 0; i < 4; i++)
		a[i] = va_arg(ap, unsigned long);
	va_end(ap);
	find_all();
	return native.prctl(option, a[0], a[1], a[2], a[3]);
}

static long stub_syscall(long number, ...)
{
	long a[6];
	va_list ap;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	find_all();
	return native.syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

#define MEMBER(ret, name, params, args) .name = stub_##name,
struct native native = { NATIVE_CALLS(MEMBER).fcntl64 = stub_fcntl64,
			 .ioctl = stub_ioctl, .prctl = stub_prctl,
			 .syscall = stub_syscall };
#undef MEMBER

static void find_all(void)
{
#define FIND(ret, name, params, args) native.name = dlsym(RTLD_NEXT, #name);
	NATIVE_CALLS(FIND)
#undef FIND
	native.fcntl64 = dlsym(RTLD_NEXT, "fcntl64");
	native.ioctl = dlsym(RTLD_NEXT, "ioctl");
	native.prctl = dlsym(RTLD_NEXT, "prctl");
	native.syscall = dlsym(RTLD_NEXT, "syscall");
}
