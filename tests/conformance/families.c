/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses of every family, and a single thread that connects to itself. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/conformance/conf.h"

/* The end of the stream may be on its way. */
static void recv_end_when_there(int s)
{
	struct t_deadline d = t_deadline_ms(20000);
	ssize_t n;
	char byte;

	while ((n = t_recv(s, &byte, 1, 0)) < 0) {
		T_EQ(errno, EAGAIN);
		T(t_tick(&d));
	}
	T_EQ(n, 0);
	t_recv_end(s);
}

static void exchange_and_close(int a, int b)
{
	t_settle_pair(a, b, conf_here());
	t_send_stream(a, 1, 0, 10000, 10000);
	t_recv_stream(b, 1, 0, 10000, 3000);
	T_OK(t_shutdown(a, SHUT_WR));
	recv_end_when_there(b);
	t_close(b);
	recv_end_when_there(a);
	t_close(a);
}

static int non_blocking_listener(enum t_family family, struct t_addr *at)
{
	int l = t_listener(family, at);

	T_OK(exs_fcntl(l, F_SETFL, O_NONBLOCK));
	return l;
}

static int accept_when_ready(int l)
{
	struct t_deadline d = t_deadline_ms(20000);
	int s;

	while ((s = exs_accept(l, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC, T_SYNC)) <
	       0) {
		T_EQ(errno, EAGAIN);
		T(t_tick(&d));
	}
	T(T_OK(exs_fcntl(s, F_GETFL)) & O_NONBLOCK);
	return s;
}

/* Non-blocking connect, accept, and traffic, all in one thread. */
static void one_thread(enum t_family family)
{
	struct pollfd p = { .events = POLLOUT };
	struct t_addr at;
	socklen_t len = sizeof(int);
	int l, a, b, err;

	t_init();
	l = non_blocking_listener(family, &at);
	T_ERR(exs_accept(l, NULL, 0, T_SYNC), EAGAIN);
	a = T_OK(exs_socket(at.domain,
			    SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
	err = exs_connect(a, (struct sockaddr *)&at.ss, at.len, 0, T_SYNC);
	T(err == 0 || errno == EINPROGRESS);
	b = accept_when_ready(l);
	p.fd = a;
	T_EQ(poll(&p, 1, 20000), 1);
	T_OK(exs_getsockopt(a, SOL_SOCKET, SO_ERROR, &err, &len));
	T_EQ(err, 0);
	exchange_and_close(a, b);
	t_close(l);
}

static void one_thread_connects_to_itself_over_ipv4(void)
{
	one_thread(T_IPV4);
}

static void one_thread_connects_to_itself_over_ipv6(void)
{
	one_thread(T_IPV6);
}

static void one_thread_connects_to_itself_over_mapped_ipv4(void)
{
	one_thread(T_MAPPED);
}

/* The same with events: accept is posted, then connect, on one queue. */
static void one_queue(enum t_family family)
{
	struct sockaddr_storage from = { 0 };
	exs_acceptaddr_t addr = {
		.exs_addr = (struct sockaddr *)&from,
		.exs_addrlen = sizeof(from),
	};
	exs_qhandle_t q;
	struct t_addr at;
	int l, a, b = -1, i;

	t_init();
	q = T_OK(exs_qcreate(2));
	l = t_listener(family, &at);
	a = T_OK(exs_socket(at.domain, SOCK_STREAM | SOCK_CLOEXEC, 0));
	T_EQ(exs_accept(l, &addr, SOCK_CLOEXEC, q, (exs_ahandle_t)1), 0);
	T_EQ(exs_connect(a, (struct sockaddr *)&at.ss, at.len, 0, q,
			 (exs_ahandle_t)2),
	     0);
	for (i = 0; i < 2; i++) {
		exs_event_t e = t_event(q);

		T_EQ(e.exs_errno, 0);
		if (e.exs_evt_type == EXS_EVT_CONNECT) {
			T_EQ((long)e.exs_evt_ahandle, 2);
			T_EQ(e.exs_evt_socket, a);
			continue;
		}
		T_EQ(e.exs_evt_type, EXS_EVT_ACCEPT);
		T_EQ((long)e.exs_evt_ahandle, 1);
		T_EQ(e.exs_evt_socket, l);
		T(e.exs_evt_un.exs_evt_accept.exs_evt_addr == &addr);
		b = e.exs_evt_un.exs_evt_accept.exs_evt_newfd;
	}
	T(b >= 0);
	T_EQ(addr.exs_addrlen, at.len);
	T_EQ(from.ss_family, at.domain);
	T_EQ(ntohs(((struct sockaddr_in *)&from)->sin_port), t_port_of(a));
	exchange_and_close(a, b);
	T_OK(exs_qdelete(q));
	t_close(l);
}

static void connect_and_accept_are_events_over_ipv4(void)
{
	one_queue(T_IPV4);
}

static void connect_and_accept_are_events_over_ipv6(void)
{
	one_queue(T_IPV6);
}

static void connect_and_accept_are_events_over_mapped_ipv4(void)
{
	one_queue(T_MAPPED);
}

/* An IPv6 listener for both families; the ends' sockets differ in family. */
static void an_ipv4_client_meets_a_dual_stack_server(void)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6 };
	struct t_addr at;
	int l, a, b;

	t_init();
	l = T_OK(exs_socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
	T_OK(exs_bind(l, (struct sockaddr *)&any, sizeof(any)));
	T_OK(exs_listen(l, 5));
	at = t_loopback(T_IPV4, t_port_of(l));
	a = t_connect(&at);
	b = t_accept(l);
	exchange_and_close(a, b);
	t_close(l);
}

/* A listener on every address, reached by another than it names. */
static void any_address_of_the_host_will_do(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct t_addr at;
	int l, a, b;

	t_init();
	l = T_OK(exs_socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	T_OK(exs_bind(l, (struct sockaddr *)&any, sizeof(any)));
	T_OK(exs_listen(l, 5));
	at = t_loopback(T_IPV4, t_port_of(l));
	if (!getenv("T_ADDRESS"))
		((struct sockaddr_in *)&at.ss)->sin_addr.s_addr =
			htonl(0x7f000203);
	a = t_connect(&at);
	b = t_accept(l);
	exchange_and_close(a, b);
	t_close(l);
}

static void far_client(int ctl, void *arg)
{
	struct t_addr to = t_loopback(*(enum t_family *)arg, t_ask(ctl));
	int s;

	t_init();
	s = t_connect(&to);
	t_settle(s, conf_apart());
	t_recv_end(s);
	t_close(s);
}

static void two_processes(enum t_family family)
{
	struct t_peer p;
	struct t_addr at;
	int l, s;

	t_peer_start(&p, far_client, &family);
	t_init();
	l = t_listener(family, &at);
	t_tell(p.ctl, t_port_of(l));
	s = t_accept(l);
	t_settle(s, conf_apart());
	t_close(s);
	t_close(l);
	t_peer_join(&p);
}

static void two_processes_meet_over_ipv4(void)
{
	two_processes(T_IPV4);
}

static void two_processes_meet_over_ipv6(void)
{
	two_processes(T_IPV6);
}

static void two_processes_meet_over_mapped_ipv4(void)
{
	two_processes(T_MAPPED);
}

/* More than share what is quick for a few, and again where the first ones
 * were. */
#define CROWD 12

static void open_pairs(int fd[][2], int n)
{
	for (int i = 0; i < n; i++) {
		t_pair(T_IPV4, fd[i]);
		t_settle_pair(fd[i][0], fd[i][1], conf_here());
	}
}

static void close_pairs(int fd[][2], int n)
{
	for (int i = 0; i < n; i++) {
		t_close(fd[i][0]);
		t_close(fd[i][1]);
	}
}

static void *answer(void *arg)
{
	int s = *(int *)arg;
	char byte;

	t_recv_all(s, &byte, 1);
	byte++;
	t_send_all(s, &byte, 1, 0);
	return NULL;
}

static void each_answers(int fd[CROWD][2])
{
	for (int i = 0; i < CROWD; i++) {
		pthread_t t = t_thread(answer, &fd[i][1]);
		char byte = (char)i;

		t_send_all(fd[i][0], &byte, 1, 0);
		t_recv_all(fd[i][0], &byte, 1);
		T_EQ(byte, i + 1);
		t_thread_join(t);
	}
}

static void a_crowd_of_connections_all_answer(void)
{
	int fd[CROWD][2];

	t_init();
	open_pairs(fd, CROWD);
	each_answers(fd);
	close_pairs(fd, CROWD / 2);
	open_pairs(fd, CROWD / 2);
	each_answers(fd);
	close_pairs(fd, CROWD);
}

/* For the leak sanitizer, which looks when the child ends. */
static void a_child_that_uses_no_connection_loses_no_memory(void)
{
	pid_t pid;
	int fd[2];

	t_init();
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], conf_here());
	pid = t_fork();
	if (pid == 0)
		exit(0);
	t_join(pid);
	t_close(fd[0]);
	t_close(fd[1]);
}

static const struct t_row rows[] = {
	T_ROW(one_thread_connects_to_itself_over_ipv4),
	T_ROW(one_thread_connects_to_itself_over_ipv6),
	T_ROW(one_thread_connects_to_itself_over_mapped_ipv4),
	T_ROW(connect_and_accept_are_events_over_ipv4),
	T_ROW(connect_and_accept_are_events_over_ipv6),
	T_ROW(connect_and_accept_are_events_over_mapped_ipv4),
	T_ROW(an_ipv4_client_meets_a_dual_stack_server),
	T_ROW(any_address_of_the_host_will_do),
	T_ROW(two_processes_meet_over_ipv4),
	T_ROW(two_processes_meet_over_ipv6),
	T_ROW(two_processes_meet_over_mapped_ipv4),
	T_ROW(a_crowd_of_connections_all_answer),
	T_ROW(a_child_that_uses_no_connection_loses_no_memory),
};

int main(int argc, char **argv)
{
	return conf_main(argc, argv, "families", rows, T_COUNT(rows));
}
