/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections that leave for another process, with a message or by exec, and
 * those that come to this one. */
#include "preload/handed.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/cancel.h"
#include "core/base/proof.h"
#include "core/call/feed.h"
#include "core/fabric/provider.h"
#include "core/life/hand.h"
#include "core/meet/handed.h"
#include "core/sock/table.h"
#include "preload/shim.h"

/* --- messages ----------------------------------------------------------- */

/* Calls f for each descriptor in a message. */
static void each(const struct msghdr *m, void (*f)(int fd, void *arg),
		 void *arg)
{
	struct msghdr *w = (struct msghdr *)(uintptr_t)m;
	struct cmsghdr *c;

	if (!m->msg_control)
		return;
	for (c = CMSG_FIRSTHDR(w); c; c = CMSG_NXTHDR(w, c)) {
		size_t room = (size_t)((char *)m->msg_control +
				       m->msg_controllen - (char *)c);
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		int fd;

		if (c->cmsg_len < CMSG_LEN(0) || c->cmsg_len > room)
			return; /* the kernel refuses all of it */
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
			f(fd, arg);
		}
	}
}

/* Whether there is nothing to do for the number of a descriptor that is passed:
 * nothing of the library's is there, no note of it either, and it is no
 * connection whose close was announced. */
static bool is_plain(int fd)
{
	return !shim_tracks(fd, EXI_TRACK_ANY | EXI_TRACK_NAMES) &&
	       !atomic_load_explicit(&exi_handed_announced,
				     memory_order_relaxed);
}

struct leaving {
	int by;
	bool any; /* a connection is among the descriptors */
};

static void note(int fd, void *arg)
{
	struct leaving *l = arg;

	if (exi_likely(is_plain(fd)))
		return;
	EXI_CANCEL_OFF(false);
	if (l->by < 0)
		exi_handed_copied(fd);
	else
		exi_hand_note(fd, l->by);
	l->any |= shim_sock(fd) != NULL;
}

static void tell(int fd, void *arg)
{
	shim_tell(fd, EXS_X_REASON_PASSED);
}

static void leave(int fd, void *arg)
{
	shim_plain_of(fd, EXS_X_REASON_PASSED, arg);
}

static void passed(int fd, void *arg)
{
	exi_handed_passed(fd);
}

void shim_before_passing(int by, const struct mmsghdr *m, unsigned int n)
{
	struct exi_patience p = { 0 };
	struct leaving l = { .by = by };
	unsigned int i;

	if (!shim_ready())
		return;
	for (i = 0; i < n; i++)
		each(&m[i].msg_hdr, note, &l);
	if (!l.any) /* most descriptors that are passed are of files */
		return;
	for (i = 0; i < n; i++)
		each(&m[i].msg_hdr, tell, NULL);
	for (i = 0; i < n; i++)
		each(&m[i].msg_hdr, leave, &p);
	exi_feed_rest();
}

void shim_passed(const struct mmsghdr *m, int n)
{
	int saved = errno;

	if (atomic_load(&exi_handed_notes))
		for (int i = 0; i < n; i++)
			each(&m[i].msg_hdr, passed, NULL);
	errno = saved;
}

struct arrival {
	int by;
	uint32_t forked;
};

static void take(int fd, void *arg)
{
	EXI_CANCEL_OFF(false);
	const struct arrival *a = arg;

	if (exi_hand_take(fd, a->by))
		exi_hand_born(fd, a->forked);
}

static void only_looked(int fd, void *arg)
{
	exi_handed_peeked(fd);
}

void shim_came(int by, const struct msghdr *m, int flags, uint32_t forked)
{
	struct arrival a = { by, forked };
	int saved = errno;

	if (!shim_ready())
		return;
	each(m, flags & MSG_PEEK ? only_looked : take, &a);
	errno = saved;
}

/* --- exec --------------------------------------------------------------- */

#define VARIABLE "LIBEXS_HANDED="
#define ENTRY	 40 /* bytes for one connection */

/* The list for the next program: the pid, then each connection by number and
 * cookie, with a + between if other processes still have it. A process with
 * another pid that finds the list in its environment ignores it. The list for a
 * program that is spawned begins with the pid of its parent, negated. */
static char said[sizeof(VARIABLE) + 32 + 64 * ENTRY];

void shim_handed_begin(void)
{
	said[0] = '\0';
}

void shim_handed_add(struct exi_sock *sk, int fd)
{
	size_t n = strlen(said);
	enum exi_hand how;
	uint64_t cookie;

	if (n + ENTRY >= sizeof(said))
		return;
	cookie = exi_sock_cookie(fd);
	how = cookie ? exi_hand_by_exec(sk, fd) : EXI_HAND_NOT;
	if (how == EXI_HAND_NOT)
		return;
	if (!n)
		n = (size_t)snprintf(said, sizeof(said), VARIABLE "%d",
				     (int)getpid());
	snprintf(said + n, sizeof(said) - n, " %d%c%" PRIx64, fd,
		 how == EXI_HAND_ALONE ? ':' : '+', cookie);
}

void shim_spawn_begin(struct shim_spawn *s)
{
	s->forked = exi_handed_forked_times();
	s->n = 0;
	s->list[0] = '\0';
}

void shim_spawn_add(struct shim_spawn *s, struct exi_sock *sk, int fd)
{
	size_t n = strlen(s->list);
	uint64_t cookie;

	if (s->n == SHIM_SPAWN_MAX)
		return;
	cookie = exi_sock_cookie(fd);
	if (!cookie || !exi_hand_by_spawn(sk, fd))
		return;
	s->given[s->n].fd = fd;
	s->given[s->n++].cookie = cookie;
	if (!n)
		n = (size_t)snprintf(s->list, sizeof(s->list), VARIABLE "-%d",
				     (int)getpid());
	snprintf(s->list + n, sizeof(s->list) - n, " %d+%" PRIx64, fd, cookie);
}

/* A fork or another spawn meanwhile is counted, too, and then another process
 * may have the connections. */
void shim_spawn_over(const struct shim_spawn *s, int pid)
{
	int saved = errno;

	for (unsigned int i = 0; pid && i < s->n; i++)
		exi_handed_spawned(s->given[i].fd, pid, s->given[i].cookie,
				   s->forked + 1);
	errno = saved;
}

const char *shim_handed_entry(void)
{
	return said[0] ? said : NULL;
}

bool shim_handed_is(const char *entry)
{
	return !strncmp(entry, VARIABLE, strlen(VARIABLE));
}

void shim_handed_start(bool works)
{
	const char *at = getenv("LIBEXS_HANDED");
	uint64_t cookie;
	int n = 0, fd;
	char how;

	if (!at)
		return;
	if (works && sscanf(at, "%d%n", &fd, &n) == 1 &&
	    (fd == (int)getpid() || fd == -(int)getppid()))
		for (at += n; sscanf(at, " %d%c%" SCNx64 "%n", &fd, &how,
				     &cookie, &n) == 3;
		     at += n)
			if (cookie && exi_sock_cookie(fd) == cookie)
				exi_hand_take(fd, how == ':' ? EXI_BY_ALONE
							     : EXI_BY_LATER);
	unsetenv("LIBEXS_HANDED");
}
