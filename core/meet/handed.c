/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections that one process hands to another, and that move again. */
#include "core/meet/handed.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/abstract.h"
#include "core/base/fds.h"
#include "core/base/lock.h"
#include "core/base/proof.h"
#include "core/base/proof_unix.h"
#include "core/base/rights.h"
#include "core/base/track.h"
#include "core/base/user.h"
#include "core/fabric/provider.h"
#include "core/meet/begin.h"
#include "core/meet/marker.h"
#include "core/meet/surroundings.h"
#include "core/sock/base.h"
#include "core/sock/closing.h"
#include "core/sock/holders.h"
#include "core/sock/table.h"
#include "core/sock/tcp.h"
#include "core/sock/zerocopy.h"

#define NOTES 64 /* passed, not closed: older ones are dropped */
#define DONE  32 /* names at a time: older ones are dropped */

/* Guards the following; innermost. */
static struct exi_lock notes_lock;
static struct exi_handed_note notes[NOTES];
static unsigned int next_note;
static struct {
	uint64_t cookie; /* 0: none */
	int fd;
} done[DONE];
static _Atomic uint32_t forks;

_Atomic uint32_t exi_handed_notes;
_Atomic unsigned int exi_handed_announced;
static _Atomic bool peeked;

static socklen_t done_name(uint64_t cookie, uint64_t by,
			   struct sockaddr_un *ret)
{
	return exi_abstract(ret,
			    by >> 32 ? "libexs/1/over/%016llx/%u"
				     : "libexs/1/done/%016llx/%u",
			    (unsigned long long)cookie, (uint32_t)by);
}

/* The inode of a UNIX socket; 0: it is no UNIX socket. */
static uint32_t unix_inode(int fd)
{
	int domain;
	socklen_t len = sizeof(domain);
	struct stat st;

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0 ||
	    domain != AF_UNIX || fstat(fd, &st) < 0)
		return 0;
	return (uint32_t)st.st_ino;
}

static struct exi_handed_note *find_locked(int fd)
{
	unsigned int i;

	EXI_LOCKED(&notes_lock);
	for (i = 0; i < NOTES; i++)
		if (notes[i].cookie && notes[i].fd == fd)
			return &notes[i];
	return NULL;
}

static void forget_locked(struct exi_handed_note *n)
{
	EXI_LOCKED(&notes_lock);
	n->cookie = 0;
	atomic_fetch_sub(&exi_handed_notes, 1);
}

bool exi_handed_again(int fd, int by, uint64_t cookie)
{
	uint32_t inode = unix_inode(by);
	struct exi_handed_note *n;
	bool known;

	exi_lock(&notes_lock);
	n = find_locked(fd);
	known = n && n->cookie == cookie;
	if (known)
		n->by = inode;
	exi_unlock(&notes_lock);
	return known || !inode;
}

static void add(const struct exi_handed_note *is)
{
	struct exi_handed_note *n;

	exi_lock(&notes_lock);
	n = find_locked(is->fd);
	if (!n) {
		n = &notes[next_note++ % NOTES];
		if (!n->cookie)
			atomic_fetch_add(&exi_handed_notes, 1);
	}
	*n = *is;
	exi_unlock(&notes_lock);
	exi_track_put(is->fd, EXI_TRACK_NAMES);
}

void exi_handed_add(int fd, int by, uint64_t cookie, uint32_t forked)
{
	add(&(struct exi_handed_note){ .cookie = cookie,
				       .by = unix_inode(by),
				       .fd = fd,
				       .forks = forked });
}

void exi_handed_spawned(int fd, int pid, uint64_t cookie, uint32_t forked)
{
	add(&(struct exi_handed_note){ .cookie = cookie,
				       .by = EXI_HEIR(pid),
				       .fd = fd,
				       .forks = forked,
				       .passed = true });
}

void exi_handed_passed(int fd)
{
	struct exi_handed_note *n;

	exi_lock(&notes_lock);
	n = find_locked(fd);
	if (n && n->passed)
		n->spoilt = true;
	else if (n)
		n->passed = true;
	exi_unlock(&notes_lock);
}

void exi_handed_copied(int fd)
{
	struct exi_handed_note *n;

	exi_lock(&notes_lock);
	n = find_locked(fd);
	if (n)
		n->spoilt = true;
	exi_unlock(&notes_lock);
}

bool exi_handed_closes(int fd, struct exi_handed_note *ret)
{
	struct exi_handed_note *n;

	memset(ret, 0, sizeof(*ret));
	/* In a handler that interrupted a call in this file: announces
	 * nothing. */
	if (exi_lock_held(&notes_lock))
		return false;
	exi_lock(&notes_lock);
	n = find_locked(fd);
	if (n) {
		*ret = *n;
		forget_locked(n);
	}
	exi_unlock(&notes_lock);
	return n && ret->passed && !ret->spoilt &&
	       exi_sock_cookie(fd) == ret->cookie;
}

/* A socket whose name strangers can connect to, or that may be a stranger's. */
static int name_socket(void)
{
	int fd = exi_fd_spare(socket(
		AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

	if (fd >= 0)
		exi_rights_allow(fd, false);
	return fd;
}

void exi_handed_done(const struct exi_handed_note *n)
{
	struct sockaddr_un name;
	socklen_t len = done_name(n->cookie, n->by, &name);
	int saved = errno, fd, old = -1;
	unsigned int at;

	/* A fork that began before the close is seen here. So is a spawn: it is
	 * under way, or was counted again before it was over. */
	if (exi_holders_spawning() || atomic_load(&forks) != n->forks)
		return;
	exi_fds_begin();
	fd = exi_fd_room(2) ? name_socket() : -1;
	if (fd >= 0 && (bind(fd, (struct sockaddr *)&name, len) < 0 ||
			listen(fd, 4) < 0)) {
		exi_fd_close(fd);
		fd = -1;
	}
	if (fd >= 0) {
		exi_lock(&notes_lock);
		at = atomic_fetch_add(&exi_handed_announced, 1) % DONE;
		if (done[at].cookie)
			old = done[at].fd;
		done[at].cookie = n->cookie;
		done[at].fd = fd;
		exi_unlock(&notes_lock);
	}
	if (old >= 0)
		exi_closing_listener(old, !exi_holders_shared());
	exi_fds_end();
	errno = saved;
}

/* A child may have the name's socket, too: so shuts it down. */
void exi_handed_retract(int fd)
{
	int gone[DONE], n = 0;
	uint64_t cookie =
		atomic_load(&exi_handed_announced) ? exi_sock_cookie(fd) : 0;

	if (!cookie)
		return;
	exi_lock(&notes_lock);
	for (unsigned int i = 0; i < DONE; i++) {
		if (done[i].cookie != cookie)
			continue;
		gone[n++] = done[i].fd;
		done[i].cookie = 0;
	}
	exi_unlock(&notes_lock);
	while (n) {
		shutdown(gone[--n], SHUT_RDWR);
		exi_closing_listener(gone[n], !exi_holders_shared());
	}
}

uint32_t exi_handed_forked_times(void)
{
	return atomic_load(&forks);
}

void exi_handed_forks(void)
{
	unsigned int i;

	atomic_fetch_add(&forks, 1);
	if (!atomic_load(&exi_handed_notes))
		return;
	exi_lock(&notes_lock);
	for (i = 0; i < NOTES; i++)
		if (notes[i].cookie)
			forget_locked(&notes[i]);
	exi_unlock(&notes_lock);
}

void exi_handed_forked(void)
{
	atomic_store(&notes_lock.word, 0);
	exi_handed_forks();
}

/* --- the receiver ------------------------------------------------------- */

/* Root can do all that a user can. The user's number must mean no other user
 * here, and the process must have an id here. */
bool exi_handed_by_ours(int by)
{
	struct ucred who;
	socklen_t len = sizeof(who);

	return getsockopt(by, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 &&
	       (who.uid == geteuid() || who.uid == 0) && who.pid > 0 &&
	       exi_user_is_one(who.uid);
}

void exi_handed_peeked(int fd)
{
	atomic_store(&peeked, true);
	exi_surroundings_foreign(fd);
}

uint32_t exi_handed_giver(int by)
{
	struct exi_tuple t = { .family = AF_UNIX };
	uint32_t ret = 0;

	if (atomic_load(&peeked) || !unix_inode(by) || exi_unix_tuple(by, &t))
		return 0;
	for (int i = 12; i < 16; i++)
		ret = ret << 8 | t.peer[i];
	return ret;
}

enum exi_role exi_handed_role(int fd)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);

	return exi_base_of(fd) == &exi_base_tcp && !exi_tcp_is_listening(fd) &&
			       getpeername(fd, (struct sockaddr *)&peer,
					   &len) == 0 &&
			       !exi_zerocopy_on(fd) &&
			       !exi_base_tcp.forbidden(fd)
		       ? exi_base_tcp.role(fd)
		       : EXI_ROLE_NONE;
}

void exi_handed_begin(struct exi_sock *sk, int fd, uint64_t giver)
{
	uint64_t rx, tx;

	if (exi_base_tcp.counts(sk, &rx, &tx) == 0) {
		__atomic_store_n(&sk->sh->half[EXI_RX].bytes, rx,
				 __ATOMIC_RELAXED);
		__atomic_store_n(&sk->sh->half[EXI_TX].bytes, tx,
				 __ATOMIC_RELAXED);
	}
	sk->giver = giver;
	if (sk->role == EXI_ROLE_ACCEPT) {
		sk->counted = true;
		exi_marker_connection();
		exi_proof_sign(fd);
	}
	exi_begin_again(sk);
}

bool exi_handed_over_locked(struct exi_sock *sk)
{
	struct sockaddr_un name;
	socklen_t len;
	int s;

	EXI_LOCKED(&sk->link_lock);
	if (!sk->giver)
		return true;
	s = name_socket();
	if (s < 0)
		return false;
	len = done_name(exi_sock_cookie(atomic_load(&sk->fd)), sk->giver,
			&name);
	if (connect(s, (struct sockaddr *)&name, len) == 0 &&
	    exi_handed_by_ours(s))
		sk->giver = 0;
	exi_closing_socket(s, true);
	return !sk->giver;
}

int exi_handed_reason_locked(const struct exi_sock *sk)
{
	EXI_LOCKED(&sk->link_lock);
	return sk->giver >> 32 ? EXS_X_REASON_SHARED : EXS_X_REASON_PASSED;
}
