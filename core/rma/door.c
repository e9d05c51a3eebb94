/* SPDX-License-Identifier: BSD-2-Clause */
/* The listener of an address and port, and the process that is asked for the
 * connections there. The first process, the owner, listens at the port that A
 * asks. Each of the others, the workers, listens at some other port and has a
 * line to the owner. The owner asks the workers for connections that it does
 * not have itself, and redirects A to the worker that has one. When the line
 * ends, the owner is gone, and one of the workers takes its place.
 *
 * No process is trusted for being on this host: the owner passes on only what A
 * would accept anyway, a redirect under the key for A's own REQUEST, and a
 * worker reveals nothing else to a stranger. See docs/design/security.md. */
#include "core/rma/door.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include "core/base/abstract.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/proof.h"
#include "core/base/rights.h"
#include "core/base/util.h"
#include "core/fabric/module.h"
#include "core/fabric/provider.h"
#include "core/rma/domain.h"
#include "core/rma/request.h"
#include "core/rma/rma.h"
#include "core/rma/watch.h"
#include "core/rma/wire.h"
#include "core/trust/key.h"
#include "core/trust/auth.h"
#include "core/trust/auth_wire.h"

#define WORKERS	  256u
#define ASKS	  64u
#define ASK_NS	  2000000000u /* for all workers to answer */
#define AGAIN_NS  10000000u   /* before the first retry, then doubled */
#define AGAIN_MAX 64000000000u

struct door {
	struct door *next;
	struct exi_listening at; /* the address and port of TCP */
	unsigned int users;
	/* The listener where A asks, and the one where A is redirected to;
	 * null. */
	void *front, *side;
	int name; /* the owner's socket, where lines come in; -1 */
	struct exi_rma_event on_name;
	struct exi_list workers;
	int line; /* to the owner; -1 */
	struct exi_rma_event on_line;
	uint64_t again; /* when to look for a place again; 0 */
	uint64_t delay;
};

struct worker {
	struct exi_list node;
	struct exi_rma_event event;
	struct door *door;
	int line;
	/* The last number answered, or asked before it came. */
	uint64_t answered;
};

/* A REQUEST that waits for the workers' answers. */
struct ask {
	struct exi_list node;
	struct door *door;
	uint64_t number;
	uint64_t deadline;
	unsigned int open; /* workers that have not answered */
	void *asker;
	struct exi_auth auth;
};

/* The doors and asks of the process; under the service lock. */
static struct door *doors;
static struct exi_list asks = EXI_LIST_INIT(asks);
static unsigned int n_asks, n_workers;
static uint64_t numbers;

static const uint8_t any_six[16];
static const uint8_t any_four[16] = { [10] = 0xff, [11] = 0xff };

static const uint8_t *any_of(const uint8_t addr[16])
{
	return exi_rma_is_four(addr) ? any_four : any_six;
}

static struct door **door_of(const struct exi_listening *l)
{
	struct door **at;

	for (at = &doors; *at; at = &(*at)->next)
		if ((*at)->at.port == l->port && (*at)->at.scope == l->scope &&
		    !memcmp((*at)->at.addr, l->addr, sizeof(l->addr)))
			break;
	return at;
}

/* The door of a connection that asked this address: at the address itself, or
 * at any address. */
static struct door *door_at(const uint8_t addr[16], uint16_t port)
{
	struct door *any = NULL;

	for (struct door *d = doors; d; d = d->next) {
		if (d->at.port != port)
			continue;
		if (!memcmp(d->at.addr, addr, sizeof(d->at.addr)))
			return d;
		if (!memcmp(d->at.addr, any_of(addr), sizeof(d->at.addr)))
			any = d;
	}
	return any;
}

static void drop_socket(int *fd)
{
	if (*fd < 0)
		return;
	exi_rma_unwatch(*fd);
	exi_rma_host->close_socket(*fd, true);
	*fd = -1;
}

static void drop_name(int *fd)
{
	if (*fd < 0)
		return;
	exi_rma_unwatch(*fd);
	exi_rma_host->close_listener(*fd, true);
	*fd = -1;
}

/* --- listeners ---------------------------------------------------------- */

/* Listens at the door's address. */
static int listen_at(const struct door *d, uint16_t port, void **ret)
{
	struct exi_listening at = d->at;

	at.port = port;
	return exi_rma_fabric.listen(&at, ret);
}

static void drop_listener(void *listener)
{
	if (listener)
		exi_rma_fabric.unlisten(listener);
}

uint16_t exi_rma_door_port(const void *listener, bool *ret_front)
{
	for (struct door *d = doors; d; d = d->next)
		if (d->front == listener || d->side == listener) {
			*ret_front = d->front == listener;
			return d->at.port;
		}
	return 0;
}

/* --- the owner asks ----------------------------------------------------- */

static void finish(struct ask *a, const struct exi_auth_reject *redirect)
{
	exi_list_del(&a->node);
	n_asks--;
	if (redirect)
		exi_rma_fabric.reject(a->asker, redirect);
	else
		exi_rma_meet_refuse(a->asker, &a->auth, EXI_AUTH_WHY_UNKNOWN);
	exi_auth_fini(&a->auth);
	free(a);
}

/* The worker has answered all asks up to number, the last perhaps with a
 * redirect, or will not answer them. */
static void answered(struct worker *w, uint64_t number, const void *redirect,
		     size_t len)
{
	struct exi_list *pos, *tmp;
	struct exi_auth_reject r;

	exi_list_for_each_safe (pos, tmp, &asks) {
		struct ask *a = exi_container(pos, struct ask, node);

		if (a->door != w->door || a->number <= w->answered ||
		    a->number > number)
			continue;
		if (redirect && a->number == number &&
		    !exi_auth_check_redirect(&a->auth, redirect, len)) {
			memcpy(&r, redirect, sizeof(r));
			finish(a, &r);
		} else if (--a->open == 0) {
			finish(a, NULL);
		}
	}
	w->answered = number;
}

static void drop_worker(struct worker *w)
{
	answered(w, numbers, NULL, 0);
	exi_rma_unwatch(w->line);
	exi_rma_host->close_socket(w->line, true);
	exi_list_del(&w->node);
	n_workers--;
	free(w);
}

static void on_worker(struct exi_rma_event *e)
{
	struct worker *w = exi_container(e, struct worker, event);
	struct exi_rma_told t;
	ssize_t n;

	n = exi_rights_none(w->line, &t, sizeof(t));
	if (n == -EAGAIN)
		return;
	if (n != sizeof(t) || t.magic != EXI_RMA_DOOR_MAGIC ||
	    t.number <= w->answered || t.number > numbers)
		drop_worker(w);
	else
		answered(w, t.number, t.found ? t.reject : NULL,
			 sizeof(t.reject));
}

bool exi_rma_door_ask(void *asker, const struct exi_rma_asked *asked,
		      struct exi_auth *auth)
{
	struct door *d = door_at(asked->local, asked->port);
	struct exi_rma_ask q = { .magic = EXI_RMA_DOOR_MAGIC, .asked = *asked };
	struct exi_list *pos, *tmp;
	struct ask *a;

	if (!d || exi_list_empty(&d->workers) || n_asks == ASKS)
		return false;
	a = calloc(1, sizeof(*a));
	if (!a)
		return false;
	a->door = d;
	a->number = q.number = numbers + 1;
	a->deadline = exi_now_ns() + ASK_NS;
	exi_list_for_each_safe (pos, tmp, &d->workers) {
		struct worker *w = exi_container(pos, struct worker, node);

		/* A worker that does not read is not asked any more, and
		 * connects again. */
		if (send(w->line, &q, sizeof(q), MSG_DONTWAIT | MSG_NOSIGNAL) <
		    0)
			drop_worker(w);
		else
			a->open++;
	}
	if (!a->open) {
		free(a);
		return false;
	}
	numbers++;
	a->asker = asker;
	a->auth = *auth;
	exi_auth_fini(auth);
	exi_list_add_tail(&asks, &a->node);
	n_asks++;
	exi_rma_tick_at(a->deadline);
	return true;
}

static void settle(struct door *d);
static void settle_later(struct door *d, int err);

static void on_name(struct exi_rma_event *e)
{
	struct door *d = exi_container(e, struct door, on_name);
	struct worker *w;
	int line = exi_rma_host->accept(d->name, false);

	if (line < 0 && exi_rma_starved(-line))
		exi_rma_pause(d->name, &d->on_name);
	if (line < 0)
		return;
	w = n_workers < WORKERS ? calloc(1, sizeof(*w)) : NULL;
	if (!w) {
		exi_rma_host->close_socket(line, true);
		return;
	}
	*w = (struct worker){ .event.call = on_worker,
			      .door = d,
			      .line = line,
			      .answered = numbers };
	exi_list_add_tail(&d->workers, &w->node);
	n_workers++;
	if (exi_rma_watch(line, &w->event))
		drop_worker(w);
}

/* --- a worker answers --------------------------------------------------- */

/* Answers an ask. The service lock is released while the core is asked, so the
 * door may go. */
static void consider(const struct exi_listening *at,
		     const struct exi_rma_ask *q, struct exi_rma_told *ret)
{
	struct exi_auth_refusal to = { .why = EXI_AUTH_WHY_REDIRECT };
	struct exi_auth_reject r;
	struct exi_tuple t;
	struct exi_auth auth;
	struct door *d;
	int reason;

	if (q->asked.port != at->port ||
	    exi_rma_meet_check(&q->asked, &t, &auth))
		return;
	pthread_mutex_unlock(&exi_rma_service_lock);
	reason = exi_rma_host->request(exi_rma_fabric.provider, &t, -1, NULL);
	pthread_mutex_lock(&exi_rma_service_lock);
	d = *door_of(at);
	if (!reason && d && d->side)
		to.port = exi_rma_fabric.port_of(d->side);
	if (to.port) {
		memcpy(to.key_id, auth.key->id, sizeof(to.key_id));
		exi_auth_reject(&auth, &to, &r);
		memcpy(ret->reject, &r, sizeof(r));
		ret->found = 1;
	}
	exi_auth_fini(&auth);
}

static void on_line(struct exi_rma_event *e)
{
	struct door *d = exi_container(e, struct door, on_line);
	struct exi_listening at = d->at;
	struct exi_rma_told t = { .magic = EXI_RMA_DOOR_MAGIC };
	struct exi_rma_ask q;
	ssize_t n;

	n = exi_rights_none(d->line, &q, sizeof(q));
	if (n == -EAGAIN)
		return;
	if (n != sizeof(q) || q.magic != EXI_RMA_DOOR_MAGIC) {
		drop_socket(&d->line);
		settle(d);
		return;
	}
	consider(&at, &q, &t);
	t.number = q.number;
	d = *door_of(&at);
	if (d && d->line >= 0)
		send(d->line, &t, sizeof(t), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* --- who is the owner --------------------------------------------------- */

static socklen_t door_name(const struct exi_key *key, const uint8_t addr[16],
			   uint16_t port, struct sockaddr_un *ret)
{
	uint8_t mac[16];
	char hex[2 * sizeof(mac) + 1];

	exi_auth_door(key, addr, exi_rma_fabric.port_for(port), mac);
	exi_hex(hex, mac, sizeof(mac));
	return exi_abstract(ret, "libexs/1/door/%s", hex);
}

/* A stranger may sit at the other end: no descriptor is taken from there. */
static int packet_socket(void)
{
	int s = exi_rma_host->fd_keep(socket(
		AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

	if (s >= 0)
		exi_rights_allow(s, false);
	return s;
}

static int open_name(struct door *d, const struct exi_key *key)
{
	struct sockaddr_un name;
	socklen_t len = door_name(key, d->at.addr, d->at.port, &name);
	int s = packet_socket();

	if (s < 0)
		return s;
	if (bind(s, (struct sockaddr *)&name, len) < 0 || listen(s, 128) < 0 ||
	    exi_rma_watch(s, &d->on_name)) {
		exi_rma_host->close_listener(s, true);
		return -EADDRINUSE;
	}
	d->name = s;
	return 0;
}

static int open_line_to(struct door *d, const struct exi_key *key,
			const uint8_t addr[16])
{
	struct sockaddr_un name;
	socklen_t len = door_name(key, addr, d->at.port, &name);
	int s = packet_socket();

	if (s < 0)
		return s;
	if (connect(s, (struct sockaddr *)&name, len) < 0 ||
	    exi_rma_watch(s, &d->on_line)) {
		exi_rma_host->close_socket(s, true);
		return -ECONNREFUSED;
	}
	d->line = s;
	return 0;
}

/* Opens the line to the owner of the address, or of all addresses. */
static int open_line(struct door *d, const struct exi_key *key)
{
	const uint8_t *any = any_of(d->at.addr);
	int err = d->side ? 0 : listen_at(d, 0, &d->side);

	if (!err)
		err = open_line_to(d, key, d->at.addr);
	if (err == -ECONNREFUSED && memcmp(d->at.addr, any, sizeof(any_six)))
		err = open_line_to(d, key, any);
	return err;
}

/* Becomes the owner, or finds the owner; otherwise tries again later. A process
 * without a key can be asked, but has no answer. */
static void settle(struct door *d)
{
	const struct exi_key *key = exi_rma_meet_key();
	int err = 0, taken = 0;

	if (!d->front)
		taken = listen_at(d, exi_rma_fabric.port_for(d->at.port),
				  &d->front);
	if (key && d->front)
		err = d->name < 0 ? open_name(d, key) : 0;
	else if (key)
		err = open_line(d, key);
	if (err == -ECONNREFUSED) /* no process of ours has the port */
		err = taken;
	d->again = 0;
	if (err)
		settle_later(d, err);
	else
		d->delay = 0;
}

static void settle_later(struct door *d, int err)
{
	exi_rma_log(EXI_LOG_DEBUG, "port %u cannot be opened yet: %s",
		    d->at.port, strerror(-err));
	d->delay = d->delay ? d->delay * 2 : AGAIN_NS;
	if (d->delay > AGAIN_MAX)
		d->delay = AGAIN_MAX;
	d->again = exi_now_ns() + d->delay;
	exi_rma_tick_at(d->again);
}

void exi_rma_doors_tick(uint64_t now)
{
	struct exi_list *pos, *tmp;

	for (struct door *d = doors; d; d = d->next) {
		if (d->again && d->again <= now)
			settle(d);
		else if (d->again)
			exi_rma_tick_at(d->again);
	}
	exi_list_for_each_safe (pos, tmp, &asks) {
		struct ask *a = exi_container(pos, struct ask, node);

		if (a->deadline <= now)
			finish(a, NULL);
		else
			exi_rma_tick_at(a->deadline);
	}
}

/* --- beginning and end -------------------------------------------------- */

/* The address that the fabric can listen at. */
static struct exi_listening place_of(const struct exi_listening *l)
{
	struct exi_listening ret = *l;

	if (exi_rma_fabric.any_address) {
		memcpy(ret.addr, any_of(l->addr), sizeof(ret.addr));
		ret.scope = 0;
	}
	return ret;
}

int exi_rma_door_listen(struct exi_domain *domain,
			const struct exi_listening *l)
{
	struct exi_listening at = place_of(l);
	struct door *d;

	pthread_mutex_lock(&exi_rma_service_lock);
	d = *door_of(&at);
	if (!d) {
		d = calloc(1, sizeof(*d));
		if (!d) {
			pthread_mutex_unlock(&exi_rma_service_lock);
			return -ENOMEM;
		}
		d->at = at;
		d->name = d->line = -1;
		d->on_name.call = on_name;
		d->on_line.call = on_line;
		exi_list_init(&d->workers);
		d->next = doors;
		doors = d;
		settle(d);
	}
	d->users++;
	pthread_mutex_unlock(&exi_rma_service_lock);
	return 0;
}

static void drop_door(struct door *d)
{
	struct exi_list *pos, *tmp;

	exi_list_for_each_safe (pos, tmp, &asks) {
		struct ask *a = exi_container(pos, struct ask, node);

		if (a->door == d)
			finish(a, NULL);
	}
	exi_list_for_each_safe (pos, tmp, &d->workers)
		drop_worker(exi_container(pos, struct worker, node));
	drop_name(&d->name);
	drop_socket(&d->line);
	drop_listener(d->front);
	drop_listener(d->side);
	free(d);
}

void exi_rma_door_unlisten(struct exi_domain *domain,
			   const struct exi_listening *l)
{
	struct exi_listening place = place_of(l);
	struct door **at, *d;

	pthread_mutex_lock(&exi_rma_service_lock);
	at = door_of(&place);
	d = *at;
	if (d && !--d->users) {
		*at = d->next;
		drop_door(d);
	}
	pthread_mutex_unlock(&exi_rma_service_lock);
}

void exi_rma_doors_forked(void)
{
	struct exi_list *pos;

	for (struct door *d = doors; d; d = d->next) {
		exi_rma_host->fd_close(d->name);
		exi_rma_host->fd_close(d->line);
		exi_list_for_each (pos, &d->workers)
			exi_rma_host->close_socket(
				exi_container(pos, struct worker, node)->line,
				false);
	}
}
