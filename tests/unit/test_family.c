/* SPDX-License-Identifier: BSD-2-Clause */
/* A process is not taken for one that lacks the fabric while it meets the
 * peer, however long a thread that asks is kept between two of its looks. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sched.h>
#include <cmocka.h>

#include "core/family.h"
#include "core/sock.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
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

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_meets_the_peer_has_the_fabric),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
