/* SPDX-License-Identifier: BSD-2-Clause */
/* A fork in the midst of a meeting puts the meeting off. */
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"

#define FORKS 48

/* Round trips before the fork, which comes at each step of the meeting. */
static void to_and_fro(int s, int times, bool first)
{
	char byte = 0;

	while (times--) {
		if (first)
			t_send_all(s, &byte, 1, 0);
		t_recv_all(s, &byte, 1);
		if (!first)
			t_send_all(s, &byte, 1, 0);
	}
}

/* The child keeps the end, and moves it. */
static void leaves_it_to_a_child(int s)
{
	pid_t pid = t_fork();

	if (pid == 0) {
		t_settle(s, T_SHM);
		t_close(s);
		_exit(0);
	}
	t_close(s);
	t_join(pid);
}

static bool server_forks;

static void serves_forks(int ctl, void *arg)
{
	struct t_addr at;
	int i, l, s;

	t_init();
	l = t_listener(T_IPV4, &at);
	t_tell(ctl, t_port_of(l));
	for (i = 0; i < FORKS; i++) {
		s = t_accept(l);
		to_and_fro(s, i % 16, false);
		if (server_forks) {
			leaves_it_to_a_child(s);
			continue;
		}
		t_settle(s, T_SHM);
		t_close(s);
	}
	t_close(l);
}

static void forks_as_it_meets(bool server)
{
	struct t_addr to;
	struct t_peer p;
	int i, s;

	setenv("EXS_UPGRADE", "connect", 1);
	server_forks = server;
	t_peer_start(&p, serves_forks, NULL);
	t_init();
	to = t_loopback(T_IPV4, t_ask(p.ctl));
	for (i = 0; i < FORKS; i++) {
		s = t_connect(&to);
		to_and_fro(s, i % 16, true);
		if (!server) {
			leaves_it_to_a_child(s);
			continue;
		}
		t_settle(s, T_SHM);
		t_close(s);
	}
	t_peer_join(&p);
}

static void a_fork_puts_the_meeting_off(void)
{
	forks_as_it_meets(true);
}

static void so_does_one_at_the_other_end(void)
{
	forks_as_it_meets(false);
}

static const struct t_row rows[] = {
	T_ROW(a_fork_puts_the_meeting_off),
	T_ROW(so_does_one_at_the_other_end),
};

int main(int argc, char **argv)
{
	setenv("EXS_PROVIDER", "shm,tcp", 1);
	return t_run("forks", rows, T_COUNT(rows), argc > 1 ? argv[1] : NULL);
}
