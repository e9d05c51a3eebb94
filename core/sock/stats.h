/* SPDX-License-Identifier: BSD-2-Clause */
/* The counters of this process's connections, in memory that `exs stat` of the
 * same user and of root can read: docs/design/stats.md.
 *
 * Every function but exi_stats_forked() may be called where there is no page:
 * it does nothing then. */
#ifndef EXI_CORE_SOCK_STATS_H
#define EXI_CORE_SOCK_STATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/stats_page.h"
#include "core/sock/table.h"

/* Where the lines of the page are, and how many: 0 without a page. */
struct exi_stats_lines {
	unsigned char *at;
	uint32_t n;
};
EXI_HERE extern struct exi_stats_lines exi_stats_lines;

/* The table of sockets has room for n descriptors: before the first of them. */
void exi_stats_init(uint32_t n);

/* A connection that the kernel still serves begins at the descriptor; what is
 * 0: it continues as a socket, or ends. */
void exi_stats_young(int fd, uint8_t what);

/* Makes a sealable memfd of this many bytes, within RLIMIT_FSIZE, which the
 * kernel enforces with a signal. A descriptor, or -errno. */
int exi_stats_file(const char *name, size_t bytes);

/* The socket gets its entry, if it has none: at its descriptor's place, or at
 * its first use in this process. link_lock held. */
void exi_stats_begin(struct exi_sock *sk);
/* The socket is no longer the process's. Its locks are held. */
void exi_stats_end(const struct exi_sock *sk);

/* The role, the reason or the number changed. */
void exi_stats_note(const struct exi_sock *sk);
/* The fabric changed. link_lock or both halves' locks are held. */
void exi_stats_fabric(const struct exi_sock *sk);

/* A wake-up came. */
void exi_stats_woken(const struct exi_sock *sk);

/* Returns where the text of an answer goes, with room for *ret_room bytes;
 * null: there is no page. No answer can be read until the new one follows. */
char *exi_stats_text(size_t *ret_room);
/* Answers the request with this token. */
void exi_stats_answer(uint64_t token, int64_t result);

/* The child of a fork: the page is the parent's, and the child makes its own at
 * its first connection. */
void exi_stats_forked(void);

/* The direction's line in the page, or null. */
static inline struct exi_stats_dir *exi_stats_of(const struct exi_half *h)
{
	uint32_t line = __atomic_load_n(&h->stats_line, __ATOMIC_RELAXED);

	/* 0 is the line of an entry's head, and stands for no line. Acquire:
	 * pairs with make_locked(), for the address. */
	if (exi_unlikely(line - 1 >=
			 __atomic_load_n(&exi_stats_lines.n, __ATOMIC_ACQUIRE)))
		return NULL;
	return (struct exi_stats_dir *)(void *)(exi_stats_lines.at +
						(size_t)line * EXI_STATS_LINE);
}

#define EXI_STATS_SET(word, v)                                                 \
	atomic_store_explicit(word, v, memory_order_relaxed)
#define EXI_STATS_GET(word) atomic_load_explicit(word, memory_order_relaxed)

/* Publishes what changes seldom: the direction's lock is held. */
void exi_stats_rest_locked(const struct exi_half *h);

/* The same, and publishes that the direction moved just now. */
void exi_stats_timed_locked(struct exi_half *h);

/* After each transfer, with the lock of the direction held: the bytes that have
 * moved. The clock is read for one in 16 transfers, after a sleep, and where
 * the kernel was called anyway. */
#define EXI_STATS_TIMED 16u
static inline void exi_stats_moved_locked(struct exi_half *h, uint64_t bytes,
					  uint64_t fabric_bytes, bool kernel)
{
	struct exi_stats_dir *s = exi_stats_of(h);

	EXI_LOCKED(&h->lock);
	if (exi_unlikely(!s))
		return;
	EXI_STATS_SET(&s->bytes, bytes);
	EXI_STATS_SET(&s->fabric_bytes, fabric_bytes);
	EXI_STATS_SET(&s->moves, h->moves);
	if (exi_unlikely(--h->stats_left < 0 || kernel))
		exi_stats_timed_locked(h);
}

/* The mode of the direction changes. Its lock is held. */
static inline void exi_half_mode_locked(struct exi_half *h, enum exi_mode mode)
{
	EXI_LOCKED(&h->lock);
	atomic_store(&h->mode, mode);
	exi_stats_rest_locked(h);
}

/* A thread is about to sleep for the direction, whose lock is held: the
 * transfer after it looks at the clock. */
static inline void exi_stats_sleeps_locked(struct exi_half *h)
{
	EXI_LOCKED(&h->lock);
	h->sleeps++;
	h->stats_left = 0;
	exi_stats_rest_locked(h);
}

#endif
