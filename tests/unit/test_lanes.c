/* SPDX-License-Identifier: BSD-2-Clause */
/* Lanes: what each of the threads that share a queue has of it. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/exs.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "core/base/lock.h"
#include "core/call/dequeue.h"
#include "core/transfer/lanes.h"
#include "core/transfer/op.h"
#include "core/transfer/queue.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

#define DEPTH 24
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

static exs_qhandle_t h;
static const struct timeval no_time, long_time = { .tv_sec = 20 };
static _Atomic pid_t sleeper;

static struct exi_queue *root(void)
{
	return exi_queue_at(h);
}

static void begin(void)
{
	T_EQ(exi_queue_create(DEPTH, &h), 0);
}

static void end(void)
{
	T_EQ(exi_queue_delete(h), 0);
}

/* The calling thread waits for the locks, and another one takes events. */
static void wait_for_locks(void)
{
	for (int i = 0; i < 100; i++) {
		exi_lanes_crowded(root(), h, EXI_LANES_SUBMITS);
		atomic_store(&root()->last_taker, 1);
		exi_lanes_crowded(root(), h, EXI_LANES_TAKES);
	}
}

static bool has_lane(void)
{
	return exi_lanes_own(root(), h) != root();
}

static void get_lane(void)
{
	wait_for_locks();
	T(has_lane());
}

static void post(uintptr_t n)
{
	T_EQ(exi_queue_post(h, (exs_ahandle_t)n), 0);
}

/* The handles of the events that one call takes; how many. */
static int take(int want, const struct timeval *timeout, uintptr_t *ret)
{
	exs_event_t ev[DEPTH];
	int n = exi_queue_dequeue(h, ev, want, timeout);

	for (int i = 0; i < n; i++)
		ret[i] = (uintptr_t)ev[i].exs_evt_ahandle;
	return n;
}

static uintptr_t take_one(void)
{
	uintptr_t n = 0;

	T_EQ(take(1, &long_time, &n), 1);
	return n;
}

static void in_thread(void *(*f)(void *))
{
	t_thread_join(t_thread(f, NULL));
}

/* --- rows --------------------------------------------------------------- */

static void *alone(void *arg)
{
	for (int i = 0; i < 100; i++) {
		exi_lanes_crowded(root(), h, EXI_LANES_SUBMITS);
		exi_lanes_crowded(root(), h, EXI_LANES_TAKES);
	}
	T(!has_lane());
	return NULL;
}

static void the_only_thread_that_takes_events_has_no_lane(void)
{
	begin();
	in_thread(alone);
	end();
}

static void *own_first(void *arg)
{
	get_lane();
	post(2);
	post(3);
	T_EQ(take_one(), 2);
	T_EQ(take_one(), 3);
	T_EQ(take_one(), 1);
	return NULL;
}

static void *sleep_and_take(void *arg)
{
	wait_for_locks();
	T(!has_lane());
	sleeper = (pid_t)exi_tid();
	T_EQ(take_one(), 5);
	return NULL;
}

/* A sleeper could not sleep on its word and those of others. */
static void no_thread_has_a_lane_without_futex_waitv(void)
{
	pthread_t t;

	if (!t_can(t_has_filters(), "seccomp filter"))
		exit(T_SKIP);
	t_refuse(SYS_futex_waitv);
	begin();
	wait_for_locks();
	T(!has_lane());
	t = t_thread(sleep_and_take, NULL);
	T_UNTIL(sleeper);
	t_until_asleep(sleeper);
	post(5);
	t_thread_join(t);
	end();
}

static void own_events_come_first_then_those_of_others(void)
{
	begin();
	post(1);
	in_thread(own_first);
	end();
}

static void *always_busy(void *arg)
{
	bool found = false;

	get_lane();
	for (int i = 0; i < 3 * EXI_LANES_LOOK && !found; i++) {
		post(2);
		found = take_one() == 1;
	}
	T(found);
	T_EQ(take_one(), 2);
	return NULL;
}

static void events_that_nobody_comes_for_are_found(void)
{
	begin();
	post(1);
	in_thread(always_busy);
	end();
}

static void *fill(void *arg)
{
	int n = 0;

	get_lane();
	while (exi_queue_post(h, NULL) == 0)
		n++;
	T_EQ(n, DEPTH - 5);
	T_EQ(exi_lanes_count_ready(root()), DEPTH);
	return NULL;
}

static void lanes_share_the_depth(void)
{
	uintptr_t got[DEPTH];

	begin();
	for (int i = 0; i < 5; i++)
		post(1);
	in_thread(fill);
	T_EQ(exi_queue_post(h, NULL), -EAGAIN);
	T_EQ(take(5, &no_time, got), 5);
	for (int i = 0; i < 5; i++)
		post(1);
	T_EQ(exi_queue_post(h, NULL), -EAGAIN);
	for (int n = 0; n < DEPTH; n += take(DEPTH, &no_time, got))
		;
	T_EQ(exi_lanes_count_ready(root()), 0);
	/* The slots of the lane are for all. */
	for (int i = 0; i < DEPTH; i++)
		post(1);
	T_EQ(exi_queue_post(h, NULL), -EAGAIN);
	end();
}

static void *take_one_of_another(void *arg)
{
	take_one();
	return NULL;
}

/* What a thread finds that had no slot a moment before. */
static void *find_slots_that_came(void *arg)
{
	struct exi_queue *lane;

	get_lane();
	lane = exi_lanes_own(root(), h);
	while (exi_queue_post(h, NULL) == 0)
		;
	T(!exi_lanes_gather(lane, h, 1));
	in_thread(take_one_of_another);
	T(exi_lanes_gather(lane, h, 1));
	post(1);
	T(!exi_lanes_gather(lane, h, 1));
	exi_lanes_end(root());
	T(exi_lanes_gather(lane, h, 1));
	T_EQ(exi_queue_post(h, NULL), -EAGAIN);
	in_thread(take_one_of_another);
	T(exi_lanes_gather(lane, h, 1));
	post(1);
	return NULL;
}

static void slots_that_came_meanwhile_are_found(void)
{
	begin();
	in_thread(find_slots_that_came);
	end();
}

static sem_t go;
static struct exi_op *kept;

static void *post_later(void *arg)
{
	get_lane();
	t_until_asleep((pid_t)(intptr_t)arg);
	post(7);
	return NULL;
}

static void a_sleeper_wakes_for_an_event_of_a_lane(void)
{
	pthread_t t;

	begin();
	for (int i = 0; i < 20; i++) {
		t = t_thread(post_later, (void *)(intptr_t)exi_tid());
		T_EQ(take_one(), 7);
		t_thread_join(t);
	}
	end();
}

static void *sleep_in_lane(void *arg)
{
	uintptr_t n;

	get_lane();
	sleeper = (pid_t)exi_tid();
	T_EQ(take(1, NULL, &n), (int)(intptr_t)arg);
	return NULL;
}

static void a_sleeper_in_a_lane_wakes_for_an_event_of_others(void)
{
	pthread_t t;

	begin();
	sleeper = 0;
	t = t_thread(sleep_in_lane, (void *)1);
	T_UNTIL(sleeper);
	t_until_asleep(sleeper);
	post(1);
	t_thread_join(t);
	end();
}

static void a_sleeper_in_a_lane_wakes_when_the_queue_is_deleted(void)
{
	pthread_t t;

	begin();
	sleeper = 0;
	t = t_thread(sleep_in_lane, (void *)(intptr_t)-EINVAL);
	T_UNTIL(sleeper);
	t_until_asleep(sleeper);
	end();
	t_thread_join(t);
}

static void *post_two_and_keep_one(void *arg)
{
	get_lane();
	post(2);
	post(3);
	T_EQ(exi_queue_keep(h, &kept), 0);
	T(kept->queue != root());
	return NULL;
}

static void a_threshold_counts_the_events_of_all(void)
{
	uintptr_t got[DEPTH] = { 0 };

	begin();
	post(1);
	in_thread(post_two_and_keep_one);
	T_EQ(take(-3, NULL, got), 3);
	T_EQ(got[0], 1);
	T_EQ(got[1], 2);
	T_EQ(got[2], 3);
	/* What was outstanding in the lane is the root's. */
	T(kept->queue == root());
	T_EQ(exi_queue_delete(h), -EBUSY);
	exi_op_complete(kept);
	exi_queue_let_go(kept);
	T_EQ(take(1, &no_time, got), 1);
	/* Such a queue has no lanes any more. */
	wait_for_locks();
	T(!has_lane());
	end();
}

static void a_queue_is_busy_if_a_lane_is(void)
{
	uintptr_t got[DEPTH];

	begin();
	in_thread(post_two_and_keep_one);
	T_EQ(exi_queue_delete(h), -EBUSY);
	T_EQ(exi_queue_deepen(root(), DEPTH / 2), -EBUSY);
	exi_queue_let_go(kept);
	T_EQ(take(DEPTH, &no_time, got), 2);
	T_EQ(exi_queue_deepen(root(), DEPTH / 2), 0);
	end();
}

static void *wait_to_post(void *arg)
{
	get_lane();
	sem_post(&go);
	return NULL;
}

static void a_descriptor_shows_the_events_of_all(void)
{
	uintptr_t got[DEPTH];
	int fd;

	begin();
	in_thread(post_two_and_keep_one);
	fd = exi_queue_fd(root());
	T(fd >= 0 && t_readable(fd, 0));
	T_EQ(take(DEPTH, &no_time, got), 2);
	T(!t_readable(fd, 0));
	exi_op_complete(kept);
	T(t_readable(fd, 0));
	exi_queue_let_go(kept);
	T_EQ(take(1, &no_time, got), 1);
	end();
}

static void *one_event(void *arg)
{
	get_lane();
	post(1);
	return NULL;
}

static void lanes_of_threads_that_ended_are_used_again(void)
{
	begin();
	for (int i = 0; i < DEPTH; i++) {
		in_thread(one_event);
		T(root()->family.n_lanes <= EXI_LANES_MAX);
	}
	for (int i = 0; i < DEPTH; i++)
		T_EQ(take_one(), 1);
	end();
}

static void a_new_queue_begins_without_lanes(void)
{
	for (int i = 0; i < 3; i++) {
		sem_init(&go, 0, 0);
		begin();
		in_thread(wait_to_post);
		T_EQ(sem_trywait(&go), 0);
		T_EQ(root()->family.n_lanes, 1);
		end();
		begin();
		T_EQ(root()->family.n_lanes, 0);
		T(!has_lane());
		end();
	}
}

static int fd[2];
static char bytes[3];

static void post_receive(int nr)
{
	t_post_recv(fd[0], &bytes[nr], 1, 0, h, nr);
}

static void *receive_second(void *arg)
{
	get_lane();
	post_receive(1);
	return NULL;
}

static void *receive_last(void *arg)
{
	get_lane();
	post_receive(2);
	T(exi_lanes_own(root(), h)->n_used == 1);
	return NULL;
}

static void pair_with_first_receive(void)
{
	t_init();
	begin();
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], (struct t_want){ .fabric = "shm" });
	post_receive(0);
}

static void take_receives(int first, int n)
{
	t_send_all(fd[1], "abc", n, 0);
	for (int i = first; i < first + n; i++)
		T_EQ(take_one(), i);
}

static void end_pair(void)
{
	t_close(fd[0]);
	t_close(fd[1]);
	end();
}

static void a_direction_is_in_one_lane_at_a_time(void)
{
	pair_with_first_receive();
	in_thread(receive_second);
	T_EQ(root()->n_used, 2);
	T_EQ(root()->joins, 1);
	take_receives(0, 2);
	in_thread(receive_last);
	T_EQ(root()->n_used, 0);
	T_EQ(root()->joins, 1);
	take_receives(2, 1);
	end_pair();
}

static void threads_that_share_a_direction_have_no_lanes(void)
{
	pair_with_first_receive();
	root()->joins = 1 << 20;
	in_thread(receive_second);
	T_EQ(root()->family.n_lanes, 0);
	take_receives(0, 2);
	wait_for_locks();
	T(!has_lane());
	end_pair();
}

/* A lane that ended and began again would be taken for the one that has the
 * direction's first operation. */
static void *receive_around_a_refusal(void *arg)
{
	get_lane();
	post_receive(1);
	T_EQ(exi_queue_deepen(root(), DEPTH / 2), -EBUSY);
	T_EQ(exi_queue_delete(h), -EBUSY);
	get_lane();
	post_receive(2);
	take_receives(1, 2);
	return NULL;
}

static void a_refused_change_leaves_the_order(void)
{
	pair_with_first_receive();
	take_receives(0, 1);
	in_thread(receive_around_a_refusal);
	end_pair();
}

static exs_qhandle_t h2;

static void *receive_in_two_queues(void *arg)
{
	get_lane();
	post_receive(1);
	t_post_recv(fd[0], &bytes[0], 1, 0, h2, 0);
	return NULL;
}

static void a_direction_that_two_queues_have_keeps_the_order_of_each(void)
{
	exs_event_t ev;

	pair_with_first_receive();
	take_receives(0, 1);
	T_EQ(exi_queue_create(DEPTH, &h2), 0);
	in_thread(receive_in_two_queues);
	post_receive(2);
	t_send_all(fd[1], "abc", 3, 0);
	T_EQ(exi_queue_dequeue(h2, &ev, 1, &long_time), 1);
	T_EQ(take_one(), 1);
	T_EQ(take_one(), 2);
	T_EQ(exi_queue_delete(h2), 0);
	end_pair();
}

/* In a row the library asks for itself. */
static bool has_waitv(void)
{
	return syscall(SYS_futex_waitv, NULL, 0, 0, NULL, 0) < 0 &&
	       errno == EINVAL;
}

int main(int argc, char **argv)
{
	static const struct t_row rows[] = {
		T_ROW(the_only_thread_that_takes_events_has_no_lane),
		T_ROW(no_thread_has_a_lane_without_futex_waitv),
		T_ROW(own_events_come_first_then_those_of_others),
		T_ROW(events_that_nobody_comes_for_are_found),
		T_ROW(lanes_share_the_depth),
		T_ROW(slots_that_came_meanwhile_are_found),
		T_ROW(a_sleeper_wakes_for_an_event_of_a_lane),
		T_ROW(a_sleeper_in_a_lane_wakes_for_an_event_of_others),
		T_ROW(a_sleeper_in_a_lane_wakes_when_the_queue_is_deleted),
		T_ROW(a_threshold_counts_the_events_of_all),
		T_ROW(a_queue_is_busy_if_a_lane_is),
		T_ROW(a_descriptor_shows_the_events_of_all),
		T_ROW(lanes_of_threads_that_ended_are_used_again),
		T_ROW(a_new_queue_begins_without_lanes),
		T_ROW(a_direction_is_in_one_lane_at_a_time),
		T_ROW(threads_that_share_a_direction_have_no_lanes),
		T_ROW(a_refused_change_leaves_the_order),
		T_ROW(a_direction_that_two_queues_have_keeps_the_order_of_each),
	};

	if (!t_can(has_waitv(), "futex_waitv"))
		return T_SKIP;
	return t_run("lanes", rows, T_COUNT(rows), argv[1]);
}
