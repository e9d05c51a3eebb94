/* SPDX-License-Identifier: BSD-2-Clause */
/* The program has the first end of a pair, the feed the second. If a byte is
 * unread at the second end when it closes, the end is a reset. Such a byte, the
 * mark, is there from the beginning, and is removed when all bytes have moved
 * in order. So bytes that do not move, because a feeder cannot be started or is
 * killed, end in a reset. */
#include "core/call/feed.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include "core/base/fds.h"
#include "core/base/feeder.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"

/* --- one feed ------------------------------------------------------------ */

#define PIECE 16384

static ssize_t put(const struct exi_feed *f, const void *from, size_t n)
{
	ssize_t ret = send(f->to, from, n < PIECE ? n : PIECE,
			   MSG_DONTWAIT | MSG_NOSIGNAL);

	return ret < 0 ? -errno : ret;
}

/* TCP has ended: the ring has the rest of the bytes that the peer sent
 * again. */
static ssize_t tcp_ended(struct exi_feed *f, int err)
{
	f->reset = f->reset || err;
	if (!f->all || f->returned < 0)
		return -ECONNRESET; /* TCP bytes are missing */
	f->all = false;
	f->left = 0;
	while (f->returned) {
		const void *run;
		size_t n = f->ops->look(&f->ring, &run);

		if (!n)
			break;
		n = (int64_t)n < f->returned ? n : (size_t)f->returned;
		f->ops->took(&f->ring, n);
		f->returned -= (int64_t)n;
	}
	return 1;
}

static ssize_t from_tcp(struct exi_feed *f)
{
	char buf[PIECE];
	size_t want = f->left < PIECE ? (size_t)f->left : PIECE;
	ssize_t n = recv(f->from, buf, want, MSG_PEEK | MSG_DONTWAIT);

	f->waits = n < 0 && errno == EAGAIN;
	if (n <= 0)
		return f->waits ? -EAGAIN : tcp_ended(f, n < 0 ? errno : 0);
	n = put(f, buf, (size_t)n);
	if (n > 0)
		n = recv(f->from, buf, (size_t)n, MSG_DONTWAIT);
	if (n > 0 && !f->all)
		f->left -= (uint64_t)n;
	if (n > 0 && f->all && f->returned <= INT64_MAX - n)
		f->returned += n;
	return n;
}

/* Whether the kernel has an error to return at the end of the stream. */
static bool is_error(const struct exi_feed *f)
{
	char c;

	return recv(f->from, &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
	       errno != EAGAIN && errno != EINTR && errno != ENOTCONN;
}

/* Moves one piece. Returns its bytes, or another number above 0, to go on; 0:
 * all has moved; -EAGAIN; -errno: no more can move. */
static ssize_t step(struct exi_feed *f)
{
	const void *run;
	ssize_t ret;
	size_t n;

	f->waits = false;
	if (f->done < f->n) {
		ret = put(f, f->bytes + f->done, f->n - f->done);
		f->done += ret > 0 ? (size_t)ret : 0;
		return ret;
	}
	if (f->left)
		return from_tcp(f);
	n = f->ops && f->heard ? f->ops->look(&f->ring, &run) : 0;
	if (!n)
		return 0;
	ret = put(f, run, n < f->heard ? n : (size_t)f->heard);
	if (ret > 0) {
		f->ops->took(&f->ring, (size_t)ret);
		f->heard -= (uint64_t)ret;
	}
	return ret;
}

/* Moves up to `most' bytes. 0: all has moved; 1: more can move at once;
 * -EAGAIN; -errno. */
static int move(struct exi_feed *f, size_t most, size_t *ret_moved)
{
	ssize_t n = 1;

	for (*ret_moved = 0; *ret_moved < most && n > 0;) {
		n = step(f);
		*ret_moved += n > 0 ? (size_t)n : 0;
	}
	if (n == 0 && f->asks && !f->reset)
		f->reset = is_error(f);
	if (n < 0 && n != -EAGAIN)
		f->reset = true;
	return n > 0 ? 1 : (int)n;
}

/* The bytes of memory that a feeder keeps for it. */
static size_t holds(const struct exi_feed *f)
{
	size_t ring = f->ops ? f->ops->size(&f->ring) : 0;

	return f->n - f->done + ring;
}

/* Closes its descriptors and frees the ring. */
static void let_go(struct exi_feed *f, bool in_order)
{
	char mark;

	if (in_order)
		recv(f->to, &mark, 1, MSG_DONTWAIT);
	close(f->to);
	if (f->from >= 0)
		close(f->from);
	if (f->ops)
		f->ops->end(&f->ring);
	f->to = -1;
}

void exi_feed_end(struct exi_feed *f)
{
	let_go(f, !f->reset);
	free(f->bytes);
}

/* --- what waits, of all calls that are under way -------------------------- */

/* The bytes that a call moves: a few milliseconds. SHARE_EACH of each
 * connection always move, so that a readable one stays readable. */
#define SHARE	   ((size_t)8 << 20)
#define SHARE_EACH ((size_t)4096)
#define FEEDS	   256

static struct exi_lock lock; /* guards the others */
static struct exi_feed feeds[FEEDS];
static size_t n_feeds, held;
static _Atomic size_t moved; /* since the last exi_feed_rest() */

int exi_feed_begin(struct exi_feed *f)
{
	size_t already = atomic_load(&moved), n;
	int ret = move(
		f, already + SHARE_EACH < SHARE ? SHARE - already : SHARE_EACH,
		&n);

	atomic_fetch_add(&moved, n);
	return ret > 0 ? -EAGAIN : ret;
}

/* --- the feeder ----------------------------------------------------------- */

#define ROUND	 ((size_t)256 << 10) /* per feed and round */
#define LIVES_MS 30000
/* A gone peer's kernel may still send what it has. */
#define TCP_NS 60000000000u

static struct pollfd polled[FEEDS];

/* Returns false if the feed is over. */
static bool feed_one(struct exi_feed *f, struct pollfd *p, bool *more)
{
	uint64_t now = exi_now_ns();
	size_t n;
	int ret = move(f, ROUND, &n);

	if (n || !f->since)
		f->since = now;
	if (ret == -EAGAIN && f->waits && now - f->since > TCP_NS)
		f->reset = true;
	else if (ret == 1 || ret == -EAGAIN) {
		p->fd = f->waits ? f->from : f->to;
		p->events = f->waits ? POLLIN : POLLOUT;
		*more = *more || ret == 1;
		return true;
	}
	let_go(f, !f->reset);
	return false;
}

static void feed_all(struct exi_feeder *self, const void *arg)
{
	for (;;) {
		size_t n = 0, bytes = 0;
		bool more = false;

		for (size_t i = 0; i < n_feeds; i++) {
			struct exi_feed *f = &feeds[i];

			if (f->to >= 0 && feed_one(f, &polled[n], &more)) {
				bytes += holds(f);
				n++;
			}
		}
		if (!n)
			return;
		exi_feeder_lives(self, bytes);
		poll(polled, n, more ? 0 : LIVES_MS);
	}
}

/* Leaves the marks: a feeder removes them, or they turn the ends into
 * resets. */
static void end_all_locked(void)
{
	EXI_LOCKED(&lock);
	for (size_t i = 0; i < n_feeds; i++) {
		feeds[i].reset = true;
		exi_feed_end(&feeds[i]);
	}
	n_feeds = held = 0;
	atomic_store(&moved, 0);
}

static void rest_locked(void)
{
	int fds[2 * FEEDS], err;
	struct exi_feeder_work w = {
		.run = feed_all, .fds = fds, .n_fds = 2 * n_feeds, .holds = held
	};

	EXI_LOCKED(&lock);
	for (size_t i = 0; i < n_feeds; i++) {
		fds[2 * i] = feeds[i].to;
		fds[2 * i + 1] = feeds[i].from;
	}
	err = n_feeds ? exi_feeder_start(&w) : 0;
	if (err)
		exi_error("no process can be started that passes on what "
			  "%zu peer%s left unread (%s); the connections are "
			  "reset",
			  n_feeds, n_feeds == 1 ? "" : "s",
			  strerrordesc_np(-err));
	end_all_locked();
}

/* exi_fds_begin(): a fork in another thread waits while feeds and their
 * descriptors change. */
void exi_feed_rest(void)
{
	exi_fds_begin();
	exi_lock(&lock);
	rest_locked();
	exi_unlock(&lock);
	exi_fds_end();
}

void exi_feed_later(struct exi_feed *f)
{
	size_t more = holds(f);

	exi_fds_begin();
	exi_lock(&lock);
	if (n_feeds == FEEDS)
		rest_locked();
	if (held + more <= exi_feeder_room()) {
		feeds[n_feeds++] = *f;
		held += more;
	} else {
		f->reset = true;
		exi_feed_end(f);
	}
	exi_unlock(&lock);
	exi_fds_end();
}

void exi_feed_forked(void)
{
	atomic_store(&lock.word, 0);
	exi_lock(&lock);
	end_all_locked();
	exi_unlock(&lock);
}
