/* SPDX-License-Identifier: BSD-2-Clause */
/* The epoll engine: readiness from the kernel, transfers by progress().
 *
 * A descriptor is in the set once, with the events its waiting slots need, and
 * one shot: an event makes slots QUEUED and is not repeated until it is asked
 * for again, so an event that no thread handles costs nothing.
 *
 *	post --> WAITING --event--> QUEUED --> RUNNING --> FINISHED
 *	            ^                             |
 *	            +----------- EAGAIN ----------+
 *
 * While some thread is in progress() a new send is QUEUED without asking the
 * kernel: that thread tries it before it leaves, so a chain of sends that find
 * room takes one system call each. A receive is not: its connection is in the
 * set when post() returns, so receives that were posted before bytes came are
 * tried in the order in which the kernel got the bytes.
 *
 * The kernel can report a descriptor that was closed behind our back, as long
 * as a duplicate is open somewhere, and there is no way to take it out of the
 * set. So events do not carry a pointer, but a place in a table and the
 * generation of what was there. */
#include "providers/tcp/tcp_int.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/fds.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"

#define EVENTS_MAX 64

/* The table grows by whole chunks, which stay where they are. */
#define CHUNK	   1024u
#define CHUNKS_MAX 1024u

#define ID_KICK 0u /* ids of connections begin at 1 */

struct place {
	struct exi_conn *conn; /* null: free */
	uint32_t generation;
	uint32_t next; /* id of the next free place; 0: none */
};

/* Guarded by the domain's lock. */
struct epoll_engine {
	int set;
	int kick; /* eventfd in the set, edge-triggered: never read */
	unsigned int inside;   /* threads in progress() */
	struct exi_list queue; /* slots to be tried */
	uint32_t n_places;     /* ever used */
	uint32_t free;	       /* id; 0: none */
	struct place *chunks[CHUNKS_MAX];
};

static struct epoll_engine *engine_of(struct tcpp_domain *d)
{
	return tcpp_domain_state(d);
}

static struct place *place_of(struct epoll_engine *e, uint32_t id)
{
	return &e->chunks[(id - 1) / CHUNK][(id - 1) % CHUNK];
}

static int place_new(struct epoll_engine *e, uint32_t *ret)
{
	uint32_t i = e->n_places;

	if (i == CHUNK * CHUNKS_MAX)
		return -ENOMEM;
	if (!e->chunks[i / CHUNK])
		e->chunks[i / CHUNK] = calloc(CHUNK, sizeof(struct place));
	if (!e->chunks[i / CHUNK])
		return -ENOMEM;
	*ret = ++e->n_places;
	return 0;
}

static int place_take(struct epoll_engine *e, struct exi_conn *c)
{
	struct tcpp_conn *p = tcpp_priv(c);
	uint32_t id = e->free;
	int ret;

	if (p->id)
		return 0;
	if (id) {
		e->free = place_of(e, id)->next;
	} else {
		ret = place_new(e, &id);
		if (ret < 0)
			return ret;
	}
	place_of(e, id)->conn = c;
	p->id = id;
	return 0;
}

static void place_give(struct epoll_engine *e, struct exi_conn *c)
{
	struct tcpp_conn *p = tcpp_priv(c);
	struct place *place;

	if (!p->id)
		return;
	place = place_of(e, p->id);
	place->conn = NULL;
	place->generation++;
	place->next = e->free;
	e->free = p->id;
	p->id = 0;
}

/* The connection that an event means; null when that one is gone. */
static struct exi_conn *place_look(struct epoll_engine *e, uint64_t data)
{
	struct place *place = place_of(e, (uint32_t)data);

	return place->generation == data >> 32 ? place->conn : NULL;
}

static bool needs(const struct tcpp_conn *p, enum exi_dir dir)
{
	return p->xfer[dir].state == TCPP_WAITING ||
	       p->watch[dir].state == TCPP_WAITING;
}

static uint32_t needed_events(const struct tcpp_conn *p)
{
	return (needs(p, EXI_RX) ? EPOLLIN : 0u) |
	       (needs(p, EXI_TX) ? EPOLLOUT : 0u);
}

static int control(int set, int op, int fd, struct epoll_event *ev)
{
	int saved = errno, ret = 0;

	if (epoll_ctl(set, op, fd, ev) < 0) {
		ret = -errno;
		errno = saved;
	}
	return ret;
}

/* Adds the descriptor or changes its events. The set may differ from what we
 * remember if the application closed the number, or gave it to another file. */
static int put(struct epoll_engine *e, int fd, bool added,
	       struct epoll_event *ev)
{
	int ret =
		control(e->set, added ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, ev);

	if (ret == -ENOENT)
		ret = control(e->set, EPOLL_CTL_ADD, fd, ev);
	else if (ret == -EEXIST)
		ret = control(e->set, EPOLL_CTL_MOD, fd, ev);
	return ret;
}

static int arm_events(struct epoll_engine *e, struct exi_conn *c,
		      uint32_t events)
{
	struct tcpp_conn *p = tcpp_priv(c);
	struct epoll_event ev = { .events = events | EPOLLONESHOT };
	int ret = place_take(e, c);

	if (ret < 0)
		return ret;
	ev.data.u64 = (uint64_t)place_of(e, p->id)->generation << 32 | p->id;
	ret = put(e, c->fd, p->added, &ev);
	if (ret < 0)
		return ret;
	p->added = true;
	p->armed = events;
	return 0;
}

static void disarm_events(struct epoll_engine *e, struct exi_conn *c)
{
	struct tcpp_conn *p = tcpp_priv(c);

	if (p->added)
		control(e->set, EPOLL_CTL_DEL, c->fd, NULL);
	p->added = false;
	p->armed = 0;
}

static void fail_waiting_locked(struct tcpp_domain *d, struct tcpp_op *op,
				int err)
{
	EXI_LOCKED(&d->lock);
	if (op->state == TCPP_WAITING)
		tcpp_op_fail_locked(d, op, err);
}

/* Makes the set watch for what the waiting slots need. If that fails, the slots
 * are finished with the reason. */
static void watch_locked(struct tcpp_domain *d, struct exi_conn *c)
{
	struct epoll_engine *e = engine_of(d);
	struct tcpp_conn *p = tcpp_priv(c);
	/* The number of a closed connection may be another file's. */
	uint32_t events = p->closed ? 0 : needed_events(p);
	enum exi_dir dir;
	int ret;

	EXI_LOCKED(&d->lock);
	if (events == p->armed)
		return;
	if (!events) {
		disarm_events(e, c);
		return;
	}
	ret = arm_events(e, c, events);
	if (exi_likely(ret == 0))
		return;
	for (dir = EXI_RX; dir <= EXI_TX; dir++) {
		fail_waiting_locked(d, &p->xfer[dir], ret);
		fail_waiting_locked(d, &p->watch[dir], ret);
	}
	p->armed = 0;
}

static void close_engine(void *state)
{
	struct epoll_engine *e = state;
	uint32_t i;

	exi_fd_close(e->kick);
	exi_fd_close(e->set);
	for (i = 0; i < CHUNKS_MAX && e->chunks[i]; i++)
		free(e->chunks[i]);
	free(e);
}

static int make_set(struct epoll_engine *e)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET,
				  .data.u64 = ID_KICK };

	e->set = exi_fd_keep(epoll_create1(EPOLL_CLOEXEC));
	if (e->set < 0)
		return e->set;
	e->kick = exi_fd_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (e->kick < 0)
		return e->kick;
	return control(e->set, EPOLL_CTL_ADD, e->kick, &ev);
}

static int open_engine(void **ret, char *why, size_t len)
{
	struct epoll_engine *e = calloc(1, sizeof(*e));
	int err;

	if (!e)
		return -ENOMEM;
	e->set = e->kick = -1;
	exi_list_init(&e->queue);
	err = make_set(e);
	if (err < 0) {
		snprintf(why, len, "epoll set: %s", strerror(-err));
		close_engine(e);
		return err;
	}
	*ret = e;
	return 0;
}

static void kick(struct tcpp_domain *d)
{
	int saved = errno;

	eventfd_write(engine_of(d)->kick, 1);
	errno = saved;
}

static bool work_left(struct tcpp_domain *d)
{
	bool left;

	exi_lock(&d->lock);
	left = !exi_list_empty(&engine_of(d)->queue) ||
	       !exi_list_empty(&d->finished);
	exi_unlock(&d->lock);
	return left;
}

static void queue_locked(struct epoll_engine *e, struct tcpp_op *op)
{
	EXI_LOCKED(&tcpp_domain(op->conn->domain)->lock);
	op->state = TCPP_QUEUED;
	exi_list_add_tail(&e->queue, &op->node);
}

static int post(struct tcpp_domain *d, struct tcpp_op *op)
{
	struct epoll_engine *e = engine_of(d);
	bool finished = false;

	exi_lock(&d->lock);
	if (op->state == TCPP_WAITING) {
		if (e->inside && !op->watch && op->dir == EXI_TX)
			queue_locked(e, op);
		else
			watch_locked(d, op->conn);
		finished = op->state == TCPP_FINISHED;
	}
	exi_unlock(&d->lock);
	if (finished)
		kick(d);
	return 0;
}

/* A slot that a thread is trying is given back by that thread. */
static void cancel(struct tcpp_domain *d, struct tcpp_op *op)
{
	bool mine;

	exi_lock(&d->lock);
	mine = op->cancel &&
	       (op->state == TCPP_WAITING || op->state == TCPP_QUEUED);
	if (mine) {
		exi_list_del(&op->node);
		tcpp_op_cancelled_locked(d, op);
		watch_locked(d, op->conn);
	}
	exi_unlock(&d->lock);
	if (mine && !op->watch)
		kick(d);
}

static int event_fd(struct tcpp_domain *d)
{
	return engine_of(d)->set;
}

static int arm(struct tcpp_domain *d)
{
	return work_left(d) ? -EBUSY : 0;
}

static void release(struct tcpp_domain *d, struct exi_conn *c)
{
	struct epoll_engine *e = engine_of(d);

	exi_lock(&d->lock);
	tcpp_conn_locked(c);
	disarm_events(e, c);
	place_give(e, c);
	exi_unlock(&d->lock);
}

static void part(struct tcpp_domain *d, struct exi_conn *c)
{
	exi_lock(&d->lock);
	tcpp_conn_locked(c);
	disarm_events(engine_of(d), c);
	exi_unlock(&d->lock);
}

static void direction_fired_locked(struct tcpp_domain *d, struct tcpp_conn *p,
				   enum exi_dir dir)
{
	EXI_LOCKED(&d->lock);
	if (p->xfer[dir].state == TCPP_WAITING)
		queue_locked(engine_of(d), &p->xfer[dir]);
	if (p->watch[dir].state == TCPP_WAITING)
		tcpp_op_finish_locked(d, &p->watch[dir], 0);
}

static void fired_locked(struct tcpp_domain *d, const struct epoll_event *ev)
{
	struct exi_conn *c;

	EXI_LOCKED(&d->lock);
	if (ev->data.u64 == ID_KICK)
		return;
	c = place_look(engine_of(d), ev->data.u64);
	if (!c)
		return;
	tcpp_priv(c)->armed = 0;
	if (ev->events & ~(uint32_t)EPOLLOUT)
		direction_fired_locked(d, tcpp_priv(c), EXI_RX);
	if (ev->events & ~(uint32_t)EPOLLIN)
		direction_fired_locked(d, tcpp_priv(c), EXI_TX);
	watch_locked(d, c);
}

static void gather(struct tcpp_domain *d)
{
	struct epoll_event ev[EVENTS_MAX];
	int n = epoll_wait(engine_of(d)->set, ev, EVENTS_MAX, 0);
	int i;

	if (n <= 0)
		return;
	exi_lock(&d->lock);
	for (i = 0; i < n; i++)
		fired_locked(d, &ev[i]);
	exi_unlock(&d->lock);
}

static ssize_t try(const struct tcpp_op *op)
{
	const struct exi_xfer *x = op->xfer;
	char *buf = (char *)x->buf + op->moved;
	size_t len = x->len - op->moved;
	int flags = x->flags & ~MSG_WAITALL;

	if (op->dir == EXI_TX)
		return tcpp_send(op->conn->fd, buf, len, flags);
	return tcpp_recv(op->conn->fd, buf, len, flags);
}

/* Tries the first of the queue; false when there is none. If it moved only a
 * part of what is wanted, it is queued again. */
static bool run_one(struct tcpp_domain *d)
{
	struct epoll_engine *e = engine_of(d);
	struct exi_list *node;
	struct tcpp_op *op;
	ssize_t n;

	exi_lock(&d->lock);
	node = exi_list_pop(&e->queue);
	if (!node) {
		exi_unlock(&d->lock);
		return false;
	}
	op = exi_container(node, struct tcpp_op, node);
	op->state = TCPP_RUNNING;
	exi_unlock(&d->lock);

	n = try(op);

	exi_lock(&d->lock);
	if (tcpp_op_step_locked(d, op, n)) {
		/* The upcall is for tcpp_domain_deliver(). */
	} else if (n == -EAGAIN) {
		op->state = TCPP_WAITING;
		watch_locked(d, op->conn);
	} else {
		queue_locked(e, op);
	}
	exi_unlock(&d->lock);
	return true;
}

static void enter(struct tcpp_domain *d)
{
	exi_lock(&d->lock);
	engine_of(d)->inside++;
	exi_unlock(&d->lock);
}

static void leave(struct tcpp_domain *d)
{
	bool last;

	exi_lock(&d->lock);
	last = --engine_of(d)->inside == 0;
	exi_unlock(&d->lock);
	/* The slots that were queued in reliance on this thread need
	 * another. */
	if (last && work_left(d))
		kick(d);
}

static int progress(struct tcpp_domain *d)
{
	int budget = TCPP_PROGRESS_MAX;
	int n = 0;

	enter(d);
	gather(d);
	do {
		while (budget > 0 && run_one(d))
			budget--;
		n += tcpp_domain_deliver(d);
	} while (budget > 0 && n < TCPP_PROGRESS_MAX && work_left(d));
	leave(d);
	return n;
}

const struct tcpp_engine tcpp_epoll = {
	.name = "epoll",
	.open = open_engine,
	.close = close_engine,
	.post = post,
	.cancel = cancel,
	.progress = progress,
	.event_fd = event_fd,
	.arm = arm,
	.kick = kick,
	.release = release,
	.part = part,
};
