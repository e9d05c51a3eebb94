/* SPDX-License-Identifier: BSD-2-Clause */
/* Markers: datagram sockets whose names show that libexs serves a port. A
 * marker is bound while this process listens on the port, and no longer,
 * because later the port may be another program's. */
#include "core/base/lock.h"
#include "core/meet/marker.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "core/base/abstract.h"
#include "core/base/config.h"
#include "core/base/fds.h"
#include "core/base/ids.h"
#include "core/base/proof.h"
#include "core/fabric/provider.h"
#include "core/fabric/registry.h"
#include "core/meet/meetdir.h"
#include "core/meet/remote.h"
#include "core/meet/way.h"
#include "core/sock/base.h"

/* The addresses of a port that fabrics between hosts know. */
#define REACHES 8

struct marker {
	uint16_t port;
	int users;	   /* listening descriptors of this process */
	int fd;		   /* kept, bound or not */
	bool bound;	   /* false: another process holds the name */
	int keyed;	   /* its name in EXS_MEET_DIR; -1: none */
	uint64_t keyed_by; /* exi_use_token() of the process that bound it */
	uint64_t keyed_at; /* when it could not be made last (ns); 0 */
	/* What fabrics between hosts know of the port. */
	struct exi_listening reach[REACHES];
	unsigned int n_reach;
	struct marker *next;
};

/* Guards what follows. */
static pthread_mutex_t marker_lock = PTHREAD_MUTEX_INITIALIZER;
static struct marker *markers;
static int probe = -1;

static _Atomic int connections; /* accepted, and not closed */
static _Atomic bool unlistened; /* an entry may have no listener */

/* The most ports without a listener that fabrics between hosts know, so that
 * connections accepted there can still be met. */
#define LEFT_MAX 16

static socklen_t marker_name(uint16_t port, struct sockaddr_un *ret)
{
	return exi_abstract(ret, "libexs/1/port/%u", port);
}

static const uint8_t any_six[16];
static const uint8_t any_four[16] = { [10] = 0xff, [11] = 0xff };

static int local_address(int fd, struct exi_listening *ret)
{
	union {
		struct sockaddr_storage any;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} a;
	socklen_t len = sizeof(a);

	if (getsockname(fd, (struct sockaddr *)&a, &len) < 0)
		return -errno;
	memset(ret, 0, sizeof(*ret));
	if (a.any.ss_family == AF_INET) {
		ret->port = ntohs(a.in.sin_port);
		memcpy(ret->addr, any_four, sizeof(any_four));
		memcpy(ret->addr + 12, &a.in.sin_addr, 4);
	} else if (a.any.ss_family == AF_INET6) {
		ret->port = ntohs(a.in6.sin6_port);
		ret->scope = a.in6.sin6_scope_id;
		memcpy(ret->addr, &a.in6.sin6_addr, 16);
	} else {
		return -EAFNOSUPPORT;
	}
	return 0;
}

static int local_port(int fd, uint16_t *ret)
{
	/* For the compiler, which does not see that it is set without an
	 * error. */
	struct exi_listening at = { 0 };
	int err = local_address(fd, &at);

	if (!err)
		*ret = at.port;
	return err;
}

static void try_bind(struct marker *m)
{
	struct sockaddr_un name;
	socklen_t len = marker_name(m->port, &name);

	if (m->fd < 0) {
		m->fd = exi_fd_keep(
			socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
		/* A peer checks the name by connecting to it, which works
		 * nevertheless; it cannot send anything, so nothing needs to be
		 * closed with the socket. */
		shutdown(m->fd, SHUT_RD);
	}
	m->bound =
		m->fd >= 0 && bind(m->fd, (struct sockaddr *)&name, len) == 0;
}

/* While the name cannot be made, each accept comes here; if the directory is
 * not writable, for good. Tries at most this often (ns). */
#define KEYED_AGAIN_NS 100000000u

/* A process that was killed leaves its names. */
static void sweep_once(void)
{
	static _Atomic bool swept;

	if (!atomic_exchange(&swept, true))
		exi_meetdir_sweep();
}

/* For processes in other network namespaces. Returns false if another process
 * holds the name, or none can be made: try again later. */
static bool hold_keyed(struct marker *m)
{
	struct sockaddr_un name;
	socklen_t len = exi_meetdir_marker(m->port, &name);
	uint64_t now;

	if (!len || m->keyed >= 0)
		return true;
	now = exi_now_ns();
	if (m->keyed_at && now - m->keyed_at < KEYED_AGAIN_NS)
		return false;
	sweep_once();
	m->keyed = exi_fd_keep(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	shutdown(m->keyed, SHUT_RD);
	if (m->keyed < 0 || exi_meetdir_bind(m->keyed, &name, len)) {
		exi_fd_close(m->keyed);
		m->keyed = -1;
		m->keyed_at = now;
		return false;
	}
	m->keyed_by = exi_use_token();
	return true;
}

/* A process that forked left the name to those that have the socket: it is
 * taken over when the last of them is gone. */
static void release_keyed(struct marker *m)
{
	struct sockaddr_un name;

	if (m->keyed >= 0 && m->keyed_by == exi_use_token() &&
	    exi_meetdir_marker(m->port, &name))
		exi_meetdir_unbind(&name);
	exi_fd_close(m->keyed);
	m->keyed = -1;
}

static struct marker **find(uint16_t port)
{
	struct marker **at;

	for (at = &markers; *at && (*at)->port != port; at = &(*at)->next)
		;
	return at;
}

static struct marker *find_or_make(uint16_t port)
{
	struct marker *m = *find(port);

	if (m)
		return m;
	m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	m->port = port;
	m->fd = m->keyed = -1;
	m->next = markers;
	markers = m;
	return m;
}

static bool hold(uint16_t port, int users)
{
	struct marker *m = find_or_make(port);

	if (!m)
		return false;
	m->users += users;
	if (!m->bound)
		try_bind(m);
	return hold_keyed(m) && m->bound;
}

/* Whether this process can meet peers of a listener at the port; otherwise
 * peers must not wait for it. */
static bool can_meet(uint16_t port)
{
	struct exi_config_way w;

	if (!exi_registry_wire_ids() && !exi_remote_possible())
		return false;
	w = exi_config_way(port);
	return exi_way_leads(&w, true);
}

/* The connections of the listener begin with a farewell: their peers need not
 * wait, and learn that the library is here. */
static void leave(int listen_fd)
{
	if (exi_base_of(listen_fd) == &exi_base_tcp)
		exi_proof_leave(listen_fd);
}

void exi_marker_hold(int listen_fd)
{
	struct marker *m;
	uint16_t port;
	bool denied;

	if (local_port(listen_fd, &port)) {
		exi_fds_begin();
		sweep_once();
		exi_fds_end();
		return;
	}
	if (!can_meet(port)) {
		leave(listen_fd);
		return;
	}
	exi_mutex_lock(&marker_lock);
	hold(port, 1);
	m = *find(port);
	denied = !m || m->fd == -EPERM || m->fd == -EACCES ||
		 m->fd == -EAFNOSUPPORT;
	exi_mutex_unlock(&marker_lock);
	/* Without UNIX sockets no peer can be met. */
	if (denied)
		leave(listen_fd);
	else
		exi_proof_sign(listen_fd);
}

bool exi_marker_refresh(int listen_fd)
{
	uint16_t port;
	bool held;

	if (local_port(listen_fd, &port) || !can_meet(port))
		return false;
	exi_mutex_lock(&marker_lock);
	held = hold(port, 0);
	exi_mutex_unlock(&marker_lock);
	return held;
}

static bool covers(const struct exi_listening *a, const struct exi_listening *b)
{
	const uint8_t *any = memcmp(b->addr, any_four, 12) ? any_six : any_four;

	return !memcmp(a->addr, any, 16) ||
	       (!memcmp(a->addr, b->addr, 16) && a->scope == b->scope);
}

static void reach(struct marker *m, const struct exi_listening *at)
{
	for (unsigned int i = 0; i < m->n_reach; i++)
		if (covers(&m->reach[i], at))
			return;
	if (m->n_reach == REACHES)
		return;
	m->reach[m->n_reach++] = *at;
	/* Without a listener here the marker goes when the connections go. */
	if (!m->users)
		atomic_store(&unlistened, true);
	exi_remote_listen(at);
}

/* Whether an IPv6 socket that is bound to any address gets IPv4 connections,
 * too. */
static bool hears_four(int fd, const struct exi_listening *at)
{
	int only = 0;
	socklen_t len = sizeof(only);

	return !memcmp(at->addr, any_six, 16) &&
	       !getsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, &len) && !only;
}

static void drop(struct marker **at)
{
	struct marker *m = *at;

	*at = m->next;
	while (m->n_reach)
		exi_remote_unlisten(&m->reach[--m->n_reach]);
	exi_fd_close(m->fd);
	release_keyed(m);
	free(m);
}

/* Makes no name without a listener. The newest ports come first in the list:
 * fabrics between hosts forget the oldest one. */
static void sweep(void)
{
	int left = atomic_load(&connections) > 0 ? LEFT_MAX : 0;
	struct marker **at = &markers;

	while (*at) {
		struct marker *m = *at;

		if (m->users <= 0 && (!m->n_reach || left-- <= 0)) {
			drop(at);
			continue;
		}
		if (m->users <= 0) {
			exi_fd_close(m->fd);
			release_keyed(m);
			m->fd = -1;
			m->bound = false;
		}
		at = &m->next;
	}
}

void exi_marker_reach(int fd)
{
	struct exi_listening at;
	struct exi_config_way w;
	struct marker *m;

	if (!exi_remote_possible() || local_address(fd, &at))
		return;
	w = exi_config_way(at.port);
	if (!w.upgrade || !exi_registry_remote_signs(&w))
		return;
	exi_fds_begin();
	exi_mutex_lock(&marker_lock);
	m = find_or_make(at.port);
	if (m) {
		reach(m, &at);
		if (hears_four(fd, &at)) {
			memcpy(at.addr, any_four, sizeof(any_four));
			reach(m, &at);
		}
		/* Those without a listener are few. */
		if (!m->users)
			sweep();
	}
	exi_mutex_unlock(&marker_lock);
	exi_fds_end();
}

void exi_marker_release(int listen_fd)
{
	struct marker *m;
	uint16_t port;

	if (local_port(listen_fd, &port))
		return;
	exi_mutex_lock(&marker_lock);
	m = *find(port);
	if (m && --m->users == 0)
		atomic_store(&unlistened, true);
	sweep();
	exi_mutex_unlock(&marker_lock);
}

void exi_marker_connection(void)
{
	atomic_fetch_add(&connections, 1);
}

void exi_marker_disconnection(void)
{
	if (atomic_fetch_sub(&connections, 1) != 1 ||
	    !atomic_exchange(&unlistened, false))
		return;
	exi_mutex_lock(&marker_lock);
	sweep();
	exi_mutex_unlock(&marker_lock);
}

/* Looks for the name first: that costs a third. */
int exi_marker_present(const struct exi_tuple *t)
{
	struct sockaddr_un name;
	socklen_t len = marker_name(t->peer_port, &name);
	int present = 0;

	if (!t->peer_port) /* a UNIX socket has none */
		return exi_proof_signed(t);
	exi_mutex_lock(&marker_lock);
	if (probe < 0)
		probe = exi_fd_keep(
			socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	if (probe >= 0)
		present = connect(probe, (struct sockaddr *)&name, len) == 0;
	else if (probe != -EMFILE && probe != -ENFILE)
		present = -EACCES;
	exi_mutex_unlock(&marker_lock);
	if (!present)
		present = exi_proof_signed(t);
	if (present <= 0 && exi_meetdir_marked(t->peer_port))
		present = 1;
	return present;
}

void exi_marker_exit(void)
{
	if (!exi_mutex_trylock(&marker_lock))
		return; /* this thread may have been interrupted with it */
	for (struct marker *m = markers; m; m = m->next)
		release_keyed(m);
	exi_mutex_unlock(&marker_lock);
}

void exi_marker_forked(void)
{
	struct marker *m;

	pthread_mutex_init(&marker_lock, NULL);
	for (m = markers; m; m = m->next)
		m->n_reach = 0;
}
