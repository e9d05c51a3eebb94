/* SPDX-License-Identifier: BSD-2-Clause */
/* Counts points, and strikes. */
#include "tests/fault/points.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/check.h"
#include "tests/support/wait.h"

#define POINTS 4096 /* of a side, a power of two */

struct slot {
	_Atomic uintptr_t at;
	_Atomic unsigned int passed;
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
			ret[n++] = (struct t_point){ s->at, s->passed };
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

static void count(uintptr_t at)
{
	uintptr_t i = at * 0x9e3779b97f4a7c15u >> 40;

	for (;; i++) {
		struct slot *s = &shared->slots[mine][i % POINTS];
		uintptr_t was = 0;

		if (atomic_compare_exchange_strong(&s->at, &was, at) ||
		    was == at) {
			atomic_fetch_add(&s->passed, 1);
			return;
		}
	}
}

static void strike(void)
{
	if (shared->how == T_STOP && getpid() != side_pid)
		return;
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
	if (!shared->at)
		count(at);
	else if (shared->at == at && shared->side == mine &&
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

/* The table of symbols in this program's file, its static ones included. */
static const char *symbol(uintptr_t address)
{
	static const unsigned char *file;
	const Elf64_Ehdr *head;
	const Elf64_Shdr *part;
	struct stat st;
	int fd;

	if (!file) {
		fd = T_OK(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
		T_OK(fstat(fd, &st));
		file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE,
			    fd, 0);
		T(file != MAP_FAILED);
		close(fd);
	}
	head = (const void *)file;
	part = (const void *)(file + head->e_shoff);
	for (int i = 0; i < head->e_shnum; i++) {
		const Elf64_Sym *s = (const void *)(file + part[i].sh_offset);
		const char *names =
			(const char *)file + part[part[i].sh_link].sh_offset;
		size_t n = part[i].sh_size / sizeof(*s);

		for (; part[i].sh_type == SHT_SYMTAB && n; n--, s++)
			if (ELF64_ST_TYPE(s->st_info) == STT_FUNC &&
			    s->st_value == address)
				return names + s->st_name;
	}
	return "?";
}

const char *t_point_name(uintptr_t at)
{
	static char rooms[4][80];
	static int next;
	char *room = rooms[next++ % 4];
	Dl_info info;
	uintptr_t base;

	T(dladdr((void *)at, &info));
	base = (uintptr_t)info.dli_fbase;
	snprintf(room, sizeof(rooms[0]), "%s%c",
		 symbol((at & ~(uintptr_t)1) - base), at & 1 ? '-' : '+');
	return room;
}
