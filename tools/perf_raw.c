/* SPDX-License-Identifier: BSD-2-Clause */
/* The limit: two processes on two CPUs that share memory and nothing else.
 * Round trips bounce one cache line (more for larger messages); streams are two
 * copies through a ring, which both ends make at the same time. */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/util.h"
#include "tools/perf_lane.h"

#define BALL_MAX (64 << 20)
#define RING	 (2 << 20)
#define PIECE	 (64 << 10)

/* One direction of the round trip: a number that changes with each message,
 * and in the same cache line the message. */
struct ball {
	_Alignas(128) _Atomic uint32_t turn;
	char message[BALL_MAX];
};

struct perf_raw {
	struct ball there;		     /* written by the client */
	struct ball back;		     /* written by the server */
	_Alignas(128) _Atomic uint64_t head; /* written by the sender */
	_Alignas(128) _Atomic uint64_t tail; /* written by the receiver */
	_Alignas(128) _Atomic uint32_t acks; /* streams received whole */
	_Alignas(4096) char ring[RING];
};

int perf_raw_open(struct perf_raw **ret)
{
	struct perf_raw *r =
		mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (r == MAP_FAILED)
		return -errno;
	*ret = r;
	return 0;
}

void perf_raw_free(struct perf_raw *r)
{
	if (r)
		munmap(r, sizeof(*r));
}

/* The most important size must not pay for a call. */
static void copy(char *to, const char *from, size_t size)
{
	if (size == 8)
		memcpy(to, from, 8);
	else
		memcpy(to, from, size);
}

static void throw(struct ball * b, uint32_t turn, const char *buf, size_t size)
{
	copy(b->message, buf, size);
	/* Pairs with the acquire in catch(). */
	atomic_store_explicit(&b->turn, turn, memory_order_release);
}

static void catch (struct ball *b, uint32_t turn, char *buf, size_t size)
{
	while (atomic_load_explicit(&b->turn, memory_order_acquire) != turn)
		exi_pause();
	copy(buf, b->message, size);
}

static int bounce(void *arg)
{
	struct perf_lane *l = arg;
	struct perf_raw *r = l->local->raw;
	uint32_t turn =
		atomic_load_explicit(&r->there.turn, memory_order_relaxed) + 1;

	throw(&r->there, turn, l->buf, l->plan->size);
	catch (&r->back, turn, l->buf, l->plan->size);
	return 0;
}

int perf_raw_lat(struct perf_lane *l)
{
	return perf_meter_run(l->meter, l->goal, bounce, l);
}

static void put(struct perf_raw *r, const char *buf, size_t size)
{
	uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);

	while (size) {
		size_t n = RING - head % RING;

		n = n > PIECE ? PIECE : n;
		n = n > size ? size : n;
		/* Pairs with the release in take(): the room is free. */
		while (head + n -
			       atomic_load_explicit(&r->tail,
						    memory_order_acquire) >
		       RING)
			;
		memcpy(r->ring + head % RING, buf, n);
		head += n;
		buf += n;
		size -= n;
		/* Pairs with the acquire in take(): the bytes are there. */
		atomic_store_explicit(&r->head, head, memory_order_release);
	}
}

static size_t take(struct perf_raw *r, char *buf, size_t size)
{
	uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
	size_t n, whole = RING - tail % RING;

	do
		n = atomic_load_explicit(&r->head, memory_order_acquire) - tail;
	while (!n);
	n = n > whole ? whole : n;
	n = n > size ? size : n;
	memcpy(buf, r->ring + tail % RING, n);
	atomic_store_explicit(&r->tail, tail + n, memory_order_release);
	return n;
}

int perf_raw_bw(struct perf_lane *l)
{
	struct perf_raw *r = l->local->raw;
	uint32_t acks = atomic_load_explicit(&r->acks, memory_order_relaxed);
	uint64_t start = perf_now();
	uint64_t left = l->goal.iters ? l->goal.iters - 1 : UINT64_MAX;

	while (left--) {
		put(r, l->buf, l->plan->size);
		l->meter->iters++;
		if (l->goal.ns && l->meter->iters % 64 == 0 &&
		    perf_now() - start >= l->goal.ns)
			break;
	}
	put(r, l->last, l->plan->size);
	while (atomic_load_explicit(&r->acks, memory_order_acquire) == acks)
		;
	l->meter->iters++;
	l->meter->ns += perf_now() - start;
	return 0;
}

/* The process ends when its client does; see perf_server.c. */
int perf_raw_serve(struct perf_local *local, const struct perf_plan *plan)
{
	struct perf_raw *r = local->raw;
	char *buf = perf_buffer(plan->size > PIECE ? plan->size : PIECE);
	size_t n;

	if (!buf)
		return -ENOMEM;
	for (uint32_t turn = 1; plan->test == PERF_LAT; turn++) {
		catch (&r->there, turn, buf, plan->size);
		throw(&r->back, turn, buf, plan->size);
	}
	for (;;) {
		n = take(r, buf, PIECE);
		if (buf[n - 1] == PERF_LAST_BYTE)
			atomic_fetch_add_explicit(&r->acks, 1,
						  memory_order_release);
	}
}
