/* SPDX-License-Identifier: BSD-2-Clause */
/* Examines the file of a program: its loader, its kind, its place. */
#include "core/base/target.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/fds.h"
#include "core/base/util.h"

#define SCRIPTS 4   /* an interpreter may be a script */
#define LINE	256 /* of a script: the kernel reads no more */

static int executable(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) && access(path, X_OK) == 0 ? 0 : -EACCES;
}

int exi_target_find(const char *name, char *ret, size_t len)
{
	const char *path = getenv("PATH"), *end;
	int err = -ENOENT, ret_err;

	if (!*name || strchr(name, '/'))
		return snprintf(ret, len, "%s", name) < (int)len
			       ? executable(ret)
			       : -ENAMETOOLONG;
	for (path = path ? path : "/bin:/usr/bin";; path = end + 1) {
		end = strchrnul(path, ':');
		/* An empty entry is the current directory. */
		snprintf(ret, len, "%.*s/%s",
			 end > path ? (int)(end - path) : 1,
			 end > path ? path : ".", name);
		ret_err = executable(ret);
		if (!ret_err)
			return 0;
		if (ret_err == -EACCES)
			err = ret_err;
		if (!*end)
			return err;
	}
}

/* A FIFO cannot be executed, and must not make the caller wait. */
int exi_target_open(int dir, const char *path)
{
	const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
	char of_fd[32];
	struct stat st;
	int fd, err;

	if (!path || !*path) { /* dir may be opened with O_PATH */
		snprintf(of_fd, sizeof(of_fd), "/proc/self/fd/%d", dir);
		path = of_fd;
	}
	if (fstatat(dir, path, &st, 0) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EACCES;
	exi_fds_begin();
	fd = openat(dir, path, flags);
	err = errno;
	if (fd < 0)
		exi_fds_end();
	return fd < 0 ? -err : fd;
}

void exi_target_close(int fd)
{
	close(fd);
	exi_fds_end();
}

static bool read_at(int fd, uint64_t at, void *ret, size_t len)
{
	return pread(fd, ret, len, (off_t)at) == (ssize_t)len;
}

static bool is_elf(int fd, Elf64_Ehdr *ret)
{
	return read_at(fd, 0, ret, sizeof(*ret)) &&
	       memcmp(ret->e_ident, ELFMAG, SELFMAG) == 0;
}

/* The loader that this process has. */
static const char *own_loader(void)
{
	const uintptr_t at = getauxval(AT_PHDR);
	const Elf64_Phdr *p = (const void *)at;
	size_t n = at ? getauxval(AT_PHNUM) : 0;
	const Elf64_Phdr *own = NULL, *loader = NULL;

	for (size_t i = 0; i < n; i++)
		if (p[i].p_type == PT_PHDR)
			own = &p[i];
		else if (p[i].p_type == PT_INTERP)
			loader = &p[i];
	/* A program that is not position-independent lies where it says. */
	return own && loader
		       ? (const char *)(at - own->p_vaddr + loader->p_vaddr)
		       : NULL;
}

static bool is_own_loader(const char *loader)
{
	const char *own = own_loader();
	struct stat ours, theirs;

	if (!own || stat(own, &ours) < 0)
		return true; /* unknown */
	return stat(loader, &theirs) == 0 && ours.st_dev == theirs.st_dev &&
	       ours.st_ino == theirs.st_ino;
}

/* The reason, for a program. */
static const char *of_program(int fd, const Elf64_Ehdr *e, bool *asked)
{
	char loader[PATH_MAX];
	Elf64_Phdr p;

	if (e->e_ident[EI_CLASS] != ELFCLASS64)
		return "it is a 32-bit program";
	for (int i = 0; i < e->e_phnum; i++) {
		if (!read_at(fd, e->e_phoff + (uint64_t)i * e->e_phentsize, &p,
			     sizeof(p)))
			return NULL;
		if (p.p_type != PT_INTERP)
			continue;
		if (p.p_filesz == 0 || p.p_filesz > sizeof(loader) ||
		    !read_at(fd, p.p_offset, loader, p.p_filesz))
			return NULL;
		loader[p.p_filesz - 1] = '\0';
		return is_own_loader(loader)
			       ? NULL
			       : "its loader is that of another C library";
	}
	*asked = false;
	return "it is statically linked, so no library can be loaded into it";
}

/* Opens the interpreter of a script. -1: the file is no script. */
static int open_runner(int fd)
{
	char line[LINE + 1], *at = line + 2;
	ssize_t n = pread(fd, line, LINE, 0);

	if (n < 3 || line[0] != '#' || line[1] != '!')
		return -1;
	line[n] = '\0';
	at += strspn(at, " \t");
	at[strcspn(at, " \t\r\n")] = '\0';
	return *at ? exi_target_open(AT_FDCWD, at) : -1;
}

const char *exi_target_refusal(int fd, bool *asked)
{
	const char *ret = NULL;
	int runner = -1, next;
	Elf64_Ehdr e;

	*asked = true;
	for (int i = 0; i < SCRIPTS && fd >= 0; i++) {
		if (is_elf(fd, &e)) {
			ret = of_program(fd, &e, asked);
			break;
		}
		next = open_runner(fd);
		if (runner >= 0)
			exi_target_close(runner);
		fd = runner = next;
	}
	if (runner >= 0)
		exi_target_close(runner);
	return ret;
}

bool exi_target_is_go(int fd)
{
	static const char wanted[] = ".go.buildinfo";
	char name[sizeof(wanted)];
	Elf64_Shdr s, names;
	Elf64_Ehdr e;

	if (!is_elf(fd, &e) || e.e_ident[EI_CLASS] != ELFCLASS64 ||
	    !read_at(fd, e.e_shoff + (uint64_t)e.e_shstrndx * e.e_shentsize,
		     &names, sizeof(names)))
		return false;
	for (int i = 0; i < e.e_shnum; i++)
		if (read_at(fd, e.e_shoff + (uint64_t)i * e.e_shentsize, &s,
			    sizeof(s)) &&
		    read_at(fd, names.sh_offset + s.sh_name, name,
			    sizeof(name)) &&
		    memcmp(name, wanted, sizeof(wanted)) == 0)
			return true;
	return false;
}
