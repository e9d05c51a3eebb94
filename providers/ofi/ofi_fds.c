/* SPDX-License-Identifier: BSD-2-Clause */
/* The calls that libfabric makes.
 *
 * The descriptors that it opens would have the lowest free numbers, which are
 * the program's, and it opens them at any time: the thread that makes progress
 * accepts a socket. So libfabric's calls that make descriptors are redirected
 * here, through the import table of its file, and their descriptors are moved
 * up and counted like all of the library's. If the program used libfabric
 * before us, nothing is redirected. */
#include "providers/ofi/ofi_int.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "core/base/config.h"

/* --- which are open ----------------------------------------------------- */

#define NUMBERS 65536u
static _Atomic uint64_t opened[NUMBERS / 64];

static uint64_t bit(int fd)
{
	return UINT64_C(1) << ((unsigned int)fd % 64);
}

static int keep(int fd)
{
	int err = EMFILE;

	if (fd < 0)
		return -1;
	fd = exi_rma_host->fd_keep(fd);
	if (fd >= 0 && (unsigned int)fd < NUMBERS) {
		atomic_fetch_or(&opened[fd / 64], bit(fd));
		return fd;
	}
	exi_rma_host->fd_close(fd);
	errno = err;
	return -1;
}

static int let_go(int fd)
{
	if ((unsigned int)fd >= NUMBERS ||
	    !(atomic_fetch_and(&opened[fd / 64], ~bit(fd)) & bit(fd)))
		return close(fd);
	exi_rma_host->fd_close(fd);
	return 0;
}

static int keep_two(int fd[2])
{
	fd[0] = keep(fd[0]);
	fd[1] = keep(fd[1]);
	if (fd[0] >= 0 && fd[1] >= 0)
		return 0;
	for (int i = 0; i < 2; i++)
		if (fd[i] >= 0)
			let_go(fd[i]);
	return -1;
}

/* --- instead of the C library's ----------------------------------------- */

#define MAKES_ONE(call, params, args)                                          \
	static int high_##call params                                          \
	{                                                                      \
		int ret;                                                       \
                                                                               \
		exi_rma_host->fds_begin();                                     \
		ret = keep(call args);                                         \
		exi_rma_host->fds_end();                                       \
		return ret;                                                    \
	}

/* The last argument is fd. */
#define MAKES_TWO(call, params, args)                                          \
	static int high_##call params                                          \
	{                                                                      \
		int ret;                                                       \
                                                                               \
		exi_rma_host->fds_begin();                                     \
		ret = call args < 0 ? -1 : keep_two(fd);                       \
		exi_rma_host->fds_end();                                       \
		return ret;                                                    \
	}

MAKES_ONE(accept, (int s, struct sockaddr *a, socklen_t *len), (s, a, len))
MAKES_ONE(accept4, (int s, struct sockaddr *a, socklen_t *len, int flags),
	  (s, a, len, flags))
MAKES_ONE(epoll_create, (int size), (size))
MAKES_ONE(epoll_create1, (int flags), (flags))
MAKES_ONE(eventfd, (unsigned int value, int flags), (value, flags))
MAKES_ONE(socket, (int family, int type, int protocol),
	  (family, type, protocol))
MAKES_ONE(timerfd_create, (clockid_t clock, int flags), (clock, flags))
MAKES_TWO(pipe, (int fd[2]), (fd))
MAKES_TWO(socketpair, (int family, int type, int protocol, int fd[2]),
	  (family, type, protocol, fd))

static int high_shm_open(const char *name, int flags, mode_t mode)
{
	int ret;

	exi_rma_host->fds_begin();
	ret = ofip_shm_open(name, flags, mode);
	if (ret >= 0) {
		ret = keep(ret);
		if (ret < 0 && (flags & O_CREAT))
			ofip_shm_unlink(name);
	}
	exi_rma_host->fds_end();
	return ret;
}

/* Libfabric's own settings, unless they were set already, except for the
 * first. */
static struct {
	const char *name;
	char value[16];
} settings[] = {
	/* CMA: without it large writes of shm are fetched, and must not be. */
	{ "FI_SHM_DISABLE_CMA", "0" },
	/* Libfabric's cache of registrations duplicates ours, and writes jumps
	 * to libfabric into munmap() and others; in a forked child that loads
	 * libfabric anew, they lead nowhere. */
	{ "FI_MR_CACHE_MONITOR", "disabled" },
	/* With buffers of 16 KiB in ofi_rxm, opening an endpoint takes ten
	 * times as long; only our messages lie in them. */
	{ "FI_OFI_RXM_BUFFER_SIZE", "1024" },
	/* Without SRX ofi_rxm closes a connection's endpoint, and then posts to
	 * it anew each receive that was not looked at before its end was. */
	{ "FI_OFI_RXM_USE_SRX", "1" },
};
_Static_assert(EXI_RMA_MSG_MAX <= 1024, "FI_OFI_RXM_BUFFER_SIZE");

static char *asked_getenv(const char *name)
{
	char *ret = strcmp(name, settings[0].name) ? getenv(name) : NULL;

	for (size_t i = 0; !ret && i < sizeof(settings) / sizeof(*settings);
	     i++)
		if (!strcmp(name, settings[i].name))
			ret = settings[i].value;
	return ret;
}

#define CALL(call)                                                             \
	{                                                                      \
#call, (uintptr_t)high_##call, false                           \
	}

static const struct call {
	const char *name;
	uintptr_t ours;
	bool shm; /* only where shm is used */
} calls[] = {
	CALL(accept),
	CALL(accept4),
	CALL(epoll_create),
	CALL(epoll_create1),
	CALL(eventfd),
	CALL(pipe),
	CALL(socket),
	CALL(socketpair),
	CALL(timerfd_create),
	{ "close", (uintptr_t)let_go, false },
	{ "getenv", (uintptr_t)asked_getenv, false },
	{ "pthread_spin_lock", (uintptr_t)ofip_shm_spin_lock, true },
	{ "pthread_spin_trylock", (uintptr_t)ofip_shm_spin_trylock, true },
	{ "pthread_spin_unlock", (uintptr_t)ofip_shm_spin_unlock, true },
	{ "shm_open", (uintptr_t)high_shm_open, true },
	{ "shm_unlink", (uintptr_t)ofip_shm_unlink, true },
	{ "stat", (uintptr_t)ofip_shm_stat, true },
	{ "sigaction", (uintptr_t)ofip_shm_sigaction, true },
	{ "syscall", (uintptr_t)ofip_shm_syscall, true },
};

/* --- libfabric's table of imports --------------------------------------- */

#define CHANGES 32
static struct change {
	uintptr_t *at;
	uintptr_t before;
	bool read_only;
} changes[CHANGES];
static unsigned int n_changes;

/* A store that every thread sees whole. */
static bool store(const struct change *c, uintptr_t value)
{
	uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE);
	void *page = (void *)((uintptr_t)c->at / size * size);

	if (c->read_only && mprotect(page, size, PROT_READ | PROT_WRITE) < 0)
		return false;
	__atomic_store_n(c->at, value, __ATOMIC_RELAXED);
	if (c->read_only)
		mprotect(page, size, PROT_READ);
	return true;
}

static bool within(const struct dl_phdr_info *f, ElfW(Word) type, uintptr_t at)
{
	for (int i = 0; i < f->dlpi_phnum; i++)
		if (f->dlpi_phdr[i].p_type == type &&
		    at - f->dlpi_addr - f->dlpi_phdr[i].p_vaddr <
			    f->dlpi_phdr[i].p_memsz)
			return true;
	return false;
}

/* Software is used where it is named only. */
static bool wants_shm(void)
{
	return !strcmp(exi_rma_host->config()->ofi_provider, "shm");
}

static void lead(const struct dl_phdr_info *f, const char *name, uintptr_t at)
{
	struct change *c = &changes[n_changes];

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		if (strcmp(name, calls[i].name) || n_changes == CHANGES ||
		    (calls[i].shm && !wants_shm()))
			continue;
		c->at = (uintptr_t *)at;
		c->before = *c->at;
		c->read_only = within(f, PT_GNU_RELRO, at);
		if (store(c, calls[i].ours))
			n_changes++;
	}
}

struct imports {
	uintptr_t symbols, names;
	uintptr_t at[2], bytes[2]; /* the tables of data, of calls */
};

/* Every entry that stands for a function of another file holds its address. */
static void lead_all(const struct dl_phdr_info *f, const struct imports *m)
{
	const ElfW(Sym) *symbols = (const ElfW(Sym) *)m->symbols;
	const char *names = (const char *)m->names;

	for (int k = 0; k < 2; k++) {
		const ElfW(Rela) *r = (const ElfW(Rela) *)m->at[k];

		for (size_t i = 0; r && i < m->bytes[k] / sizeof(*r); i++) {
			const ElfW(Sym) *s = &symbols[ELF64_R_SYM(r[i].r_info)];

			if (s->st_name && s->st_shndx == SHN_UNDEF &&
			    ELF64_ST_TYPE(s->st_info) == STT_FUNC)
				lead(f, names + s->st_name,
				     f->dlpi_addr + r[i].r_offset);
		}
	}
}

static void read_imports(const struct dl_phdr_info *f, struct imports *ret)
{
	uintptr_t *const where[] = {
		[DT_SYMTAB] = &ret->symbols, [DT_STRTAB] = &ret->names,
		[DT_RELA] = &ret->at[0],     [DT_RELASZ] = &ret->bytes[0],
		[DT_JMPREL] = &ret->at[1],   [DT_PLTRELSZ] = &ret->bytes[1],
	};
	const ElfW(Dyn) *d = NULL;

	for (int i = 0; i < f->dlpi_phnum; i++)
		if (f->dlpi_phdr[i].p_type == PT_DYNAMIC)
			d = (const ElfW(Dyn) *)(f->dlpi_addr +
						f->dlpi_phdr[i].p_vaddr);
	for (; d && d->d_tag != DT_NULL; d++)
		if ((size_t)d->d_tag < sizeof(where) / sizeof(*where) &&
		    where[d->d_tag])
			*where[d->d_tag] = d->d_un.d_val;
}

/* Files are listed in the order in which they came. */
static int look_at(struct dl_phdr_info *f, size_t size, void *arg)
{
	const char *base = strrchr(f->dlpi_name, '/');
	struct imports m = { 0 };
	bool *after_us = arg;

	if (within(f, PT_LOAD, (uintptr_t)&changes)) {
		*after_us = true;
		return 0;
	}
	if (strcmp(base ? base + 1 : f->dlpi_name, ofip_provider.afresh))
		return 0;
	if (*after_us) {
		read_imports(f, &m);
		lead_all(f, &m);
	}
	return 1;
}

void ofip_fds_take(void)
{
	bool after_us = false;

	ofip_shm_start();
	dl_iterate_phdr(look_at, &after_us);
}

bool ofip_fds_taken(void)
{
	return n_changes;
}

/* The program may use libfabric by now, too, and keep it loaded when we go. */
__attribute__((destructor)) static void give_back(void)
{
	while (n_changes) {
		n_changes--;
		store(&changes[n_changes], changes[n_changes].before);
	}
}

/* Single-threaded. */
void ofip_fds_forked(void)
{
	for (int fd = 0; (unsigned int)fd < NUMBERS; fd++)
		if (atomic_load(&opened[fd / 64]) & bit(fd))
			let_go(fd);
}
