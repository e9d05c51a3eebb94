/* SPDX-License-Identifier: BSD-2-Clause */
/* A proof of possession that names the link on which it is given: section 1 of
 * docs/design/wire-shm.md.
 *
 * The board of an end of TCP is five options of its socket that mean nothing to
 * an established connection. Holders alone can change them, everybody in the
 * network namespace can read them, without the socket's lock. Each end shows
 * symbols of five bits there, one after the other, of a digest over both ends'
 * nonces. B's end of the link is bound to an abstract name that is made of B's
 * nonce; the kernel gives it to one socket at a time, and tells A the name of
 * the link's other end.
 *
 *	B: promise	A: answer	B: open, show 0		A: opened
 *	then, for each i:	A: look i, show i	B: look i, show i+1
 */
#ifndef EXI_CORE_MEET_BOUND_H
#define EXI_CORE_MEET_BOUND_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/hash.h"

struct exi_tuple;

#define EXI_BOUND_NONCE	  32
#define EXI_BOUND_SYMBOLS 12 /* of each end: 60 bits */

struct exi_bound {
	uint8_t nonce[EXI_BOUND_NONCE];
	uint8_t promise[EXI_SHA256]; /* A: of B's nonce */
	uint8_t digest[EXI_SHA256];
	unsigned int looked; /* symbols of the other end that were right */
	bool a;
	/* The board, while it is taken. */
	bool taken;
	/* exi_use_token() of the process that took the board. */
	uint64_t process;
	uint64_t cookie; /* the socket's */
	uint8_t was;
	uint8_t shown;
};

/* B makes a nonce; *ret is what A gets of it. -errno. */
int exi_bound_promise(struct exi_bound *p, uint8_t ret[EXI_SHA256]);

/* A: takes fd's board for B's promise; the nonce for B. -errno. */
int exi_bound_answer(struct exi_bound *p, int fd,
		     const uint8_t promise[EXI_SHA256],
		     uint8_t ret[EXI_BOUND_NONCE]);

/* B binds the link and takes fd's board, for A's nonce; ret is the own nonce
 * for A, which nobody could know before. Until exi_bound_end() the link stays
 * open. -errno. */
int exi_bound_open(struct exi_bound *p, int fd, int link,
		   const struct exi_tuple *t,
		   const uint8_t nonce[EXI_BOUND_NONCE],
		   uint8_t ret[EXI_BOUND_NONCE]);

/* A: B's nonce. -EPERM: it is not the one that was promised, or the other end
 * of the link is not bound to its name. */
int exi_bound_opened(struct exi_bound *p, int link, const struct exi_tuple *t,
		     const uint8_t nonce[EXI_BOUND_NONCE]);

/* The next symbol of the other end, once it said that it shows it. -EPERM: it
 * is another one. Others: it cannot be told here. */
int exi_bound_check(struct exi_bound *p, const struct exi_tuple *t);

/* Shows a symbol. -EBADF: fd is another socket by now. */
int exi_bound_show(struct exi_bound *p, int fd, unsigned int i);

/* Gives the board back: the options are what they were, but for those that the
 * program set meanwhile. Nothing is done in a forked child, nor when fd is
 * another socket by now. */
void exi_bound_end(struct exi_bound *p, int fd);

/* The options of the board. */
bool exi_bound_uses(int level, int name);

#endif
