/* SPDX-License-Identifier: BSD-2-Clause */
/* A fabric between hosts asks for a connection. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/exs_ext.h>

#include "core/base/fds.h"
#include "core/base/lock.h"
#include "core/base/proof.h"
#include "core/fabric/provider.h"
#include "core/meet/begin.h"
#include "core/meet/handed.h"
#include "core/meet/latent.h"
#include "core/meet/marks.h"
#include "core/meet/meet.h"
#include "core/sock/table.h"

struct search {
	const struct exi_tuple *t;
	struct exi_sock *found;
};

static bool same_ends(const struct exi_tuple *a, const struct exi_tuple *b)
{
	return !memcmp(a->local, b->local, sizeof(a->local)) &&
	       !memcmp(a->peer, b->peer, sizeof(a->peer)) &&
	       a->local_port == b->local_port && a->peer_port == b->peer_port;
}

/* Whether this may be the connection that is asked for. The port distinguishes
 * most connections, and is read once per connection: so a search needs no
 * system call for known ones. */
static bool may_be(struct exi_sock *sk, int fd, const struct exi_tuple *t)
{
	uint16_t port = atomic_load(&sk->peer_port);
	struct exi_tuple own;

	if (!port) {
		if (exi_tuple_of(fd, &own))
			return false;
		port = own.peer_port;
		atomic_store(&sk->peer_port, port);
	}
	return port == t->peer_port;
}

static void compare(struct exi_sock *sk, void *arg)
{
	struct search *s = arg;
	int fd = atomic_load(&sk->fd);
	struct exi_tuple own;

	if (!s->found && fd >= 0 && sk->role == EXI_ROLE_ACCEPT &&
	    may_be(sk, fd, s->t) && !exi_tuple_of(fd, &own) &&
	    same_ends(&own, s->t))
		s->found = sk;
}

/* The link lock is held. *ret is the tuple, with its scope. */
static int may_take_locked(struct exi_sock *sk, const struct exi_tuple *t,
			   struct exi_tuple *ret)
{
	int fd = atomic_load(&sk->fd), reason;

	EXI_LOCKED(&sk->link_lock);
	if (fd < 0 || sk->fab || sk->closing || !sk->adopted ||
	    (sk->link && sk->link->state != EXI_LINK_LOOK))
		return EXS_X_REASON_REFUSED;
	/* The process that handed it to this one may still use it. */
	reason = exi_handed_over_locked(sk)
			 ? exi_begin_may_meet(sk, fd, NULL, ret)
			 : exi_handed_reason_locked(sk);
	return !reason && !same_ends(ret, t) ? EXS_X_REASON_NOT_CONNECTED
					     : reason;
}

static int take_request_locked(struct exi_sock *sk,
			       const struct exi_provider *p,
			       const struct exi_tuple *t, int link, void *arg)
{
	struct exi_tuple now;
	int reason = may_take_locked(sk, t, &now);

	EXI_LOCKED(&sk->link_lock);
	if (link < 0)
		return reason;
	if (!reason) {
		exi_link_drop_locked(sk);
		exi_marks_none(sk->sh);
		if (exi_meet_fabric_new(sk, p))
			reason = EXS_X_REASON_MEMORY;
	}
	if (reason) {
		exi_fd_close(link);
		return reason;
	}
	p->remote_ops->requested(sk->fab, &now, arg);
	return exi_begin_await_remote_locked(sk, link);
}

int exi_remote_request(const struct exi_provider *p, const struct exi_tuple *t,
		       int link, void *arg)
{
	struct search s = { .t = t };
	int reason;

	exi_latent_promote_all(); /* it may be a latent connection */
	exi_sock_each(compare, &s);
	if (!s.found) {
		exi_fd_close(link);
		return EXS_X_REASON_NOT_CONNECTED;
	}
	exi_fds_begin();
	exi_lock(&s.found->link_lock);
	reason = take_request_locked(s.found, p, t, link, arg);
	exi_unlock(&s.found->link_lock);
	exi_fds_end();
	return reason;
}
