/* SPDX-License-Identifier: BSD-2-Clause */
/* The rendezvous: a TCP connection beside the program's, which carries the
 * messages of the handshake. */
#include "providers/ofi/ofi_int.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/list.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/rma/domain.h"
#include "core/rma/door.h"
#include "core/rma/meet.h"
#include "core/rma/request.h"
#include "core/rma/rma.h"
#include "core/rma/watch.h"
#include "core/trust/auth_wire.h"

#define BACKLOG 1024
/* Connections that have not sent their whole REQUEST: how many are kept, and
 * for how long. */
#define SILENT_MAX 32u
#define SILENT_NS  3000000000u

struct listener {
	struct exi_list node;
	struct exi_rma_event event;
	int sock;
};

/* Under the service lock. */
static struct exi_list askers = EXI_LIST_INIT(askers);
static unsigned int n_silent;
static struct exi_list listeners = EXI_LIST_INIT(listeners);

static socklen_t length(const struct sockaddr *a)
{
	return a->sa_family == AF_INET ? sizeof(struct sockaddr_in)
				       : sizeof(struct sockaddr_in6);
}

static int tcp_socket(int family)
{
	int s = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return s < 0 ? -errno : exi_rma_host->fd_keep(s);
}

/* The messages are short, and sending waits for them. */
static void at_once(int s)
{
	int on = 1;

	setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void ofip_sock_close(int *sock)
{
	if (*sock < 0)
		return;
	exi_rma_unwatch(*sock);
	exi_rma_host->fd_close(*sock);
	*sock = -1;
}

int ofip_sock_connect(const struct sockaddr *from, const struct sockaddr *to,
		      int *ret)
{
	int s = tcp_socket(to->sa_family), err = 0;

	if (s < 0)
		return s;
	at_once(s);
	if (bind(s, from, length(from)) < 0 ||
	    (connect(s, to, length(to)) < 0 && errno != EINPROGRESS))
		err = -errno;
	if (err)
		exi_rma_host->fd_close(s);
	else
		*ret = s;
	return err;
}

int ofip_sock_say(int sock, const void *bytes, size_t len)
{
	ssize_t n = send(sock, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);

	/* A message is far smaller than any socket's buffer. */
	return n == (ssize_t)len ? 0 : n < 0 ? -errno : -EPROTO;
}

static size_t whole(const unsigned char *in)
{
	switch (in[offsetof(struct exi_auth_head, kind)]) {
	case EXI_AUTH_REQUEST:
		return sizeof(struct exi_auth_request);
	case EXI_AUTH_ANSWER:
		return sizeof(struct exi_auth_answer);
	case EXI_AUTH_REJECT:
		return sizeof(struct exi_auth_reject);
	case EXI_AUTH_CONFIRM:
		return sizeof(struct exi_auth_proof);
	default:
		return 0;
	}
}

ssize_t ofip_sock_take(int sock, unsigned char *in, unsigned int *fill,
		       size_t len)
{
	size_t want = sizeof(struct exi_auth_head);
	ssize_t n;

	for (;;) {
		if (*fill >= sizeof(struct exi_auth_head))
			want = whole(in);
		if (!want || want > len)
			return -EPROTO;
		if (*fill == want)
			break;
		n = recv(sock, in + *fill, want - *fill, MSG_DONTWAIT);
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n <= 0)
			return -ENOTCONN;
		*fill += (unsigned int)n;
	}
	*fill = 0;
	return (ssize_t)want;
}

/* --- listening ---------------------------------------------------------- */

void ofip_asker_free(struct ofip_asker *a)
{
	exi_list_del(&a->node);
	n_silent -= a->deadline != UINT64_MAX;
	ofip_sock_close(&a->sock);
	free(a);
}

static void meet(struct ofip_asker *a, size_t len)
{
	struct sockaddr_storage local, peer;
	socklen_t local_len = sizeof(local), peer_len = sizeof(peer);
	bool front = false;
	uint16_t port = exi_rma_door_port(a->listener, &front);

	exi_rma_unwatch(a->sock);
	n_silent--;
	a->deadline = UINT64_MAX;
	if (getsockname(a->sock, (struct sockaddr *)&local, &local_len) < 0 ||
	    getpeername(a->sock, (struct sockaddr *)&peer, &peer_len) < 0)
		ofip_asker_free(a);
	else
		exi_rma_meet_request(a, port, front, (struct sockaddr *)&local,
				     (struct sockaddr *)&peer, a->in, len);
}

static void on_asker(struct exi_rma_event *e)
{
	struct ofip_asker *a = exi_container(e, struct ofip_asker, event);
	ssize_t n = ofip_sock_take(a->sock, a->in, &a->fill, sizeof(a->in));

	if (n < 0)
		ofip_asker_free(a);
	else if (n)
		meet(a, (size_t)n);
}

/* The asker that has been silent longest goes. */
static void make_room(void)
{
	struct exi_list *pos = askers.next;
	struct ofip_asker *a = exi_container(pos, struct ofip_asker, node);

	if (n_silent < SILENT_MAX)
		return;
	while (a->deadline == UINT64_MAX) {
		pos = pos->next;
		a = exi_container(pos, struct ofip_asker, node);
	}
	ofip_asker_free(a);
}

static void on_listener(struct exi_rma_event *e)
{
	struct listener *l = exi_container(e, struct listener, event);
	struct ofip_asker *a;
	int s = accept4(l->sock, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (s < 0 && exi_rma_starved(errno))
		exi_rma_pause(l->sock, e);
	s = s < 0 ? s : exi_rma_host->fd_spare(s);
	if (s < 0)
		return;
	make_room();
	a = calloc(1, sizeof(*a));
	if (!a) {
		exi_rma_host->fd_close(s);
		return;
	}
	at_once(s);
	a->event.call = on_asker;
	a->listener = l;
	a->sock = s;
	a->deadline = exi_now_ns() + SILENT_NS;
	exi_list_add_tail(&askers, &a->node);
	n_silent++;
	exi_rma_tick_at(a->deadline);
	if (exi_rma_watch(s, &a->event))
		ofip_asker_free(a);
	else /* a peer that has sent all cannot be crowded out any more */
		on_asker(&a->event);
}

static int listen_at(int s, const struct sockaddr *at)
{
	int on = 1, wait = SILENT_NS / 1000000000u;

	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (at->sa_family == AF_INET6)
		setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	/* A connection that sends nothing stays in the kernel, without a
	 * descriptor. */
	setsockopt(s, IPPROTO_TCP, TCP_DEFER_ACCEPT, &wait, sizeof(wait));
	return bind(s, at, length(at)) < 0 || listen(s, BACKLOG) < 0 ? -errno
								     : 0;
}

int ofip_sock_listen(const struct exi_listening *at, void **ret)
{
	struct listener *l = calloc(1, sizeof(*l));
	struct sockaddr_storage here;
	int err;

	if (!l)
		return -ENOMEM;
	l->event.call = on_listener;
	exi_rma_sockaddr(at->addr, at->port, at->scope, &here);
	l->sock = tcp_socket(here.ss_family);
	err = l->sock < 0 ? l->sock
			  : listen_at(l->sock, (struct sockaddr *)&here);
	if (!err)
		err = exi_rma_watch(l->sock, &l->event);
	if (err) {
		exi_rma_host->fd_close(l->sock);
		free(l);
		return err;
	}
	exi_list_add_tail(&listeners, &l->node);
	*ret = l;
	return 0;
}

void ofip_sock_unlisten(void *listener)
{
	struct listener *l = listener;
	struct exi_list *pos, *tmp;

	exi_list_for_each_safe (pos, tmp, &askers) {
		struct ofip_asker *a =
			exi_container(pos, struct ofip_asker, node);

		/* An asker with a taken REQUEST has another owner. */
		if (a->listener == l && a->deadline != UINT64_MAX)
			ofip_asker_free(a);
	}
	exi_list_del(&l->node);
	ofip_sock_close(&l->sock);
	free(l);
}

uint16_t ofip_sock_port_of(const void *listener)
{
	const struct listener *l = listener;
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);

	if (getsockname(l->sock, (struct sockaddr *)&at, &len) < 0)
		return 0;
	return ntohs(at.ss_family == AF_INET
			     ? ((struct sockaddr_in *)&at)->sin_port
			     : ((struct sockaddr_in6 *)&at)->sin6_port);
}

void ofip_socks_tick(uint64_t now)
{
	struct exi_list *pos, *tmp;

	exi_list_for_each_safe (pos, tmp, &askers) {
		struct ofip_asker *a =
			exi_container(pos, struct ofip_asker, node);

		if (a->deadline <= now)
			ofip_asker_free(a);
		else if (a->deadline != UINT64_MAX)
			exi_rma_tick_at(a->deadline);
	}
}

void ofip_socks_forked(void)
{
	struct exi_list *pos;

	exi_list_for_each (pos, &askers)
		exi_rma_host->fd_close(
			exi_container(pos, struct ofip_asker, node)->sock);
	exi_list_for_each (pos, &listeners)
		exi_rma_host->fd_close(
			exi_container(pos, struct listener, node)->sock);
}
