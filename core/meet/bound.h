/* SPDX-License-Identifier: BSD-2-Clause */
/* A proof that an end holds the TCP socket, bound to the link on which it is
 * given: section 1 of docs/design/wire-shm.md.
 *
 * The board of an end of TCP is five options of its socket that have no effect
 * on an established connection. Only holders of the socket can change them;
 * everybody in the network namespace can read them, without the socket's lock.
 * Each end shows, one after the other, five-bit symbols of a digest over both
 * ends' nonces. B's end of the link is bound to an abstract name made of B's
 * nonce. The kernel gives that name to one socket at a time, and returns to A
 * the name of the link's other end.
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
	unsigned int looked; /* correct symbols of the other end */
	bool a;
	/* The board, while it is taken. */
	bool taken;
	/* exi_use_token() of the process that took the board. */
	uint64_t process;
	uint64_t cookie; /* the socket's */
	uint8_t was;
	uint8_t shown;
};

/* B makes a nonce; *ret is the promise for A. -errno. */
int exi_bound_promise(struct exi_bound *p, uint8_t ret[EXI_SHA256]);

/* A takes fd's board, for B's promise; *ret is A's nonce for B. -errno. */
int exi_bound_answer(struct exi_bound *p, int fd,
		     const uint8_t promise[EXI_SHA256],
		     uint8_t ret[EXI_BOUND_NONCE]);

/* B binds the link and takes fd's board, for A's nonce; *ret is B's nonce for
 * A, which was secret until now. The link stays open until exi_bound_end().
 * -errno. */
int exi_bound_open(struct exi_bound *p, int fd, int link,
		   const struct exi_tuple *t,
		   const uint8_t nonce[EXI_BOUND_NONCE],
		   uint8_t ret[EXI_BOUND_NONCE]);

/* A takes B's nonce. -EPERM: it is not the promised one, or the other end of
 * the link is not bound to its name. */
int exi_bound_opened(struct exi_bound *p, int link, const struct exi_tuple *t,
		     const uint8_t nonce[EXI_BOUND_NONCE]);

/* Checks the next symbol of the other end, after that end said that it shows
 * it. -EPERM: the symbol is wrong. Others: it cannot be read here. */
int exi_bound_check(struct exi_bound *p, const struct exi_tuple *t);

/* Shows symbol i. -EBADF: fd is another socket by now. */
int exi_bound_show(struct exi_bound *p, int fd, unsigned int i);

/* Gives the board back: restores the options, except those that the program set
 * meanwhile. Does nothing in a forked child, or if fd is another socket by
 * now. */
void exi_bound_end(struct exi_bound *p, int fd);

/* Whether the option is part of the board. */
bool exi_bound_uses(int level, int name);

#endif
