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

char *exi_seq_copy_locked(struct exi_sock *sk, struct exi_half *h,
			  size_t *ret_n)
{
	size_t n = sk->fab ? sk->fab->rops->unread(sk->fab) : 0;
	ssize_t got = 0;
	char *buf;

	EXI_LOCKED(&h->lock);
	n = exi_half_heard_locked(h, n);
	buf = malloc(n + 1); /* not 0 */
	if (buf && n)
		got = sk->fab->ops->recv(sk->fab, buf, n, MSG_PEEK);
	*ret_n = got > 0 ? (size_t)got : 0;
	return buf;
}

const char *exi_seq_next(const char *buf, size_t n, size_t *at, size_t *ret_len)
{
	const char *ret = buf + *at + HEAD;
	uint32_t len;

	if (n - *at < HEAD)
		return NULL;
	memcpy(&len, buf + *at, HEAD);
	if (len > EXI_SEQ_MAX || exi_seq_unit(len) > n - *at)
		return NULL;
	*at += exi_seq_unit(len);
	*ret_len = len;
	return ret;
}

size_t exi_seq_unread_locked(struct exi_sock *sk, struct exi_half *h)
{
	size_t sum = 0, at = 0, n, len;
	char *buf = exi_seq_copy_locked(sk, h, &n);

	EXI_LOCKED(&h->lock);
	while (buf && exi_seq_next(buf, n, &at, &len))
		sum += len;
	free(buf);
	return sum;
}
