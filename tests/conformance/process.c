/* SPDX-License-Identifier: BSD-2-Clause */
/* Libraries meet however processes share the work: workers on one listener,
 * SO_REUSEPORT, fork after accept, accept in a process that did not listen,
 * socket activation; and a connection survives forks. On loop the ends of these
 * connections are in two processes, so they stay on tcp with a reason. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/conformance/conf.h"

#define TALK 300000

/* The two ends of a conversation that begins by reaching the fabric. */
static void talk(int s)
{
	t_send_stream(s, 1, 0, TALK, 5000);
	t_recv_stream(s, 2, 0, TALK, 7000);
	t_close(s);
}

static void answer(int s)
{
	t_recv_stream(s, 1, 0, TALK, 9000);
	t_send_stream(s, 2, 0, TALK, 5000);
	t_recv_end(s);
	t_close(s);
}

static void settle_and_talk(int s)
{
	t_settle(s, conf_apart());
	talk(s);
}

static void settle_and_answer(int s)
{
	t_settle(s, conf_apart());
	answer(s);
}

/* A client process: is told a port and a count, makes so many conversations,
 * says so, until the port is 0. */
static void client(int ctl, void *arg)
{
	int port, n;

	t_init();
	while ((port = t_ask(ctl))) {
		struct t_addr to = t_loopback(T_IPV4, port);

		for (n = t_ask(ctl); n > 0; n--)
			settle_and_talk(t_connect(&to));
		t_tell(ctl, 1);
	}
}

static void have_talks(struct t_peer *p, int port, int n)
{
	t_tell(p->ctl, port);
	t_tell(p->ctl, n);
}

static void no_more_talks(struct t_peer *p)
{
	t_tell(p->ctl, 0);
	t_peer_join(p);
}

static void end_worker(pid_t pid)
{
	T_OK(kill(pid, SIGKILL));
	T_EQ(waitpid(pid, NULL, 0), pid);
}

#define WORKERS 3
#define CLIENTS 2

__attribute__((noreturn)) static void work(int l)
{
	for (;;)
		settle_and_answer(t_accept(l));
}

static void workers_forked_before_share_one_listener(void)
{
	struct t_peer p[CLIENTS];
	pid_t worker[WORKERS];
	struct t_addr at;
	int i, l;

	for (i = 0; i < CLIENTS; i++)
		t_peer_start(&p[i], client, NULL);
	t_init();
	l = t_listener(T_IPV4, &at);
	for (i = 0; i < WORKERS; i++) {
		worker[i] = t_fork();
		if (worker[i] == 0)
			work(l);
	}
	for (i = 0; i < CLIENTS; i++)
		have_talks(&p[i], t_port_of(l), 10);
	for (i = 0; i < CLIENTS; i++) {
		t_expect(p[i].ctl, 1);
		no_more_talks(&p[i]);
	}
	for (i = 0; i < WORKERS; i++)
		end_worker(worker[i]);
	t_close(l);
}

/* The same after the process that listened has gone. */
static void workers_outlive_the_process_that_listened(void)
{
	struct t_peer p;
	struct t_addr at;
	int port[2], l, number = 0;
	pid_t master, worker = 0;

	t_peer_start(&p, client, NULL);
	T_OK(pipe(port));
	master = t_fork();
	if (master == 0) {
		t_init();
		l = t_listener(T_IPV4, &at);
		worker = fork();
		if (worker == 0)
			work(l);
		number = t_port_of(l);
		T_EQ(write(port[1], &number, sizeof(number)), sizeof(number));
		T_EQ(write(port[1], &worker, sizeof(worker)), sizeof(worker));
		exit(0);
	}
	t_join(master);
	T_EQ(read(port[0], &number, sizeof(number)), sizeof(number));
	T_EQ(read(port[0], &worker, sizeof(worker)), sizeof(worker));
	have_talks(&p, number, 10);
	t_expect(p.ctl, 1);
	no_more_talks(&p);
	T_OK(kill(worker, SIGKILL));
	close(port[0]);
	close(port[1]);
}

static int reuseport_listener(int port)
{
	struct t_addr at = t_loopback(T_IPV4, port);
	int s = T_OK(exs_socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	int on = 1;

	T_OK(exs_setsockopt(s, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)));
	T_OK(exs_bind(s, (struct sockaddr *)&at.ss, at.len));
	T_OK(exs_listen(s, 64));
	return s;
}

static void reuseport_server(int ctl, void *arg)
{
	int l;

	t_init();
	l = reuseport_listener(t_ask(ctl));
	t_tell(ctl, t_port_of(l));
	for (;;) {
		/* A client that met nobody yet talks all the same. */
		int s = t_accept(l);
		char settled;

		t_recv_all(s, &settled, 1);
		if (settled)
			t_settle(s, conf_apart());
		answer(s);
	}
}

static void reuseport_talk(const struct t_addr *to, bool settle)
{
	char byte = settle;
	int s = t_connect(to);

	t_send_all(s, &byte, 1, 0);
	if (settle)
		t_settle(s, conf_apart());
	talk(s);
}

/* The name by which a port says that it is served by libexs. */
static bool marked(int port)
{
	FILE *f = fopen("/proc/net/unix", "re");
	char line[300], name[64];
	bool found = false;

	T(f != NULL);
	snprintf(name, sizeof(name), "@libexs/1/port/%d\n", port);
	while (!found && fgets(line, sizeof(line), f))
		found = strstr(line, name) != NULL;
	fclose(f);
	return found;
}

/* When the process with the marker dies, the other takes it over at its next
 * accept: the first connection after the death may have been too early. */
static void listeners_that_share_a_port_are_all_met(void)
{
	struct t_peer one, two;
	struct t_addr to;
	int port, i;

	t_peer_start(&one, reuseport_server, NULL);
	t_peer_start(&two, reuseport_server, NULL);
	t_init();
	t_tell(one.ctl, 0);
	port = t_ask(one.ctl);
	t_tell(two.ctl, port);
	T_EQ(t_ask(two.ctl), port);
	to = t_loopback(T_IPV4, port);
	for (i = 0; i < 16; i++)
		reuseport_talk(&to, true);
	t_peer_kill(&one);
	reuseport_talk(&to, false);
	if (strcmp(conf_here().fabric, "tcp"))
		T_UNTIL(marked(port));
	for (i = 0; i < 4; i++)
		reuseport_talk(&to, true);
	t_peer_kill(&two);
}

static void a_process_forked_after_accept_serves(void)
{
	struct t_peer p;
	struct t_addr at;
	int i, l;

	t_peer_start(&p, client, NULL);
	t_init();
	l = t_listener(T_IPV4, &at);
	have_talks(&p, t_port_of(l), 6);
	for (i = 0; i < 6; i++) {
		int s = t_accept(l);
		pid_t pid = t_fork();

		if (pid == 0) {
			settle_and_answer(s);
			exit(0);
		}
		t_close(s);
		t_join(pid);
	}
	t_expect(p.ctl, 1);
	no_more_talks(&p);
	t_close(l);
}

static void late_client(int ctl, void *arg)
{
	struct t_addr to = t_loopback(T_IPV4, t_ask(ctl));
	char buf[100];
	int s;

	t_init();
	s = t_connect(&to);
	t_settle(s, conf_apart());
	if (t_ask(ctl)) {
		t_recv_all(s, buf, sizeof(buf));
		t_send_all(s, buf, sizeof(buf), 0);
		t_recv_end(s);
	}
	t_close(s);
}

enum child_end {
	CHILD_STAYS,
	CHILD_CLOSES,
	CHILD_DIES
};

/* A connection that a child has on the fabric, and the parent uses then. */
static void come_back(enum child_end end, bool async)
{
	char buf[100] = "parent", got[100];
	exs_qhandle_t q = EXS_QHANDLE_INVALID;
	int ready[2], l, s, n;
	struct t_peer p;
	struct t_addr at;
	char byte;
	pid_t pid;

	t_peer_start(&p, late_client, NULL);
	t_init();
	T_OK(pipe2(ready, O_CLOEXEC));
	l = t_listener(T_IPV4, &at);
	t_tell(p.ctl, t_port_of(l));
	s = t_accept(l);
	pid = t_fork();
	if (pid == 0) {
		t_settle(s, conf_apart());
		if (end == CHILD_CLOSES)
			t_close(s);
		T_EQ(write(ready[1], "", 1), 1);
		for (;;)
			pause();
	}
	T_EQ(read(ready[0], &byte, 1), 1);
	if (end == CHILD_DIES)
		end_worker(pid);
	/* On TCP nothing is lost with a child. */
	if (end == CHILD_DIES && strcmp(conf_apart().fabric, "tcp")) {
		T_ERR(t_send(s, buf, sizeof(buf), MSG_NOSIGNAL), ECONNRESET);
		T_ERR(t_recv(s, got, sizeof(got), 0), ECONNRESET);
		t_tell(p.ctl, 0);
	} else {
		t_tell(p.ctl, 1);
		if (async) {
			q = T_OK(exs_qcreate(2));
			t_post_recv(s, got, sizeof(got), MSG_WAITALL, q, 1);
			t_post_send(s, buf, sizeof(buf), 0, q, 2);
			for (n = 0; n < 2; n++)
				T_EQ(t_event(q).exs_errno, 0);
			T_OK(exs_qdelete(q));
		} else {
			t_send_all(s, buf, sizeof(buf), 0);
			t_recv_all(s, got, sizeof(got));
		}
		T(!memcmp(buf, got, sizeof(buf)));
		T(t_is(s, T_TCP(T_ANY)));
	}
	if (end != CHILD_DIES)
		end_worker(pid);
	t_close(s);
	t_peer_join(&p);
	t_close(l);
}

static void the_parent_may_come_back_to_what_a_child_upgraded(void)
{
	come_back(CHILD_STAYS, false);
}

static void the_parent_may_come_back_with_operations(void)
{
	come_back(CHILD_STAYS, true);
}

static void the_parent_goes_on_with_what_a_child_closed(void)
{
	come_back(CHILD_CLOSES, false);
}

static void what_a_child_had_on_the_fabric_dies_with_it(void)
{
	come_back(CHILD_DIES, false);
}

/* Sleeps in poll for each byte, and gives it back. */
#define ECHOES 30

static void echo(int s)
{
	exs_pollfd_t p = { .exs_fd = s, .exs_events = EXS_POLLIN };
	char byte;

	for (int i = 0; i < ECHOES; i++) {
		T_EQ(T_OK(exs_poll(&p, 1, 0, T_SYNC)), 1);
		t_recv_all(s, &byte, 1);
		t_send_all(s, &byte, 1, 0);
	}
}

static void ask_when_asleep(int s, pid_t other, pid_t one)
{
	char byte = 0;

	for (int i = 0; i < ECHOES; i++) {
		t_until_all(other, 'S');
		t_until_all(one, 'S');
		t_send_all(s, &byte, 1, 0);
		t_recv_all(s, &byte, 1);
	}
}

static void echo_and_fork(int ctl, void *arg)
{
	struct t_addr at;
	pid_t pid;
	int l, s;

	t_init();
	l = t_listener(T_IPV4, &at);
	t_tell(ctl, (uint64_t)t_port_of(l));
	s = t_accept(l);
	t_settle(s, conf_apart());
	echo(s);
	pid = t_fork();
	if (pid == 0) {
		echo(s);
		t_close(s);
		_exit(0);
	}
	t_close(s);
	t_tell(ctl, (uint64_t)pid);
	s = t_accept(l);
	t_settle(s, conf_apart());
	for (int i = 0; i < 2; i++)
		echo(s);
	t_join(pid);
	t_close(s);
	t_close(l);
}

/* A thread of the parent goes on hearing bells, and not its child's. */
static void a_child_is_woken_by_what_its_parent_slept_on(void)
{
	struct t_addr to;
	struct t_peer p;
	pid_t child;
	int s[2];

	setenv("EXS_SPIN_US", "0", 1);
	t_peer_start(&p, echo_and_fork, NULL);
	t_init();
	to = t_loopback(T_IPV4, (int)t_ask(p.ctl));
	s[0] = t_connect(&to);
	t_settle(s[0], conf_apart());
	ask_when_asleep(s[0], p.pid, p.pid);
	child = (pid_t)t_ask(p.ctl);
	s[1] = t_connect(&to);
	t_settle(s[1], conf_apart());
	ask_when_asleep(s[1], p.pid, p.pid);
	ask_when_asleep(s[0], p.pid, child);
	t_recv_end(s[0]);
	ask_when_asleep(s[1], p.pid, p.pid);
	t_peer_join(&p);
	t_close(s[0]);
	t_close(s[1]);
}

/* The accept is posted, then the port is told: the marker is there. */
static void accept_and_serve(int l, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(1));
	exs_event_t e;
	int i;

	for (i = 0; i < 3; i++) {
		T_EQ(exs_accept(l, NULL, SOCK_CLOEXEC, q, NULL), 0);
		t_tell(ctl, 1);
		e = t_event(q);
		T_EQ(e.exs_evt_type, EXS_EVT_ACCEPT);
		T_EQ(e.exs_errno, 0);
		settle_and_answer(e.exs_evt_un.exs_evt_accept.exs_evt_newfd);
	}
	T_OK(exs_qdelete(q));
	t_close(l);
}

static void serves_a_passed_listener(int ctl, void *arg)
{
	int l = t_ask_fd(ctl);

	t_init();
	accept_and_serve(l, ctl);
}

static void talk_with_acceptor(struct t_peer *p, const struct t_addr *to)
{
	int i;

	for (i = 0; i < 3; i++) {
		t_expect(p->ctl, 1);
		settle_and_talk(t_connect(to));
	}
}

static void a_process_accepts_on_a_listener_passed_to_it(void)
{
	struct t_peer p;
	struct t_addr at;
	int l;

	t_peer_start(&p, serves_a_passed_listener, NULL);
	t_init();
	l = t_listener(T_IPV4, &at);
	t_tell_fd(p.ctl, l);
	talk_with_acceptor(&p, &at);
	t_peer_join(&p);
	t_close(l);
}

static void listens_and_leaves(int ctl, void *arg)
{
	struct t_addr at;
	int l;

	t_init();
	l = t_listener(T_IPV4, &at);
	t_tell(ctl, t_port_of(l));
	t_tell_fd(ctl, l);
	t_expect(ctl, 1);
}

static void the_process_that_listened_may_leave(void)
{
	struct t_peer server, lister;
	struct t_addr at;
	int l;

	t_peer_start(&server, serves_a_passed_listener, NULL);
	t_peer_start(&lister, listens_and_leaves, NULL);
	at = t_loopback(T_IPV4, t_ask(lister.ctl));
	l = t_ask_fd(lister.ctl);
	t_tell(lister.ctl, 1);
	t_peer_join(&lister);
	t_tell_fd(server.ctl, l);
	close(l);
	t_init();
	talk_with_acceptor(&server, &at);
	t_peer_join(&server);
}

/* As a service manager does it: a plain listener, inherited. */
static void a_plain_listener_that_was_inherited_is_met(void)
{
	struct t_addr at;
	struct t_peer p;
	int l = t_plain_listener(&at);

	t_peer_start(&p, serves_a_passed_listener, NULL);
	t_tell_fd(p.ctl, l);
	close(l);
	t_init();
	talk_with_acceptor(&p, &at);
	t_peer_join(&p);
}

/* A server for one client: stops listening, then talks. */
static void single_shot(int ctl, void *arg)
{
	struct t_addr at;
	int l, s;

	t_init();
	l = t_listener(T_IPV4, &at);
	t_tell(ctl, t_port_of(l));
	s = t_accept(l);
	t_close(l);
	t_tell(ctl, 1);
	settle_and_answer(s);
}

static void a_listener_closed_after_its_accept_was_met(void)
{
	struct t_addr to;
	struct t_peer p;
	int s;

	t_peer_start(&p, single_shot, NULL);
	t_init();
	to = t_loopback(T_IPV4, t_ask(p.ctl));
	s = t_connect(&to);
	t_expect(p.ctl, 1);
	settle_and_talk(s);
	t_peer_join(&p);
}

/* Children that only inherit the connection do not disturb it. */
static void idle_children_a(int s, int ctl)
{
	struct t_want want = conf_apart();
	pid_t pid = t_fork();

	if (pid == 0)
		_exit(0);
	t_join(pid);
	T(t_is(s, want));
	T_EQ(system("true"), 0);
	T(t_is(s, want));
	talk(s);
}

static void idle_children_b(int s, int ctl)
{
	answer(s);
}

static void children_that_only_inherit_cost_nothing(void)
{
	conf_duo(CONF_APART, idle_children_a, idle_children_b);
}

/* Parent and child both use the connection, in turns. */
static void both_use_a(int s, int ctl)
{
	int turn[2], back[2];
	pid_t pid;
	char c;

	T_OK(pipe2(turn, O_CLOEXEC));
	T_OK(pipe2(back, O_CLOEXEC));
	pid = t_fork();
	if (pid == 0) {
		t_send_stream(s, 1, 0, 100000, 9000);
		T_EQ(write(back[1], "1", 1), 1);
		T_EQ(read(turn[0], &c, 1), 1);
		t_send_stream(s, 1, 200000, 100000, 9000);
		t_recv_stream(s, 2, 0, 100000, 9000);
		T_EQ(write(back[1], "2", 1), 1);
		exit(0);
	}
	T_EQ(read(back[0], &c, 1), 1);
	t_send_stream(s, 1, 100000, 100000, 9000);
	T_EQ(write(turn[1], "1", 1), 1);
	T_EQ(read(back[0], &c, 1), 1);
	t_recv_stream(s, 2, 100000, 100000, 9000);
	t_join(pid);
	t_send_stream(s, 1, 300000, 100000, 9000);
	t_close(s);
	close(turn[0]);
	close(turn[1]);
	close(back[0]);
	close(back[1]);
}

static void both_use_b(int s, int ctl)
{
	t_recv_stream(s, 1, 0, 300000, 8000);
	t_send_stream(s, 2, 0, 200000, 8000);
	t_recv_stream(s, 1, 300000, 100000, 8000);
	t_recv_end(s);
	t_close(s);
}

static void parent_and_child_use_one_connection(void)
{
	conf_duo(CONF_APART, both_use_a, both_use_b);
}

static void parent_and_child_use_one_fresh_connection(void)
{
	conf_duo(CONF_FRESH, both_use_a, both_use_b);
}

static void daemon_a(int s, int ctl)
{
	talk(s);
}

/* The peer's process forks and its parent leaves. */
static void daemon_b(int s, int ctl)
{
	/* A device is not forked: the parent hands over what it has there, for
	 * which its end must be one that it knows of. */
	if (fork())
		!conf_between() ? _exit(0) : exit(0);
	answer(s);
}

static void a_connection_survives_becoming_a_daemon(void)
{
	conf_duo(CONF_APART, daemon_a, daemon_b);
}

/* A connection moved back to TCP is any program's: cat echoes it. */
static void hand_over_a(int s, int ctl)
{
	pid_t pid;

	t_expect(ctl, 1);
	T_OK(exs_x_downgrade(s));
	pid = t_fork();
	if (pid == 0) {
		dup2(s, STDIN_FILENO);
		dup2(s, STDOUT_FILENO);
		execlp("cat", "cat", NULL);
		_exit(127);
	}
	t_close(s);
	t_join(pid);
}

static void *send_for_cat(void *arg)
{
	int s = *(int *)arg;

	t_send_stream(s, 1, 100, 500000, 7000);
	T_OK(t_shutdown(s, SHUT_WR));
	return NULL;
}

static void hand_over_b(int s, int ctl)
{
	pthread_t t;

	t_send_stream(s, 1, 0, 100, 100);
	t_tell(ctl, 1);
	t = t_thread(send_for_cat, &s);
	t_recv_stream(s, 1, 0, 500100, 9000);
	t_recv_end(s);
	t_thread_join(t);
	t_close(s);
}

static void a_downgraded_connection_can_be_handed_to_any_program(void)
{
	conf_duo(CONF_APART, hand_over_a, hand_over_b);
}

static const struct t_row rows[] = {
	T_ROW(workers_forked_before_share_one_listener),
	T_ROW(workers_outlive_the_process_that_listened),
	T_ROW(listeners_that_share_a_port_are_all_met),
	T_ROW(a_process_forked_after_accept_serves),
	T_ROW(the_parent_may_come_back_to_what_a_child_upgraded),
	T_ROW(the_parent_may_come_back_with_operations),
	T_ROW(the_parent_goes_on_with_what_a_child_closed),
	T_ROW(what_a_child_had_on_the_fabric_dies_with_it),
	T_ROW(a_child_is_woken_by_what_its_parent_slept_on),
	T_ROW(a_process_accepts_on_a_listener_passed_to_it),
	T_ROW(the_process_that_listened_may_leave),
	T_ROW(a_plain_listener_that_was_inherited_is_met),
	T_ROW(a_listener_closed_after_its_accept_was_met),
	T_ROW(children_that_only_inherit_cost_nothing),
	T_ROW(parent_and_child_use_one_connection),
	T_ROW(parent_and_child_use_one_fresh_connection),
	T_ROW(a_connection_survives_becoming_a_daemon),
	T_ROW(a_downgraded_connection_can_be_handed_to_any_program),
};

int main(int argc, char **argv)
{
	return conf_main(argc, argv, "process", rows, T_COUNT(rows));
}
