/* SPDX-License-Identifier: BSD-2-Clause */
/* Latent connections: young connections without a socket of the library.
 *
 * Most connections of some programs end after one request and its answer: a
 * socket of the library would cost them more than they could gain. So a
 * connection begins as one word in the table of sockets, and the kernel serves
 * its calls. It is promoted to a socket when it has moved enough bytes to make
 * a meeting worth while, and whenever exi_sock_find() asks for it: code that
 * uses sockets need not know of latent connections.
 *
 * The word has the connection's role, the bytes that it has moved, and the
 * number of system calls under way. Each change, promotion included, is one
 * compare-and-swap: so moved bytes are counted once, either in the word or in
 * the socket. A call that ends after the promotion finds the socket, which
 * knows of the call (half.in_kernel) and does not go to a fabric before the
 * call ends, as with the socket's own system calls. A call that never ends,
 * because its thread was cancelled or jumped away, keeps its direction on TCP.
 *
 * A connection that came with a message begins as a word, too: a stranger's
 * thread may keep the lock of its socket, for which a look at it waits. So it
 * is looked at when the program uses it first, and calls that do not use it
 * never wait for it.
 *
 * Connections are latent only where every close is seen, because the word
 * belongs to the descriptor number. */
#ifndef EXI_CORE_MEET_LATENT_H
#define EXI_CORE_MEET_LATENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/config.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/meet/meet.h"
#include "core/sock/table.h"

/* Set if every close is seen: connections may begin latent. */
EXI_SHIM extern _Atomic bool exi_latent_on;

/* Hooks for code that keeps more state about latent connections. begun: fd
 * begins as one. promoted: it is the socket sk now, whose link lock is held. */
EXI_SHIM extern void (*exi_latent_begun)(int fd);
EXI_SHIM extern void (*exi_latent_promoted)(struct exi_sock *sk, int fd);

/* Makes a new descriptor a latent connection. Returns false if it must be a
 * socket. An accepted one is counted among the connections (marker.h). */
EXI_SHIM bool exi_latent_begin(int fd, enum exi_role role);

/* Makes a descriptor that came with a message a latent connection; `giver' is
 * exi_handed_giver(). False: it stays the kernel's. */
bool exi_latent_came(int fd, uint32_t giver);
/* Another process may get, or have, the connection that came. */
void exi_latent_shared(int fd);

/* The latent connection is connected, or about to be. */
EXI_SHIM void exi_latent_connected(int fd);

/* A system call that moves up to n bytes of a latent connection is enclosed in
 * enter and leave. enter: returns false if the connection is not latent, or not
 * connected, or must be promoted first. leave: gets the result of the system
 * call, and keeps errno. */
struct exi_latent_call {
	uint32_t life;
	uint64_t began; /* of a send: exi_link_sends() */
};

/* The state of one latent connection. */
struct exi_latent_state {
	enum exi_role role;
	uint32_t moved[2]; /* by direction */
};

/* Ends a latent connection, before its descriptor is closed. Returns false if
 * it is no longer latent. *ret gets its last state, unless ret is null. */
EXI_SHIM bool exi_latent_end(int fd, struct exi_latent_state *ret);

/* Calls f for every latent connection. */
EXI_SHIM void
exi_latent_each(void (*f)(int fd, const struct exi_latent_state *s, void *arg),
		void *arg);
/* Promotes all but those that came with a message. share_all: called before
 * other processes get what this one has; these do not move then. */
EXI_SHIM void exi_latent_promote_all(void);
EXI_SHIM void exi_latent_share_all(void);
/* Called in the child after fork, and when the shim leaves: the latent
 * connections in the table stay the kernel's. */
EXI_SHIM void exi_latent_forget_all(void);

/* The layout of the word: EXI_LATENT, the role, the calls under way by
 * direction, whether the kernel returned the end of the stream, a count that
 * distinguishes successive connections of a descriptor, and the bytes by
 * direction. */
#define EXI_LATENT_ROLE_SHIFT 1
#define EXI_LATENT_ROLE	      ((uintptr_t)3 << EXI_LATENT_ROLE_SHIFT)
#define EXI_LATENT_INSIDE(d)  (3 + 2 * (d))
#define EXI_LATENT_INSIDE_MAX 3u
#define EXI_LATENT_OVER	      ((uintptr_t)1 << 7)
#define EXI_LATENT_LIFE	      8
#define EXI_LATENT_LIFE_MAX   0xffffu

/* Of one that came with a message: in the place of the role; the giver, in that
 * of the bytes; and whether other processes may have it. */
#define EXI_LATENT_CAME	  EXI_LATENT_ROLE
#define EXI_LATENT_GIVER  24
#define EXI_LATENT_SHARED EXI_LATENT_OVER

static inline bool exi_latent_is_open(uintptr_t word)
{
	return (word & EXI_LATENT) && (word & EXI_LATENT_ROLE) &&
	       (word & EXI_LATENT_ROLE) != EXI_LATENT_CAME;
}

static inline bool exi_latent_is_come(uintptr_t word)
{
	return (word & EXI_LATENT) &&
	       (word & EXI_LATENT_ROLE) == EXI_LATENT_CAME;
}

#define EXI_LATENT_MOVED(d)  (24 + 20 * (d))
#define EXI_LATENT_MOVED_MAX ((1u << 20) - 1)

/* The parts of a word. A call on a latent connection reads several of them, so
 * they are here. */
static inline enum exi_role exi_latent_role(uintptr_t word)
{
	return (enum exi_role)((word & EXI_LATENT_ROLE) >>
			       EXI_LATENT_ROLE_SHIFT);
}

static inline uint32_t exi_latent_moved(uintptr_t word, enum exi_dir dir)
{
	return (uint32_t)(word >> EXI_LATENT_MOVED(dir)) & EXI_LATENT_MOVED_MAX;
}

static inline unsigned int exi_latent_inside(uintptr_t word, enum exi_dir dir)
{
	return (unsigned int)(word >> EXI_LATENT_INSIDE(dir)) &
	       EXI_LATENT_INSIDE_MAX;
}

/* At the end of the stream. */
static inline bool exi_latent_over(uintptr_t word)
{
	return word & EXI_LATENT_OVER;
}

static inline uint32_t exi_latent_life(uintptr_t word)
{
	return (uint32_t)(word >> EXI_LATENT_LIFE) & EXI_LATENT_LIFE_MAX;
}

/* The table's word for a number, which must be within the table: a socket, a
 * latent connection, or 0. */
static inline uintptr_t exi_latent_word_of(int fd)
{
	/* Pairs with exi_sock_put() and exi_latent_replace(). */
	return (uintptr_t)atomic_load_explicit(&exi_table.socks[fd],
					       memory_order_acquire);
}

/* Replaces the word of a number if it is still *was; else sets *was to the
 * present word. */
static inline bool exi_latent_replace(int fd, uintptr_t *was, uintptr_t is)
{
	struct exi_sock *old = (struct exi_sock *)*was;
	bool ret = atomic_compare_exchange_strong(&exi_table.socks[fd], &old,
						  (struct exi_sock *)is);

	*was = (uintptr_t)old;
	return ret;
}

/* The number of bytes in this direction after which a latent connection is
 * promoted. */
static inline uint32_t exi_latent_enough(enum exi_role role, enum exi_dir dir)
{
	uint64_t bytes = exi_config()->upgrade_bytes;
	uint64_t ret = (role == EXI_ROLE_CONNECT) == (dir == EXI_TX)
			       ? bytes
			       : exi_link_download(bytes);

	return ret < EXI_LATENT_MOVED_MAX / 2 ? (uint32_t)ret
					      : EXI_LATENT_MOVED_MAX / 2;
}

#endif
