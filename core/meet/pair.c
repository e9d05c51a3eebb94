/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets of the pair link: sends and receives them, and rings the doorbell. */
#include "core/meet/pair.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/base/fds.h"
#include "core/base/ids.h"
#include "core/base/log.h"
#include "core/base/proof.h"
#include "core/base/rights.h"
#include "core/fabric/provider.h"
#include "core/meet/meet.h"
#include "core/sock/closing.h"
#include "core/sock/table.h"

int exi_pair_send(int fd, const struct exi_pair_msg *m, int pass)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)m,
			     .iov_len = sizeof(*m) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (pass >= 0) {
		struct cmsghdr *h;

		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof(control.bytes);
		h = CMSG_FIRSTHDR(&msg);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(h), &pass, sizeof(int));
	}
	if (sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return -errno;
	return 0;
}

struct exi_pair_msg exi_pair_message(enum exi_pair_type type)
{
	return (struct exi_pair_msg){ .magic = EXI_PAIR_MAGIC,
				      .version = EXI_PAIR_VERSION,
				      .type = (uint16_t)type };
}

int exi_link_send(struct exi_sock *sk, enum exi_pair_type type, uint64_t a,
		  uint64_t b, uint64_t c)
{
	struct exi_pair_msg m = exi_pair_message(type);
	int ret;

	if (!sk->fab || sk->fab->bell < 0)
		return -ENOTCONN;
	m.a = a;
	m.b = b;
	m.c = c;
	exi_trace("descriptor %d: says %d (%llu %llu %llu)", sk->fab->fd, type,
		  (unsigned long long)a, (unsigned long long)b,
		  (unsigned long long)c);
	ret = exi_pair_send(sk->fab->bell, &m, -1);
	/* A message counts before it is sent: later bytes on a fabric may be
	 * there before the peer reads it. */
	if (ret == 0)
		atomic_fetch_add_explicit(&exi_conn_wakes, 1,
					  memory_order_relaxed);
	return ret;
}

/* Sleeps that a doorbell of this process ended, salted: another user's process
 * could claim the sleep of another process as its own, and so suppress
 * doorbells for that process. */
#define RUNG 256
static _Atomic uint64_t rung[RUNG];

_Atomic uint32_t exi_conn_wakes;
_Atomic uint64_t exi_conn_sent;
_Atomic bool exi_link_any;

uint32_t exi_conn_wake(struct exi_conn *c, uint64_t sleep)
{
	_Atomic uint64_t *last = &rung[sleep % RUNG];
	uint32_t rings = 0;
	char wake = 1;

	if (c->bell < 0)
		return 0;
	/* Acquire: the doorbell noted there was sent. */
	if (sleep && atomic_load_explicit(last, memory_order_acquire) ==
			     (sleep ^ c->salt))
		return 0;
	if (send(c->bell, &wake, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1) {
		rings = 1;
		atomic_fetch_add_explicit(&exi_conn_wakes, rings,
					  memory_order_relaxed);
		if (sleep)
			atomic_store_explicit(last, sleep ^ c->salt,
					      memory_order_release);
	} else if (errno == EPIPE || errno == ECONNRESET) {
		atomic_store_explicit(&c->unheard, true, memory_order_relaxed);
	}
	exi_conn_rang(c);
	return rings;
}

int exi_pair_send_reason(int fd, enum exi_pair_type type, int reason)
{
	struct exi_pair_msg m = exi_pair_message(type);

	m.a = (uint64_t)reason;
	return exi_pair_send(fd, &m, -1);
}

void exi_pair_send_no(int fd, int reason)
{
	exi_pair_send_reason(fd, EXI_PAIR_NO, reason);
}

void exi_pair_send_not_now(int fd, int reason)
{
	struct exi_pair_msg no = exi_pair_message(EXI_PAIR_NO);

	no.a = (uint64_t)reason;
	no.b = EXI_NO_NOW;
	exi_pair_send(fd, &no, -1);
}

/* Peeks at the descriptors of the first packet in the queue, which keeps them.
 * Returns how many are in fds, which has space for 2; -EMFILE: no number was
 * free for any; -EPROTO: there are more. */
static int peek_fds(int s, int fds[2])
{
	union {
		char bytes[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr head;
	} control;
	struct iovec iov = { .iov_base = &(char){ 0 }, .iov_len = 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.bytes,
			      .msg_controllen = sizeof(control.bytes) };
	struct cmsghdr *h;
	int n = 0;

	if (recvmsg(s, &msg, MSG_DONTWAIT | MSG_PEEK | MSG_CMSG_CLOEXEC) < 0)
		return -EPROTO;
	for (h = CMSG_FIRSTHDR(&msg); h; h = CMSG_NXTHDR(&msg, h)) {
		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		n = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(h), (size_t)n * sizeof(int));
	}
	if (msg.msg_flags & MSG_CTRUNC) {
		int err = n ? -EPROTO : -EMFILE;

		while (n)
			exi_closing_file(fds[--n]);
		return err;
	}
	return n;
}

ssize_t exi_pair_recv_passing(int s, struct exi_pair_msg *ret, int *ret_fd)
{
	bool rights;
	ssize_t n = exi_rights_none(s, ret, sizeof(*ret));
	int fds[2], passed;

	if (n != -EPROTO)
		return n;
	passed = peek_fds(s, fds);
	if (passed == 1) {
		/* fds[0] is a reference, so the dropped one is not the last. */
		n = exi_rights_receive(s, ret, sizeof(*ret), 0, &rights);
		if (n > 0) {
			*ret_fd = fds[0];
			return n;
		}
	}
	while (passed > 0)
		exi_closing_file(fds[--passed]);
	return passed == -EMFILE ? passed : -EPROTO;
}

ssize_t exi_pair_recv_up(struct exi_link *l, struct exi_pair_msg *ret)
{
	bool rights;
	ssize_t n;

	if (l->clean)
		return exi_rights_receive(l->fd, ret, sizeof(*ret), 0, &rights);
	n = exi_rights_none(l->fd, ret, sizeof(*ret));
	l->clean = n == -EAGAIN && l->refuses;
	return n;
}

bool exi_pair_well_formed(const struct exi_pair_msg *m, ssize_t n)
{
	return n == sizeof(*m) && m->magic == EXI_PAIR_MAGIC &&
	       m->version == EXI_PAIR_VERSION && m->type > 0 &&
	       m->type < EXI_PAIR_TYPE_MAX;
}

bool exi_pair_is_not_now(const struct exi_pair_msg *m, ssize_t n)
{
	return exi_pair_well_formed(m, n) && m->type == EXI_PAIR_NO &&
	       m->b == EXI_NO_NOW;
}

int exi_pair_socket(const struct exi_tuple *t)
{
	int fd = exi_fd_spare(socket(
		AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

	if (fd < 0) /* not permitted is no answer */
		return fd == -EMFILE || fd == -ENFILE ? fd : -EACCES;
	if (!exi_tuple_here(t, fd)) {
		exi_fd_close(fd);
		return -EXDEV;
	}
	exi_rights_allow(fd, false);
	return fd;
}

int exi_remote_met(int link, int reason)
{
	struct exi_pair_msg m =
		exi_pair_message(reason ? EXI_PAIR_NO : EXI_PAIR_MET);

	m.a = (uint64_t)reason;
	return exi_pair_send(link, &m, -1);
}
