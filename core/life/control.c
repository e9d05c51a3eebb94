/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests from outside the program. Each is short, and none waits for a
 * peer. */
#include "core/life/control.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/exs_ext.h>

#include "core/base/log.h"
#include "core/call/downgrade.h"
#include "core/link/control.h"
#include "core/meet/find.h"
#include "core/meet/latent.h"
#include "core/sock/capture.h"
#include "core/sock/control.h"
#include "core/sock/stats.h"
#include "core/sock/table.h"
#include "core/transfer/family.h"
#include "core/transfer/switch.h"

/* Requests per round. */
#define ASKS_MAX 16

static bool is_connection(const struct exi_sock *sk)
{
	enum exi_role role = atomic_load(&sk->role);

	return role == EXI_ROLE_CONNECT || role == EXI_ROLE_ACCEPT;
}

/* Which connections a request is for, and how many of them can follow it. */
struct chosen {
	int fd; /* -1: all */
	int n;
};

static bool is_chosen(const struct exi_sock *sk, const struct chosen *c)
{
	return is_connection(sk) && (c->fd < 0 || exi_sock_is(sk, c->fd));
}

/* A connection that stays on TCP for its own reason keeps that. The service and
 * the peer do the rest. */
static void down_one(struct exi_sock *sk, void *arg)
{
	struct exi_shared *sh = exi_sock_shared(sk);
	struct chosen *c = arg;

	/* Requested already. */
	if (is_chosen(sk, c) && atomic_load(&sh->hold_here) &&
	    atomic_load(&sh->reason) == EXS_X_REASON_OPERATOR) {
		c->n++;
		return;
	}
	if (!is_chosen(sk, c) || atomic_load(&sk->settled) ||
	    atomic_load(&sh->hold_here) == EXI_HOLD || atomic_load(&sh->gone) ||
	    exi_family_elsewhere(sk))
		return;
	if (exi_switch_leave(sk, EXS_X_REASON_OPERATOR) == 0)
		c->n++;
}

/* Only connections that a request moved to TCP, not those that the program has
 * there. */
static void up_one(struct exi_sock *sk, void *arg)
{
	struct chosen *c = arg;

	if (is_chosen(sk, c) &&
	    exi_switch_allow_now(sk, atomic_load(&sk->fd),
				 EXS_X_REASON_OPERATOR) == 0) {
		exi_link_go(sk);
		c->n++;
	}
}

static int64_t move(const struct exi_control_ask *ask,
		    void (*one)(struct exi_sock *sk, void *arg))
{
	struct chosen c = { .fd = ask->fd };
	struct exi_sock *sk;

	if (ask->fd >= 0 && exi_latent(ask->fd))
		exi_sock_get(ask->fd, &sk);
	else if (ask->fd < 0)
		exi_latent_promote_all();
	exi_sock_each(one, &c);
	return c.n;
}

static int64_t set_log(int level)
{
	if (level > EXI_LOG_TRACE)
		return -EINVAL;
	if (level >= EXI_LOG_OFF)
		__atomic_store_n(&exi_log_level, level, __ATOMIC_RELAXED);
	return __atomic_load_n(&exi_log_level, __ATOMIC_RELAXED);
}

static size_t (*_Atomic write_report)(char *ret, size_t room);

void exi_control_reports(size_t (*f)(char *ret, size_t room))
{
	atomic_store(&write_report, f);
}

static int64_t report(void)
{
	size_t (*f)(char *ret, size_t room) = atomic_load(&write_report);
	size_t room = 0;
	char *to = f ? exi_stats_text(&room) : NULL;

	return to ? (int64_t)f(to, room) : -EOPNOTSUPP;
}

static void answer(const struct exi_control_ask *ask)
{
	int64_t ret = -EINVAL;

	switch (ask->what) {
	case EXI_CONTROL_LOG:
		ret = set_log(ask->value);
		break;
	case EXI_CONTROL_DOWN:
		ret = move(ask, down_one);
		break;
	case EXI_CONTROL_UP:
		ret = move(ask, up_one);
		break;
	case EXI_CONTROL_REPORT:
		ret = report();
		break;
	case EXI_CONTROL_OFFER:
		ret = exi_capture_offer();
		break;
	case EXI_CONTROL_CAPTURE:
		ret = exi_capture_start(ask);
		if (ret >= 0) /* each begins as a socket from now on */
			exi_latent_promote_all();
		break;
	default:
		break;
	}
	exi_stats_answer(ask->token, ret);
}

void exi_control_event(void)
{
	struct exi_control_ask ask;

	exi_capture_look();
	for (int i = 0; i < ASKS_MAX && exi_control_next(&ask); i++)
		answer(&ask);
}
