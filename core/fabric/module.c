/* SPDX-License-Identifier: BSD-2-Clause */
/* Opening modules. */
#include "core/fabric/module.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/base/fds.h"
#include "core/base/futex.h"
#include "core/base/log.h"
#include "core/fabric/provider.h"
#include "exi_build.h"

#define PROGRAM "/proc/self/exe"

/* The file that contains this code. For the program itself the loader only
 * knows how it was called, which may be a name that was found by PATH. */
static const char *own_file(void)
{
	static Dl_info ours;
	Dl_info program;

	if (!dladdr((void *)(uintptr_t)exi_module_open, &ours) ||
	    !dladdr((void *)(uintptr_t)getauxval(AT_PHDR), &program))
		return NULL;
	return ours.dli_fbase == program.dli_fbase ? PROGRAM : ours.dli_fname;
}

bool exi_module_twice(void)
{
	const char *file = own_file();

	return dlsym(RTLD_DEFAULT, "exs_preload") && file &&
	       !strcmp(file, PROGRAM);
}

static int own_folder(char ret[PATH_MAX])
{
	const char *file = own_file();
	char *end;

	if (!file || !realpath(file, ret))
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

/* A folder beside the library, or beside the exs command, which includes this
 * code: as built, or as installed. */
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

/* --- whose code ---------------------------------------------------------- */

#define PARTS_MAX 8
struct part {
	uintptr_t begin, end;
};

static struct part parts[PARTS_MAX];
static _Atomic unsigned int n_parts;

bool exi_module_calls(const void *code)
{
	unsigned int n = atomic_load_explicit(&n_parts, memory_order_acquire);

	for (unsigned int i = 0; i < n; i++)
		if ((uintptr_t)code - parts[i].begin <
		    parts[i].end - parts[i].begin)
			return true;
	return false;
}

static int learn_parts(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *name = arg;
	const char *base = strrchr(info->dlpi_name, '/');
	unsigned int n = atomic_load(&n_parts);

	if (strcmp(base ? base + 1 : info->dlpi_name, name) &&
	    strcmp(info->dlpi_name, name))
		return 0;
	for (int i = 0; i < info->dlpi_phnum && n < PARTS_MAX; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];

		if (h->p_type != PT_LOAD || !(h->p_flags & PF_X))
			continue;
		parts[n].begin = info->dlpi_addr + h->p_vaddr;
		parts[n].end = parts[n].begin + h->p_memsz;
		/* Pairs with the load above: a part is stored before it
		 * counts. */
		atomic_store_explicit(&n_parts, ++n, memory_order_release);
	}
	return 1;
}

/* Opening is under the registry's lock. */
static void learn(const struct exi_provider *p, char *path)
{
	dl_iterate_phdr(learn_parts, path);
	if (p->afresh)
		dl_iterate_phdr(learn_parts, (void *)(uintptr_t)p->afresh);
}

/* Libraries that a module uses (libpsm2) catch signals when they are loaded,
 * and write files about them; the signals are the program's. */
static void *open_quietly(const char *path)
{
	struct sigaction before[NSIG], now;
	void *module;

	for (int i = 1; i < NSIG; i++)
		sigaction(i, NULL, &before[i]);
	module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	for (int i = 1; i < NSIG; i++)
		if (!sigaction(i, NULL, &now) &&
		    now.sa_sigaction != before[i].sa_sigaction)
			sigaction(i, &before[i], NULL);
	return module;
}

/* The rest comes by exi_module_serve(). */
static struct exi_host host = {
	.abi = EXI_PROVIDER_ABI,
	.config = exi_config,
	.log_level = &exi_log_level,
	.log = exi_log_write,
	.futex_wake = exi_futex_wake,
	.fd_keep = exi_fd_keep,
	.fd_spare = exi_fd_spare,
	.fd_close = exi_fd_close,
	.fds_short = exi_fds_short,
	.fds_begin = exi_fds_begin,
	.fds_end = exi_fds_end,
};

void exi_module_serve(const struct exi_host *upcalls)
{
	host.request = upcalls->request;
	host.stranger = upcalls->stranger;
	host.met = upcalls->met;
	host.accept = upcalls->accept;
	host.close_socket = upcalls->close_socket;
	host.close_listener = upcalls->close_listener;
}

int exi_module_open(const char *name, const struct exi_provider **ret,
		    void **ret_handle, char *why, size_t len)
{
	const struct exi_provider *p = NULL;
	char path[PATH_MAX];
	exi_module_fn *entry;
	void *module;

	if (find(name, path)) {
		snprintf(why, len, "there is no module %s.so", name);
		return -ENOENT;
	}
	module = open_quietly(path);
	if (!module) {
		snprintf(why, len, "%s", dlerror());
		return -ELIBACC;
	}
	entry = (exi_module_fn *)(uintptr_t)dlsym(module, "exi_module");
	if (entry)
		p = entry(&host);
	if (!p || strcmp(p->name, name)) {
		snprintf(why, len, "%s is not a module of this version", path);
		return -ELIBBAD;
	}
	learn(p, path);
	*ret = p;
	*ret_handle = module;
	return 0;
}

int exi_module_close(void *handle, const char *afresh, char *why, size_t len)
{
	void *still;

	atomic_store(&n_parts, 0); /* there is one thread */
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
