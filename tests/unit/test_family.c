/* SPDX-License-Identifier: BSD-2-Clause */
/* A process is not taken for one that lacks the fabric while it meets the
 * peer, however long a thread that asks is kept between two of its looks. One
 * that is forked meanwhile lacks it, whatever its parent had of it. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/base/fds.h"
#include "core/base/lock.h"
#include "core/fabric/provider.h"
#include "core/meet/find.h"
#include "core/meet/meet.h"
#include "core/sock/closing.h"
#include "core/sock/table.h"
#include "core/transfer/family.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/run.h"
#include "tests/support/proc.h"
#include "tests/support/wait.h"

#define MEETINGS 60

static struct exi_sock *watched;
static atomic_bool looking, held, go, over, seen;

static void hold(int sig)
{
	held = true;
	while (!go)
		sched_yield();
}

static void *look(void *arg)
{
	looking = true;
	while (!over)
		if (exi_family_elsewhere(watched))
			seen = true;
	return NULL;
}

/* The looker is kept wherever the signal finds it until the fabric is used. */
static void one_meeting(int listener, const struct t_addr *at)
{
	int s = T_OK(exs_socket(at->domain, SOCK_STREAM | SOCK_CLOEXEC, 0));
	int peer;
	pthread_t looker;

	watched = exi_sock_find(s);
	looking = held = go = over = false;
	T_EQ(pthread_create(&looker, NULL, look, NULL), 0);
	T_UNTIL(looking);
	T_EQ(pthread_kill(looker, SIGUSR1), 0);
	T_UNTIL(held);
	T_OK(exs_connect(s, (const struct sockaddr *)&at->ss, at->len, 0,
			 T_SYNC));
	peer = t_accept(listener);
	t_settle_pair(s, peer, T_SHM);
	go = true;
	t_settle_pair(s, peer, T_SHM);
	over = true;
	T_EQ(pthread_join(looker, NULL), 0);
	T(!seen);
	t_close(s);
	t_close(peer);
}

static void who_meets_the_peer_has_the_fabric(void **state)
{
	struct sigaction sa = { .sa_handler = hold };
	struct t_addr at;
	int listener, i;

	t_init();
	T_OK(sigaction(SIGUSR1, &sa, NULL));
	listener = t_listener(T_IPV4, &at);
	for (i = 0; i < MEETINGS; i++)
		one_meeting(listener, &at);
	t_close(listener);
}

static void count(int ctl, void *arg)
{
	struct t_addr at;
	int listener, s;
	char buf[100];
	uint64_t bytes;
	ssize_t n;

	t_init();
	listener = t_listener(T_IPV4, &at);
	t_tell(ctl, (uint64_t)t_port_of(listener));
	for (;;) {
		s = t_accept(listener);
		for (bytes = 0; (n = t_recv(s, buf, sizeof(buf), 0)) > 0;)
			bytes += (uint64_t)n;
		T_EQ(n, 0);
		t_tell(ctl, bytes);
		t_close(s);
	}
}

static int connecting;
static struct t_addr peer_at;
static atomic_bool connected;

static void *connects(void *arg)
{
	T_OK(exs_connect(connecting, (const struct sockaddr *)&peer_at.ss,
			 peer_at.len, 0, T_SYNC));
	connected = true;
	return NULL;
}

/* Forks between the offer of a fabric and its answer. False: it came too late,
 * or the meeting took too long. */
static bool fork_as_they_meet(struct exi_sock *sk, pid_t *ret)
{
	struct t_deadline late = t_deadline_ms(20000);
	pthread_t connector;
	bool done = false, caught = false, begun;

	connected = false;
	connector = t_thread(connects, NULL);
	while (!done) {
		begun = connected; /* which begins the meeting */
		exi_lock(&sk->link_lock);
		caught = sk->link && sk->link->state == EXI_LINK_ANSWER;
		done = caught ||
		       (sk->link ? sk->link->state == EXI_LINK_UP : begun);
		if (caught)
			*ret = t_fork();
		exi_unlock(&sk->link_lock);
		/* Who waits for the lock gets it only while nobody asks. */
		T(done || t_tick(&late));
	}
	if (!caught || *ret)
		t_thread_join(connector);
	return caught;
}

static void a_child_of_a_meeting_sends(int s, int line)
{
	struct exi_sock *sk = exi_sock_find(s);

	t_expect(line, 1);
	exi_lock(&sk->link_lock);
	exi_link_disown_locked(sk);
	exi_unlock(&sk->link_lock);
	t_tell(line, 1);
	t_expect(line, 1);
	t_send_all(s, "child", 5, 0);
	_exit(0);
}

/* What the parent has asked the peer for is not answered because a child lets
 * go of the meeting. */
static void a_child_lets_go(struct exi_sock *sk, int line)
{
	atomic_fetch_add(&sk->sh->down_wait, 1);
	t_tell(line, 1);
	t_expect(line, 1);
	T_EQ(atomic_fetch_sub(&sk->sh->down_wait, 1), 1);
}

/* False: the peer took too long to answer. */
static bool fabric_is_used(struct exi_sock *sk, uint64_t *sent,
			   const struct t_deadline *late)
{
	bool lasts = true;

	while (lasts && sk->sh->half[EXI_TX].mode != EXI_MODE_RING) {
		t_send_all(connecting, "", 1, 0);
		++*sent;
		T(t_tick(late));
		exi_lock(&sk->link_lock);
		lasts = sk->link;
		exi_unlock(&sk->link_lock);
	}
	return lasts;
}

static void who_is_forked_as_they_meet_has_it_not(void **state)
{
	struct t_deadline late = t_deadline_ms(20000);
	struct t_peer peer;
	struct exi_sock *sk;
	bool caught = false;
	pid_t child = -1;
	uint64_t sent;

	setenv("EXS_UPGRADE", "connect", 1);
	t_peer_start(&peer, count, NULL);
	t_init();
	peer_at = t_loopback(T_IPV4, (int)t_ask(peer.ctl));
	for (;;) {
		int line[2];

		T_OK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
				line));
		connecting = T_OK(exs_socket(peer_at.domain,
					     SOCK_STREAM | SOCK_CLOEXEC, 0));
		sk = exi_sock_find(connecting);
		caught = fork_as_they_meet(sk, &child);
		if (child == 0)
			a_child_of_a_meeting_sends(connecting, line[1]);
		sent = 0;
		if (caught && !fabric_is_used(sk, &sent, &late)) {
			caught = false;
			T_OK(kill(child, SIGKILL));
			T_EQ(waitpid(child, NULL, 0), child);
		}
		if (caught) {
			a_child_lets_go(sk, line[0]);
			t_tell(line[0], 1);
			t_join(child);
			sent += 5;
		}
		t_close(connecting);
		t_expect(peer.ctl, sent);
		T_OK(close(line[0]));
		T_OK(close(line[1]));
		if (caught)
			break;
		T(!t_over(&late));
	}
	t_peer_kill(&peer);
}

/* Another process has the socket, too: what lies there is its to read. */
static void a_link_that_is_shared_keeps_its_messages(void **state)
{
	int fd[2], kept;
	char byte;

	T_OK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd));
	kept = T_OK(exi_fd_keep(T_OK(dup(fd[0]))));
	T_EQ(send(fd[1], "x", 1, 0), 1);
	exi_closing_socket(kept, false);
	T_EQ(recv(fd[0], &byte, 1, MSG_DONTWAIT), 1);
	T_OK(close(fd[0]));
	T_OK(close(fd[1]));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_is_forked_as_they_meet_has_it_not),
		cmocka_unit_test(who_meets_the_peer_has_the_fabric),
		cmocka_unit_test(a_link_that_is_shared_keeps_its_messages),
	};

	if (!t_can(t_has_sock_diag(), "sock_diag"))
		return T_SKIP;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
