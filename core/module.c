/* SPDX-License-Identifier: BSD-2-Clause */
/* Opening modules. */
#include "core/module.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "core/futex.h"
#include "core/log.h"
#include "exi_build.h"

/* The folder of the file that this code is in. Of the program itself the loader
 * knows only how it was called, which may be a name that PATH completed. */
static int own_folder(char ret[PATH_MAX])
{
	Dl_info ours, program;
	char *end;

	if (!dladdr((void *)(uintptr_t)exi_module_open, &ours) ||
	    !dladdr((void *)(uintptr_t)getauxval(AT_PHDR), &program))
		return -ENOENT;
	if (!realpath(ours.dli_fbase == program.dli_fbase ? "/proc/self/exe"
							  : ours.dli_fname,
		      ret))
		return -ENOENT;
	end = strrchr(ret, '/');
	if (!end)
		return -ENOENT;
	*end = '\0';
	return 0;
}

static bool readable(char ret[PATH_MAX], const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static bool readable(char ret[PATH_MAX], const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(ret, PATH_MAX, fmt, ap);
	va_end(ap);
	return n < PATH_MAX && access(ret, R_OK) == 0;
}

/* Beside the library, or the exs command, which has its code built in: as
 * built, or as installed. */
static int find(const char *name, char ret[PATH_MAX])
{
	char at[PATH_MAX];

	if (own_folder(at))
		return -ENOENT;
	return readable(ret, "%s/providers/%s/%s.so", at, name, name) ||
			       readable(ret, "%s/../providers/%s/%s.so", at,
					name, name) ||
			       readable(ret, "%s/exs/%s.so", at, name) ||
			       readable(ret, "%s/../" EXI_LIBDIR "/exs/%s.so",
					at, name)
		       ? 0
		       : -ENOENT;
}

int exi_module_open(const char *name, const struct exi_provider **ret,
		    void **ret_handle, char *why, size_t len)
{
	static const struct exi_host host = {
		.abi = EXI_PROVIDER_ABI,
		.config = exi_config,
		.log_level = &exi_log_level,
		.log = exi_log_write,
		.futex_wake = exi_futex_wake,
		.fd_keep = exi_fd_keep,
		.fd_close = exi_fd_close,
		.request = exi_remote_request,
		.met = exi_remote_met,
	};
	const struct exi_provider *p = NULL;
	char path[PATH_MAX];
	exi_module_fn *entry;
	void *module;

	if (find(name, path)) {
		snprintf(why, len, "there is no module %s.so", name);
		return -ENOENT;
	}
	module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!module) {
		snprintf(why, len, "%s", dlerror());
		return -ELIBACC;
	}
	entry = (exi_module_fn *)(uintptr_t)dlsym(module, "exi_module");
	if (entry)
		p = entry(&host);
	if (!p || strcmp(p->name, name)) {
		snprintf(why, len, "%s is no module of this version", path);
		return -ELIBBAD;
	}
	*ret = p;
	*ret_handle = module;
	return 0;
}

int exi_module_close(void *handle, const char *afresh, char *why, size_t len)
{
	void *still;

	dlclose(handle);
	still = dlopen(afresh, RTLD_LAZY | RTLD_NOLOAD);
	if (!still)
		return 0;
	dlclose(still);
	snprintf(why, len,
		 "%s was used before the fork, and the program keeps it",
		 afresh);
	return -EBUSY;
}
