/* SPDX-License-Identifier: BSD-2-Clause */
/* Latent connections: those that have not lasted yet.
 *
 * Most connections of some programs end after a question and its answer: to
 * know them costs more than they could win. So a connection begins as a word in
 * its place in the table of sockets, and the kernel serves its calls. It wakes,
 * that is, becomes the socket it is, when it has moved as much as makes a
 * meeting worth while, and whenever exi_sock_find() asks for it: code that
 * knows nothing of latent connections need not.
 *
 * The word says its role, what it has moved, and how many calls of the kernel
 * are under way. A change of it is one compare-and-swap, and to wake it is
 * another: so what has been moved is counted once, either in the word or in the
 * socket. A call that ends after the connection woke finds the socket, which
 * knows of the call (half.in_kernel) and, as with the socket's own calls of the
 * kernel, does not go to a fabric before. A call that never ends, for its
 * thread was cancelled or jumped away, keeps its direction on TCP.
 *
 * Connections are latent only where every close is seen, for the word is the
 * descriptor's. */
#ifndef EXI_CORE_MEET_LATENT_H
#define EXI_CORE_MEET_LATENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/table.h"

/* Set where every close is seen: connections may begin so. */
EXI_SHIM extern _Atomic bool exi_latent_on;

/* Hooks for code that keeps more about latent connections. begun: the
 * descriptor's life as one begins; woke: it is sk now, whose link lock is
 * held. */
EXI_SHIM extern void (*exi_latent_begun)(int fd);
EXI_SHIM extern void (*exi_latent_promoted)(struct exi_sock *sk, int fd);

/* A fresh descriptor's life begins; false: it is to be made a socket. An
 * accepted one is counted among the connections (link.h). */
EXI_SHIM bool exi_latent_begin(int fd, enum exi_role role);

/* The latent connection is connected, or about to be. */
EXI_SHIM void exi_latent_connected(int fd);

/* A call of the kernel that moves up to n bytes of a latent connection is
 * enclosed in enter and leave. enter: false where the connection is not latent,
 * or not connected, or is to wake before. leave is given what the call
 * returned, and leaves errno as it is. */
struct exi_latent_call {
	int fd;
	enum exi_dir dir;
	uint32_t life;
	uint64_t began; /* of a send: exi_link_sends() */
};

/* The state of one latent connection. */
struct exi_latent_state {
	enum exi_role role;
	uint32_t moved[2]; /* by direction */
};

/* Ends a latent connection, before its descriptor is closed; false: it is
 * latent no more. *ret is what it was, unless ret is null. */
EXI_SHIM bool exi_latent_end(int fd, struct exi_latent_state *ret);

/* Calls f for every latent connection. */
EXI_SHIM void
exi_latent_each(void (*f)(int fd, const struct exi_latent_state *s, void *arg),
		void *arg);
EXI_SHIM void exi_latent_promote_all(void);
/* The child of a fork has what was made while it was made: the kernel's. */
void exi_latent_forked(void);

/* The parts of the word of a connection that wakes. */
enum exi_role exi_latent_role(uintptr_t word);
uint32_t exi_latent_moved(uintptr_t word, enum exi_dir dir);
unsigned int exi_latent_inside(uintptr_t word, enum exi_dir dir);
bool exi_latent_over(uintptr_t word); /* the kernel said the end */
uint32_t exi_latent_life(uintptr_t word);

/* The word has EXI_LATENT, the role, calls under way by direction, whether the
 * kernel said the end, a count that tells the lives of a descriptor apart, and
 * bytes by direction. */
#define EXI_LATENT_ROLE_SHIFT 1
#define EXI_LATENT_ROLE	      ((uintptr_t)3 << EXI_LATENT_ROLE_SHIFT)
#define EXI_LATENT_INSIDE(d)  (3 + 2 * (d))
#define EXI_LATENT_INSIDE_MAX 3u
#define EXI_LATENT_OVER	      ((uintptr_t)1 << 7)

#define EXI_LATENT_MOVED(d)  (24 + 20 * (d))
#define EXI_LATENT_MOVED_MAX ((1u << 20) - 1)

/* The table's word of a number, which must be within the table: of a socket or
 * a latent connection, or 0. */
uintptr_t exi_latent_word_of(int fd);

/* Replaces the word of a number if it is *was still; else *was is what it is
 * now. */
bool exi_latent_replace(int fd, uintptr_t *was, uintptr_t is);

/* After so many bytes in this direction a latent connection becomes a
 * socket. */
uint32_t exi_latent_enough(enum exi_role role, enum exi_dir dir);

#endif
