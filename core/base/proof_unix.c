/* SPDX-License-Identifier: BSD-2-Clause */
/* Inode numbers name the ends of a UNIX stream. They have 32 bits and are
 * reused: two ends find each other by them, but they prove nothing. See
 * docs/design/unix.md. */
#include "core/base/proof_unix.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "core/base/diag.h"
#include "core/base/proof.h"
#include "core/base/user.h"
#include "core/base/util.h"

#define ESTABLISHED 1

#ifndef UDIAG_SHOW_UID
#define UDIAG_SHOW_UID 0x40
#endif
#define DIAG_UID 7 /* UNIX_DIAG_UID, since Linux 5.3 */

/* The value of SO_RCVBUF, as it is read, modulo a page: no program sets it by
 * accident, because the kernel doubles what it is given. */
#define SIGN	  0x5a6
#define SIGN_AFAR 0x9d2 /* of a process in another network namespace */
#define SIGN_MASK 0xfff

struct unix_question {
	struct nlmsghdr head;
	struct unix_diag_req req;
};

static struct unix_question question(uint32_t inode, uint64_t cookie,
				     uint32_t show)
{
	struct unix_question q = {
		.head = { .nlmsg_len = sizeof(q),
			  .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			  .nlmsg_flags = NLM_F_REQUEST },
		.req = { .sdiag_family = AF_UNIX,
			 .udiag_states = ~0u,
			 .udiag_ino = inode,
			 .udiag_show = show,
			 .udiag_cookie = { (uint32_t)cookie,
					   (uint32_t)(cookie >> 32) } },
	};

	return q;
}

#define ANY_COOKIE UINT64_MAX

static uint32_t inode_of(const uint8_t address[16])
{
	uint32_t ret;

	memcpy(&ret, address + 12, sizeof(ret));
	return ntohl(ret);
}

static void put_inode(uint32_t inode, uint8_t address[16])
{
	inode = htonl(inode);
	memset(address, 0, 12);
	memcpy(address + 12, &inode, sizeof(inode));
}

static bool number(const union exi_diag_answer *a, int type, uint32_t *ret)
{
	const void *v = exi_diag_attribute(a, sizeof(struct unix_diag_msg),
					   type, sizeof(*ret));

	if (v)
		memcpy(ret, v, sizeof(*ret));
	return v != NULL;
}

/* The number of the peer of a connected socket, found by the socket's own. */
static int peer_of(const union exi_diag_answer *a, uint32_t *ret)
{
	struct unix_diag_msg m;

	memcpy(&m, NLMSG_DATA(&a->head), sizeof(m));
	/* A connection that was not accepted yet has no number there. */
	return m.udiag_state == ESTABLISHED && number(a, UNIX_DIAG_PEER, ret) &&
			       *ret
		       ? 0
		       : -ENOTCONN;
}

/* A look takes 6 us among few sockets, and 200 us among about 20,000. CPU time
 * does not count what other threads take of a busy host; one slow look may be
 * an accident. */
#define SLOW_NS	   200000u
#define SLOW_LOOKS 4
#define REST_NS	   10000000000u

static _Atomic unsigned int slow_looks;
static _Atomic uint64_t rest_until;

void exi_unix_looked(uint64_t cpu_ns, uint64_t now)
{
	if (exi_likely(cpu_ns < SLOW_NS)) {
		atomic_store_explicit(&slow_looks, 0, memory_order_relaxed);
	} else if (atomic_fetch_add(&slow_looks, 1) + 1 >= SLOW_LOOKS) {
		atomic_store(&slow_looks, 0);
		atomic_store(&rest_until, now + REST_NS);
	}
}

bool exi_unix_rests(void)
{
	uint64_t until =
		atomic_load_explicit(&rest_until, memory_order_relaxed);

	return exi_unlikely(until != 0) && exi_now_ns() < until;
}

static uint64_t cpu_ns(void)
{
	struct timespec t = { 0 };

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* users: asks by a socket of the calling thread's user namespace. */
static int ask_once(const struct exi_tuple *t, const struct unix_question *q,
		    bool users, union exi_diag_answer *ret)
{
	int nl, err;

	if (exi_diag_ask_kept(t->netns, users, &q->head,
			      sizeof(struct unix_diag_msg), ret, &err))
		return err;
	nl = exi_diag_open();
	if (nl < 0)
		return nl;
	err = t->netns && exi_netns_cookie(nl) != t->netns
		      ? -EXDEV
		      : exi_diag_ask(nl, &q->head, sizeof(struct unix_diag_msg),
				     ret);
	close(nl);
	return err;
}

static int ask(const struct exi_tuple *t, const struct unix_question *q,
	       bool users, union exi_diag_answer *ret)
{
	uint64_t began = cpu_ns();
	int err = ask_once(t, q, users, ret);

	exi_unix_looked(cpu_ns() - began, exi_now_ns());
	return err;
}

int exi_unix_tuple(int fd, struct exi_tuple *ret)
{
	struct ucred maker;
	socklen_t len = sizeof(maker);
	union exi_diag_answer a;
	struct unix_question q;
	struct stat st;
	uint32_t peer;
	int err;

	if (exi_unix_rests())
		return -EACCES;
	ret->cookie = exi_sock_cookie(fd);
	if (fstat(fd, &st) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &maker, &len) < 0)
		return -errno;
	/* The cookie is never reused, so neither is an answer about it. */
	q = question((uint32_t)st.st_ino, ret->cookie, UDIAG_SHOW_PEER);
	err = ask(ret, &q, false, &a);
	ret->afar = err == -EXDEV;
	if (!err)
		err = peer_of(&a, &peer);
	if (ret->afar)
		err = peer = 0;
	if (err)
		return err == -ESTALE ? -EOPNOTSUPP : err;
	put_inode((uint32_t)st.st_ino, ret->local);
	put_inode(peer, ret->peer);
	ret->maker = maker.uid;
	return 0;
}

/* Asks the kernel about the socket with the peer's number, and checks that this
 * end is its peer. */
static int other_end(const struct exi_tuple *t, uint32_t show, bool users,
		     union exi_diag_answer *ret)
{
	struct unix_question q =
		question(inode_of(t->peer), ANY_COOKIE, show | UDIAG_SHOW_PEER);
	int err = t->afar ? -EXDEV : ask(t, &q, users, ret);
	uint32_t back;

	if (!err)
		err = peer_of(ret, &back);
	return err ? err : back == inode_of(t->local) ? 0 : -ENOTCONN;
}

int exi_unix_peer_here(const struct exi_tuple *t)
{
	union exi_diag_answer a;
	int err = other_end(t, 0, false, &a);

	/* It is on this host, if anywhere. */
	return err == -ENOENT ? -ENOTCONN : err;
}

/* As exi_proof_signed(). */
static int is_sign(uint32_t size)
{
	switch (size & SIGN_MASK) {
	case SIGN:
		return 1;
	case SIGN_AFAR:
		return EXI_SIGNED_AFAR;
	default:
		return 0;
	}
}

static int has_sign(const union exi_diag_answer *a)
{
	uint32_t sizes[SK_MEMINFO_RCVBUF + 1];
	const void *v = exi_diag_attribute(a, sizeof(struct unix_diag_msg),
					   UNIX_DIAG_MEMINFO, sizeof(sizes));

	if (!v)
		return 0;
	memcpy(sizes, v, sizeof(sizes));
	return is_sign(sizes[SK_MEMINFO_RCVBUF]);
}

/* Counts the sockets with this number in a part of the kernel's list. 1: the
 * list continues. 0: it is over. Or -errno. */
static int count_part(const struct nlmsghdr *m, size_t left, uint32_t inode,
		      uint64_t cookie, unsigned int *same, unsigned int *others)
{
	struct unix_diag_msg u;

	for (; NLMSG_OK(m, left); m = NLMSG_NEXT(m, left)) {
		if (m->nlmsg_flags & NLM_F_DUMP_INTR)
			return -EAGAIN;
		if (m->nlmsg_type == NLMSG_DONE)
			return 0;
		if (m->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
		    m->nlmsg_len < NLMSG_LENGTH(sizeof(u)))
			return -EPROTO;
		memcpy(&u, NLMSG_DATA(m), sizeof(u));
		if (u.udiag_ino != inode)
			continue;
		if ((u.udiag_cookie[0] | (uint64_t)u.udiag_cookie[1] << 32) ==
		    cookie)
			++*same;
		else
			++*others;
	}
	return 1;
}

#define PARTS 1000 /* parts of the list, some hundred sockets each: 100 ms */

/* Whether exactly one socket of the namespace has the number, the one with the
 * cookie. The kernel lists all sockets for that. */
static bool is_unique(const struct exi_tuple *t, uint32_t inode,
		      uint64_t cookie)
{
	struct unix_question q = question(0, ANY_COOKIE, 0);
	unsigned int same = 0, others = 0;
	union {
		struct nlmsghdr head;
		char bytes[16384];
	} part;
	int nl = exi_diag_open(), more = nl < 0 ? nl : 1;

	q.head.nlmsg_flags |= NLM_F_DUMP;
	if (nl >= 0 && ((t->netns && exi_netns_cookie(nl) != t->netns) ||
			send(nl, &q, sizeof(q), 0) < 0))
		more = -EXDEV;
	for (int i = 0; more > 0; i++) {
		ssize_t n = i < PARTS ? recv(nl, &part, sizeof(part), 0) : -1;

		more = n <= 0 ? -EPROTO
			      : count_part(&part.head, (size_t)n, inode, cookie,
					   &same, &others);
	}
	if (nl >= 0)
		close(nl);
	return more == 0 && same == 1 && !others;
}

static uint64_t cookie_of(const union exi_diag_answer *a)
{
	struct unix_diag_msg m;

	memcpy(&m, NLMSG_DATA(&a->head), sizeof(m));
	return m.udiag_cookie[0] | (uint64_t)m.udiag_cookie[1] << 32;
}

/* The other end was opened by another user than its maker: a service accepted
 * it from a listener that root passed to it. Then SO_PEERCRED does not return
 * the user that opened it, and the answer must be about this connection's other
 * end: no other socket has the number, and after the query that socket is still
 * the peer. It cannot become the peer again, because the number of a closed
 * peer is 0. */
static int is_the_only_one(const struct exi_tuple *t,
			   const union exi_diag_answer *a)
{
	struct unix_question q =
		question(inode_of(t->local), t->cookie, UDIAG_SHOW_PEER);
	union exi_diag_answer own;
	uint32_t peer;

	return t->cookie && is_unique(t, inode_of(t->peer), cookie_of(a)) &&
			       !ask(t, &q, false, &own) &&
			       !peer_of(&own, &peer) &&
			       peer == inode_of(t->peer)
		       ? 0
		       : -EOPNOTSUPP;
}

int exi_unix_peer_cookie(const struct exi_tuple *t, uint64_t *ret)
{
	union exi_diag_answer a;
	int err = other_end(t, 0, false, &a);

	if (!err)
		err = is_the_only_one(t, &a);
	if (!err)
		*ret = cookie_of(&a);
	return err;
}

int exi_unix_same_user(const struct exi_tuple *t, int link)
{
	union exi_diag_answer a;
	struct ucred cred;
	socklen_t len = sizeof(cred);
	uint32_t opener;
	int err = other_end(t, UDIAG_SHOW_UID | UDIAG_SHOW_MEMINFO, true, &a);

	if (err)
		return err;
	if (getsockopt(link, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return -errno;
	/* The maker of the other end, its opener, and the user at the link. The
	 * first belongs to the connection, and is not found by a number. And
	 * the kernel may keep processes of one user apart (ptrace(2)): a
	 * process that uses the library does not vouch for one that does
	 * not. */
	if (!number(&a, DIAG_UID, &opener) || cred.uid != opener ||
	    cred.pid <= 0 || !exi_user_is_one(cred.uid) || has_sign(&a) != 1)
		return -EOPNOTSUPP;
	return cred.uid == t->maker ? 0 : is_the_only_one(t, &a);
}

int exi_unix_signed(const struct exi_tuple *t)
{
	union exi_diag_answer a;
	int err = other_end(t, UDIAG_SHOW_MEMINFO, false, &a);

	return err ? (err == -EACCES ? err : 0) : has_sign(&a);
}

/* --- the sign ----------------------------------------------------------- */

/* The initial value of sockets. */
static _Atomic int usual;

static int buffer_of(int fd)
{
	int ret = 0;
	socklen_t len = sizeof(ret);

	return getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &ret, &len) < 0 ? 0 : ret;
}

/* The kernel doubles what it is given. */
static void set_buffer(int fd, int size)
{
	size /= 2;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
}

/* Reducing it is always allowed. */
static void sign(int fd, int size)
{
	uint64_t own =
		atomic_load_explicit(&exi_diag_netns, memory_order_relaxed);
	uint64_t its = exi_netns_cookie(fd);
	bool afar = own && own != EXI_DIAG_UNKNOWN && its && own != its;
	int sign = afar ? SIGN_AFAR : SIGN;

	set_buffer(fd, ((size - sign) & ~SIGN_MASK) + sign);
}

void exi_unix_sign(int fd)
{
	int size = atomic_load(&usual);

	if (!size) {
		size = buffer_of(fd);
		atomic_store(&usual, size);
	}
	sign(fd, size);
}

int exi_unix_sign_used(int fd)
{
	int size = buffer_of(fd);

	if (!size || is_sign((uint32_t)size))
		return 0;
	sign(fd, size);
	return size;
}

int exi_unix_unsigned(int value, int before)
{
	if (!is_sign((uint32_t)value))
		return value;
	if (!before)
		before = atomic_load(&usual);
	return before ? before : value;
}

void exi_unix_unsign(int fd, int before)
{
	int now = buffer_of(fd), then = exi_unix_unsigned(now, before);

	if (then != now)
		set_buffer(fd, then);
}
