/* SPDX-License-Identifier: BSD-2-Clause */
/* Event queues: thresholds and time-outs of a dequeue, slots that are
 * reserved, cancel and close, busy queues and memory, the descriptor, the
 * signal and the attributes. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "tests/conformance/conf.h"
#include "tests/support/bytes.h"

#define DEPTH 8

static exs_qhandle_t q;
static int fd[2];
static char room[DEPTH + 4][100];

static void begin(void)
{
	t_init();
	q = T_OK(exs_qcreate(DEPTH));
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], conf_here());
}

static void end(void)
{
	t_no_event(q);
	T_OK(exs_qdelete(q));
	t_close(fd[0]);
	t_close(fd[1]);
}

static void post(int i)
{
	t_post_recv(fd[0], room[i], 10, MSG_WAITALL, q, i);
}

/* Completes so many of the posted receives. */
static void complete(int n)
{
	char bytes[10 * DEPTH];

	memset(bytes, 'x', sizeof(bytes));
	t_send_all(fd[1], bytes, n * 10, 0);
}

static int dequeue(int cnt, int ms, exs_event_t *e)
{
	struct timeval tv = { .tv_sec = ms / 1000,
			      .tv_usec = ms % 1000 * 1000 };

	return exs_qdequeue(q, e, cnt, ms < 0 ? NULL : &tv);
}

static void events_are(const exs_event_t *e, int n, int first)
{
	int i;

	for (i = 0; i < n; i++) {
		T_EQ(e[i].exs_evt_type, EXS_EVT_RECV);
		T_EQ(e[i].exs_evt_socket, fd[0]);
		T_EQ(e[i].exs_errno, 0);
		T_EQ((long)e[i].exs_evt_ahandle, first + i);
		T_EQ(e[i].exs_evt_un.exs_evt_xfer.exs_evt_length, 10);
		T(e[i].exs_evt_un.exs_evt_xfer.exs_evt_buffer ==
		  room[first + i]);
	}
}

static void a_count_of_zero_returns_at_once(void)
{
	exs_event_t e;

	begin();
	T_EQ(dequeue(0, -1, &e), 0);
	T_EQ(exs_qdequeue(q, NULL, 0, NULL), 0);
	post(0);
	complete(1);
	T_EQ(dequeue(0, -1, &e), 0);
	T_EQ(dequeue(1, -1, &e), 1);
	events_are(&e, 1, 0);
	end();
}

static void a_zero_time_out_only_looks(void)
{
	exs_event_t e[4];
	int i;

	begin();
	T_EQ(dequeue(1, 0, e), 0);
	T_EQ(dequeue(-3, 0, e), 0);
	for (i = 0; i < 3; i++)
		post(i);
	T_EQ(dequeue(4, 0, e), 0);
	complete(2);
	T_UNTIL(dequeue(1, 0, e) == 1);
	events_are(e, 1, 0);
	T_UNTIL(dequeue(-2, 0, e) == 1);
	events_are(e, 1, 1);
	complete(1);
	T_EQ(dequeue(1, -1, e), 1);
	end();
}

static void a_time_out_with_nothing_is_zero(void)
{
	int64_t start = t_now_ns();
	exs_event_t e;

	begin();
	start = t_now_ns();
	T_EQ(dequeue(1, 60, &e), 0);
	T(t_now_ns() - start >= 59000000);
	start = t_now_ns();
	T_EQ(dequeue(-2, 60, &e), 0);
	T(t_now_ns() - start >= 59000000);
	end();
}

struct later {
	int n;
	_Atomic pid_t waiter;
	_Atomic bool over;
};

static void *complete_when_asleep(void *arg)
{
	struct later *l = arg;

	t_until_asleep(l->waiter);
	complete(l->n);
	return NULL;
}

/* A positive count returns as soon as one event is there. */
static void a_positive_count_waits_for_one(void)
{
	struct later l = { .n = 1, .waiter = syscall(SYS_gettid) };
	exs_event_t e[4];
	pthread_t t;
	int i;

	begin();
	for (i = 0; i < 4; i++)
		post(i);
	t = t_thread(complete_when_asleep, &l);
	T_EQ(dequeue(4, -1, e), 1);
	t_thread_join(t);
	events_are(e, 1, 0);
	complete(3);
	for (i = 1; i < 4;) {
		int n = T_OK(dequeue(4, -1, e));

		T(n >= 1 && n <= 4 - i);
		events_are(e, n, i);
		i += n;
	}
	end();
}

static void *complete_one_by_one(void *arg)
{
	struct later *l = arg;
	int i;

	for (i = 0; i < l->n; i++) {
		t_until_asleep(l->waiter);
		complete(1);
	}
	return NULL;
}

static void a_negative_count_waits_for_that_many(void)
{
	struct later l = { .n = 5, .waiter = syscall(SYS_gettid) };
	exs_event_t e[DEPTH];
	pthread_t t;
	int i;

	begin();
	for (i = 0; i < DEPTH; i++)
		post(i);
	t = t_thread(complete_one_by_one, &l);
	T_EQ(dequeue(-5, -1, e), 5);
	t_thread_join(t);
	events_are(e, 5, 0);
	complete(DEPTH - 5);
	T_EQ(dequeue(5 - DEPTH, 20000, e), DEPTH - 5);
	events_are(e, DEPTH - 5, 5);
	end();
}

static void a_threshold_out_of_time_gives_what_is_there(void)
{
	exs_event_t e[DEPTH];
	int64_t start;
	int i;

	begin();
	for (i = 0; i < 4; i++)
		post(i);
	complete(2);
	start = t_now_ns();
	T_EQ(dequeue(-4, 200 * t_slow(), e), 2);
	T(t_now_ns() - start >= 190000000);
	events_are(e, 2, 0);
	complete(2);
	T_EQ(dequeue(-2, -1, e), 2);
	end();
}

static void a_threshold_of_the_depth_is_allowed(void)
{
	exs_event_t e[DEPTH];
	int i;

	begin();
	for (i = 0; i < DEPTH; i++)
		post(i);
	complete(DEPTH);
	T_EQ(dequeue(-DEPTH, -1, e), DEPTH);
	events_are(e, DEPTH, 0);
	end();
}

static void a_positive_count_may_exceed_the_depth(void)
{
	exs_event_t e[DEPTH * 3];

	begin();
	post(0);
	complete(1);
	T_EQ(dequeue(DEPTH * 3, -1, e), 1);
	events_are(e, 1, 0);
	end();
}

/* A slot is taken at submission and free again when its event is dequeued. */
static void a_full_queue_says_eagain_and_takes_nothing(void)
{
	exs_event_t e;
	char byte;
	int i;

	begin();
	for (i = 0; i < DEPTH; i++)
		post(i);
	T_ERR(exs_recv(fd[0], &byte, 1, 0, q, NULL, 0), EAGAIN);
	T_ERR(exs_send(fd[0], "no", 2, 0, q, NULL, 0), EAGAIN);
	T_ERR(exs_shutdown(fd[0], SHUT_WR, q, NULL), EAGAIN);
	T_ERR(exs_close(fd[0], q, NULL), EAGAIN);
	T_ERR(t_recv(fd[1], &byte, 1, MSG_DONTWAIT), EAGAIN);
	complete(DEPTH);
	T_UNTIL(({
		int n;
		size_t len = sizeof(n);
		T_OK(exs_qstatus(q, EXS_QATTR_EVENTS, &n, &len));
		n == DEPTH;
	}));
	T_ERR(exs_send(fd[0], "no", 2, 0, q, NULL, 0), EAGAIN);
	T_EQ(dequeue(1, -1, &e), 1);
	t_post_send(fd[0], "yes", 3, 0, q, 50);
	T_ERR(exs_send(fd[0], "no", 2, 0, q, NULL, 0), EAGAIN);
	for (i = 1; i < DEPTH; i++)
		T_EQ(t_event_is(q, EXS_EVT_RECV, i), 10);
	T_EQ(t_event_is(q, EXS_EVT_SEND, 50), 3);
	t_recv_all(fd[1], room[0], 3);
	T(!memcmp(room[0], "yes", 3));
	T_ERR(t_recv(fd[1], &byte, 1, MSG_DONTWAIT), EAGAIN);
	end();
}

static void nothing(int sig)
{
}

static void *interrupt_when_asleep(void *arg)
{
	struct later *l = arg;

	t_interrupt(l->waiter, &l->over);
	return NULL;
}

static void dequeue_interrupted(int cnt, exs_event_t *e)
{
	struct later l = { .waiter = syscall(SYS_gettid) };
	pthread_t t = t_thread(interrupt_when_asleep, &l);

	T_ERR(dequeue(cnt, -1, e), EINTR);
	l.over = true;
	t_thread_join(t);
}

/* What came for the other is taken where a receive is posted, and not by the
 * dequeue: it would be found when a spin ends in vain. */
static void what_another_call_took_is_told_at_once(void)
{
	exs_event_t e[2];
	int other[2];
	int64_t start;
	char byte;

	T_OK(setenv("EXS_SPIN_US", "1000000", 1));
	begin();
	t_pair(T_IPV4, other);
	t_settle_pair(other[0], other[1], conf_here());
	t_post_recv(other[0], &byte, 1, 0, q, DEPTH);
	t_send_all(other[1], "x", 1, 0);
	post(0);
	complete(1);
	start = t_now_ns();
	T_EQ(dequeue(-2, -1, e), 2);
	T_MSG(t_now_ns() - start < INT64_C(500000000) * t_slow(), "%lld ms",
	      (long long)(t_now_ns() - start) / 1000000);
	end();
	t_close(other[0]);
	t_close(other[1]);
}

/* Doorbells that the service heard for the receiving end. */
static unsigned long long doorbells(void)
{
	exs_x_sockinfo_t info;

	T_OK(exs_x_sockinfo(fd[0], &info));
	return info.exs_x_bells_received;
}

static int n_ready(void)
{
	size_t len = sizeof(int);
	int n;

	T_OK(exs_qstatus(q, EXS_QATTR_EVENTS, &n, &len));
	return n;
}

/* The service makes progress while no thread dequeues. A thread that comes
 * back is woken by its peers again, and not by the service, though receives
 * have been outstanding all the time. */
static void a_dequeuer_takes_over_from_the_service(void)
{
	struct later l = { .n = 40, .waiter = syscall(SYS_gettid) };
	exs_event_t e[1];
	pthread_t t;
	unsigned long long before;
	int i;

	begin();
	for (i = 0; i < DEPTH; i++)
		post(i);
	T_EQ(dequeue(1, 0, e), 0);
	complete(1);
	T_UNTIL(n_ready() == 1);
	before = doorbells();
	t = t_thread(complete_one_by_one, &l);
	for (i = 0; i <= l.n; i++) {
		T_EQ(dequeue(1, -1, e), 1);
		post((int)(long)e[0].exs_evt_ahandle);
	}
	t_thread_join(t);
	T_MSG(doorbells() - before < (unsigned int)l.n / 2, "%llu",
	      doorbells() - before);
	T_EQ(exs_cancel(fd[0], NULL, EXS_CAF_FILDES), DEPTH);
	for (i = 0; i < DEPTH; i++)
		T_EQ(dequeue(1, -1, e), 1);
	end();
}

static void a_signal_loses_no_event(void)
{
	struct sigaction act = { .sa_handler = nothing };
	exs_event_t e[4];
	int i;

	begin();
	sigaction(SIGUSR1, &act, NULL);
	for (i = 0; i < 3; i++)
		post(i);
	dequeue_interrupted(1, e);
	complete(1);
	dequeue_interrupted(-3, e);
	complete(2);
	T_EQ(dequeue(-3, -1, e), 3);
	events_are(e, 3, 0);
	end();
}

static _Atomic int signals;

static void count(int sig)
{
	signals++;
}

static struct timespec in_ms(int64_t ms)
{
	int64_t ns = t_now_ns() + ms * 1000000;

	return (struct timespec){ .tv_sec = ns / 1000000000,
				  .tv_nsec = ns % 1000000000 };
}

static void user_event_is(const exs_event_t *e, long handle)
{
	T_EQ(e->exs_evt_type, EXS_X_EVT_USER);
	T_EQ(e->exs_evt_socket, -1);
	T_EQ(e->exs_errno, 0);
	T_EQ((long)e->exs_evt_ahandle, handle);
}

static void a_posted_event_takes_its_turn_and_a_slot(void)
{
	exs_event_t e[DEPTH];
	int i;

	begin();
	post(0);
	T_OK(exs_x_post(q, (exs_ahandle_t)7));
	T_EQ(dequeue(1, -1, e), 1);
	user_event_is(e, 7);
	complete(1);
	T_EQ(dequeue(1, -1, e), 1);
	events_are(e, 1, 0);
	for (i = 0; i < DEPTH; i++)
		T_OK(exs_x_post(q, (exs_ahandle_t)(long)i));
	T_ERR(exs_x_post(q, NULL), EAGAIN);
	T_EQ(dequeue(-DEPTH, -1, e), DEPTH);
	for (i = 0; i < DEPTH; i++)
		user_event_is(&e[i], i);
	T_ERR(exs_x_post(EXS_QHANDLE_INVALID, NULL), EINVAL);
	T_ERR(exs_x_post((exs_qhandle_t)0, NULL), EINVAL);
	end();
}

static _Atomic int posting;

static void *post_later(void *arg)
{
	T_UNTIL(posting);
	T_OK(exs_x_post(q, arg));
	return NULL;
}

static void a_posted_event_wakes_who_waits_for_a_socket(void)
{
	pthread_t thread;
	exs_event_t e;

	begin();
	post(0);
	T_EQ(pthread_create(&thread, NULL, post_later, (void *)5), 0);
	posting = 1;
	T_EQ(dequeue(1, -1, &e), 1);
	user_event_is(&e, 5);
	T_EQ(pthread_join(thread, NULL), 0);
	complete(1);
	T_EQ(dequeue(1, -1, &e), 1);
	end();
}

static void a_deadline_is_of_the_clock(void)
{
	struct timespec soon = in_ms(40), past = in_ms(-1000), bad = soon;
	exs_event_t e[2];

	begin();
	T_EQ(exs_x_dequeue(q, e, 1, &past, NULL), 0);
	soon = in_ms(40);
	T_EQ(exs_x_dequeue(q, e, 1, &soon, NULL), 0);
	T(t_now_ns() >= soon.tv_sec * 1000000000 + soon.tv_nsec);
	T_EQ(exs_x_dequeue(q, e, 1, &soon, NULL), 0);
	post(0);
	complete(1);
	T_EQ(exs_x_dequeue(q, e, 1, NULL, NULL), 1);
	events_are(e, 1, 0);
	bad.tv_nsec = 1000000000;
	T_ERR(exs_x_dequeue(q, e, 1, &bad, NULL), EINVAL);
	T_ERR(exs_x_dequeue(q, NULL, 1, NULL, NULL), EFAULT);
	T_ERR(exs_x_dequeue(q, e, -DEPTH - 1, NULL, NULL), EINVAL);
	T_ERR(exs_x_dequeue(EXS_QHANDLE_INVALID, e, 1, NULL, NULL), EINVAL);
	end();
}

static int events_there(void)
{
	size_t len = sizeof(int);
	int n;

	T_OK(exs_qstatus(q, EXS_QATTR_EVENTS, &n, &len));
	return n;
}

/* The signal came before the call, where a test of a flag that its handler sets
 * would have missed it. */
static void a_signal_that_the_mask_lets_through_ends_the_wait(void)
{
	struct sigaction act = { .sa_handler = count };
	struct timespec soon;
	exs_event_t e[3];
	sigset_t blocked, was;

	begin();
	sigaction(SIGUSR2, &act, NULL);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &blocked, &was);
	signals = 0;
	raise(SIGUSR2);
	post(0);
	soon = in_ms(20);
	T_EQ(exs_x_dequeue(q, e, 1, &soon, &blocked), 0);
	T_EQ(signals, 0);
	T_ERR(exs_x_dequeue(q, e, 1, NULL, &was), EINTR);
	T_EQ(signals, 1);
	soon = in_ms(20);
	T_EQ(exs_x_dequeue(q, e, 1, &soon, &was), 0);
	complete(1);
	post(1);
	T_UNTIL(events_there() == 1);
	raise(SIGUSR2);
	/* Too few for the threshold: what there is, now. */
	T_EQ(exs_x_dequeue(q, e, -2, NULL, &was), 1);
	events_are(e, 1, 0);
	T_EQ(signals, 2);
	T_EQ(exs_cancel(fd[0], NULL, EXS_CAF_FILDES), 1);
	T_EQ(exs_x_dequeue(q, e, 1, NULL, &was), 1);
	T_ERR(exs_x_dequeue(q, e, -DEPTH - 1, NULL, &was), EINVAL);
	T_ERR(exs_x_dequeue(EXS_QHANDLE_INVALID, e, 1, NULL, &was), EINVAL);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	signal(SIGUSR2, SIG_DFL);
	end();
}

static _Atomic bool taken;

static void *take_masked(void *arg)
{
	exs_event_t e[2];
	sigset_t mask;

	sigemptyset(&mask);
	T_EQ(exs_x_dequeue(q, e, -2, NULL, &mask), 2);
	taken = true;
	T_ERR(exs_x_dequeue(q, e, 1, NULL, &mask), EINVAL);
	return NULL;
}

static void a_masked_wait_ends_with_its_queue(void)
{
	int left_open = 0;
	pthread_t thread;

	begin();
	for (int i = 0; i < 20; i++) {
		post(0);
		taken = false;
		T_EQ(pthread_create(&thread, NULL, take_masked, NULL), 0);
		complete(1);
		T_OK(exs_x_post(q, NULL));
		T_UNTIL(taken);
		T_OK(exs_qdelete(q));
		T_EQ(pthread_join(thread, NULL), 0);
		if (!i) /* the library has opened its own */
			left_open = t_fd_count();
		T_EQ(t_fd_count(), left_open);
		q = T_OK(exs_qcreate(DEPTH));
	}
	end();
}

static void cancel_by_descriptor(void)
{
	int more[2], i;

	begin();
	t_pair(T_IPV4, more);
	t_post_recv(more[0], room[9], 1, 0, q, 1);
	for (i = 0; i < 3; i++)
		post(i);
	T_EQ(exs_cancel(fd[0], NULL, EXS_CAF_FILDES), 3);
	for (i = 0; i < 3; i++) {
		exs_event_t e = t_event(q);

		T_EQ(e.exs_errno, ECANCELED);
		T_EQ(e.exs_evt_type, EXS_EVT_RECV);
		T_EQ(e.exs_evt_socket, fd[0]);
	}
	t_no_event(q);
	T_EQ(exs_cancel(fd[0], NULL, EXS_CAF_FILDES), 0);
	t_close(more[1]);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 1), 0);
	t_close(more[0]);
	end();
}

/* The handle alone selects on every descriptor. */
static void cancel_by_handle(void)
{
	int more[2], i;

	begin();
	t_pair(T_IPV4, more);
	t_post_recv(more[0], room[9], 10, 0, q, 1);
	for (i = 0; i < 3; i++)
		post(i);
	T_EQ(exs_cancel(-1, (exs_ahandle_t)1, EXS_CAF_AHANDLE), 2);
	for (i = 0; i < 2; i++) {
		exs_event_t e = t_event(q);

		T_EQ(e.exs_errno, ECANCELED);
		T_EQ((long)e.exs_evt_ahandle, 1);
	}
	T_EQ(exs_cancel(-1, (exs_ahandle_t)77, EXS_CAF_AHANDLE), 0);
	complete(2);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 0), 10);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 2), 10);
	t_close(more[0]);
	t_close(more[1]);
	end();
}

static void cancel_by_both(void)
{
	int more[2];

	begin();
	t_pair(T_IPV4, more);
	t_post_recv(more[0], room[9], 10, 0, q, 1);
	post(0);
	post(1);
	T_EQ(exs_cancel(fd[0], (exs_ahandle_t)1,
			EXS_CAF_FILDES | EXS_CAF_AHANDLE),
	     1);
	T_EQ(t_event(q).exs_errno, ECANCELED);
	t_no_event(q);
	complete(1);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 0), 10);
	t_close(more[1]);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 1), 0);
	t_close(more[0]);
	end();
}

static void cancelled_accepts_and_a_closed_listener(void)
{
	struct t_addr at;
	exs_event_t e;
	int l, i;

	begin();
	l = t_listener(T_IPV4, &at);
	for (i = 0; i < 4; i++)
		T_EQ(exs_accept(l, NULL, 0, q, (exs_ahandle_t)(long)i), 0);
	T_EQ(exs_cancel(l, (exs_ahandle_t)1, EXS_CAF_FILDES | EXS_CAF_AHANDLE),
	     1);
	e = t_event(q);
	T_EQ(e.exs_evt_type, EXS_EVT_ACCEPT);
	T_EQ(e.exs_errno, ECANCELED);
	T_EQ(e.exs_evt_un.exs_evt_accept.exs_evt_newfd, -1);
	T_EQ(exs_close(l, q, (exs_ahandle_t)9), 0);
	for (i = 0; i < 3; i++) {
		e = t_event(q);
		T_EQ(e.exs_evt_type, EXS_EVT_ACCEPT);
		T_EQ(e.exs_errno, ECANCELED);
	}
	e = t_event(q);
	T_EQ(e.exs_evt_type, EXS_EVT_CLOSE);
	T_EQ((long)e.exs_evt_ahandle, 9);
	end();
}

static void accepts_are_served_in_order(void)
{
	struct sockaddr_storage from[4];
	exs_acceptaddr_t addr[4];
	struct t_addr at;
	int l, i, s[4];

	begin();
	l = t_listener(T_IPV4, &at);
	for (i = 0; i < 4; i++) {
		addr[i].exs_addr = (struct sockaddr *)&from[i];
		addr[i].exs_addrlen = sizeof(from[i]);
		T_EQ(exs_accept(l, &addr[i], SOCK_CLOEXEC | SOCK_NONBLOCK, q,
				(exs_ahandle_t)(long)i),
		     0);
	}
	for (i = 0; i < 4; i++)
		s[i] = t_connect(&at);
	for (i = 0; i < 4; i++) {
		struct sockaddr_in *in = (struct sockaddr_in *)&from[i];
		exs_event_t e = t_event(q);
		int b = e.exs_evt_un.exs_evt_accept.exs_evt_newfd;

		T_EQ(e.exs_errno, 0);
		T_EQ((long)e.exs_evt_ahandle, i);
		T(e.exs_evt_un.exs_evt_accept.exs_evt_addr == &addr[i]);
		T_EQ(addr[i].exs_addrlen, sizeof(*in));
		T_EQ(ntohs(in->sin_port), t_port_of(s[i]));
		T_ERR(t_recv(b, room[0], 1, 0), EAGAIN);
		t_close(b);
		t_recv_end(s[i]);
		t_close(s[i]);
	}
	t_close(l);
	end();
}

static void a_busy_queue_cannot_be_deleted(void)
{
	begin();
	post(0);
	T_ERR(exs_qdelete(q), EBUSY);
	T_EQ(exs_cancel(fd[0], NULL, EXS_CAF_FILDES), 1);
	T_EQ(t_event(q).exs_errno, ECANCELED);
	end();
}

/* Busy from the submission until the event is dequeued. */
static void busy_memory_cannot_be_deregistered(void)
{
	exs_mhandle_t m;
	int n = 0;
	size_t len = sizeof(n);

	begin();
	m = T_OK(exs_mregister(room, sizeof(room), 0));
	T_EQ(exs_recv(fd[0], room[1], 10, 0, q, (exs_ahandle_t)1, m), 0);
	T_ERR(exs_mderegister(m, 0), EBUSY);
	complete(1);
	while (n == 0)
		T_OK(exs_qstatus(q, EXS_QATTR_EVENTS, &n, &len));
	T_ERR(exs_mderegister(m, 0), EBUSY);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 1), 10);
	T_OK(exs_mderegister(m, 0));
	end();
}

/* One registration serves any part, any socket, and several at once. */
static void one_registration_serves_many_sockets(void)
{
	static char block[65536];
	int more[2], i;
	exs_mhandle_t m;

	begin();
	m = T_OK(exs_mregister(block, sizeof(block), 0));
	t_pair(T_IPV6, more);
	t_settle_pair(more[0], more[1], conf_here());
	t_fill(block, 32768, 1, 0);
	for (i = 0; i < 4; i++)
		T_EQ(exs_send(i % 2 ? more[0] : fd[0], block + i * 8192, 8192,
			      0, q, (exs_ahandle_t)(long)i, m),
		     0);
	for (i = 0; i < 4; i++)
		T_EQ(t_event(q).exs_errno, 0);
	for (i = 0; i < 4; i++)
		T_EQ(exs_recv(i % 2 ? more[1] : fd[1], block + 32768 + i * 8192,
			      8192, MSG_WAITALL, q, (exs_ahandle_t)(long)i, m),
		     0);
	for (i = 0; i < 4; i++)
		T_EQ(t_event(q).exs_evt_un.exs_evt_xfer.exs_evt_length, 8192);
	t_check_bytes(block + 32768, 32768, 1, 0);
	T_OK(exs_mderegister(m, 0));
	t_close(more[0]);
	t_close(more[1]);
	end();
}

static void close_with_operations_gives_each_its_event(void)
{
	exs_event_t e;
	int i;

	begin();
	for (i = 0; i < DEPTH - 1; i++)
		post(i);
	T_EQ(exs_close(fd[0], q, (exs_ahandle_t)99), 0);
	for (i = 0; i < DEPTH - 1; i++) {
		e = t_event(q);
		T_EQ(e.exs_evt_type, EXS_EVT_RECV);
		T_EQ(e.exs_errno, ECANCELED);
	}
	e = t_event(q);
	T_EQ(e.exs_evt_type, EXS_EVT_CLOSE);
	T_EQ(e.exs_evt_socket, fd[0]);
	T_EQ((long)e.exs_evt_ahandle, 99);
	t_recv_end(fd[1]);
	t_no_event(q);
	T_OK(exs_qdelete(q));
	t_close(fd[1]);
}

/* Also where the close itself is synchronous. */
static void a_synchronous_close_gives_each_operation_its_event(void)
{
	int i;

	begin();
	for (i = 0; i < 3; i++)
		post(i);
	t_close(fd[0]);
	for (i = 0; i < 3; i++)
		T_EQ(t_event(q).exs_errno, ECANCELED);
	t_no_event(q);
	T_OK(exs_qdelete(q));
	t_recv_end(fd[1]);
	t_close(fd[1]);
}

static void a_receive_completes_with_what_is_there(void)
{
	begin();
	t_post_recv(fd[0], room[0], 100, 0, q, 1);
	t_post_recv(fd[0], room[1], 100, 0, q, 2);
	t_send_all(fd[1], "one", 3, 0);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 1), 3);
	t_send_all(fd[1], "four", 4, 0);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 2), 4);
	T(!memcmp(room[0], "one", 3) && !memcmp(room[1], "four", 4));
	end();
}

static void waiting_for_all_ends_with_the_stream(void)
{
	begin();
	t_post_recv(fd[0], room[0], 100, MSG_WAITALL, q, 1);
	t_send_all(fd[1], "only this", 9, 0);
	t_no_event(q);
	T_OK(t_shutdown(fd[1], SHUT_WR));
	T_EQ(t_event_is(q, EXS_EVT_RECV, 1), 9);
	t_post_recv(fd[0], room[0], 100, MSG_WAITALL, q, 2);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 2), 0);
	end();
}

/* What lies there is given to receives as they are posted, as to those that
 * were posted before it came. */
static void receives_of_what_lies_there_end_in_turn(void)
{
	exs_x_op_t o[3];

	begin();
	for (int i = 0; i < 3; i++)
		o[i] = (exs_x_op_t){ .exs_x_type = EXS_EVT_RECV,
				     .exs_x_socket = fd[0],
				     .exs_x_buffer = room[i],
				     .exs_x_length = i == 2 ? 8 : 2,
				     .exs_x_flags = i ? MSG_WAITALL : 0,
				     .exs_x_mhandle = EXS_MHANDLE_UNREGISTERED,
				     .exs_x_ahandle = (exs_ahandle_t)(long)i };
	t_send_all(fd[1], "abcdef", 6, 0);
	T_EQ(exs_x_submit(q, o, 3), 3);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 0), 2);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 1), 2);
	t_no_event(q);
	t_post_recv(fd[0], room[3], 100, 0, q, 3);
	t_no_event(q);
	t_send_all(fd[1], "ghijklmn", 8, 0);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 2), 8);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 3), 2);
	T(!memcmp(room[0], "ab", 2) && !memcmp(room[1], "cd", 2) &&
	  !memcmp(room[2], "efghijkl", 8) && !memcmp(room[3], "mn", 2));
	t_send_all(fd[1], "op", 2, 0);
	T_OK(t_shutdown(fd[1], SHUT_WR));
	t_post_recv(fd[0], room[4], 100, MSG_WAITALL, q, 4);
	t_post_recv(fd[0], room[5], 100, 0, q, 5);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 4), 2);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 5), 0);
	end();
}

#define ROUNDS 100

/* A receive that is posted when its bytes lie there does not end before one of
 * its queue whose bytes were sent before. Peers say when they send once they
 * were asked to, which the first rounds do. */
static void what_lies_there_waits_for_what_was_sent_before(void)
{
	int more[2];

	begin();
	t_pair(T_IPV4, more);
	t_settle_pair(more[0], more[1], conf_here());
	for (int i = 0; i < ROUNDS; i++) {
		bool asks = i < ROUNDS / 10;
		exs_event_t e;

		t_post_recv(fd[0], room[0], 1, 0, q, 0);
		if (asks)
			t_post_recv(more[0], room[1], 1, 0, q, 1);
		t_send_all(fd[1], "1", 1, 0);
		t_send_all(more[1], "2", 1, 0);
		if (!asks)
			t_post_recv(more[0], room[1], 1, 0, q, 1);
		e = t_event(q);
		if (!asks && conf_is("shm"))
			T_EQ(e.exs_evt_socket, fd[0]);
		t_event(q);
	}
	t_close(more[0]);
	t_close(more[1]);
	end();
}

static void quiet(int qfd)
{
	T_UNTIL(({
		t_no_event(q);
		!t_readable(qfd, 0);
	}));
}

/* Level-triggered in an epoll set, and silent when the queue is empty. */
static void the_descriptor_works_in_epoll(void)
{
	struct epoll_event ev = { .events = EPOLLIN }, got;
	int set = T_OK(epoll_create1(EPOLL_CLOEXEC)), qfd, i;
	exs_event_t e;

	begin();
	qfd = T_OK(exs_x_qfd(q));
	T_EQ(exs_x_qfd(q), qfd);
	T_OK(epoll_ctl(set, EPOLL_CTL_ADD, qfd, &ev));
	quiet(qfd);
	for (i = 0; i < 50; i++) {
		post(0);
		post(1);
		quiet(qfd);
		complete(2);
		T_EQ(epoll_wait(set, &got, 1, 20000), 1);
		while (dequeue(1, 0, &e) == 0)
			T_EQ(epoll_wait(set, &got, 1, 20000), 1);
		T_EQ(epoll_wait(set, &got, 1, 20000), 1);
		while (dequeue(1, 0, &e) == 0)
			T_EQ(epoll_wait(set, &got, 1, 20000), 1);
		quiet(qfd);
	}
	close(set);
	end();
}

static void *post_from_far(void *arg)
{
	int i;

	for (i = 0; i < 2000 / t_slow(); i++) {
		t_send_all(fd[1], "0123456789", 10, 0);
		t_recv_all(fd[1], room[9], 1);
	}
	return NULL;
}

/* The whole program sleeps in epoll only. */
static void an_epoll_loop_is_always_woken(void)
{
	struct epoll_event ev = { .events = EPOLLIN }, got;
	int set = T_OK(epoll_create1(EPOLL_CLOEXEC)), done = 0;
	exs_event_t e;
	pthread_t t;

	begin();
	T_OK(epoll_ctl(set, EPOLL_CTL_ADD, T_OK(exs_x_qfd(q)), &ev));
	post(0);
	t = t_thread(post_from_far, NULL);
	while (done < 2000 / t_slow()) {
		if (dequeue(1, 0, &e) == 0) {
			epoll_wait(set, &got, 1, -1);
			continue;
		}
		events_are(&e, 1, 0);
		t_send_all(fd[0], "y", 1, 0);
		post(0);
		done++;
	}
	t_thread_join(t);
	T_EQ(exs_cancel(fd[0], NULL, EXS_CAF_FILDES), 1);
	T_EQ(t_event(q).exs_errno, ECANCELED);
	close(set);
	end();
}

static int status(int attr)
{
	int val = -1;
	size_t len = sizeof(val);

	T_OK(exs_qstatus(q, attr, &val, &len));
	T_EQ(len, sizeof(val));
	return val;
}

/* While slots are in use a new depth may be refused. */
static void depth_and_events_can_be_asked_and_depth_changed(void)
{
	int depth = DEPTH + 2, one = 1, i;

	begin();
	T_EQ(status(EXS_QATTR_DEPTH), DEPTH);
	T_EQ(status(EXS_QATTR_EVENTS), 0);
	T_OK(exs_qmodify(q, EXS_QATTR_DEPTH, &depth, sizeof(depth)));
	T_EQ(status(EXS_QATTR_DEPTH), DEPTH + 2);
	for (i = 0; i < DEPTH + 2; i++)
		post(i);
	T_ERR(exs_recv(fd[0], room[11], 1, 0, q, NULL, 0), EAGAIN);
	T_ERR(exs_qmodify(q, EXS_QATTR_DEPTH, &one, sizeof(one)), EBUSY);
	complete(DEPTH);
	T_UNTIL(status(EXS_QATTR_EVENTS) == DEPTH);
	T_ERR(exs_qmodify(q, EXS_QATTR_DEPTH, &one, sizeof(one)), EBUSY);
	complete(2);
	for (i = 0; i < DEPTH + 2; i++)
		T_EQ(t_event_is(q, EXS_EVT_RECV, i), 10);
	T_OK(exs_qmodify(q, EXS_QATTR_DEPTH, &one, sizeof(one)));
	post(0);
	T_ERR(exs_recv(fd[0], room[9], 1, 0, q, NULL, 0), EAGAIN);
	complete(1);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 0), 10);
	end();
}

static void every_way_of_waiting_works(void)
{
	static const int ways[] = { EXS_WAIT_ADAPTIVE, EXS_WAIT_NOTIFY,
				    EXS_WAIT_BUSY_POLL };
	struct later l = { .n = 1, .waiter = syscall(SYS_gettid) };
	exs_event_t e;
	pthread_t t;
	int i, j;

	begin();
	T_EQ(status(EXS_QATTR_WAIT), EXS_WAIT_ADAPTIVE);
	for (i = 0; i < T_COUNT(ways); i++) {
		T_OK(exs_qmodify(q, EXS_QATTR_WAIT, &ways[i], sizeof(int)));
		T_EQ(status(EXS_QATTR_WAIT), ways[i]);
		T_EQ(dequeue(1, 5, &e), 0);
		for (j = 0; j < 100; j++) {
			post(0);
			complete(1);
			T_EQ(dequeue(1, -1, &e), 1);
		}
		post(0);
		if (ways[i] == EXS_WAIT_BUSY_POLL) {
			complete(1);
			T_EQ(dequeue(1, -1, &e), 1);
			continue;
		}
		t = t_thread(complete_when_asleep, &l);
		T_EQ(dequeue(1, -1, &e), 1);
		t_thread_join(t);
	}
	end();
}

#define LONG 700001

struct rest {
	const char *from;
	size_t len;
};

static void *send_rest(void *arg)
{
	struct rest *r = arg;

	t_send_all(fd[1], r->from, r->len, 0);
	return NULL;
}

/* As much as there is room for; how much it was. */
static size_t send_first(const char *from, size_t len)
{
	size_t done = 0;

	for (int refused = 0; done < len && refused < 200;) {
		ssize_t n = t_send(fd[1], from + done, len - done,
				   MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n > 0)
			done += (size_t)n;
		else
			refused++;
	}
	return done;
}

/* A thread that finds bytes just before it sleeps returns their room, though
 * the receive that takes them is not full. */
static void room_is_given_back_before_a_wait(void)
{
	static const int ways[] = { EXS_WAIT_ADAPTIVE, EXS_WAIT_NOTIFY,
				    EXS_WAIT_BUSY_POLL };
	char *out = malloc(2 * LONG), *in = out + LONG;

	begin();
	t_fill(out, LONG, 3, 0);
	for (int i = 0; i < T_COUNT(ways) * 5; i++) {
		size_t first;
		struct rest rest;
		pthread_t t;

		T_OK(exs_qmodify(q, EXS_QATTR_WAIT, &ways[i / 5], sizeof(int)));
		memset(in, 0, LONG);
		t_post_recv(fd[0], in, LONG, MSG_WAITALL, q, i);
		first = send_first(out, LONG - 1);
		rest = (struct rest){ .from = out + first,
				      .len = LONG - first };
		t = t_thread(send_rest, &rest);
		T_EQ(t_event_is(q, EXS_EVT_RECV, i), LONG);
		t_thread_join(t);
		t_check_bytes(in, LONG, 3, 0);
	}
	free(out);
	end();
}

static void an_event_in_an_empty_queue_raises_the_signal(void)
{
	exs_signal_t sig = { .exs_enable = EXS_SIG_ENABLE,
			     .exs_signo = SIGUSR2 };
	exs_signal_t got;
	size_t len = sizeof(got);

	begin();
	signal(SIGUSR2, count);
	T_OK(exs_qmodify(q, EXS_QATTR_SIGNAL, &sig, sizeof(sig)));
	T_OK(exs_qstatus(q, EXS_QATTR_SIGNAL, &got, &len));
	T_EQ(got.exs_signo, SIGUSR2);
	T_EQ(got.exs_enable, EXS_SIG_ENABLE);
	post(0);
	T_EQ(signals, 0);
	complete(1);
	T_UNTIL(signals == 1);
	t_event_is(q, EXS_EVT_RECV, 0);
	sig.exs_enable = EXS_SIG_DISABLE;
	T_OK(exs_qmodify(q, EXS_QATTR_SIGNAL, &sig, sizeof(sig)));
	post(1);
	complete(1);
	t_event_is(q, EXS_EVT_RECV, 1);
	T_EQ(signals, 1);
	signal(SIGUSR2, SIG_DFL);
	end();
}

static void the_handle_and_the_buffer_come_back_untouched(void)
{
	exs_event_t e;

	begin();
	T_EQ(exs_send(fd[0], "z", 1, 0, q, (exs_ahandle_t)-1, 0), 0);
	e = t_event(q);
	T(e.exs_evt_ahandle == (exs_ahandle_t)-1);
	T_EQ(e.exs_evt_socket, fd[0]);
	T_EQ(exs_recv(fd[1], room[3], 5, 0, q, (exs_ahandle_t)room, 0), 0);
	e = t_event(q);
	T(e.exs_evt_ahandle == (exs_ahandle_t)room);
	T(e.exs_evt_un.exs_evt_xfer.exs_evt_buffer == room[3]);
	T_EQ(e.exs_evt_socket, fd[1]);
	end();
}

static void queues_leave_no_descriptor_behind(void)
{
	int start, i, j;
	exs_qhandle_t many[20];

	begin();
	T_OK(exs_x_qfd(q));
	start = t_fd_count();
	for (i = 0; i < 20; i++) {
		for (j = 0; j < T_COUNT(many); j++) {
			many[j] = T_OK(exs_qcreate(j + 1));
			T_OK(exs_x_qfd(many[j]));
		}
		for (j = 0; j < T_COUNT(many); j++)
			T_OK(exs_qdelete(many[j]));
	}
	T_EQ(t_fd_count(), start);
	end();
}

/* Received into by one process, seen by another. */
static void memory_may_be_shared_with_other_processes(void)
{
	size_t len = 8192;
	char *map = mmap(NULL, len, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	exs_mhandle_t m;
	pid_t pid;

	T(map != MAP_FAILED);
	t_init();
	q = T_OK(exs_qcreate(4));
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], conf_here());
	m = T_OK(exs_mregister(map, len, EXS_MRF_SHARED));
	T_EQ(exs_recv(fd[0], map, len, MSG_WAITALL, q, NULL, m), 0);
	pid = t_fork();
	if (pid == 0) {
		T_UNTIL(__atomic_load_n(&map[len - 1], __ATOMIC_ACQUIRE) ==
			'x');
		_exit(0);
	}
	T_ERR(exs_mderegister(m, 0), EBUSY);
	memset(map + len / 2, 0, len / 2);
	for (size_t i = 0; i < len; i++)
		t_send_all(fd[1], i == len - 1 ? "x" : "y", 1, 0);
	T_EQ(t_event(q).exs_evt_un.exs_evt_xfer.exs_evt_length, len);
	t_join(pid);
	T_OK(exs_mderegister(m, 0));
	T_OK(exs_qdelete(q));
	t_close(fd[0]);
	t_close(fd[1]);
	munmap(map, len);
}

static void receives_are_in_order_whatever_is_asked(void)
{
	int v;
	socklen_t len = sizeof(v);
	char buf[8];

	t_init();
	q = T_OK(exs_qcreate(8));
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], conf_here());
	for (int set = 0; set < 2; set++) {
		T_OK(exs_setsockopt(fd[0], SOL_SOCKET, SO_ASYNC_RECV_ORDERED,
				    &set, sizeof(set)));
		v = 0;
		T_OK(exs_getsockopt(fd[0], SOL_SOCKET, SO_ASYNC_RECV_ORDERED,
				    &v, &len));
		T_EQ(v, 1);
		T_EQ(len, sizeof(v));
		for (long i = 0; i < 8; i++)
			t_post_recv(fd[0], buf + i, 1, 0, q, i);
		t_send_all(fd[1], "01234567", 8, 0);
		for (long i = 0; i < 8; i++)
			T_EQ(t_event_is(q, EXS_EVT_RECV, i), 1);
		T(!memcmp(buf, "01234567", 8));
	}
	T_ERR(exs_setsockopt(-1, SOL_SOCKET, SO_ASYNC_RECV_ORDERED, &v, 4),
	      EBADF);
	T_ERR(exs_getsockopt(-1, SOL_SOCKET, SO_ASYNC_RECV_ORDERED, &v, &len),
	      EBADF);
	T_ERR(exs_setsockopt(fd[0], SOL_SOCKET, SO_ASYNC_RECV_ORDERED, &v, 3),
	      EINVAL);
	T_ERR(exs_setsockopt(fd[0], SOL_SOCKET, SO_ASYNC_RECV_ORDERED, NULL, 4),
	      EFAULT);
	len = 3;
	T_ERR(exs_getsockopt(fd[0], SOL_SOCKET, SO_ASYNC_RECV_ORDERED, &v,
			     &len),
	      EINVAL);
	T_OK(exs_qdelete(q));
	t_close(fd[0]);
	t_close(fd[1]);
}

/* Threads that share a queue, each with a connection of its own; in each phase
 * it is another one. */
#define SHARERS 3
#define PHASES	6
#define BATCHES (400 / t_slow())
#define BATCH	16

struct shared {
	struct {
		int fd[2];
		uint64_t out[BATCH], in[BATCH];
		uint64_t sent;
		_Atomic int left; /* events */
	} pair[SHARERS];
	pthread_barrier_t phase;
};

static struct shared shared;

struct seen {
	uint64_t last[SHARERS][2];
};

/* The handle: which pair and direction, and which of its operations. */
static void take_shared(struct seen *seen)
{
	struct timeval soon = { .tv_usec = 1000 };
	exs_event_t e[BATCH];
	int n = T_OK(exs_qdequeue(q, e, BATCH, &soon));

	for (int i = 0; i < n; i++) {
		uint64_t a = (uintptr_t)e[i].exs_evt_ahandle;
		int p = a % SHARERS, dir = a / SHARERS % 2;
		uint64_t nr = a / SHARERS / 2;

		T_EQ(e[i].exs_errno, 0);
		T_EQ(e[i].exs_evt_un.exs_evt_xfer.exs_evt_length, 8);
		T_EQ(e[i].exs_evt_type, dir ? EXS_EVT_RECV : EXS_EVT_SEND);
		if (dir)
			T_EQ(shared.pair[p].in[nr % BATCH], nr);
		/* What a thread takes of one direction is in order. */
		T(nr > seen->last[p][dir]);
		seen->last[p][dir] = nr;
		shared.pair[p].left--;
	}
}

static void post_shared(int p, int dir, uint64_t nr)
{
	int s = shared.pair[p].fd[dir];
	long a = (long)(nr * 2 + (uint64_t)dir) * SHARERS + p;
	uint64_t *at = &shared.pair[p].in[nr % BATCH];

	if (dir) {
		*at = 0;
		t_post_recv(s, at, 8, MSG_WAITALL, q, a);
		return;
	}
	at = &shared.pair[p].out[nr % BATCH];
	*at = nr;
	t_post_send(s, at, 8, 0, q, a);
}

static void *share(void *arg)
{
	struct seen seen = { 0 };

	for (int phase = 0; phase < PHASES; phase++) {
		int p = ((int)(intptr_t)arg + phase) % SHARERS;

		pthread_barrier_wait(&shared.phase);
		for (int b = 0; b < BATCHES; b++) {
			uint64_t first = shared.pair[p].sent + 1;

			shared.pair[p].left = 2 * BATCH;
			for (int d = 1; d >= 0; d--)
				for (int i = 0; i < BATCH; i++)
					post_shared(p, d, first + (uint64_t)i);
			shared.pair[p].sent += BATCH;
			while (shared.pair[p].left > 0)
				take_shared(&seen);
		}
	}
	return NULL;
}

static void threads_that_share_it_see_each_direction_in_order(void)
{
	pthread_t t[SHARERS];

	t_init();
	q = T_OK(exs_qcreate(SHARERS * 2 * BATCH));
	pthread_barrier_init(&shared.phase, NULL, SHARERS);
	for (int i = 0; i < SHARERS; i++) {
		t_pair(T_IPV4, shared.pair[i].fd);
		t_settle_pair(shared.pair[i].fd[0], shared.pair[i].fd[1],
			      conf_here());
	}
	for (int i = 0; i < SHARERS; i++)
		t[i] = t_thread(share, (void *)(intptr_t)i);
	for (int i = 0; i < SHARERS; i++)
		t_thread_join(t[i]);
	t_no_event(q);
	T_OK(exs_qdelete(q));
	for (int i = 0; i < SHARERS; i++) {
		t_close(shared.pair[i].fd[0]);
		t_close(shared.pair[i].fd[1]);
	}
}

static const struct t_row rows[] = {
	T_ROW(a_count_of_zero_returns_at_once),
	T_ROW(a_zero_time_out_only_looks),
	T_ROW(a_time_out_with_nothing_is_zero),
	T_ROW(a_positive_count_waits_for_one),
	T_ROW(a_negative_count_waits_for_that_many),
	T_ROW(a_threshold_out_of_time_gives_what_is_there),
	T_ROW(a_threshold_of_the_depth_is_allowed),
	T_ROW(a_positive_count_may_exceed_the_depth),
	T_ROW(a_full_queue_says_eagain_and_takes_nothing),
	T_ROW(what_another_call_took_is_told_at_once),
	T_ROW(a_dequeuer_takes_over_from_the_service),
	T_ROW(a_signal_loses_no_event),
	T_ROW(a_posted_event_takes_its_turn_and_a_slot),
	T_ROW(a_posted_event_wakes_who_waits_for_a_socket),
	T_ROW(a_deadline_is_of_the_clock),
	T_ROW(a_signal_that_the_mask_lets_through_ends_the_wait),
	T_ROW(a_masked_wait_ends_with_its_queue),
	T_ROW(cancel_by_descriptor),
	T_ROW(cancel_by_handle),
	T_ROW(cancel_by_both),
	T_ROW(cancelled_accepts_and_a_closed_listener),
	T_ROW(accepts_are_served_in_order),
	T_ROW(a_busy_queue_cannot_be_deleted),
	T_ROW(busy_memory_cannot_be_deregistered),
	T_ROW(one_registration_serves_many_sockets),
	T_ROW(memory_may_be_shared_with_other_processes),
	T_ROW(receives_are_in_order_whatever_is_asked),
	T_ROW(close_with_operations_gives_each_its_event),
	T_ROW(a_synchronous_close_gives_each_operation_its_event),
	T_ROW(a_receive_completes_with_what_is_there),
	T_ROW(waiting_for_all_ends_with_the_stream),
	T_ROW(receives_of_what_lies_there_end_in_turn),
	T_ROW(what_lies_there_waits_for_what_was_sent_before),
	T_ROW(the_descriptor_works_in_epoll),
	T_ROW(an_epoll_loop_is_always_woken),
	T_ROW(depth_and_events_can_be_asked_and_depth_changed),
	T_ROW(every_way_of_waiting_works),
	T_ROW(room_is_given_back_before_a_wait),
	T_ROW(an_event_in_an_empty_queue_raises_the_signal),
	T_ROW(the_handle_and_the_buffer_come_back_untouched),
	T_ROW(queues_leave_no_descriptor_behind),
	T_ROW(threads_that_share_it_see_each_direction_in_order),
};

int main(int argc, char **argv)
{
	return conf_main(argc, argv, "queue", rows, T_COUNT(rows));
}
