/* SPDX-License-Identifier: BSD-2-Clause */
/* Searches for waits that the library does not see. */
#include "core/meet/unseen_search.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/base/util.h"
#include "core/meet/surroundings.h"
#include "core/sock/table.h"

#define POLLED 1024 /* descriptors checked per poll */

/* Linux 5.18 has it, older headers do not; the library's own rings do not use
 * it. */
#define IORING_ENTER_REGISTERED_RING (1u << 4)

bool (*exi_unseen_search_shim_knows)(int epfd, bool awaited);

bool exi_unseen_search_add(struct exi_unseen_suspects *s, struct exi_sock *sk,
			   uint32_t generation, int fd)
{
	struct stat st;

	if (s->n == EXI_UNSEEN_SEARCH_SUSPECTS || fstat(fd, &st) < 0)
		return false;
	s->s[s->n++] = (struct exi_unseen_suspect){
		.sk = sk,
		.generation = generation,
		.inode = st.st_ino,
	};
	return true;
}

static void found_all(struct exi_unseen_suspects *s, int reason)
{
	for (int i = 0; i < s->n; i++)
		s->s[i].reason = reason;
}

static void found_ring(struct exi_unseen_suspects *s, int fd)
{
	if (exi_surroundings_ring_matters(fd))
		found_all(s, EXS_X_REASON_IO_URING);
}

static void found_inode(struct exi_unseen_suspects *s, ino_t inode, int reason)
{
	for (int i = 0; i < s->n; i++)
		if (s->s[i].inode == inode &&
		    (!s->s[i].reason || (s->s[i].reason & EXI_UNTIL_SEEN)))
			s->s[i].reason = reason;
}

static void found_number(struct exi_unseen_suspects *s, int fd)
{
	for (int i = 0; i < s->n; i++)
		if (exi_sock_is(s->s[i].sk, fd))
			s->s[i].reason = EXS_X_REASON_UNSEEN_WAIT;
}

/* A line of an epoll set's fdinfo is a descriptor in the set:
 * "tfd: 5 events: 19 data: 5 pos:0 ino:61af sdev:8". */
static void read_member(struct exi_unseen_suspects *s, const char *line,
			int reason)
{
	const char *ino =
		strncmp(line, "tfd:", 4) ? NULL : strstr(line, " ino:");

	if (ino)
		found_inode(s, (ino_t)strtoull(ino + 5, NULL, 16), reason);
}

/* Reads the complete lines; returns the length of an incomplete one behind
 * them. */
static size_t read_lines(struct exi_unseen_suspects *s, char *text, int reason)
{
	char *end;

	while ((end = strchr(text, '\n'))) {
		*end = 0;
		read_member(s, text, reason);
		text = end + 1;
	}
	return strlen(text);
}

/* The reason why a set's members stay on TCP: no thread was seen to wait for
 * it, if the shim knows what is in it. */
static int reason_of_set(int epfd)
{
	return exi_unseen_search_shim_knows(epfd, false)
		       ? EXS_X_REASON_UNSEEN_WAIT | EXI_UNTIL_SEEN
		       : EXS_X_REASON_UNSEEN_WAIT;
}

/* -errno: it cannot be read. */
static int search_set(struct exi_unseen_suspects *s, int epfd)
{
	int reason = reason_of_set(epfd);
	char text[4096], name[64];
	size_t left = 0;
	ssize_t n;
	int fd;

	if (exi_surroundings_is_foreign(epfd)) /* since it was found */
		return 0;
	snprintf(name, sizeof(name), "/proc/self/fdinfo/%d", epfd);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while ((n = read(fd, text + left, sizeof(text) - 1 - left)) > 0) {
		size_t len = left + (size_t)n;

		text[len] = 0;
		left = read_lines(s, text, reason);
		if (left == sizeof(text) - 1)
			break; /* no line is so long */
		memmove(text, text + len - left, left);
	}
	close(fd);
	return 0;
}

void exi_unseen_search_descriptor(int fd, bool ring, void *arg)
{
	struct exi_unseen_suspects *s = arg;

	if (ring)
		found_ring(s, fd);
	/* Without /proc: the set may contain any of them. */
	else if (search_set(s, fd) == -ENOENT && fcntl(fd, F_GETFD) >= 0 &&
		 !exi_unseen_search_shim_knows(fd, true))
		found_all(s, EXS_X_REASON_UNSEEN_WAIT);
}

/* Copies memory that may be unmapped. */
static bool peek(void *to, uint64_t from, size_t n)
{
	struct iovec here = { to, n }, there = { NULL, n };

	there.iov_base = (void *)(uintptr_t)from;
	return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)n;
}

static void search_poll(struct exi_unseen_suspects *s, uint64_t fds, uint64_t n)
{
	struct pollfd p;

	for (uint64_t i = 0; i < n && i < POLLED; i++)
		if (peek(&p, fds + i * sizeof(p), sizeof(p)) &&
		    (p.events & (POLLIN | POLLRDNORM | POLLRDHUP)))
			found_number(s, p.fd);
}

static void search_select(struct exi_unseen_suspects *s, uint64_t n,
			  uint64_t set)
{
	unsigned long bits;

	for (uint64_t i = 0; set && i < n && i < POLLED; i++)
		if (peek(&bits, set + i / NFDBITS * sizeof(bits),
			 sizeof(bits)) &&
		    (bits >> (i % NFDBITS) & 1))
			found_number(s, (int)i);
}

/* Handles a thread that sleeps in this system call. */
static void search_call(struct exi_unseen_suspects *s, long nr,
			const uint64_t *a)
{
	switch (nr) {
	case SYS_read:
	case SYS_readv:
	case SYS_preadv2:
	case SYS_recvfrom:
	case SYS_recvmsg:
	case SYS_recvmmsg:
	case SYS_splice:
		found_number(s, (int)a[0]);
		break;
#ifdef SYS_poll
	case SYS_poll:
#endif
	case SYS_ppoll:
		search_poll(s, a[0], a[1]);
		break;
#ifdef SYS_select
	case SYS_select:
#endif
	case SYS_pselect6:
		search_select(s, a[0], a[1]);
		break;
	case SYS_io_uring_enter: /* of one that has no descriptor any more */
		if (a[3] & IORING_ENTER_REGISTERED_RING)
			found_ring(s, -1);
		break;
	default:
		break;
	}
}

/* "7 0x7ffd3c 0x1 0xffffffff 0x0 0x0 0x0 SP PC"; "running". */
static void search_thread(struct exi_unseen_suspects *s, int task,
			  const char *tid)
{
	char name[32], text[256], *at = text;
	uint64_t a[6];
	ssize_t n;
	long nr;
	int fd;

	snprintf(name, sizeof(name), "%.20s/syscall", tid);
	fd = openat(task, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0 || *text < '0' || *text > '9')
		return;
	text[n] = 0;
	nr = strtol(at, &at, 10);
	for (int i = 0; i < 6; i++)
		a[i] = strtoull(at, &at, 16);
	search_call(s, nr, a);
}

void exi_unseen_search_threads(struct exi_unseen_suspects *s)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *e;

	if (!dir)
		return;
	while ((e = readdir(dir)))
		if (*e->d_name != '.' && atoi(e->d_name) != gettid())
			search_thread(s, dirfd(dir), e->d_name);
	closedir(dir);
}

bool exi_unseen_waits(int fd)
{
	struct exi_unseen_suspects s = { .n = 0 };
	struct stat st;
	int sets[EXI_SETS], n;

	if (!exi_unseen_search_shim_knows)
		return false;
	n = exi_surroundings_sets(sets);
	if (exi_likely(n == 0) || fstat(fd, &st) < 0)
		return false;
	s.s[0].inode = st.st_ino;
	s.n = 1;
	for (int i = 0; i < n && !s.s[0].reason; i++)
		if (!exi_unseen_search_shim_knows(sets[i], false))
			search_set(&s, sets[i]);
	return s.s[0].reason;
}
