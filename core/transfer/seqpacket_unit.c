/* SPDX-License-Identifier: BSD-2-Clause */
/* Units of the ring: messages of SOCK_SEQPACKET and what they count as. */
#include "core/transfer/seqpacket.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/table.h"

#define HEAD sizeof(uint32_t)

/* What the kernel keeps with each message, and what it keeps in one piece; the
 * rest is in pages. */
#define OVERHEAD  320u
#define DESCRIBES (256u - 16u) /* without what a record has beside it */
#define PIECE	  16384u
#define PAGE	  4096u

size_t exi_seq_unit(size_t len)
{
	size_t ret = 512;

	if (len > PIECE - OVERHEAD)
		return PIECE + DESCRIBES +
		       ((len - (PIECE - OVERHEAD) + PAGE - 1) &
			~(size_t)(PAGE - 1));
	while (ret < len + OVERHEAD)
		ret *= 2;
	return ret + DESCRIBES;
}

ssize_t exi_seq_drain_locked(struct exi_sock *sk)
{
	struct iovec v[64];
	struct msghdr m = { .msg_iov = v };
	size_t got = 0, skip = HEAD;
	uint32_t head;
	ssize_t ret;

	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	m.msg_iovlen = sk->fab->swops->runs(sk->fab, v, 64, HEAD);
	if (!m.msg_iovlen)
		return 0;
	/* A unit begins a record, and the smallest record has more bytes. */
	if (v[0].iov_len < HEAD)
		return -EPROTO;
	memcpy(&head, v[0].iov_base, HEAD);
	m.msg_iovlen = sk->fab->swops->runs(sk->fab, v, 64, HEAD + head);
	for (size_t i = 0; i < m.msg_iovlen; i++)
		got += v[i].iov_len;
	/* The peer chose where to begin. */
	if (head > EXI_SEQ_MAX || got != HEAD + head)
		return -EPROTO;
	v[0].iov_base = (char *)v[0].iov_base + skip;
	v[0].iov_len -= skip;
	ret = sendmsg(sk->tcp->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	return ret < 0 ? -errno : (ssize_t)exi_seq_unit(head);
}

const char *exi_seq_next_locked(struct exi_sock *sk, struct exi_half *h,
				char *buf, size_t *at, size_t *ret_len)
{
	size_t n = sk->fab ? sk->fab->rops->unread(sk->fab) : 0;
	const char *ret = buf + *at + HEAD;
	uint32_t head;

	EXI_LOCKED(&h->lock);
	n = exi_half_heard_locked(h, n);
	n = n < EXI_SEQ_MAX ? n : EXI_SEQ_MAX;
	if (!*at && n && sk->fab->ops->recv(sk->fab, buf, n, MSG_PEEK) <= 0)
		return NULL;
	if (n < HEAD || *at > n - HEAD)
		return NULL;
	memcpy(&head, buf + *at, HEAD);
	if (head > EXI_SEQ_MAX || exi_seq_unit(head) > n - *at)
		return NULL;
	*at += exi_seq_unit(head);
	*ret_len = head;
	return ret;
}

size_t exi_seq_unread_locked(struct exi_sock *sk, struct exi_half *h)
{
	char *buf = malloc(EXI_SEQ_MAX);
	size_t sum = 0, at = 0, n;

	EXI_LOCKED(&h->lock);
	while (buf && exi_seq_next_locked(sk, h, buf, &at, &n))
		sum += n;
	free(buf);
	return sum;
}
