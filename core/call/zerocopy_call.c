/* SPDX-License-Identifier: BSD-2-Clause */
/* Sends with MSG_ZEROCOPY, and their error queue. */
#include "core/call/zerocopy_call.h"

#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "core/base/ancillary.h"
#include "core/base/cancel.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/pieces.h"
#include "core/call/recv.h"
#include "core/call/send.h"
#include "core/fabric/provider.h"
#include "core/link/control.h"
#include "core/meet/pair.h"
#include "core/sock/holders.h"
#include "core/sock/wake.h"
#include "core/sock/zerocopy.h"
#include "core/transfer/lookup.h"
#include "core/transfer/switch.h"

/* --- sends -------------------------------------------------------------- */

/* Whether the kernel makes a send that begins now. It does while another one is
 * in the kernel, because the direction cannot move then; so no copied send gets
 * a number between those of two that the kernel has begun. */
static bool is_kernels_locked(struct exi_sock *sk)
{
	struct exi_shared *sh = sk->sh;
	struct exi_half *h = &sh->half[EXI_TX];

	EXI_LOCKED(&h->lock);
	return h->mode == EXI_MODE_TCP && exi_list_empty(&sk->ops[EXI_TX]) &&
	       !sk->posted[EXI_TX] && !h->ended && !atomic_load(&h->broken) &&
	       !h->err && !sh->half[EXI_RX].err &&
	       (h->in_kernel || !exi_switch_wanted(sh)) &&
	       exi_zerocopy_has_room(&sh->zerocopy);
}

/* Returns true if the kernel made the send, with *ret. */
static bool by_kernel(struct exi_sock *sk, int fd, const struct msghdr *m,
		      int flags, ssize_t *ret)
{
	struct exi_pieces p = { .v = m->msg_iov, .n = m->msg_iovlen };
	struct exi_recv_kernel b = { .sk = sk,
				     .p = &p,
				     .dir = EXI_TX,
				     .counts = true,
				     .n = -ECANCELED };
	struct exi_section ends;
	struct exi_shared *sh;
	struct exi_half *h;

	if (!exi_sock_lock(sk, fd, EXI_TX, &sh))
		return false;
	h = &sh->half[EXI_TX];
	b.generation = atomic_load(&sk->generation);
	if (!is_kernels_locked(sk)) {
		exi_half_unlock(h);
		return false;
	}
	*ret = -sk->tcp->kops->error(sk->tcp);
	if (*ret) {
		exi_half_unlock(h);
		return true;
	}
	b.in = exi_half_enter_locked(h);
	exi_half_unlock(h);
	exi_section_begin(&ends, exi_recv_kernel_end, &b);
	exi_cancel_allow();
	b.n = sendmsg(fd, m, flags);
	if (b.n < 0)
		b.n = -errno;
	exi_cancel_forbid();
	exi_section_end(&ends, true);
	*ret = b.n;
	if (b.n <= 0)
		return true;
	exi_link_by_kernel(0, 0);
	if (exi_sock_lock(sk, fd, EXI_TX, &sh)) {
		if (exi_sock_lasts(sk, b.generation))
			exi_zerocopy_by_kernel(&sh->zerocopy);
		exi_half_unlock(&sh->half[EXI_TX]);
	}
	return true;
}

/* The change of state comes before the walk over the waiters, and a waiter is
 * among them before it looks: one of the two sees the other. */
static void copied(struct exi_sock *sk, int fd, uint32_t generation)
{
	struct exi_shared *sh;

	if (!exi_sock_lock(sk, fd, EXI_TX, &sh))
		return;
	if (!exi_sock_lasts(sk, generation)) { /* another socket by now */
		exi_half_unlock(&sh->half[EXI_TX]);
		return;
	}
	exi_zerocopy_copied(&sh->zerocopy);
	exi_half_unlock(&sh->half[EXI_TX]);
	/* Every waiter is among those of EXI_RX. */
	if (exi_holders_alone(&sh->holders))
		exi_sock_wake_waiters(sk, EXI_RX);
	else
		exi_sock_wake_all(sk, EXI_RX);
}

ssize_t exi_zerocopy_send(int fd, const struct iovec *v, size_t n, size_t bytes,
			  int flags)
{
	struct msghdr m = { .msg_iov = (struct iovec *)(uintptr_t)v,
			    .msg_iovlen = n };
	bool on = exi_zerocopy_on(fd);
	struct exi_sock *sk;
	ssize_t ret = exi_look_up(fd, &sk);
	uint32_t generation;

	if (ret)
		return ret;
	generation = atomic_load(&sk->generation);
	if (on && !(flags & MSG_OOB)) {
		exi_flow_before_send(sk, fd, bytes);
		if (by_kernel(sk, fd, &m, flags, &ret))
			return ret;
	}
	ret = exi_flow_sendv(fd, v, n, bytes, flags & ~MSG_ZEROCOPY);
	if (on && ret > 0)
		copied(sk, fd, generation);
	return ret;
}

/* --- the error queue ---------------------------------------------------- */

/* What the kernel writes into a message from the error queue. */
struct word {
	struct sock_extended_err ee;
	union {
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} offender; /* none */
};

static bool is_ipv6(int fd)
{
	int domain = 0;
	socklen_t len = sizeof(domain);

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 &&
	       domain == AF_INET6;
}

/* Reports it as the kernel would. */
static void say(int fd, struct msghdr *m, int flags,
		const struct exi_zerocopy_note *note)
{
	struct word w = { .ee = { .ee_origin = SO_EE_ORIGIN_ZEROCOPY,
				  .ee_code = note->code,
				  .ee_info = note->first,
				  .ee_data = note->last } };
	size_t used = 0;

	m->msg_flags = MSG_ERRQUEUE | (flags & MSG_CMSG_CLOEXEC);
	m->msg_namelen = 0;
	if (is_ipv6(fd))
		exi_ancillary_put(m, &used, SOL_IPV6, IPV6_RECVERR, &w,
				  sizeof(w.ee) + sizeof(w.offender.v6));
	else
		exi_ancillary_put(m, &used, SOL_IP, IP_RECVERR, &w,
				  sizeof(w.ee) + sizeof(w.offender.v4));
	m->msg_controllen = used;
}

static bool take(struct exi_sock *sk, int fd, bool asked,
		 struct exi_zerocopy_note *ret)
{
	struct exi_shared *sh;
	bool taken;

	if (!exi_sock_lock(sk, fd, EXI_TX, &sh))
		return false;
	taken = exi_zerocopy_take(&sh->zerocopy, asked, ret);
	exi_half_unlock(&sh->half[EXI_TX]);
	return taken;
}

/* Numbers in a word of the kernel's become the program's. */
static void translate(struct exi_sock *sk, int fd, struct cmsghdr *c)
{
	struct sock_extended_err ee;
	struct exi_zerocopy_note note;
	struct exi_shared *sh;

	if (!(c->cmsg_level == SOL_IP && c->cmsg_type == IP_RECVERR) &&
	    !(c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_RECVERR))
		return;
	memcpy(&ee, CMSG_DATA(c), sizeof(ee));
	if (ee.ee_origin != SO_EE_ORIGIN_ZEROCOPY ||
	    !exi_sock_lock(sk, fd, EXI_TX, &sh))
		return;
	note = exi_zerocopy_told(&sh->zerocopy,
				 (struct exi_zerocopy_note){
					 ee.ee_info, ee.ee_data, ee.ee_code });
	exi_half_unlock(&sh->half[EXI_TX]);
	ee.ee_info = note.first;
	ee.ee_data = note.last;
	memcpy(CMSG_DATA(c), &ee, sizeof(ee));
}

/* Reads all that the kernel reports, whatever the size of the program's buffer:
 * a range is reported only once. */
static ssize_t ask(struct exi_sock *sk, int fd, struct msghdr *m, int flags)
{
	_Alignas(struct cmsghdr) char room[1024];
	struct msghdr k = *m;
	struct cmsghdr *c;
	size_t used = 0;
	ssize_t n;

	k.msg_control = room;
	k.msg_controllen = sizeof(room);
	n = recvmsg(fd, &k, flags);
	if (n < 0)
		return -errno;
	m->msg_flags = k.msg_flags;
	m->msg_namelen = k.msg_namelen;
	for (c = CMSG_FIRSTHDR(&k); c; c = CMSG_NXTHDR(&k, c)) {
		translate(sk, fd, c);
		exi_ancillary_put(m, &used, c->cmsg_level, c->cmsg_type,
				  CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	}
	m->msg_controllen = used;
	return n;
}

ssize_t exi_zerocopy_recv(int fd, struct msghdr *m, int flags)
{
	struct exi_zerocopy_note note;
	struct exi_sock *sk;
	ssize_t ret = exi_look_up(fd, &sk);

	if (ret)
		return ret;
	if (!take(sk, fd, false, &note)) {
		ret = ask(sk, fd, m, flags);
		if (ret != -EAGAIN || !take(sk, fd, true, &note))
			return ret;
	}
	say(fd, m, flags, &note);
	return 0;
}
