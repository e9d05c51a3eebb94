/* SPDX-License-Identifier: BSD-2-Clause */
/* A firewall between the ends that forgets connections which are silent for two
 * seconds (the usual one after 350), and drops what it does not know: three
 * network namespaces, the firewall is the kernel's own. The connection's data
 * goes over ofi, whose own connections it leaves alone. */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/sock/keepalive.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

#define FORGETS_S 2

enum {
	KEPT,  /* with keepalive each second */
	ENDS,  /* the same; its peer is killed */
	QUIET, /* without: the firewall forgets it */
	N_CONNECTIONS,
};

static const struct t_want ofi = { "ofi", EXS_X_REASON_NONE };

static __attribute__((format(printf, 1, 2))) void run_command(const char *fmt,
							      ...)
{
	char command[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	T_MSG(system(command) == 0, "%s", command);
}

/* Before the settlement of the last, at both ends. */
static void settle(int s, int which)
{
	exi_keepalive_idle = which == QUIET ? 1000 : 1;
	t_settle(s, ofi);
}

/* --- the namespaces ------------------------------------------------------ */

static void firewall(int ctl, void *arg)
{
	unsigned int port;

	T_OK(unshare(CLONE_NEWNET));
	t_tell(ctl, 1);
	t_ask(ctl); /* it has both interfaces */
	run_command("ip addr add 10.9.1.254/24 dev b1 && ip link set b1 up && "
		    "ip addr add 10.9.2.254/24 dev b2 && ip link set b2 up && "
		    "echo 1 >/proc/sys/net/ipv4/ip_forward");
	t_tell(ctl, 1);
	port = (unsigned int)t_ask(ctl);
	run_command(
		"nft 'add table ip t; add chain ip t known; "
		"add chain ip t through { type filter hook forward "
		"priority 0; }; "
		"add rule ip t through tcp dport %u goto known; "
		"add rule ip t through tcp sport %u goto known; "
		"add rule ip t known ct state established accept; "
		"add rule ip t known tcp flags & (syn | ack) == syn accept; "
		"add rule ip t known drop'",
		port, port);
	run_command("cd /proc/sys/net/netfilter && "
		    "echo 0 >nf_conntrack_tcp_loose && "
		    "echo %d >nf_conntrack_tcp_timeout_established",
		    FORGETS_S);
	t_tell(ctl, 1);
	t_ask(ctl);
}

static void *echo(void *arg)
{
	int s = *(int *)arg;
	char c;

	while (t_recv(s, &c, 1, 0) == 1)
		t_send_all(s, &c, 1, 0);
	return NULL;
}

static void serve(int ctl, void *arg)
{
	struct t_addr at;
	int l, s[N_CONNECTIONS];

	T_OK(unshare(CLONE_NEWNET));
	t_tell(ctl, 1);
	t_ask(ctl);
	run_command("ip link set lo up && ip addr add 10.9.1.1/24 dev s0 && "
		    "ip link set s0 up && "
		    "ip route add default via 10.9.1.254");
	setenv("T_ADDRESS", "10.9.1.1", 1);
	t_init();
	l = t_listener(T_IPV4, &at);
	t_tell(ctl, (uint64_t)t_port_of(l));
	for (int i = 0; i < N_CONNECTIONS; i++) {
		s[i] = t_accept(l);
		settle(s[i], i);
	}
	t_tell(ctl, 1);
	for (int i = 0; i < N_CONNECTIONS; i++)
		t_thread(echo, &s[i]);
	t_ask(ctl);
}

/* --- the test ------------------------------------------------------------ */

static void meet(struct t_peer *server, struct t_peer *box,
		 int s[N_CONNECTIONS])
{
	struct t_addr at;
	int port;

	t_ask(server->ctl);
	t_ask(box->ctl);
	run_command("ip link add c0 type veth peer name b2 netns %d && "
		    "ip link add b1 netns %d type veth peer name s0 netns %d",
		    box->pid, box->pid, server->pid);
	run_command("ip link set lo up && ip addr add 10.9.2.1/24 dev c0 && "
		    "ip link set c0 up && "
		    "ip route add default via 10.9.2.254");
	t_tell(box->ctl, 1);
	t_ask(box->ctl);
	t_tell(server->ctl, 1);
	port = (int)t_ask(server->ctl);
	t_tell(box->ctl, (uint64_t)port);
	t_ask(box->ctl);
	setenv("T_ADDRESS", "10.9.1.1", 1);
	at = t_loopback(T_IPV4, port);
	t_init();
	for (int i = 0; i < N_CONNECTIONS; i++) {
		s[i] = t_connect(&at);
		settle(s[i], i);
	}
	t_ask(server->ctl);
}

static bool echoes(int s, int ms)
{
	char c = 'x';

	t_send_all(s, &c, 1, 0);
	return t_readable(s, ms) && t_recv(s, &c, 1, 0) == 1;
}

static void the_way_back_and_the_end_come_through(void)
{
	struct t_peer server, box;
	int s[N_CONNECTIONS];
	char c;

	T_OK(unshare(CLONE_NEWNET));
	t_peer_start(&box, firewall, NULL);
	t_peer_start(&server, serve, NULL);
	meet(&server, &box, s);
	/* Twice as long as the firewall remembers. */
	T(!t_readable(s[KEPT], 2000 * FORGETS_S));
	for (int i = 0; i < N_CONNECTIONS; i++)
		T(t_is(s[i], ofi));
	T_OK(exs_x_downgrade(s[KEPT]));
	T(echoes(s[KEPT], 10000));
	T_OK(exs_x_downgrade(s[QUIET]));
	T(!echoes(s[QUIET], 1000));
	t_peer_kill(&server);
	T(t_readable(s[ENDS], 10000));
	T(t_recv(s[ENDS], &c, 1, 0) <= 0);
	for (int i = 0; i < N_CONNECTIONS; i++)
		t_close(s[i]);
	t_tell(box.ctl, 1);
	t_peer_join(&box);
}

static const struct t_row rows[] = {
	T_ROW(the_way_back_and_the_end_come_through),
};

int main(int argc, char **argv)
{
	if (geteuid() != 0) {
		printf("needs root, to make a network namespace\n");
		return T_SKIP;
	}
	return t_run("forgets", rows, T_COUNT(rows), argc > 1 ? argv[1] : NULL);
}
