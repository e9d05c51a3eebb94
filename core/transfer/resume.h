/* SPDX-License-Identifier: BSD-2-Clause */
/* A fabric between hosts fails, and the connection continues over TCP: section
 * 6 of docs/design/wire-verbs.md. Each direction does so by itself, and neither
 * end waits for an answer: the sender repeats the bytes that were not
 * acknowledged, and, if the receiver cannot know from which byte, states that
 * first; the receiver skips the bytes that it has. */
#ifndef EXI_CORE_TRANSFER_RESUME_H
#define EXI_CORE_TRANSFER_RESUME_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/table.h"

/* The pair link of a fabric between hosts hung up; both locks are held, and TCP
 * has not ended. 0: both directions are on their way to TCP. -EPROTO: the peer
 * violated the protocol. -ECONNRESET: the peer may lack bytes that are not here
 * any more. */
int exi_resume_begin_locked(struct exi_sock *sk);

/* Whether the peer has closed, at the moment of exi_resume_begin_locked(), and
 * the hang-up is a part of that. The ring holds the last bytes; bytes that are
 * sent have no reader. Both locks are held. */
bool exi_resume_closed_locked(struct exi_sock *sk);

/* Receiver in EXI_MODE_BACK, RX lock held, before TCP is read: how many of len
 * bytes may be read. -EAGAIN: none yet. -ENODATA: TCP ended without a RESUME:
 * the remaining bytes are in the ring, which must be read. -EPROTO: the peer
 * violated the protocol, and both directions are broken. */
ssize_t exi_resume_read_locked(struct exi_sock *sk, size_t len);

/* Receiver, RX lock held: whether an end of TCP is the end of the stream. While
 * the peer can be asked over the link, it is not, before the peer has answered
 * or left: its earlier messages, a SWITCH and the bytes that moved, may come
 * later. An end that was reported before the two met stays. */
static inline bool exi_resume_end_counts_locked(const struct exi_sock *sk)
{
	const struct exi_half *h = &sk->sh->half[EXI_RX];

	EXI_LOCKED(&h->lock);
	return h->link_read || h->fin || !atomic_load(&sk->sh->linked) ||
	       !sk->fab || (exi_sock_remote(sk) && sk->fab->bell < 0);
}

/* Whether TCP has ended, with nothing unread, and its end does not count. RX
 * lock held. */
bool exi_resume_early_end_locked(struct exi_sock *sk);

/* Whether bytes on TCP must not be read, or not yet. Waiters are woken when
 * that changes. RX lock held. */
static inline bool exi_resume_keeps_locked(struct exi_sock *sk)
{
	const struct exi_half *h = &sk->sh->half[EXI_RX];

	EXI_LOCKED(&h->lock);
	if (exi_likely(h->mode == EXI_MODE_RING || !exi_sock_remote(sk)))
		return false;
	return (h->mode == EXI_MODE_BACK && atomic_load(&h->untaken) &&
		exi_resume_read_locked(sk, 1) == -EAGAIN) ||
	       exi_resume_early_end_locked(sk);
}

/* Whether the sender has left the fabric although the pair link stands: bytes
 * of TCP lie where none can be. RX lock held. */
bool exi_resume_called_locked(struct exi_sock *sk);

/* Before the last close: the sender repeats the bytes that it holds although
 * the receiver has read all of them, and the end, from the ring. Left in TCP,
 * they would make the kernel reset the connection, and lose the bytes that were
 * sent here. No lock is held. */
void exi_resume_finish(struct exi_sock *sk, uint64_t deadline_ns);

#endif
