/* SPDX-License-Identifier: BSD-2-Clause */
/* A local user who owns neither end claims every name of a connection: he
 * joins nothing, receives nothing of use, and the connection works. Needs
 * root to become another user; exits with 77 without. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/api/meet.h"
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

#define TALK (20 << 20)

struct claims {
	int marker_a;
	int marker_b;
	int meeting;
	int mirrored;
};

static struct claims claim_all(int port_a, int port_b)
{
	return (struct claims){
		.marker_a = meet_claim_marker(port_a),
		.marker_b = meet_claim_marker(port_b),
		.meeting = T_OK(meet_claim_meeting(port_a, port_b)),
		.mirrored = meet_claim_meeting(port_b, port_a),
	};
}

/* Takes whoever comes to the meeting, who says little, and shows him round. */
static void receive_guest(struct claims *c, int port_a, int port_b)
{
	struct meet_name name = meet_meeting(port_a, port_b);
	struct meet_msg m;
	int s;

	T(t_readable(c->meeting, 10000 * t_slow()));
	s = T_OK(accept(c->meeting, NULL, NULL));
	T(meet_hear(s, MEET_HELLO, &m));
	T_EQ(m.a, 0);
	T_EQ(m.b, 0);
	T_EQ(m.c, MEET_SHOW);
	meet_send(s, &m, sizeof(m), -1);
	meet_is_refused(s);
	close(s);
	close(c->meeting);
	s = T_OK(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
	T_ERR(connect(s, (struct sockaddr *)&name.un, name.len), ECONNREFUSED);
	close(s);
}

/* The other user: is told both ports, claims, receives, and waits. */
static void squatter(int ctl, void *arg)
{
	struct claims c;
	int port_a, port_b;

	t_become_nobody();
	port_b = t_ask(ctl);
	port_a = t_ask(ctl);
	c = claim_all(port_a, port_b);
	t_tell(ctl, 1);
	receive_guest(&c, port_a, port_b);
	t_tell(ctl, 2);
	t_expect(ctl, 3);
}

static void serve(int ctl, void *arg)
{
	struct t_addr at;
	int l, s;

	t_init();
	l = t_listener(T_IPV4, &at);
	t_tell(ctl, t_port_of(l));
	s = t_accept(l);
	t_settle(s, T_TCP(T_ANY));
	t_recv_stream(s, 1, 0, TALK, 60000);
	t_send_stream(s, 2, 0, TALK, 60000);
	T(t_is(s, T_TCP(T_ANY)));
	T_EQ(t_info(s).exs_x_paired, 0);
	t_recv_end(s);
	t_close(s);
	t_close(l);
}

static void a_squatter_of_another_user_gains_nothing(void)
{
	struct t_peer thief, server;
	struct t_addr to;
	int s, port;

	t_peer_start(&thief, squatter, NULL);
	t_peer_start(&server, serve, NULL);
	t_init();
	port = t_ask(server.ctl);
	to = t_loopback(T_IPV4, port);
	s = t_connect(&to);
	t_tell(thief.ctl, port);
	t_tell(thief.ctl, t_port_of(s));
	t_expect(thief.ctl, 1);
	t_settle(s, T_TCP(EXS_X_REASON_REFUSED));
	t_expect(thief.ctl, 2);
	t_send_stream(s, 1, 0, TALK, 60000);
	t_recv_stream(s, 2, 0, TALK, 60000);
	T(t_is(s, T_TCP(EXS_X_REASON_REFUSED)));
	T_EQ(t_info(s).exs_x_paired, 0);
	t_close(s);
	t_peer_join(&server);
	t_tell(thief.ctl, 3);
	t_peer_join(&thief);
}

/* A connection that nobody claimed is upgraded beside one that was. */
static void other_connections_are_not_disturbed(void)
{
	struct t_addr at;
	struct t_peer thief;
	int l, a[2], b[2];

	t_peer_start(&thief, squatter, NULL);
	t_init();
	l = t_listener(T_IPV4, &at);
	a[0] = t_connect(&at);
	b[0] = t_accept(l);
	t_tell(thief.ctl, t_port_of(l));
	t_tell(thief.ctl, t_port_of(a[0]));
	t_expect(thief.ctl, 1);
	a[1] = t_connect(&at);
	b[1] = t_accept(l);
	t_settle_ends(a[0], T_TCP(EXS_X_REASON_REFUSED), b[0], T_TCP(T_ANY));
	t_settle_pair(a[1], b[1], T_SHM);
	t_expect(thief.ctl, 2);
	t_settle_ends(a[0], T_TCP(EXS_X_REASON_REFUSED), b[0], T_TCP(T_ANY));
	t_tell(thief.ctl, 3);
	t_peer_join(&thief);
	t_close(a[0]);
	t_close(b[0]);
	t_close(a[1]);
	t_close(b[1]);
	t_close(l);
}

/* A, which waits at its meeting name, ignores what a stranger says there, also
 * one of another user. */
static void intruder(int ctl, void *arg)
{
	int port_b = t_ask(ctl), port_a = t_ask(ctl), s[10], i;
	struct t_rng r = { 3 };
	char buf[100];

	t_become_nobody();
	for (i = 0; i < T_COUNT(s); i++) {
		s[i] = meet_connect(port_a, port_b);
		t_fill(buf, sizeof(buf), t_rand(&r), 0);
		if (i % 2)
			meet_send(s[i], buf, sizeof(buf), 0);
	}
	t_tell(ctl, 1);
	t_expect(ctl, 2);
	for (i = 0; i < T_COUNT(s); i++)
		meet_said_nothing(s[i]);
}

static void serve_late(int ctl, void *arg)
{
	struct t_addr at;
	int l, s;

	setenv("EXS_UPGRADE", "bytes:1000000", 1);
	t_init();
	l = t_listener(T_IPV4, &at);
	t_tell(ctl, t_port_of(l));
	s = t_accept(l);
	t_settle(s, T_SHM);
	t_recv_end(s);
	t_close(s);
	t_close(l);
}

static void an_intruder_of_another_user_is_told_nothing(void)
{
	struct t_peer thief, server;
	struct t_addr to;
	int s, port;

	t_peer_start(&thief, intruder, NULL);
	t_peer_start(&server, serve_late, NULL);
	t_init();
	port = t_ask(server.ctl);
	to = t_loopback(T_IPV4, port);
	s = t_connect(&to);
	t_tell(thief.ctl, port);
	t_tell(thief.ctl, t_port_of(s));
	/* The first block of t_settle(), sent by hand: A binds the name. */
	t_send_all(s, (char[2048]){ 0 }, 2048, 0);
	t_expect(thief.ctl, 1);
	t_recv_all(s, (char[2048]){ 0 }, 2048);
	t_settle(s, T_SHM);
	t_tell(thief.ctl, 2);
	t_peer_join(&thief);
	t_close(s);
	t_peer_join(&server);
}

/* --- a process of the peer's user ----------------------------------------- */

/* A server that does not use the library, and has given up root: the kernel
 * lets no other process of its user touch it (PR_GET_DUMPABLE). */
static void serve_plainly(int ctl, void *arg)
{
	struct t_addr at = t_loopback(T_IPV4, 0);
	int l = T_OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), s;
	static char buf[65536];
	size_t all = 0;
	ssize_t n;

	T_OK(bind(l, (struct sockaddr *)&at.ss, at.len));
	T_OK(listen(l, 1));
	T_OK(getsockname(l, (struct sockaddr *)&at.ss, &at.len));
	t_tell(ctl, ntohs(((struct sockaddr_in *)&at.ss)->sin_port));
	t_become_nobody();
	s = T_OK(accept(l, NULL, NULL));
	t_tell(ctl, 1);
	while ((n = recv(s, buf, sizeof(buf), 0)) > 0)
		all += (size_t)n;
	T_EQ(n, 0);
	T_EQ(all, TALK);
}

/* Claims the marker, and is B for whoever believes it. */
static void namesake(int ctl, void *arg)
{
	int port_b = t_ask(ctl), port_a, s;

	t_become_nobody();
	T_OK(meet_claim_marker(port_b));
	t_tell(ctl, 1);
	port_a = t_ask(ctl);
	s = meet_connect(port_a, port_b);
	meet_say(s, MEET_HELLO, 1, 1, 0, NULL);
	meet_is_refused(s);
	t_tell(ctl, 2);
}

static void a_process_of_the_peers_user_does_not_speak_for_it(void)
{
	struct t_peer thief, server;
	struct t_addr to;
	int s, port;

	t_peer_start(&thief, namesake, NULL);
	t_peer_start(&server, serve_plainly, NULL);
	t_init();
	port = t_ask(server.ctl);
	to = t_loopback(T_IPV4, port);
	t_tell(thief.ctl, port);
	t_expect(thief.ctl, 1);
	s = t_connect(&to);
	t_expect(server.ctl, 1);
	t_send_stream(s, 1, 0, 60000, 60000);
	t_tell(thief.ctl, t_port_of(s));
	t_expect(thief.ctl, 2);
	t_send_stream(s, 1, 60000, TALK - 60000, 60000);
	T_EQ(t_info(s).exs_x_paired, 0);
	t_close(s);
	t_peer_join(&server);
	t_peer_join(&thief);
}

static const struct t_row rows[] = {
	T_ROW(a_squatter_of_another_user_gains_nothing),
	T_ROW(other_connections_are_not_disturbed),
	T_ROW(an_intruder_of_another_user_is_told_nothing),
	T_ROW(a_process_of_the_peers_user_does_not_speak_for_it),
};

int main(int argc, char **argv)
{
	if (geteuid() != 0) {
		printf("needs root, to become another user\n");
		return T_SKIP;
	}
	setenv("EXS_PROVIDER", "shm,tcp", 1);
	return t_run("squatter", rows, T_COUNT(rows),
		     argc > 1 ? argv[1] : NULL);
}
