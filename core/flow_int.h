/* SPDX-License-Identifier: BSD-2-Clause */
/* The parts of moving bytes, for what is built from them besides flow.c: loans
 * (loan.c). "Locked": the direction's lock is held. */
#ifndef EXI_CORE_FLOW_INT_H
#define EXI_CORE_FLOW_INT_H

#include "core/flow.h"
#include "core/wait.h"

/* One attempt, locked: bytes, 0 for the end, or -errno; -EAGAIN: wait, -ESTALE:
 * read the link, -EREMOTE: ask the other processes for the connection; then try
 * again. */
ssize_t exi_flow_try_send(struct exi_sock *sk, struct exi_half *h,
			  const void *buf, size_t len, int flags);
ssize_t exi_flow_try_recv(struct exi_sock *sk, struct exi_half *h, void *buf,
			  size_t len, int flags);
/* The peer wrote nonsense: what is to be said of it. Locked. */
ssize_t exi_flow_fabric_failed(struct exi_sock *sk, struct exi_half *h);

/* Operations were put into the direction's list, or taken out. Locked. */
void exi_flow_count_ops(struct exi_sock *sk, enum exi_dir dir, int change);
/* n of the want bytes that were tried have moved; whether it is all of the
 * operation. Locked. */
bool exi_flow_moved(struct exi_op *op, enum exi_dir dir, size_t n, size_t want);
/* A receiver that wants to leave the fabric gives the direction back, when
 * nothing of it is on loan. RX is locked. */
void exi_flow_give_back(struct exi_sock *sk);

/* The socket that a descriptor means to who submits to it: also where the number
 * was reused behind the library's back. As exi_sock_use(). No lock held, as below
 * where nothing is said. */
int exi_flow_addressed(int fd, struct exi_sock **ret);
/* Before len bytes are sent, and after some were received. */
void exi_flow_before_send(struct exi_sock *sk, int fd, size_t len);
void exi_flow_after_recv(struct exi_sock *sk, int fd);

/* A synchronous call may not wait. */
bool exi_flow_nonblocking(struct exi_sock *sk, int fd, int flags);
/* When its wait must end by SO_RCVTIMEO or SO_SNDTIMEO; 0: never. */
uint64_t exi_flow_deadline(struct exi_sock *sk, int fd, enum exi_dir dir);

/* What a slow synchronous call has found out about its descriptor. */
struct exi_flow_patience {
	bool known;
	bool begun; /* handlers of signals are counted, see core/signals.h */
	bool spun;  /* in vain, since it slept last */
	uint64_t deadline;
	struct exi_look look;
};

/* A call that waits: lock, attempt, and where that said -EAGAIN look (locked),
 * unlock, be patient, again. False: the descriptor is not the socket's any more.
 * Patience is 0 to try again, or what the call is to say; seen bytes lie there
 * and are not enough. */
bool exi_flow_lock_half(struct exi_sock *sk, int fd, enum exi_dir dir,
			struct exi_flow_patience *p, struct exi_shared **ret);
void exi_flow_look_locked(struct exi_sock *sk, enum exi_dir dir, int flags,
			  struct exi_flow_patience *p);
int exi_flow_be_patient(struct exi_sock *sk, int fd, enum exi_dir dir,
			int flags, struct exi_flow_patience *p, size_t seen);

#endif
