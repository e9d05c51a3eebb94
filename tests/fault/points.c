/* SPDX-License-Identifier: BSD-2-Clause */
/* Counts points, and strikes. A point in this program is its address, which is
 * the same in all processes; one in a module, which each of them loads for
 * itself, is its place in the module's file and the module's number above. */
#include "tests/fault/points.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/check.h"
#include "tests/support/wait.h"

#define POINTS	    8192 /* of a side, a power of two */
#define MODULES	    2
#define MODULE_BITS 48 /* below the number; no address has more */

struct slot {
	_Atomic uintptr_t at;
	_Atomic unsigned int passed, own;
};

/* What the processes of a trial share. */
static struct shared {
	struct slot slots[T_SIDES][POINTS];
	uintptr_t at; /* where it strikes; 0: nowhere */
	enum t_side side;
	enum t_strike how;
	_Atomic unsigned int left;
	_Atomic bool struck;
	_Atomic int64_t struck_at;
} * shared;

/* In the folder exs beside this program. */
static const char *const modules[] = { "verbs.so", "ofi.so" };

static bool passes;
static enum t_side mine;
static pid_t side_pid;

void t_points_begin(void)
{
	if (!shared)
		shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	T(shared != MAP_FAILED);
	memset(shared, 0, sizeof(*shared));
}

void t_points_of(enum t_side side)
{
	mine = side;
	side_pid = getpid();
	passes = true;
}

size_t t_points(enum t_side side, struct t_point *ret, size_t most)
{
	size_t n = 0;

	for (size_t i = 0; i < POINTS && n < most; i++) {
		struct slot *s = &shared->slots[side][i];

		if (s->at)
			ret[n++] = (struct t_point){ s->at, s->passed, s->own };
	}
	return n;
}

void t_points_strike(enum t_side side, uintptr_t at, unsigned int n,
		     enum t_strike how)
{
	shared->side = side;
	shared->how = how;
	shared->left = n;
	shared->at = at;
}

bool t_points_struck(void)
{
	return shared->struck;
}

int64_t t_points_struck_at(void)
{
	return mine == shared->side ? 0 : shared->struck_at;
}

/* --- modules ------------------------------------------------------------- */

/* Of this process; what is begun is written before the rest is read. */
static struct part {
	uintptr_t base, end;
	uintptr_t number; /* from 1 */
} parts[MODULES];
static _Atomic unsigned int n_parts;

static uintptr_t number_of(const char *file)
{
	const char *base = strrchr(file, '/');

	for (uintptr_t i = 0; i < MODULES; i++)
		if (base && !strcmp(base + 1, modules[i]))
			return i + 1;
	t_fail(__FILE__, __LINE__, "%s is no module", file);
}

static int find_end(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct part *p = arg;

	if (info->dlpi_addr != p->base)
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];

		if (h->p_type == PT_LOAD &&
		    p->base + h->p_vaddr + h->p_memsz > p->end)
			p->end = p->base + h->p_vaddr + h->p_memsz;
	}
	return 1;
}

static uintptr_t learn(uintptr_t at)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct part p = { 0 };
	Dl_info info;

	T(dladdr((void *)at, &info));
	p.base = (uintptr_t)info.dli_fbase;
	dl_iterate_phdr(find_end, &p);
	T(p.end > at);
	p.number = number_of(info.dli_fname);
	pthread_mutex_lock(&lock);
	T(n_parts < MODULES);
	parts[n_parts] = p;
	n_parts++;
	pthread_mutex_unlock(&lock);
	return p.number << MODULE_BITS | (at - p.base);
}

/* The same point has the same number in all processes. */
static uintptr_t number(uintptr_t at)
{
	extern char __executable_start, _end;

	if (at >= (uintptr_t)&__executable_start && at < (uintptr_t)&_end)
		return at;
	for (unsigned int i = 0; i < n_parts; i++)
		if (at >= parts[i].base && at < parts[i].end)
			return parts[i].number << MODULE_BITS |
			       (at - parts[i].base);
	return learn(at);
}

/* --- passing ------------------------------------------------------------- */

static void count(uintptr_t at)
{
	uintptr_t i = at * 0x9e3779b97f4a7c15u >> 40;

	for (;; i++) {
		struct slot *s = &shared->slots[mine][i % POINTS];
		uintptr_t was = 0;

		if (atomic_compare_exchange_strong(&s->at, &was, at) ||
		    was == at) {
			atomic_fetch_add(&s->passed, 1);
			if (getpid() == side_pid)
				atomic_fetch_add(&s->own, 1);
			return;
		}
	}
}

/* Whether the process is one that is struck: nobody waits for a stopped
 * child. */
static bool is_meant(void)
{
	return shared->how != T_STOP || getpid() == side_pid;
}

static void strike(void)
{
	shared->struck = true;
	shared->struck_at = t_now_ns();
	if (shared->how == T_DELAY)
		poll(NULL, 0, T_DELAY_MS);
	else
		kill(getpid(), shared->how == T_KILL ? SIGKILL : SIGSTOP);
}

static void pass(uintptr_t at)
{
	if (!passes)
		return;
	at = number(at);
	if (!shared->at)
		count(at);
	else if (shared->at == at && shared->side == mine && is_meant() &&
		 atomic_fetch_sub(&shared->left, 1) == 1)
		strike();
}

/* A function's address is even. */
void __cyg_profile_func_enter(void *function, void *from);
void __cyg_profile_func_enter(void *function, void *from)
{
	pass((uintptr_t)function);
}

void __cyg_profile_func_exit(void *function, void *from);
void __cyg_profile_func_exit(void *function, void *from)
{
	pass((uintptr_t)function | 1);
}

/* --- names --------------------------------------------------------------- */

struct file {
	const unsigned char *at;
};

static void map_file(struct file *f, const char *path)
{
	struct stat st;
	int fd;

	if (f->at)
		return;
	fd = T_OK(open(path, O_RDONLY | O_CLOEXEC));
	T_OK(fstat(fd, &st));
	f->at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	T(f->at != MAP_FAILED);
	close(fd);
}

/* The table of symbols in a file, its static ones included. */
static const char *symbol(const struct file *f, uintptr_t address)
{
	const Elf64_Ehdr *head = (const void *)f->at;
	const Elf64_Shdr *part = (const void *)(f->at + head->e_shoff);

	for (int i = 0; i < head->e_shnum; i++) {
		const Elf64_Sym *s = (const void *)(f->at + part[i].sh_offset);
		const char *names =
			(const char *)f->at + part[part[i].sh_link].sh_offset;
		size_t n = part[i].sh_size / sizeof(*s);

		for (; part[i].sh_type == SHT_SYMTAB && n; n--, s++)
			if (ELF64_ST_TYPE(s->st_info) == STT_FUNC &&
			    s->st_value == address)
				return names + s->st_name;
	}
	return "?";
}

static void module_path(const char *name, char ret[PATH_MAX])
{
	ssize_t n = T_OK(readlink("/proc/self/exe", ret, PATH_MAX - 32));

	ret[n] = '\0';
	snprintf(strrchr(ret, '/'), 32, "/exs/%s", name);
}

const char *t_point_name(uintptr_t at)
{
	static struct file program, of[MODULES];
	static char rooms[4][80];
	static int next;
	char *room = rooms[next++ % 4];
	uintptr_t n = at >> MODULE_BITS, place = at & ~(uintptr_t)1;
	const struct file *f = &program;
	char path[PATH_MAX];
	Dl_info info;

	if (n) {
		module_path(modules[n - 1], path);
		map_file(&of[n - 1], path);
		f = &of[n - 1];
		place -= n << MODULE_BITS;
	} else {
		map_file(&program, "/proc/self/exe");
		T(dladdr((void *)place, &info));
		place -= (uintptr_t)info.dli_fbase;
	}
	snprintf(room, sizeof(rooms[0]), "%s%c", symbol(f, place),
		 at & 1 ? '-' : '+');
	return room;
}
