/* SPDX-License-Identifier: BSD-2-Clause */
/* What parts of the core call of those that stand above them is handed to them:
 * with work of the tests they do that, and without any they say so. The core
 * itself is not started here. */
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/proof.h"
#include "core/base/util.h"
#include "core/fabric/module.h"
#include "core/fabric/provider.h"
#include "core/meet/find.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
#include "core/transfer/finish.h"
#include "core/transfer/op.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/wait.h"

static struct exi_sock *_Atomic seen;
static _Atomic unsigned int seen_what, seen_events, seen_dirs;
static _Atomic int n_family, n_told, n_rounds, n_outside, n_ticks;
static _Atomic uint64_t due_at = UINT64_MAX;
static _Atomic int n_due;

static void event(struct exi_sock *sk, unsigned int what, uint32_t events)
{
	seen_what = what;
	seen_events = events;
	seen = sk;
}

static void progress(struct exi_sock *sk, uint32_t dirs)
{
	seen_dirs = dirs;
	seen = sk;
}

/* Level-triggered: told until it is read. */
static _Atomic int family_fd, told_fd;
static void family(void)
{
	eventfd_t n;

	eventfd_read(family_fd, &n);
	n_family++;
}

static void told(void)
{
	n_told++;
}

static bool domains(void)
{
	return false;
}

static uint64_t due(uint64_t now)
{
	if (now < due_at)
		return due_at;
	due_at = UINT64_MAX;
	n_due++;
	return UINT64_MAX;
}

static void round_over(void)
{
	n_rounds++;
}

static void outside(void)
{
	n_outside++;
}

static int tick(void)
{
	n_ticks++;
	return n_ticks < 3; /* each ms, three times */
}

static const struct exi_service_work work = {
	.event = event,
	.progress = progress,
	.family = family,
	.told = told,
	.domains = domains,
	.due = due,
	.round_over = round_over,
	.outside = outside,
	.tick = tick,
};

static int ends[2];
static struct exi_sock *sk;

/* Before all others. */
static void a_service_without_work_does_not_start(void **state)
{
	T_EQ(exi_service_start(), -EPERM);
	exi_service_serve(&work);
	T_EQ(exi_service_start(), 0);
	T_UNTIL(n_outside > 0);
}

static void the_service_tells_of_what_it_watches(void **state)
{
	seen = NULL;
	T_EQ(write(ends[1], "x", 1), 1);
	T_EQ(exi_service_watch(sk, ends[0], EXI_WATCH_CANDIDATE + 3,
			       EPOLLIN | EPOLLONESHOT),
	     0);
	T_UNTIL(seen == sk);
	T_EQ(seen_what, EXI_WATCH_CANDIDATE + 3);
	T(seen_events & EPOLLIN);
	T_UNTIL(n_rounds > 0);
	exi_service_unwatch(ends[0]);
}

static void the_service_makes_the_progress_it_was_asked_for(void **state)
{
	seen = NULL;
	T_EQ(exi_service_progress(sk, EXI_TX), 0);
	T_UNTIL(seen == sk);
	T_EQ(seen_dirs, 1u << EXI_TX);
}

static void the_service_hears_the_family(void **state)
{
	family_fd = T_OK(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	told_fd = T_OK(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	T_EQ(exi_service_watch_family(family_fd), 0);
	exi_service_watch_told(told_fd);
	eventfd_write(family_fd, 1);
	T_UNTIL(n_family > 0);
	eventfd_write(told_fd, 1);
	T_UNTIL(n_told > 0);
	/* One made anew watches it again. */
	T(exi_service_stop());
	n_told = 0;
	T_EQ(exi_service_start(), 0);
	eventfd_write(told_fd, 1);
	T_UNTIL(n_told > 0);
}

static void the_service_ticks_until_it_is_told_to_stop(void **state)
{
	exi_service_tick();
	T_UNTIL(n_ticks == 3);
}

static void the_service_comes_when_work_is_due(void **state)
{
	due_at = exi_now_ns() + 2000000;
	exi_service_reschedule();
	T_UNTIL(n_due == 1);
}

static struct exi_timer first, second;
static _Atomic int n_first, n_second;

static void first_expired(struct exi_sock *of)
{
	T(of == sk);
	n_first++;
	exi_service_untimed(&first);
}

static void second_expired(struct exi_sock *of)
{
	n_second++;
}

static void timers_expire_in_time_or_are_off(void **state)
{
	uint64_t at = exi_now_ns() + 5000000;

	first = (struct exi_timer){ .sk = sk,
				    .deadline = at,
				    .expired = first_expired };
	second = (struct exi_timer){ .sk = sk,
				     .deadline = at,
				     .expired = second_expired };
	exi_service_timed(&second);
	exi_service_untimed(&second);
	exi_service_timed(&first);
	T_UNTIL(n_first > 0);
	T(exi_now_ns() >= at);
	T_EQ(n_first, 1);
	T_EQ(n_second, 0);
}

/* The thread sleeps until the first: only an earlier one has to wake it. */
static void a_timer_wakes_the_thread_if_it_is_the_next_one(void **state)
{
	uint64_t now = exi_now_ns();
	struct exi_timer later[100];
	int rounds;

	n_first = 0;
	first.deadline = now + 300000000000u;
	exi_service_timed(&first);
	rounds = n_rounds;
	exi_service_reschedule();
	T_UNTIL(n_rounds > rounds);
	rounds = n_rounds;
	for (int i = 0; i < 100; i++) {
		later[i] = (struct exi_timer){ .sk = sk,
					       .deadline = now + 400000000000u,
					       .expired = second_expired };
		exi_service_timed(&later[i]);
		sched_yield();
	}
	T(n_rounds - rounds <= 3); /* for what was asked before */
	first.deadline = exi_now_ns() + 1000000;
	exi_service_timed(&first);
	T_UNTIL(n_first > 0);
	for (int i = 0; i < 100; i++)
		exi_service_untimed(&later[i]);
	T_EQ(n_second, 0);
}

#define OVERDUE 1000

static struct exi_timer overdue[OVERDUE], newest[2];
static _Atomic int n_overdue, n_newest;
static _Atomic bool out_of_order;

/* The service says of which socket a timer is: here, which timer. */
static void overdue_expired(struct exi_sock *of)
{
	struct exi_timer *t = (void *)of;

	if (t != &overdue[n_overdue])
		out_of_order = true;
	exi_service_untimed(t);
	n_overdue++;
}

/* It is overdue again. */
static void newest_expired(struct exi_sock *of)
{
	struct exi_timer *t = (void *)of;

	t->deadline = exi_now_ns();
	exi_service_timed(t);
	n_newest++;
}

/* They are made in an order of no meaning, and some are off before. */
static void timers_that_are_overdue_expire_in_their_order(void **state)
{
	uint64_t now = exi_now_ns();

	n_overdue = n_newest = 0;
	T(exi_service_stop());
	T(!exi_service_is_late());
	for (int i = 0; i < 2; i++) {
		newest[i] = (struct exi_timer){ .sk = (void *)&newest[i],
						.deadline = now,
						.expired = newest_expired };
		exi_service_timed(&newest[i]);
	}
	for (int i = 0; i < OVERDUE; i++)
		overdue[i] = (struct exi_timer){ .sk = (void *)&overdue[i],
						 .deadline = now - 1000000000u +
							     (uint64_t)i,
						 .expired = overdue_expired };
	for (int i = 0, at = 0; i < OVERDUE; i++, at = (at + 387) % OVERDUE) {
		exi_service_timed(&overdue[at]);
		if (i % 3 == 0) {
			exi_service_untimed(&overdue[at]);
			exi_service_untimed(&overdue[at]);
			exi_service_timed(&overdue[at]);
		}
	}
	T(exi_service_is_late());
	T_EQ(exi_service_start(), 0);
	T_UNTIL(n_overdue == OVERDUE && n_newest > 0);
	T(exi_service_stop());
	exi_service_untimed(&newest[0]);
	exi_service_untimed(&newest[1]);
	T(!out_of_order);
}

static struct exi_sock *forgotten;
static int forgotten_fd;
static uint32_t forgotten_generation;

static void forget(struct exi_sock *of, int fd, uint32_t generation)
{
	forgotten = of;
	forgotten_fd = fd;
	forgotten_generation = generation;
}

static void a_socket_is_forgotten_by_what_was_handed_in(void **state)
{
	exi_sock_forgets(forget);
	exi_sock_forget(sk, ends[0], 7);
	T(forgotten == sk);
	T_EQ(forgotten_fd, ends[0]);
	T_EQ(forgotten_generation, 7);
}

static int ended_err;
static struct exi_op *ended_op;

static void ended(struct exi_sock *of, enum exi_dir dir, struct exi_op *op,
		  int err)
{
	T(of == sk && dir == EXI_RX);
	T(exi_list_empty(&sk->ops[EXI_RX]));
	ended_op = op;
	ended_err = err;
}

static void an_operation_with_an_end_of_its_own_is_not_completed(void **state)
{
	struct exi_op op = { .type = EXS_EVT_RECV, .ended = ended };
	struct exi_half *h = &sk->sh->half[EXI_RX];

	exi_lock(&h->lock);
	exi_list_add_tail(&sk->ops[EXI_RX], &op.node);
	atomic_fetch_add(&sk->n_ops[EXI_RX], 1);
	exi_flow_finish_locked(sk, EXI_RX, &op, ECANCELED);
	exi_unlock(&h->lock);
	T(ended_op == &op);
	T_EQ(ended_err, ECANCELED);
	T_EQ(op.finished, 0);
	T_EQ(sk->n_ops[EXI_RX], 0);
}

static int request(const struct exi_provider *p, const struct exi_tuple *t,
		   int link, void *arg)
{
	return 41;
}

static int met(int link, int reason)
{
	return 42;
}

static int closed;
static void close_it(int fd, bool sole)
{
	closed++;
}

static void modules_call_what_was_handed_in(void **state)
{
	static const struct exi_host upcalls = {
		.request = request,
		.met = met,
		.close_socket = close_it,
		.close_listener = close_it,
	};
	const struct exi_host *const *host;
	const struct exi_provider *p;
	void *module;
	char why[256];

	exi_module_serve(&upcalls);
	if (exi_module_open("fake", &p, &module, why, sizeof(why)))
		t_fail(__FILE__, __LINE__, "%s", why);
	host = dlsym(module, "fake_host");
	T(host && *host);
	T_EQ((*host)->request(p, NULL, -1, NULL), 41);
	T_EQ((*host)->met(-1, 0), 42);
	(*host)->close_socket(-1, true);
	(*host)->close_listener(-1, true);
	T_EQ(closed, 2);
	dlclose(module);
}

static int begin(void **state)
{
	T_EQ(exi_sock_init(), 0);
	t_plain_pair(ends);
	T_EQ(exi_sock_make(ends[0], EXI_ROLE_NONE, false, &sk), 0);
	return 0;
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_service_without_work_does_not_start),
		cmocka_unit_test(the_service_tells_of_what_it_watches),
		cmocka_unit_test(
			the_service_makes_the_progress_it_was_asked_for),
		cmocka_unit_test(the_service_hears_the_family),
		cmocka_unit_test(the_service_ticks_until_it_is_told_to_stop),
		cmocka_unit_test(the_service_comes_when_work_is_due),
		cmocka_unit_test(timers_expire_in_time_or_are_off),
		cmocka_unit_test(
			a_timer_wakes_the_thread_if_it_is_the_next_one),
		cmocka_unit_test(timers_that_are_overdue_expire_in_their_order),
		cmocka_unit_test(a_socket_is_forgotten_by_what_was_handed_in),
		cmocka_unit_test(
			an_operation_with_an_end_of_its_own_is_not_completed),
		cmocka_unit_test(modules_call_what_was_handed_in),
	};

	return cmocka_run_group_tests(tests, begin, NULL);
}
