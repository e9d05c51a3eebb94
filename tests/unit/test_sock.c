/* SPDX-License-Identifier: BSD-2-Clause */
/* The place of a socket that was closed. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/base/lock.h"
#include "core/call/downgrade.h"
#include "core/call/ready.h"
#include "core/call/recv.h"
#include "core/call/wait.h"
#include "core/fabric/provider.h"
#include "core/fabric/registry.h"
#include "core/life/close.h"
#include "core/life/core.h"
#include "core/link/control.h"
#include "core/meet/begin.h"
#include "core/meet/find.h"
#include "core/meet/meet.h"
#include "core/meet/pair.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
#include "core/sock/wake.h"
#include "core/transfer/half.h"
#include "core/transfer/progress.h"
#include "core/transfer/resume.h"
#include "core/transfer/switch.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"

/* A thread that looked at a socket while another closed it no longer has its
 * number. */
static void what_was_closed_is_nobodys(void **state)
{
	struct exi_sock *sk;
	struct exi_ready r;
	int ends[2];

	T_EQ(exi_core_init(), 0);
	t_plain_pair(ends);
	T_EQ(exi_sock_make(ends[0], EXI_ROLE_CONNECT, true, &sk), 0);
	T(exi_sock_is(sk, ends[0]));
	T_EQ(exi_close(ends[0]), 0);
	T(!exi_sock_is(sk, ends[0]));
	T(!exi_sock_is(sk, -1));
	T_EQ(exi_ready_unread(sk, -1), -EBADF);
	T(!exi_ready_look(sk, -1, EPOLLIN, &r));
	close(ends[1]);
}

/* A call waits; another thread closes its descriptor, and the next connection
 * gets both the number and the place: its bytes are not the call's. */
static void a_call_ends_with_its_connection(void **state)
{
	struct exi_sock *sk, *next;
	struct exi_shared *sh;
	struct exi_call c;
	int ends[2];

	T_EQ(exi_core_init(), 0);
	t_plain_pair(ends);
	T_EQ(exi_sock_make(ends[0], EXI_ROLE_CONNECT, true, &sk), 0);
	c = exi_call_begin(sk, ends[0], EXI_RX, 0);
	T(exi_call_lock(&c, &sh));
	exi_half_unlock(&sh->half[EXI_RX]);
	T_EQ(exi_close(ends[0]), 0);
	T_EQ(fcntl(ends[1], F_DUPFD_CLOEXEC, ends[0]), ends[0]);
	T_EQ(exi_sock_make(ends[0], EXI_ROLE_CONNECT, true, &next), 0);
	T(next == sk);
	T(exi_sock_is(sk, ends[0]));
	T(!exi_call_lock(&c, &sh));
	c = exi_call_begin(sk, ends[0], EXI_RX, 0);
	T(exi_call_lock(&c, &sh));
	exi_half_unlock(&sh->half[EXI_RX]);
	T_EQ(exi_close(ends[0]), 0);
	close(ends[1]);
}

/* A search for waits that are not seen takes its time, and what it found may
 * have closed: the next connection in its place does not go to TCP for it. */
static void what_a_search_found_is_not_of_the_next(void **state)
{
	struct exi_sock *sk, *next;
	uint32_t generation;
	int ends[2];

	T_EQ(exi_core_init(), 0);
	t_plain_pair(ends);
	T_EQ(exi_sock_make(ends[0], EXI_ROLE_CONNECT, true, &sk), 0);
	generation = atomic_load(&sk->generation);
	T_EQ(exi_close(ends[0]), 0);
	T_EQ(exi_switch_leave_of(sk, generation, EXS_X_REASON_UNSEEN_WAIT),
	     -EBADF);
	T_EQ(fcntl(ends[1], F_DUPFD_CLOEXEC, ends[0]), ends[0]);
	T_EQ(exi_sock_make(ends[0], EXI_ROLE_CONNECT, true, &next), 0);
	T(next == sk);
	T_EQ(exi_switch_leave_of(sk, generation, EXS_X_REASON_UNSEEN_WAIT),
	     -EBADF);
	T_EQ(atomic_load(&sk->sh->hold_here), EXI_HOLD_NOT);
	generation = atomic_load(&sk->generation);
	T_EQ(exi_switch_leave_of(sk, generation, EXS_X_REASON_UNSEEN_WAIT), 0);
	T_EQ(atomic_load(&sk->sh->hold_here), EXI_HOLD);
	T_EQ(exi_close(ends[0]), 0);
	close(ends[1]);
}

/* An event of TCP that comes late, when its place is another socket's: that one
 * is not connected yet, which poll(2) calls hung up. */
static void what_had_the_place_before_ends_nothing(void **state)
{
	struct exi_sock *sk;
	int fd = T_OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));

	T_EQ(exi_core_init(), 0);
	T_EQ(exi_sock_make(fd, EXI_ROLE_CONNECT, false, &sk), 0);
	exi_link_tcp_event(sk);
	T_EQ(atomic_load(&sk->sh->rx_fin), 0);
	T_EQ(atomic_load(&sk->sh->gone), 0);
	T_EQ(exi_close(fd), 0);
}

/* The kernel has one error for both directions, and a send tells what a receive
 * met, without the receive's lock. */
static void a_send_tells_what_a_receive_met(void **state)
{
	int fd = T_OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	struct exi_sock *sk;
	struct exi_half *tx, *rx;

	T_EQ(exi_core_init(), 0);
	T_EQ(exi_sock_make(fd, EXI_ROLE_CONNECT, false, &sk), 0);
	tx = &sk->sh->half[EXI_TX];
	rx = &sk->sh->half[EXI_RX];
	atomic_store(&rx->err, ECONNRESET);
	exi_lock(&tx->lock);
	T_EQ(exi_half_send_refused_locked(sk, tx), -ECONNRESET);
	T_EQ(exi_half_send_refused_locked(sk, tx), 0);
	atomic_store(&tx->err, EPROTONOSUPPORT);
	T_EQ(exi_half_send_refused_locked(sk, tx), -EPROTONOSUPPORT);
	T_EQ(exi_half_send_refused_locked(sk, tx), -EPROTONOSUPPORT);
	exi_unlock(&tx->lock);
	T_EQ(exi_close(fd), 0);
}

/* A call in the kernel, of a connection that another thread closed meanwhile,
 * got so many bytes, or 0, the end: they are not counted of the next connection
 * in its place. */
static void late_call_tells_nothing_to_the_next(ssize_t n)
{
	struct exi_recv_kernel b = { .dir = EXI_RX, .counts = true, .n = n };
	int first[2], second[2];
	struct exi_inside in;
	struct exi_sock *next;
	struct exi_half *h;

	t_plain_pair(first);
	t_plain_pair(second);
	T_EQ(exi_sock_make(first[0], EXI_ROLE_CONNECT, true, &b.sk), 0);
	b.generation = atomic_load(&b.sk->generation);
	h = &b.sk->sh->half[EXI_RX];
	exi_lock(&h->lock);
	b.in = exi_half_enter_locked(h);
	exi_unlock(&h->lock);
	T_EQ(exi_close(first[0]), 0);
	T_EQ(exi_sock_make(second[0], EXI_ROLE_CONNECT, true, &next), 0);
	T(next == b.sk && &next->sh->half[EXI_RX] == h);
	exi_lock(&h->lock);
	in = exi_half_enter_locked(h);
	exi_unlock(&h->lock);
	exi_recv_kernel_end(&b);
	T(!b.go);
	T(exi_half_leave_lock(&in)); /* it was still inside */
	T_EQ(h->in_kernel, 0);
	T_EQ(h->bytes, 0);
	T_EQ(h->fin, 0);
	exi_unlock(&h->lock);
	T_EQ(exi_close(second[0]), 0);
	close(first[1]);
	close(second[1]);
}

static void a_late_call_tells_nothing_to_the_next(void **state)
{
	T_EQ(exi_core_init(), 0);
	late_call_tells_nothing_to_the_next(5);
	late_call_tells_nothing_to_the_next(0);
}

/* What ends after a peer's violation is no reason, and the next connection in
 * the place has none. */
static void a_violation_is_the_last_word(void **state)
{
	struct exi_sock *sk, *next;
	int ends[2];

	T_EQ(exi_core_init(), 0);
	t_plain_pair(ends);
	T_EQ(exi_sock_make(ends[0], EXI_ROLE_CONNECT, true, &sk), 0);
	exi_lock(&sk->link_lock);
	exi_link_violation(sk, "a test");
	exi_unlock(&sk->link_lock);
	exi_sock_reason(sk, EXS_X_REASON_PEER_LOST);
	T_EQ(atomic_load(&sk->sh->reason), EXS_X_REASON_PROTOCOL);
	T_EQ(exi_close(ends[0]), 0);
	T_EQ(fcntl(ends[1], F_DUPFD_CLOEXEC, ends[0]), ends[0]);
	T_EQ(exi_sock_make(ends[0], EXI_ROLE_CONNECT, true, &next), 0);
	T(next == sk);
	T_EQ(atomic_load(&sk->sh->reason), EXS_X_REASON_UNDECIDED);
	exi_sock_reason(sk, EXS_X_REASON_PEER_LOST);
	T_EQ(atomic_load(&sk->sh->reason), EXS_X_REASON_PEER_LOST);
	T_EQ(exi_close(ends[0]), 0);
	close(ends[1]);
}

/* --- a fabric between hosts, of a peer that died -------------------------- */

static uint32_t far_position(struct exi_conn *c, enum exi_dir dir)
{
	return 0;
}

static void far_resume(struct exi_conn *c, enum exi_dir dir, uint32_t epoch,
		       uint64_t at, uint8_t ret[EXI_RESUME])
{
	memset(ret, 0xff, EXI_RESUME);
}

static bool far_left(struct exi_conn *c)
{
	return false;
}

static int far_sever(struct exi_conn *c)
{
	return 0;
}

static uint32_t far_resend(struct exi_conn *c)
{
	return 0;
}

static size_t far_drain(struct exi_conn *c, const void **run)
{
	return 0;
}

static size_t far_unread(struct exi_conn *c)
{
	return 0;
}

static bool far_over(struct exi_conn *c)
{
	return false;
}

static const struct exi_remote_ops far_remote = {
	.position = far_position,
	.resume = far_resume,
	.left = far_left,
	.resend = far_resend,
	.sever = far_sever,
};
static const struct exi_switch_ops far_switch = {
	.drain = far_drain,
};
static const struct exi_ready_ops far_ready = {
	.unread = far_unread,
	.over = far_over,
};
static const struct exi_provider far_provider = {
	.name = "far",
	.caps = EXI_CAP_REMOTE,
	.remote_ops = &far_remote,
};

/* link: where the peer's messages come from. */
static void be_linked_locked(struct exi_sock *sk, int link)
{
	struct exi_link *l =
		exi_meet_link_new(sk, EXI_LINK_UP, 0, exi_begin_expired);

	EXI_LOCKED(&sk->link_lock);
	T(l);
	exi_service_untimed(&l->timer);
	l->timer.deadline = 0;
	l->fd = link;
	sk->link = l;
	atomic_store(&sk->sh->linked, 1);
}

/* RX was given back, and the peer has not said that it took it; TX is in the
 * ring. */
static void be_far(struct exi_sock *sk, struct exi_conn *fab, int link)
{
	*fab = (struct exi_conn){ .provider = &far_provider,
				  .rops = &far_ready,
				  .swops = &far_switch };
	exi_lock(&sk->link_lock);
	be_linked_locked(sk, link);
	exi_lock(&sk->sh->half[EXI_RX].lock);
	exi_lock(&sk->sh->half[EXI_TX].lock);
	sk->fab = fab;
	atomic_store(&sk->remote, true);
	sk->sh->half[EXI_RX].mode = EXI_MODE_BACK;
	atomic_store(&sk->sh->half[EXI_RX].untaken, 1);
	sk->sh->half[EXI_TX].mode = EXI_MODE_RING;
	exi_unlock(&sk->sh->half[EXI_TX].lock);
	exi_unlock(&sk->sh->half[EXI_RX].lock);
	exi_unlock(&sk->link_lock);
}

/* The peer dies while it sends the rest of a ring over TCP, so that TCP is
 * reset: whether that or the end of the link is seen first, no reader waits for
 * more. */
static void dies_after_a_takeback(bool reset_first)
{
	struct linger reset = { .l_onoff = 1 };
	struct exi_conn fab;
	struct exi_sock *sk;
	int ends[2], link[2];

	t_plain_pair(ends);
	T_OK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
			0, link));
	T_EQ(exi_sock_make(ends[0], EXI_ROLE_CONNECT, true, &sk), 0);
	be_far(sk, &fab, link[0]);
	T_OK(setsockopt(ends[1], SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)));
	close(ends[1]);
	if (reset_first)
		exi_link_tcp_event(sk);
	close(link[1]);
	exi_link_event(sk, EPOLLIN);
	if (!reset_first)
		exi_link_tcp_event(sk);
	exi_lock(&sk->sh->half[EXI_RX].lock);
	T(!exi_resume_keeps_locked(sk));
	exi_lock(&sk->sh->half[EXI_TX].lock);
	T_EQ(atomic_load(&sk->sh->gone), 1);
	sk->fab = NULL;
	atomic_store(&sk->remote, false);
	sk->sh->half[EXI_RX].mode = sk->sh->half[EXI_TX].mode = EXI_MODE_TCP;
	exi_unlock(&sk->sh->half[EXI_TX].lock);
	exi_unlock(&sk->sh->half[EXI_RX].lock);
	T_EQ(exi_close(ends[0]), 0);
}

static void who_dies_after_a_takeback_keeps_no_reader(void **state)
{
	T_EQ(exi_core_init(), 0);
	dies_after_a_takeback(false);
	dies_after_a_takeback(true);
}

/* This end is up, and asks for TCP; the peer, which could not take the answer,
 * says that there is no meeting. So it answers no DOWN. */
static void a_meeting_that_came_to_nothing_leaves_no_question(void **state)
{
	const struct exi_pair_msg no = exi_pair_message(EXI_PAIR_NO);
	const int asked = EXS_X_REASON_OPERATOR;
	struct exi_sock *sk;
	int ends[2], link[2];

	T_EQ(exi_core_init(), 0);
	t_plain_pair(ends);
	T_OK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
			0, link));
	T_EQ(exi_sock_make(ends[0], EXI_ROLE_ACCEPT, true, &sk), 0);
	exi_lock(&sk->link_lock);
	be_linked_locked(sk, link[0]);
	T_EQ(exi_meet_fabric_new(
		     sk, exi_registry_choose(exi_registry_wire_ids(), false)),
	     0);
	sk->fab->bell = link[0];
	exi_unlock(&sk->link_lock);
	T_EQ(exi_switch_leave(sk, asked), 0);
	T_EQ(exi_switch_allow_now(sk, ends[0], asked), -EAGAIN);
	T_EQ(send(link[1], &no, sizeof(no), 0), sizeof(no));
	exi_link_event(sk, EPOLLIN);
	T(!sk->fab && !sk->link);
	T_EQ(exi_switch_allow_now(sk, ends[0],
				  (int)atomic_load(&sk->sh->reason)),
	     0);
	T_EQ(exi_close(ends[0]), 0);
	close(ends[1]);
	close(link[1]);
}

struct service {
	struct exi_sock *sk;
	atomic_bool over;
};

static void *come_late(void *arg)
{
	struct service *s = arg;

	while (!atomic_load(&s->over)) {
		exi_link_read(s->sk);
		exi_flow_progress(s->sk, EXI_RX);
		exi_flow_progress(s->sk, EXI_TX);
		exi_lifecycle_ended(s->sk);
	}
	return NULL;
}

/* The service, which was asked to go on with a socket, comes when that was
 * closed and its place is being taken (thread sanitizer). */
static void who_comes_late_does_not_look_at_what_is_made(void **state)
{
	struct service s = { .over = false };
	pthread_t t;
	int i;

	T_EQ(exi_core_init(), 0);
	for (i = 0; i < 300; i++) {
		int fd = T_OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
		struct exi_sock *sk;

		T_EQ(exi_sock_make(fd, EXI_ROLE_CONNECT, false, &sk), 0);
		if (i == 0) {
			s.sk = sk;
			t = t_thread(come_late, &s);
		}
		T_EQ(exi_close(fd), 0);
	}
	atomic_store(&s.over, true);
	t_thread_join(t);
}

/* A look for the peer that is due now, and the last one. */
static void look_now(struct exi_sock *sk)
{
	struct exi_link *l;

	exi_lock(&sk->link_lock);
	l = exi_meet_link_new(sk, EXI_LINK_LOOK, 0, exi_begin_expired);
	T(l);
	sk->link = l;
	exi_unlock(&sk->link_lock);
	exi_begin_expired(sk);
	T(!sk->link);
}

/* While a thread closes it, and when plain calls closed it and its number is
 * another connection's. */
static void what_is_closed_is_not_looked_for(void **state)
{
	struct exi_sock *sk;
	struct exi_half *rx;
	int ends[2], other[2];

	if (!t_can(t_has_sock_diag(), "sock_diag"))
		skip();
	T_EQ(exi_core_init(), 0);
	t_plain_pair(ends);
	t_plain_pair(other);
	T_EQ(exi_sock_make(ends[0], EXI_ROLE_ACCEPT, true, &sk), 0);
	rx = &sk->sh->half[EXI_RX];
	sk->closing = true;
	look_now(sk);
	T_EQ(atomic_load(&sk->sh->reason), EXS_X_REASON_UNDECIDED);
	T(atomic_load(&rx->meet_at) == UINT64_MAX);
	sk->closing = false;
	exi_sock_mark(sk, ends[0]);
	T_EQ(dup2(other[0], ends[0]), ends[0]);
	look_now(sk);
	T_EQ(atomic_load(&sk->sh->reason), EXS_X_REASON_UNDECIDED);
	T(atomic_load(&rx->meet_at) == UINT64_MAX);
	exi_sock_mark(sk, ends[0]);
	look_now(sk);
	T(atomic_load(&sk->sh->reason) != EXS_X_REASON_UNDECIDED);
	T_EQ(exi_close(ends[0]), 0);
	close(ends[1]);
	close(other[0]);
	close(other[1]);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_closed_is_nobodys),
		cmocka_unit_test(a_call_ends_with_its_connection),
		cmocka_unit_test(what_is_closed_is_not_looked_for),
		cmocka_unit_test(what_a_search_found_is_not_of_the_next),
		cmocka_unit_test(what_had_the_place_before_ends_nothing),
		cmocka_unit_test(a_send_tells_what_a_receive_met),
		cmocka_unit_test(a_late_call_tells_nothing_to_the_next),
		cmocka_unit_test(a_violation_is_the_last_word),
		cmocka_unit_test(who_dies_after_a_takeback_keeps_no_reader),
		cmocka_unit_test(
			a_meeting_that_came_to_nothing_leaves_no_question),
		cmocka_unit_test(who_comes_late_does_not_look_at_what_is_made),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
