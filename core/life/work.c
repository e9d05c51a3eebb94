/* SPDX-License-Identifier: BSD-2-Clause */
/* The work of the service thread. */
#include "core/life/work.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"
#include "core/call/dequeue.h"
#include "core/call/unseen.h"
#include "core/fabric/module.h"
#include "core/fabric/provider.h"
#include "core/fabric/registry.h"
#include "core/life/close.h"
#include "core/life/control.h"
#include "core/life/deadline.h"
#include "core/life/open.h"
#include "core/link/control.h"
#include "core/meet/candidate.h"
#include "core/sock/closing.h"
#include "core/sock/control.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
#include "core/sock/watch.h"
#include "core/transfer/family.h"
#include "core/transfer/progress.h"
#include "core/transfer/timeout.h"

/* Bounded, because a large transfer makes one completion after the other, and a
 * message of a link may ask the transfer to move: more work waits for the next
 * round. */
#define ROUNDS 4

static void event(struct exi_sock *sk, unsigned int what, uint32_t events)
{
	switch (what) {
	case EXI_WATCH_LINK:
		exi_link_event(sk, events);
		break;
	case EXI_WATCH_LISTENER:
		exi_link_listener_event(sk);
		break;
	case EXI_WATCH_TCP:
		exi_link_tcp_event(sk);
		break;
	case EXI_WATCH_OPS:
		exi_lifecycle_event(sk);
		break;
	default:
		exi_link_candidate_event(sk, what - EXI_WATCH_CANDIDATE);
		break;
	}
}

static void progress(struct exi_sock *sk, uint32_t dirs)
{
	if (dirs & (1u << EXI_RX)) {
		exi_link_read(sk);
		exi_flow_meet(sk, EXI_RX);
		exi_flow_progress(sk, EXI_RX);
	}
	if (dirs & (1u << EXI_TX)) {
		exi_flow_meet(sk, EXI_TX);
		exi_flow_progress(sk, EXI_TX);
	}
	exi_lifecycle_ended(sk);
}

static void domain_progress(struct exi_domain *d, void *arg)
{
	bool *busy = arg;

	for (int i = 0; i < ROUNDS; i++) {
		d->ops.progress(d);
		if (d->ops.arm(d) != -EBUSY)
			return;
	}
	*busy = true;
}

static bool domains(void)
{
	bool busy = false;

	exi_registry_each_domain(domain_progress, &busy);
	return busy;
}

static uint64_t due(uint64_t now)
{
	uint64_t ret = exi_timeout_tick(now), watch = exi_unseen_due();
	uint64_t deadline = exi_deadline_tick(now);

	if (deadline < ret)
		ret = deadline;
	if (watch < ret)
		ret = watch > now ? watch : now;
	return ret;
}

static void round_over(void)
{
	if (exi_unlikely(exi_now_ns() >= exi_unseen_due()))
		exi_unseen_tick();
}

static const struct exi_service_work service_work = {
	.event = event,
	.progress = progress,
	.family = exi_family_event,
	.told = exi_family_told,
	.control = exi_control_event,
	.domains = domains,
	.due = due,
	.round_over = round_over,
	.outside = exi_closing_work,
	.tick = exi_queue_tick,
};

static const struct exi_host upcalls = {
	.request = exi_remote_request,
	.stranger = exi_remote_stranger,
	.met = exi_remote_met,
	.accept = exi_closing_accept,
	.close_socket = exi_closing_socket,
	.close_listener = exi_closing_listener,
};

void exi_work_begin(void)
{
	exi_service_serve(&service_work);
	exi_control_serve(exi_service_watch_control);
	exi_module_serve(&upcalls);
	exi_sock_forgets(exi_close_forgotten);
}
