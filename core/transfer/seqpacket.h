/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages of a UNIX socket of SOCK_SEQPACKET. In the kernel they have their
 * own boundaries. In a ring each is a unit: its length in four bytes, in the
 * host's order, its bytes, and bytes without a meaning up to what the kernel
 * would charge for it. So a ring that is full is about what the kernel holds,
 * and what is taken back fits into the kernel. All counts of such a connection
 * are in these bytes, also while it is in the kernel: a message of no bytes
 * counts, too. See docs/design/unix.md. "Locked": the direction's lock is
 * held. */
#ifndef EXI_CORE_TRANSFER_SEQPACKET_H
#define EXI_CORE_TRANSFER_SEQPACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "core/base/util.h"

struct exi_half;
struct exi_sock;

/* The longest message; the kernel has a lower limit. */
#define EXI_SEQ_MAX ((size_t)64 << 20)

/* The bytes that a message of this length counts as. */
size_t exi_seq_unit(size_t len);

/* What a receive returns besides the message. */
struct exi_seq_end {
	bool over; /* the end, not a message of no bytes */
};

/* One attempt; results as of exi_flow_try_send_locked(), and 0 is a message of
 * no bytes, too. A message goes whole or not at all. The flags are those of the
 * call: MSG_PEEK, MSG_TRUNC. A receive sets m's flags and the length of its
 * control data, not its name. room: the bytes of m's buffers. */
ssize_t exi_seq_send_locked(struct exi_sock *sk, struct exi_half *h,
			    const struct msghdr *m, size_t len, int flags);
ssize_t exi_seq_recv_locked(struct exi_sock *sk, struct exi_half *h,
			    struct msghdr *m, size_t room, int flags,
			    struct exi_seq_end *ret);

/* SO_SNDBUF was set: the ring admits as the kernel does from now on, or the
 * connection leaves it. No lock is held. */
EXI_SHIM void exi_seq_room_set(struct exi_sock *sk, int fd);

/* Sends the next message of what was taken back to the kernel: the bytes that
 * it counts as, 0 when there are none, -errno. TX. */
ssize_t exi_seq_drain_locked(struct exi_sock *sk);

/* Copies the units in the ring that are unread, which stay: *ret_n bytes, to be
 * freed; null: no memory. RX. */
char *exi_seq_copy_locked(struct exi_sock *sk, struct exi_half *h,
			  size_t *ret_n);

/* The messages of these n bytes, one after the other: the address and *ret_len
 * of the next; null: there are no more. *at is 0 at first. The bytes are a
 * peer's. */
const char *exi_seq_next(const char *buf, size_t n, size_t *at,
			 size_t *ret_len);

/* The bytes of the messages in the ring that are unread, without their
 * overhead. RX. */
size_t exi_seq_unread_locked(struct exi_sock *sk, struct exi_half *h);

#endif
