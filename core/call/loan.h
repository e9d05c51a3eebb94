/* SPDX-License-Identifier: BSD-2-Clause */
/* Loans: a program reads, or writes, the bytes of a stream in place.
 *
 * A loan is in the fabric's memory if the fabric has EXI_CAP_LOAN and no other
 * process shares the connection; else it is in a buffer of the socket, which
 * receives peek into. Either way nothing moves until the loan is repaid, so
 * whatever happens to the connection meanwhile finds its bytes where it expects
 * them.
 *
 * A loan is an operation at the head of its direction's list: all calls that
 * move bytes wait behind it, as behind any other operation. A repaid loan that
 * cannot be moved at once, because the direction is moving to another fabric or
 * TCP has no room, becomes an operation of the library in the same place.
 *
 * While a loan in place is out, its bytes stay where they are: the receiver
 * gives the direction back after the loan is repaid (exi_half.leaving), the
 * sender does not switch up, and a forked child does not use the fabric. */
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
	EXI_LOAN_REPAID, /* repaid, and being moved */
};

/* The loan of one direction, guarded by the direction's lock. */
struct exi_loan {
	struct exi_op op; /* in the list, except in the first state */
	enum exi_loan_state state;
	bool told; /* the caller of exi_loan_repay() gets its error */
	char *at;
	size_t len;
	char *buffer; /* EXI_LOAN_BUFFER bytes, kept; or null */
	char *copy;   /* of bytes made in place, or to read; null */
};

/* Borrows from the direction: up to want bytes to fill (EXI_TX), or the next
 * bytes (EXI_RX), where 0 is the end. Waits as send(2) and recv(2) do. Returns
 * the number of bytes or -errno; -EBUSY: the direction has a loan already. */
ssize_t exi_loan_borrow(int fd, enum exi_dir dir, size_t want, int flags,
			void **ret);

/* Receives, or sends, the first len bytes, and ends the loan. -EINVAL: there is
 * no loan, or it is smaller. -ENOMEM: the loan continues. Other errors are
 * those of a send, and end the loan. */
int exi_loan_repay(int fd, enum exi_dir dir, size_t len, int flags);

/* Ends loans with nothing received or sent, because the socket will be plain.
 * No lock is held. */
EXI_SHIM void exi_loan_cancel(struct exi_sock *sk);

/* Ends loans of a socket that is about to be freed; both locks are held. */
void exi_loan_drop_locked(struct exi_sock *sk);
/* Called in a forked child: forgets a loan, which is the parent's. */
void exi_loan_forked(struct exi_sock *sk, enum exi_dir dir);

#endif
