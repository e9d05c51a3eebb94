/* SPDX-License-Identifier: BSD-2-Clause */
/* What is never upgraded stays on TCP with its reason, whether it was so from
 * the start or became so later; and the bytes do not mind. */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/net_tstamp.h>
#include <linux/seccomp.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

typedef void option(int s);

static void exchange(int a, int b)
{
	t_send_stream(a, 1, 0, 100000, 9000);
	t_recv_stream(b, 1, 0, 100000, 9000);
	t_send_stream(b, 2, 0, 100000, 9000);
	t_recv_stream(a, 2, 0, 100000, 9000);
}

/* At the end that connected, then at the other; before any traffic, then on
 * a connection that was upgraded. */
static void forbids(option *set, int reason)
{
	int fd[2], i;

	t_init();
	for (i = 0; i < 4; i++) {
		int who = i & 1;
		/* The end that waits for its peer learns the reason. */
		int others = i == 1 ? reason : EXS_X_REASON_PEER_REQUEST;

		t_note("%s end, %s", who ? "accepting" : "connecting",
		       i < 2 ? "before" : "later");
		t_pair(T_IPV4, fd);
		if (i >= 2)
			t_settle_pair(fd[0], fd[1], T_SHM);
		set(fd[who]);
		t_settle_ends(fd[who], T_TCP(reason), fd[!who], T_TCP(others));
		exchange(fd[0], fd[1]);
		T(t_is(fd[who], T_TCP(reason)));
		/* Who asks for TCP, too, has no better reason. */
		T_OK(exs_x_downgrade(fd[who]));
		T_MSG(t_is(fd[who], T_TCP(reason)), "%s", t_where(fd[who]));
		exchange(fd[0], fd[1]);
		t_close(fd[0]);
		t_close(fd[1]);
	}
	t_note(NULL);
}

static void set_on(int s, int level, int name, int value)
{
	T_OK(exs_setsockopt(s, level, name, &value, sizeof(value)));
}

static void zerocopy(int s)
{
	set_on(s, SOL_SOCKET, SO_ZEROCOPY, 1);
}

static void zero_copy_sockets_stay_on_tcp(void)
{
	forbids(zerocopy, EXS_X_REASON_ZEROCOPY);
}

/* The end that connected waits for its peer when it has received much, after
 * the peer has decided. */
static void who_waits_late_learns_why_nobody_comes(void)
{
	struct t_deadline d = t_deadline_ms(20000);
	uint64_t pos = 70000;
	int fd[2];

	t_init();
	t_pair(T_IPV4, fd);
	set_on(fd[1], SOL_SOCKET, SO_TIMESTAMP, 1);
	t_send_stream(fd[1], 2, 0, 70000, 70000);
	T_UNTIL(t_is(fd[1], T_TCP(EXS_X_REASON_TIMESTAMPS)));
	t_recv_stream(fd[0], 2, 0, 70000, 70000);
	T(t_is(fd[0], T_TCP(EXS_X_REASON_UNDECIDED)));
	do {
		t_send_stream(fd[1], 2, pos, 50000, 50000);
		t_recv_stream(fd[0], 2, pos, 50000, 50000);
		pos += 50000;
		T_MSG(t_tick(&d), "%s", t_where(fd[0]));
	} while (!t_is(fd[0], T_TCP(EXS_X_REASON_TIMESTAMPS)));
	exchange(fd[0], fd[1]);
	t_close(fd[0]);
	t_close(fd[1]);
}

/* Timestamps of receives: those of sends would fill an error queue that nobody
 * reads. */
static void timestamping(int s)
{
	set_on(s, SOL_SOCKET, SO_TIMESTAMPING,
	       SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE);
}

static void timestamping_sockets_stay_on_tcp(void)
{
	forbids(timestamping, EXS_X_REASON_TIMESTAMPS);
}

static void peek_offset(int s)
{
	set_on(s, SOL_SOCKET, SO_PEEK_OFF, 0);
}

static void sockets_that_peek_further_stay_on_tcp(void)
{
	int off = 0, s = socket(AF_INET, SOCK_STREAM, 0);
	int err = setsockopt(s, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off));

	close(s);
	if (err == 0) /* TCP has it since Linux 6.9 */
		forbids(peek_offset, EXS_X_REASON_PEEK_OFF);
}

static void filter(int s)
{
	struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, 0xffffffff);
	struct sock_fprog prog = { .len = 1, .filter = &all };

	T_OK(exs_setsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER, &prog,
			    sizeof(prog)));
}

static void filtered_sockets_stay_on_tcp(void)
{
	struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, 0xffffffff);
	struct sock_fprog prog = { .len = 1, .filter = &all };
	int s = T_OK(socket(AF_INET, SOCK_STREAM, 0));
	int err = setsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER, &prog,
			     sizeof(prog));

	close(s);
	if (err) /* some kernels let only root have filters */
		t_need_root("attach a filter here");
	forbids(filter, EXS_X_REASON_BPF);
}

static void o_async(int s)
{
	int flags = T_OK(exs_fcntl(s, F_GETFL));

	T_OK(exs_fcntl(s, F_SETFL, flags | O_ASYNC));
}

static void sockets_with_o_async_stay_on_tcp(void)
{
	forbids(o_async, EXS_X_REASON_O_ASYNC);
}

static void urgent(int s)
{
	T_EQ(t_send(s, "!", 1, MSG_OOB), 1);
}

/* Urgent data concerns its direction; the reason is the connection's. */
static void a_direction_with_urgent_data_stays_on_tcp(void)
{
	int fd[2], i;

	t_init();
	for (i = 0; i < 4; i++) {
		int who = i & 1, j;

		t_pair(T_IPV4, fd);
		if (i >= 2)
			t_settle_pair(fd[0], fd[1], T_SHM);
		urgent(fd[who]);
		for (j = 0; j < 20; j++)
			exchange(fd[0], fd[1]);
		T_MSG(!strcmp(t_info(fd[who]).exs_x_tx_fabric, "tcp"),
		      "round %d: %s", i, t_where(fd[who]));
		T(!strcmp(t_info(fd[!who]).exs_x_rx_fabric, "tcp"));
		T_EQ(t_info(fd[who]).exs_x_reason, EXS_X_REASON_URGENT);
		t_close(fd[0]);
		t_close(fd[1]);
	}
}

static void a_socket_connected_to_itself_stays_on_tcp(void)
{
	struct t_addr at = t_loopback(T_IPV4, 0);
	int s, i;

	t_init();
	s = T_OK(exs_socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	T_OK(exs_bind(s, (struct sockaddr *)&at.ss, at.len));
	at = t_loopback(T_IPV4, t_port_of(s));
	T_OK(exs_connect(s, (struct sockaddr *)&at.ss, at.len, 0, T_SYNC));
	for (i = 0; i < 50; i++) {
		t_send_stream(s, 1, i * 3000, 3000, 3000);
		t_recv_stream(s, 1, i * 3000, 3000, 1000);
	}
	T_EQ(t_info(s).exs_x_reason, EXS_X_REASON_SELF);
	T_OK(t_shutdown(s, SHUT_WR));
	t_recv_end(s);
	t_close(s);
}

static void multipath_connections_stay_on_tcp(void)
{
	struct t_addr at = t_loopback(T_IPV4, 0);
	int l, a, b;

	t_init();
	l = exs_socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_MPTCP);
	if (l < 0) {
		T_MSG(errno == EPROTONOSUPPORT || errno == ENOPROTOOPT,
		      "socket says %s", t_errname(errno));
		return;
	}
	T_OK(exs_bind(l, (struct sockaddr *)&at.ss, at.len));
	T_OK(exs_listen(l, 1));
	at = t_loopback(T_IPV4, t_port_of(l));
	a = T_OK(
		exs_socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_MPTCP));
	T_OK(exs_connect(a, (struct sockaddr *)&at.ss, at.len, 0, T_SYNC));
	b = t_accept(l);
	t_settle_pair(a, b, T_TCP(EXS_X_REASON_MPTCP));
	exchange(a, b);
	t_close(a);
	t_close(b);
	t_close(l);
}

/* The kernel may lack the module; then there is nothing to see. */
static void kernel_tls(int s)
{
	T_OK(exs_setsockopt(s, IPPROTO_TCP, TCP_ULP, "tls", 3));
}

static bool tls_here(void)
{
	bool here;
	int fd[2];

	t_pair(T_IPV4, fd);
	here = setsockopt(fd[0], IPPROTO_TCP, TCP_ULP, "tls", 3) == 0;
	t_close(fd[0]);
	t_close(fd[1]);
	return here;
}

static void sockets_with_kernel_tls_stay_on_tcp(void)
{
	t_init();
	if (tls_here())
		forbids(kernel_tls, EXS_X_REASON_KERNEL_TLS);
}

static void a_plain_server_is_found_out_at_once(void)
{
	struct t_addr to;
	struct t_peer p;
	int s;

	t_peer_start(&p, t_plain_echo, NULL);
	t_init();
	to = t_loopback(T_IPV4, t_ask(p.ctl));
	s = t_connect(&to);
	t_send_stream(s, 1, 0, 4000, 2000);
	t_recv_stream(s, 1, 0, 4000, 4000);
	T(t_is(s, T_TCP(EXS_X_REASON_PLAIN_PEER)));
	T_OK(exs_x_downgrade(s));
	T_MSG(t_is(s, T_TCP(EXS_X_REASON_PLAIN_PEER)), "%s", t_where(s));
	T_OK(t_shutdown(s, SHUT_WR));
	t_recv_end(s);
	t_close(s);
	t_peer_join(&p);
}

/* With EXS_REQUIRE such a connection fails, and goes on to: no byte goes over
 * TCP because somebody tried again. */
static void a_plain_server_is_refused_where_a_fabric_is_required(void)
{
	struct t_addr at;
	int l = t_plain_listener(&at), s, a;
	static char buf[2000];
	exs_qhandle_t q;

	setenv("EXS_REQUIRE", "shm", 1);
	t_init();
	q = T_OK(exs_qcreate(4));
	s = t_connect(&at);
	a = T_OK(accept(l, NULL, NULL));
	T_UNTIL(t_send(s, buf, sizeof(buf), MSG_NOSIGNAL) < 0);
	T_EQ(errno, EPROTONOSUPPORT);
	for (int i = 0; i < 3; i++) {
		T_ERR(t_send(s, buf, 1, MSG_NOSIGNAL), EPROTONOSUPPORT);
		T_ERR(t_recv(s, buf, 1, MSG_DONTWAIT), EPROTONOSUPPORT);
		t_post_send(s, buf, 1, 0, q, 1);
		T_EQ(t_event(q).exs_errno, EPROTONOSUPPORT);
		t_post_recv(s, buf, 1, 0, q, 1);
		T_EQ(t_event(q).exs_errno, EPROTONOSUPPORT);
	}
	t_close(s);
	close(a);
	close(l);
	T_OK(exs_qdelete(q));
}

/* But what only TCP can do is a better reason than a wish, which ends. */
static void a_wish_for_tcp_gives_way_to_a_lasting_reason(void)
{
	int fd[2];

	t_init();
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], T_SHM);
	T_OK(exs_x_downgrade(fd[0]));
	T(t_is(fd[0], T_TCP(EXS_X_REASON_REQUESTED)));
	timestamping(fd[0]);
	T_MSG(t_is(fd[0], T_TCP(EXS_X_REASON_TIMESTAMPS)), "%s",
	      t_where(fd[0]));
	exchange(fd[0], fd[1]);
	t_close(fd[0]);
	t_close(fd[1]);
}

static void plain_client(int ctl, void *arg)
{
	struct t_addr to = t_loopback(T_IPV4, t_ask(ctl));
	int s = T_OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	char buf[60000];
	uint64_t pos = 0;
	ssize_t n;

	T_OK(connect(s, (struct sockaddr *)&to.ss, to.len));
	t_fill(buf, 5000, 1, 0);
	T_EQ(send(s, buf, 5000, 0), 5000);
	while ((n = T_OK(recv(s, buf, sizeof(buf), 0))) > 0) {
		t_check_bytes(buf, n, 2, pos);
		pos += n;
	}
	T_EQ(pos, 20 << 20);
	close(s);
}

/* The accepting end looks a last time when it has sent 16 MiB. */
static void a_plain_client_is_found_out_in_the_end(void)
{
	struct t_addr at;
	struct t_peer p;
	int l, s;

	t_peer_start(&p, plain_client, NULL);
	t_init();
	l = t_listener(T_IPV4, &at);
	t_tell(p.ctl, t_port_of(l));
	s = t_accept(l);
	t_recv_stream(s, 1, 0, 5000, 5000);
	t_send_stream(s, 2, 0, 20 << 20, 60000);
	T_MSG(t_is(s, T_TCP(EXS_X_REASON_PLAIN_PEER)), "%s", t_where(s));
	T_OK(t_shutdown(s, SHUT_WR));
	t_recv_end(s);
	t_close(s);
	t_close(l);
	t_peer_join(&p);
}

static void little_traffic_leaves_it_undecided(void)
{
	char buf[500] = { 0 };
	int fd[2];

	t_init();
	t_pair(T_IPV4, fd);
	t_send_all(fd[0], buf, sizeof(buf), 0);
	t_recv_all(fd[1], buf, sizeof(buf));
	t_send_all(fd[1], buf, sizeof(buf), 0);
	t_recv_all(fd[0], buf, sizeof(buf));
	T(t_is(fd[0], T_TCP(EXS_X_REASON_UNDECIDED)));
	T(t_is(fd[1], T_TCP(EXS_X_REASON_UNDECIDED)));
	t_close(fd[0]);
	t_close(fd[1]);
}

/* The server looks for its peer before the peer has a reason to be there. The
 * client's answer is such a reason, long before the server has sent the next
 * MiB. */
static void a_server_that_says_much_first_is_met_when_it_is_answered(void)
{
	int fd[2];

	t_init();
	t_pair(T_IPV4, fd);
	t_send_stream(fd[1], 2, 0, 70000, 70000);
	t_send_stream(fd[0], 1, 0, 3000, 3000);
	t_recv_stream(fd[1], 1, 0, 3000, 3000);
	t_recv_stream(fd[0], 2, 0, 70000, 70000);
	t_settle_pair(fd[0], fd[1], T_SHM);
	T(t_info(fd[1]).exs_x_tx_bytes < 1 << 20);
	t_close(fd[0]);
	t_close(fd[1]);
}

static void a_program_with_rings_of_its_own_stays_on_tcp(void)
{
	char params[120] = { 0 };
	int fd[2], ring;

	t_init();
	ring = syscall(SYS_io_uring_setup, 4, params);
	if (ring < 0)
		return;
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], T_TCP(EXS_X_REASON_IO_URING));
	exchange(fd[0], fd[1]);
	t_close(fd[0]);
	t_close(fd[1]);
	close(ring);
}

static void a_program_in_seccomp_stays_on_tcp(void)
{
	struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog prog = { .len = 1, .filter = &all };
	int fd[2];

	t_init();
	T_OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	T_OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog));
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], T_TCP(EXS_X_REASON_SECCOMP));
	exchange(fd[0], fd[1]);
	t_close(fd[0]);
	t_close(fd[1]);
}

/* --- ends ---------------------------------------------------------------- */

enum leaving {
	CLOSES,
	SHUTS_FIRST,
	LEAVES_BYTES, /* unread by the other end */
	IS_KILLED,
};

static enum leaving how_it_leaves;

static void leave(int s, int ctl)
{
	t_settle(s, T_SHM);
	if (how_it_leaves == LEAVES_BYTES)
		t_send_stream(s, 1, 0, 5000, 5000);
	t_tell(ctl, 1);
	t_expect(ctl, 2);
	if (how_it_leaves == IS_KILLED)
		pause();
	if (how_it_leaves == SHUTS_FIRST) {
		T_OK(t_shutdown(s, SHUT_WR));
		t_recv_end(s);
	}
	t_close(s);
}

enum {
	SHORT_ONES = 60
};

/* Closes each connection as soon as it has sent: before the ends meet, amid
 * that, or afterwards. */
static void sends_and_closes(int ctl, void *arg)
{
	struct t_addr to = t_loopback(T_IPV4, t_ask(ctl));

	t_init();
	for (int i = 0; i < SHORT_ONES; i++) {
		int s = t_connect(&to);

		t_send_stream(s, 1, 0, 2 << 20, 65536);
		t_close(s);
	}
}

static void an_orderly_close_is_no_loss(void)
{
	struct t_addr at;
	struct t_peer p;
	int l, s, reason;

	t_peer_start(&p, sends_and_closes, NULL);
	t_init();
	l = t_listener(T_IPV4, &at);
	t_tell(p.ctl, t_port_of(l));
	for (int i = 0; i < SHORT_ONES; i++) {
		s = t_accept(l);
		t_recv_stream(s, 1, 0, 2 << 20, 65536);
		t_recv_end(s);
		reason = t_info(s).exs_x_reason;
		T_MSG(reason == EXS_X_REASON_UNDECIDED ||
			      reason == EXS_X_REASON_HALF_CLOSED ||
			      reason == EXS_X_REASON_NONE,
		      "%d: %s", i, t_where(s));
		t_close(s);
	}
	t_close(l);
	t_peer_join(&p);
}

/* The reason, once the other end has left. */
static void leaves(enum leaving how, int reason)
{
	struct t_peer p;
	int s, told;

	how_it_leaves = how;
	s = t_pair_fork(&p, T_B, leave);
	t_settle(s, T_SHM);
	t_expect(p.ctl, 1);
	t_tell(p.ctl, 2);
	if (how == SHUTS_FIRST) {
		t_recv_end(s);
		T_OK(t_shutdown(s, SHUT_WR));
	}
	if (how == IS_KILLED)
		t_peer_kill(&p);
	else
		t_peer_join(&p);
	T_UNTIL(!t_info(s).exs_x_paired);
	/* While both directions are where they were, there is none. */
	T_UNTIL((told = t_info(s).exs_x_reason) == EXS_X_REASON_NONE ||
		told == reason);
	if (how == LEAVES_BYTES)
		t_recv_stream(s, 1, 0, 5000, 5000);
	if (how != IS_KILLED)
		t_recv_end(s);
	t_close(s);
}

static void an_end_that_was_said_is_no_loss(void)
{
	leaves(CLOSES, EXS_X_REASON_HALF_CLOSED);
	leaves(SHUTS_FIRST, EXS_X_REASON_HALF_CLOSED);
	leaves(LEAVES_BYTES, EXS_X_REASON_HALF_CLOSED);
}

static void a_peer_that_was_killed_is_lost(void)
{
	leaves(IS_KILLED, EXS_X_REASON_PEER_LOST);
}

#define SHORT_ONES 300

static void serve_short_ones(int ctl, void *arg)
{
	struct t_addr at;
	int i, l, s;
	char byte;

	t_init();
	l = t_listener(T_IPV4, &at);
	t_tell(ctl, t_port_of(l));
	for (i = 0; i < SHORT_ONES; i++) {
		s = t_accept(l);
		t_recv_all(s, &byte, 1);
		t_send_all(s, &byte, 1, 0);
		t_close(s);
	}
	t_close(l);
}

/* Both ends meet at once, and are often not done when it ends. */
static void what_ended_while_it_met_is_not_lost(void)
{
	struct t_addr to;
	struct t_peer p;
	int i, s, reason;
	char byte;

	setenv("EXS_UPGRADE", "connect", 1);
	t_peer_start(&p, serve_short_ones, NULL);
	t_init();
	to = t_loopback(T_IPV4, t_ask(p.ctl));
	for (i = 0; i < SHORT_ONES; i++) {
		s = t_connect(&to);
		t_send_all(s, "x", 1, 0);
		t_recv_all(s, &byte, 1);
		t_recv_end(s);
		/* Now and then until all that could be found out was. */
		if (i % 10 == 0)
			t_until_served(getpid());
		reason = t_info(s).exs_x_reason;
		T_MSG(reason == EXS_X_REASON_NONE ||
			      reason == EXS_X_REASON_UNDECIDED ||
			      reason == EXS_X_REASON_HALF_CLOSED,
		      "number %d: %s", i, exs_x_reason_name(reason));
		t_close(s);
	}
	t_peer_join(&p);
}

/* Fills a listener's queue, so that a connect to it stays in progress until
 * there is room. Returns the number of connections that fill it. */
static int fill(int l, const struct t_addr *at, int queued[4])
{
	struct pollfd p = { .events = POLLOUT };
	int n;

	T_OK(listen(l, 0));
	for (n = 0; n < 4; n++) {
		p.fd = T_OK(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
		if (connect(p.fd, (struct sockaddr *)&at->ss, at->len) < 0 &&
		    poll(&p, 1, 0) == 0) {
			close(p.fd);
			return n;
		}
		queued[n] = p.fd;
	}
	T_MSG(false, "the listener has room for all");
	return n;
}

/* Nothing is known of the peer before the connect is done. */
static void a_connect_in_progress_does_not_judge_its_peer(void)
{
	int l, s, b, n, queued[4];
	struct t_addr at;

	setenv("EXS_UPGRADE", "connect", 1);
	t_init();
	l = t_listener(T_IPV4, &at);
	n = fill(l, &at, queued);
	s = T_OK(exs_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	T_ERR(exs_connect(s, (struct sockaddr *)&at.ss, at.len, 0, T_SYNC),
	      EINPROGRESS);
	T(t_info(s).exs_x_reason != EXS_X_REASON_PLAIN_PEER);
	while (n) {
		t_close(t_accept(l));
		close(queued[--n]);
	}
	b = t_accept(l);
	t_settle_pair(s, b, T_SHM);
	exchange(s, b);
	t_close(s);
	t_close(b);
	t_close(l);
	/* Nobody is there. */
	s = T_OK(exs_socket(AF_INET, SOCK_STREAM, 0));
	T_ERR(exs_connect(s, (struct sockaddr *)&at.ss, at.len, 0, T_SYNC),
	      ECONNREFUSED);
	T_EQ(t_info(s).exs_x_reason, EXS_X_REASON_NOT_CONNECTED);
	t_close(s);
}

/* The connection lies unaccepted for longer than its end waits. */
static void a_server_that_comes_too_late_is_not_a_plain_one(void)
{
	struct t_addr at;
	int l, a, b;

	setenv("EXS_UPGRADE", "connect", 1);
	t_init();
	l = t_listener(T_IPV4, &at);
	a = t_connect(&at);
	T_UNTIL(t_is(a, T_TCP(EXS_X_REASON_TIMEOUT)));
	b = t_accept(l);
	t_settle_ends(a, T_TCP(EXS_X_REASON_TIMEOUT), b,
		      T_TCP(EXS_X_REASON_PEER_REQUEST));
	exchange(a, b);
	t_close(a);
	t_close(b);
	t_close(l);
}

/* A device may have connections of the same addresses as another. */
static void only_ends_that_are_bound_to_one_device_meet(void)
{
	int fd[2], bound, i;

	t_init();
	for (bound = 1; bound <= 3; bound++) {
		t_pair(T_IPV4, fd);
		for (i = 0; i < 2; i++)
			if (bound & 1 << i)
				T_OK(exs_setsockopt(fd[i], SOL_SOCKET,
						    SO_BINDTODEVICE, "lo", 3));
		t_settle_pair(fd[0], fd[1],
			      bound == 3 ? T_SHM
					 : T_TCP(EXS_X_REASON_NO_PROOF));
		exchange(fd[0], fd[1]);
		t_close(fd[0]);
		t_close(fd[1]);
	}
}

/* In the other namespace, connections of other programs may have the same
 * addresses. */
static void in_another_network_namespace_nobody_is_asked(void)
{
	int fd[2];

	t_need_root("enter another network namespace");
	t_init();
	/* So what is kept to ask with is of the first namespace. */
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], T_SHM);
	t_close(fd[0]);
	t_close(fd[1]);
	t_pair(T_IPV4, fd);
	T_OK(unshare(CLONE_NEWNET));
	/* The service, which looks for the end that connected, has stayed. */
	t_settle_ends(fd[0], T_TCP(EXS_X_REASON_REMOTE), fd[1], T_TCP(T_ANY));
	exchange(fd[0], fd[1]);
	t_close(fd[0]);
	t_close(fd[1]);
}

static const struct t_row rows[] = {
	T_ROW(zero_copy_sockets_stay_on_tcp),
	T_ROW(timestamping_sockets_stay_on_tcp),
	T_ROW(sockets_that_peek_further_stay_on_tcp),
	T_ROW(who_waits_late_learns_why_nobody_comes),
	T_ROW(filtered_sockets_stay_on_tcp),
	T_ROW(sockets_with_o_async_stay_on_tcp),
	T_ROW(a_direction_with_urgent_data_stays_on_tcp),
	T_ROW(a_socket_connected_to_itself_stays_on_tcp),
	T_ROW(multipath_connections_stay_on_tcp),
	T_ROW(sockets_with_kernel_tls_stay_on_tcp),
	T_ROW(a_plain_server_is_found_out_at_once),
	T_ROW(a_wish_for_tcp_gives_way_to_a_lasting_reason),
	T_ROW(a_plain_server_is_refused_where_a_fabric_is_required),
	T_ROW(a_plain_client_is_found_out_in_the_end),
	T_ROW(little_traffic_leaves_it_undecided),
	T_ROW(an_orderly_close_is_no_loss),
	T_ROW(an_end_that_was_said_is_no_loss),
	T_ROW(a_peer_that_was_killed_is_lost),
	T_ROW(what_ended_while_it_met_is_not_lost),
	T_ROW(a_server_that_says_much_first_is_met_when_it_is_answered),
	T_ROW(a_connect_in_progress_does_not_judge_its_peer),
	T_ROW(a_server_that_comes_too_late_is_not_a_plain_one),
	T_ROW(only_ends_that_are_bound_to_one_device_meet),
	T_ROW(in_another_network_namespace_nobody_is_asked),
	T_ROW(a_program_with_rings_of_its_own_stays_on_tcp),
	T_ROW(a_program_in_seccomp_stays_on_tcp),
};

int main(int argc, char **argv)
{
	setenv("EXS_PROVIDER", "shm,tcp", 1);
	return t_run("reasons", rows, T_COUNT(rows), argc > 1 ? argv[1] : NULL);
}
