/* SPDX-License-Identifier: BSD-2-Clause */
/* Loops of asynchronous operations. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf_lane.h"

#define EVENTS		64
#define LOOK_EVERY	8 /* turns of the sending loop */
#define SINK_BYTES_MAX	(64 << 20)
#define GOODBYE_SECONDS 1

/* One end of a connection whose memory is cut into slots. An operation's
 * handle is its slot. */
struct slots {
	int s;
	exs_qhandle_t q;
	exs_mhandle_t mem;
	char *buf;
	size_t len; /* of a slot */
	uint64_t n;
	bool own; /* all receives in the first slot, all sends from another */
	uint64_t outstanding; /* operations */
};

static uint64_t buffers(const struct slots *t)
{
	return t->own ? 2 : t->n;
}

static exs_mhandle_t memory_new(const struct perf_plan *p, void *buf,
				size_t len)
{
	return p->unregistered ? EXS_MHANDLE_UNREGISTERED
			       : exs_mregister(buf, len, 0);
}

static void memory_free(exs_mhandle_t mem)
{
	if (mem != EXS_MHANDLE_INVALID && mem != EXS_MHANDLE_UNREGISTERED)
		exs_mderegister(mem, 0);
}

static void slots_fini(struct slots *t)
{
	struct timeval second = { .tv_sec = GOODBYE_SECONDS };
	exs_event_t ev[EVENTS];
	int n = 1;

	/* Receives that were posted beyond the end of the stream complete
	 * empty. */
	while (t->outstanding && n > 0) {
		n = exs_qdequeue(t->q, ev, EVENTS, &second);
		t->outstanding -= n > 0 ? n : 0;
	}
	memory_free(t->mem);
	if (t->q != EXS_QHANDLE_INVALID)
		exs_qdelete(t->q);
	perf_buffer_free(t->buf, buffers(t) * t->len);
}

static int slots_init(struct slots *t, int s, const struct perf_plan *p,
		      uint64_t n, size_t len)
{
	*t = (struct slots){
		.s = s,
		.n = n,
		.own = p->own,
		.len = len,
		.q = EXS_QHANDLE_INVALID,
		.mem = EXS_MHANDLE_INVALID,
	};
	t->buf = perf_buffer(buffers(t) * len);
	if (!t->buf)
		return -ENOMEM;
	t->q = exs_qcreate((int)(4 * n + EVENTS));
	if (t->q == EXS_QHANDLE_INVALID)
		return -errno;
	t->mem = memory_new(p, t->buf, buffers(t) * len);
	return t->mem == EXS_MHANDLE_INVALID ? -errno : 0;
}

static char *received(const struct slots *t, uint64_t slot)
{
	return t->buf + (t->own ? 0 : slot) * t->len;
}

static int post_recv(struct slots *t, uint64_t slot, int flags)
{
	if (exs_recv(t->s, received(t, slot), t->len, flags, t->q,
		     (exs_ahandle_t)(uintptr_t)slot, t->mem) < 0)
		return -errno;
	t->outstanding++;
	return 0;
}

static int post_send(struct slots *t, uint64_t slot)
{
	uint64_t from = t->own ? 1 : slot;

	if (exs_send(t->s, t->buf + from * t->len, t->len, 0, t->q,
		     (exs_ahandle_t)(uintptr_t)slot, t->mem) < 0)
		return -errno;
	t->outstanding++;
	return 0;
}

static int post_all_recvs(struct slots *t, int flags)
{
	int ret = 0;

	for (uint64_t i = 0; i < t->n && !ret; i++)
		ret = post_recv(t, i, flags);
	return ret;
}

static int dequeue(struct slots *t, exs_event_t *ev)
{
	int n = exs_qdequeue(t->q, ev, EVENTS, NULL);

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	t->outstanding -= n;
	return n;
}

static uint64_t slot_of(const exs_event_t *ev)
{
	return (uintptr_t)ev->exs_evt_ahandle;
}

static size_t moved(const exs_event_t *ev)
{
	return ev->exs_evt_un.exs_evt_xfer.exs_evt_length;
}

/* The server's part of a round trip: 1 when the stream has ended. */
static int echo_event(struct slots *t, const exs_event_t *ev)
{
	if (ev->exs_errno)
		return -ev->exs_errno;
	if (ev->exs_evt_type == EXS_EVT_SEND)
		return post_recv(t, slot_of(ev), MSG_WAITALL);
	if (moved(ev) != t->len)
		return 1;
	return post_send(t, slot_of(ev));
}

static int sink_event(struct slots *t, const exs_event_t *ev)
{
	char *data = received(t, slot_of(ev));
	int ret = 0;

	if (ev->exs_errno)
		return -ev->exs_errno;
	if (!moved(ev))
		return 1;
	if (data[moved(ev) - 1] == PERF_LAST_BYTE) {
		/* Only once: in a shared buffer, later events would find it,
		 * too. */
		data[moved(ev) - 1] = 0;
		ret = exs_send(t->s, data, 1, 0, EXS_QHANDLE_INVALID, NULL,
			       EXS_MHANDLE_UNREGISTERED) < 0
			      ? -errno
			      : 0;
	}
	return ret ? ret : post_recv(t, slot_of(ev), 0);
}

static int serve(struct slots *t,
		 int (*event)(struct slots *t, const exs_event_t *ev))
{
	exs_event_t ev[EVENTS];
	int ret = 0;
	int n;

	while (!ret) {
		n = dequeue(t, ev);
		if (n < 0)
			return n;
		for (int i = 0; i < n && !ret; i++)
			ret = event(t, &ev[i]);
	}
	return ret < 0 ? ret : 0;
}

int perf_async_echo(int s, const struct perf_plan *plan)
{
	struct slots t;
	int ret;

	/* One more than the client has outstanding: the next receive is posted
	 * only when a message comes. */
	ret = slots_init(&t, s, plan, plan->depth + 1, plan->size);
	if (!ret)
		ret = post_all_recvs(&t, MSG_WAITALL);
	if (!ret)
		ret = serve(&t, echo_event);
	slots_fini(&t);
	return ret;
}

int perf_async_sink(int s, const struct perf_plan *plan)
{
	uint64_t wanted = plan->receives ? plan->receives : plan->depth;
	size_t len = perf_sink_size(plan);
	uint64_t n = len < SINK_BYTES_MAX ? SINK_BYTES_MAX / len : 1;
	struct slots t;
	int ret;

	ret = slots_init(&t, s, plan, wanted < n ? wanted : n, len);
	if (!ret)
		ret = post_all_recvs(&t, 0);
	if (!ret)
		ret = serve(&t, sink_event);
	slots_fini(&t);
	return ret;
}

int perf_async_open(struct perf_lane *l)
{
	size_t size = l->plan->size;

	l->q = exs_qcreate((int)(4 * l->plan->depth + EVENTS));
	if (l->q == EXS_QHANDLE_INVALID)
		return -errno;
	l->mem[0] = memory_new(l->plan, l->buf, size);
	l->mem[1] = memory_new(l->plan, l->last, size);
	if (l->mem[0] == EXS_MHANDLE_INVALID ||
	    l->mem[1] == EXS_MHANDLE_INVALID)
		return -errno;
	return 0;
}

void perf_async_close(struct perf_lane *l)
{
	for (int i = 0; i < 2; i++)
		memory_free(l->mem[i]);
	if (l->q != EXS_QHANDLE_INVALID)
		exs_qdelete(l->q);
}

/* Takes at least the given number of send events. */
static int reap_sends(struct perf_lane *l, uint64_t *outstanding,
		      uint64_t at_least)
{
	exs_event_t ev[EVENTS];
	int n;

	if (at_least > EVENTS)
		at_least = EVENTS;
	n = exs_qdequeue(l->q, ev, -(int)at_least, NULL);
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	*outstanding -= n;
	for (int i = 0; i < n; i++) {
		if (ev[i].exs_errno)
			return -ev[i].exs_errno;
		if (moved(&ev[i]) != l->plan->size)
			return -EPROTO;
	}
	return 0;
}

/* Sends that one call submits. */
#define TOGETHER 64

/* Submits the same send so many times. */
static void describe_sends(const struct perf_lane *l, exs_x_op_t *ops)
{
	for (int i = 0; i < TOGETHER; i++)
		ops[i] = (exs_x_op_t){
			.exs_x_type = EXS_EVT_SEND,
			.exs_x_socket = l->fds[0],
			.exs_x_buffer = l->buf,
			.exs_x_length = l->plan->size,
			.exs_x_mhandle = l->mem[0],
		};
}

/* Submits until the depth, or n, is reached; returns how many. */
static int64_t submit_sends(struct perf_lane *l, const exs_x_op_t *ops,
			    uint64_t outstanding, uint64_t n)
{
	uint64_t room = l->plan->depth - outstanding;
	uint64_t i = 0;

	if (n > room)
		n = room;
	while (i < n) {
		int some = n - i < TOGETHER ? (int)(n - i) : TOGETHER;
		int ret = exs_x_submit(l->q, ops, some);

		if (ret < 0 && errno == EAGAIN && outstanding + i)
			break;
		if (ret < 0)
			return -errno;
		i += (uint64_t)ret;
	}
	return (int64_t)i;
}

static int finish_stream(struct perf_lane *l, uint64_t outstanding)
{
	ssize_t n;
	char ack;
	int ret = 0;

	while (outstanding && !ret)
		ret = reap_sends(l, &outstanding, outstanding);
	if (ret)
		return ret;
	if (exs_send(l->fds[0], l->last, l->plan->size, 0, l->q, NULL,
		     l->mem[1]) < 0)
		return -errno;
	outstanding = 1;
	while (outstanding && !ret)
		ret = reap_sends(l, &outstanding, 1);
	if (ret)
		return ret;
	n = l->io->recv(l->fds[0], &ack, 1);
	if (n <= 0)
		return n ? (int)n : -EPIPE;
	return 0;
}

int perf_async_bw(struct perf_lane *l)
{
	uint64_t start = perf_now();
	uint64_t left = l->goal.iters ? l->goal.iters - 1 : UINT64_MAX;
	exs_x_op_t ops[TOGETHER];
	uint64_t outstanding = 0;
	int64_t n;
	int ret = 0;

	describe_sends(l, ops);
	for (unsigned int turn = 1; left && !ret; turn++) {
		n = submit_sends(l, ops, outstanding, left);
		if (n < 0)
			return (int)n;
		left -= n;
		outstanding += n;
		l->meter->iters += n;
		ret = reap_sends(l, &outstanding, (outstanding + 1) / 2);
		if (l->goal.ns && turn % LOOK_EVERY == 0 &&
		    perf_now() - start >= l->goal.ns)
			break;
	}
	if (!ret)
		ret = finish_stream(l, outstanding);
	l->meter->iters++;
	l->meter->ns += perf_now() - start;
	return ret;
}

/* A client's round trips: receive slots, and the times at which their requests
 * left. */
struct trips {
	struct perf_lane *lane;
	struct slots slots;
	uint64_t left; /* to be started */
	uint64_t flying;
	uint64_t start;
	uint64_t *since;
	uint64_t ahead; /* the slot of the receive posted last */
};

static int trip_start(struct trips *t, uint64_t slot, uint64_t now)
{
	struct perf_lane *l = t->lane;
	int ret;

	if (!t->left)
		return 0;
	ret = post_recv(&t->slots, slot, MSG_WAITALL);
	if (ret)
		return ret;
	t->since[slot] = now;
	if (exs_send(l->fds[0], l->buf, l->plan->size, 0, t->slots.q, NULL,
		     l->mem[0]) < 0)
		return -errno;
	t->slots.outstanding++;
	t->flying++;
	t->left--;
	return 0;
}

static int trip_event(struct trips *t, const exs_event_t *ev)
{
	struct perf_lane *l = t->lane;
	uint64_t now;

	if (ev->exs_errno)
		return -ev->exs_errno;
	if (ev->exs_evt_type == EXS_EVT_SEND)
		return 0;
	if (moved(ev) != l->plan->size)
		return -EPIPE;
	now = perf_now();
	hist_add(&l->meter->rtt, now - t->since[slot_of(ev)]);
	l->meter->iters++;
	t->flying--;
	if (l->goal.ns && now - t->start >= l->goal.ns)
		t->left = 0;
	return trip_start(t, slot_of(ev), now);
}

static int fly(struct trips *t)
{
	exs_event_t ev[EVENTS];
	int ret = 0;
	int n;

	for (uint64_t i = 0; i < t->slots.n && !ret; i++)
		ret = trip_start(t, i, perf_now());
	while ((t->flying || t->slots.outstanding) && !ret) {
		n = dequeue(&t->slots, ev);
		ret = n < 0 ? n : 0;
		for (int i = 0; i < n && !ret; i++)
			ret = trip_event(t, &ev[i]);
	}
	return ret;
}

/* With one message outstanding, the meter's timing is more precise. The receive
 * is posted ahead, while the message before it is under way. */
static int one_trip(void *arg)
{
	struct trips *t = arg;
	struct perf_lane *l = t->lane;
	bool back = false;
	exs_event_t ev[EVENTS];
	int n, ret;

	if (exs_send(l->fds[0], l->buf, l->plan->size, 0, t->slots.q, NULL,
		     l->mem[0]) < 0)
		return -errno;
	t->slots.outstanding++;
	t->ahead = !t->ahead;
	ret = post_recv(&t->slots, t->ahead, MSG_WAITALL);
	if (ret)
		return ret;
	while (!back) {
		n = dequeue(&t->slots, ev);
		if (n < 0)
			return n;
		for (int i = 0; i < n; i++) {
			if (ev[i].exs_errno)
				return -ev[i].exs_errno;
			if (moved(&ev[i]) != l->plan->size)
				return -EPIPE;
			back |= ev[i].exs_evt_type == EXS_EVT_RECV;
		}
	}
	return 0;
}

int perf_async_lat(struct perf_lane *l)
{
	uint64_t depth = l->plan->depth;
	struct trips t = {
		.lane = l,
		.start = perf_now(),
		.left = l->goal.iters ? l->goal.iters : UINT64_MAX,
	};
	int ret;

	t.since = calloc(depth, sizeof(*t.since));
	if (!t.since)
		return -ENOMEM;
	ret = slots_init(&t.slots, l->fds[0], l->plan, depth == 1 ? 2 : depth,
			 l->plan->size);
	if (!ret && depth == 1) {
		ret = post_recv(&t.slots, t.ahead, MSG_WAITALL);
		if (!ret)
			ret = perf_meter_run(l->meter, l->goal, one_trip, &t);
		exs_cancel(t.slots.s, NULL, EXS_CAF_FILDES);
	} else if (!ret) {
		ret = fly(&t);
		l->meter->ns += perf_now() - t.start;
	}
	slots_fini(&t.slots);
	free(t.since);
	return ret;
}
