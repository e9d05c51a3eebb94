/* SPDX-License-Identifier: BSD-2-Clause */
/* Synchronous calls on a UNIX socket of SOCK_SEQPACKET. A message goes whole,
 * so there is no rest of a call: only the wait for its turn. */
#include "core/call/seqpacket_call.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/base/util.h"
#include "core/call/patience.h"
#include "core/call/vector.h"
#include "core/call/wait.h"
#include "core/fabric/provider.h"
#include "core/link/control.h"
#include "core/meet/find.h"
#include "core/meet/pair.h"
#include "core/sock/table.h"
#include "core/transfer/family.h"
#include "core/transfer/half.h"
#include "core/transfer/lookup.h"
#include "core/transfer/seqpacket.h"
#include "core/transfer/switch.h"

/* One attempt. Releases the lock, which is held. */
static ssize_t send_once(struct exi_call *c, struct exi_shared *sh,
			 const struct msghdr *m, size_t len)
{
	struct exi_half *h = &sh->half[EXI_TX];
	ssize_t n = exi_seq_send_locked(c->sk, h, m, len, c->flags);

	if (n == -EAGAIN)
		exi_call_pause_locked(c);
	exi_half_unlock(h);
	return n;
}

ssize_t exi_seq_send(int fd, const struct msghdr *m, int flags)
{
	ssize_t len = exi_parts_total(m->msg_iov, m->msg_iovlen), n;
	struct msghdr bytes = { .msg_iov = m->msg_iov,
				.msg_iovlen = m->msg_iovlen };
	struct exi_shared *sh;
	struct exi_sock *sk;
	struct exi_call c;
	bool waited = false;
	int ret;

	if (len < 0)
		return len;
	ret = exi_look_up(fd, &sk);
	if (ret)
		return ret;
	c = exi_call_begin(sk, fd, EXI_TX, flags);
	exi_flow_before_send(sk, fd, exi_seq_unit((size_t)len));
	for (;;) {
		if (!exi_call_lock(&c, &sh))
			return -EBADF;
		n = send_once(&c, sh, &bytes, (size_t)len);
		if (n == -EREMOTE) {
			exi_family_ask(sk);
			continue;
		}
		if (n != -EAGAIN)
			break;
		n = exi_call_wait(&c, 0);
		if (n)
			break;
		waited = true;
	}
	/* A call that waited for room returns how the peer closed. */
	if (n == -EPIPE && waited && exi_half_take_cut(&sh->half[EXI_RX]))
		n = -ECONNRESET;
	return n;
}

/* The same. */
static ssize_t recv_once(struct exi_call *c, struct exi_shared *sh,
			 struct msghdr *m, size_t room, struct exi_seq_end *ret)
{
	struct exi_half *h = &sh->half[EXI_RX];
	ssize_t n = exi_seq_recv_locked(c->sk, h, m, room, c->flags, ret);

	if (n == -EAGAIN)
		exi_call_pause_locked(c);
	exi_half_unlock(h);
	return n;
}

ssize_t exi_seq_recv(int fd, struct msghdr *m, int flags, bool *ret_over)
{
	ssize_t room = exi_parts_total(m->msg_iov, m->msg_iovlen), n;
	struct exi_seq_end end = { 0 };
	struct exi_shared *sh;
	struct exi_sock *sk;
	struct exi_call c;
	int ret;

	*ret_over = false;
	if (room < 0)
		return room;
	ret = exi_look_up(fd, &sk);
	if (ret)
		return ret;
	c = exi_call_begin(sk, fd, EXI_RX, flags);
	for (;;) {
		if (!exi_call_lock(&c, &sh))
			return -EBADF;
		n = recv_once(&c, sh, m, (size_t)room, &end);
		/* A SWITCH that is under way says that more is there. */
		if (n == -EAGAIN && !c.heard && exi_switch_may_come(sk)) {
			c.heard = exi_link_hear(sk);
			if (c.heard)
				continue;
		}
		if (n == -ESTALE)
			exi_link_read(sk);
		else if (n == -EREMOTE)
			exi_family_ask(sk);
		else if (n != -EAGAIN)
			break;
		else if ((n = exi_call_wait(&c, 0)))
			break;
	}
	if (n == 0 && end.over) {
		exi_link_ended(sk, fd);
		n = exi_half_end(&exi_sock_shared(sk)->half[EXI_RX]);
		*ret_over = n == 0;
		m->msg_controllen = (size_t)(m->msg_flags = 0);
	}
	exi_flow_after_recv(sk, fd);
	return n;
}

ssize_t exi_seq_send_one(int fd, const void *buf, size_t len, int flags)
{
	struct iovec v = { .iov_base = (void *)(uintptr_t)buf, .iov_len = len };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	return exi_seq_send(fd, &m, flags);
}

ssize_t exi_seq_recv_one(int fd, void *buf, size_t len, int flags)
{
	struct iovec v = { .iov_base = buf, .iov_len = len };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	bool over;

	return exi_seq_recv(fd, &m, flags, &over);
}
