/* SPDX-License-Identifier: BSD-2-Clause */
/* Loans: bytes of a stream that a program looks at, or makes, where they lie.
 *
 * In the fabric's memory where it has EXI_CAP_LOAN and no other process shares
 * the connection; else in a buffer of the socket's, which receives peek into.
 * Either way nothing moves until the loan is repaid, so whatever becomes of the
 * connection meanwhile finds its bytes where it expects them.
 *
 * A loan is an operation at the head of its direction's list: all that move
 * bytes wait behind it, as they would behind any other. What cannot be repaid
 * at once, because the direction is on its way to another fabric or TCP has no
 * room, is from then on an operation of the library's own, in the same place.
 *
 * What lies in place stays there while it is on loan: the receiver gives the
 * direction back when it was repaid (exi_half.leaving), the sender does not
 * switch up, and a forked child has no part in the fabric. */
#ifndef EXI_CORE_CALL_LOAN_H
#define EXI_CORE_CALL_LOAN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/transfer/op.h"

struct exi_sock;

#define EXI_LOAN_BUFFER 65536u

enum exi_loan_state {
	EXI_LOAN_NONE,
	EXI_LOAN_OUT,
	EXI_LOAN_REPAID, /* and is being moved */
};

/* The loan of one direction, guarded by the direction's lock. */
struct exi_loan {
	struct exi_op op; /* listed in all states but the first */
	enum exi_loan_state state;
	bool told; /* of an error the caller is told */
	char *at;
	size_t len;
	char *buffer; /* EXI_LOAN_BUFFER bytes, kept; null */
	char *copy;   /* of what was made in place, or room to read it; null */
};

/* A loan of the direction: up to want bytes to fill (EXI_TX), or what comes
 * next (EXI_RX), of which 0 is the end. Waits as send(2) and recv(2) do. How
 * many bytes, or -errno: -EBUSY, one is out. */
ssize_t exi_loan_borrow(int fd, enum exi_dir dir, size_t want, int flags,
			void **ret);

/* The first len bytes are received, or sent, and the loan ends. -EINVAL: there
 * is none, or not of so many; -ENOMEM: it goes on. Other errors are those of a
 * send, which it ends with. */
int exi_loan_repay(int fd, enum exi_dir dir, size_t len, int flags);

/* Loans end with nothing received or sent: the socket will be plain. No lock is
 * held. */
EXI_SHIM void exi_loan_cancel(struct exi_sock *sk);

/* The socket goes; both locks are held. */
void exi_loan_drop_locked(struct exi_sock *sk);
/* In a child: loans are the parent's. */
void exi_loan_forked(struct exi_sock *sk, enum exi_dir dir);

#endif
