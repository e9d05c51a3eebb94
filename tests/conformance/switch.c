/* SPDX-License-Identifier: BSD-2-Clause */
/* Moving a live connection to the fabric and back, on request: nothing is lost,
 * plain calls work after a downgrade, and reasons say which end asked. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/conformance/conf.h"
#include "tests/support/bytes.h"

static bool fabric_is_tcp(struct t_want want)
{
	return !strcmp(want.fabric, "tcp");
}

static bool both_on_tcp(int s)
{
	exs_x_sockinfo_t i = t_info(s);

	return !strcmp(i.exs_x_tx_fabric, "tcp") &&
	       !strcmp(i.exs_x_rx_fabric, "tcp");
}

/* Plain calls on a descriptor that was taken back. */
static void plain_exchange(int a, int b)
{
	char buf[3000];
	int i;

	for (i = 0; i < 20; i++) {
		memset(buf, i, sizeof(buf));
		T_EQ(send(a, buf, sizeof(buf), 0), sizeof(buf));
		memset(buf, 0, sizeof(buf));
		T_EQ(recv(b, buf, sizeof(buf), MSG_WAITALL), sizeof(buf));
		T(buf[0] == i && buf[2999] == i);
		T_EQ(send(b, buf, sizeof(buf), 0), sizeof(buf));
		T_EQ(recv(a, buf, sizeof(buf), MSG_WAITALL), sizeof(buf));
	}
}

static void a_downgrade_moves_both_directions_to_tcp(void)
{
	int fd[2];

	conf_pair(fd);
	T_OK(exs_x_downgrade(fd[0]));
	T_UNTIL(both_on_tcp(fd[0]) && both_on_tcp(fd[1]));
	if (!fabric_is_tcp(conf_here())) {
		T_EQ(t_info(fd[0]).exs_x_reason, EXS_X_REASON_REQUESTED);
		T_EQ(t_info(fd[1]).exs_x_reason, EXS_X_REASON_PEER_REQUEST);
		T_EQ(t_info(fd[0]).exs_x_downgrades, 2);
	}
	T_OK(exs_x_downgrade(fd[1]));
	plain_exchange(fd[0], fd[1]);
	T_OK(exs_x_downgrade(fd[0]));
	t_close(fd[0]);
	t_close(fd[1]);
}

/* Bytes unread in both rings are sent again over TCP, in order. */
static void a_downgrade_takes_unread_bytes_along(void)
{
	int fd[2], who;

	t_init();
	for (who = 0; who < 2; who++) {
		char buf[30000];

		t_pair(T_IPV4, fd);
		t_settle_pair(fd[0], fd[1], conf_here());
		t_send_stream(fd[0], 1, 0, sizeof(buf), 3000);
		t_send_stream(fd[1], 2, 0, sizeof(buf), 3000);
		t_recv_stream(fd[0], 2, 0, 1234, 1234);
		T_OK(exs_x_downgrade(fd[who]));
		T_UNTIL(both_on_tcp(fd[0]) && both_on_tcp(fd[1]));
		T_OK(exs_x_downgrade(fd[!who]));
		t_recv_stream(fd[0], 2, 1234, sizeof(buf) - 1234, 7000);
		T_EQ(recv(fd[1], buf, sizeof(buf), MSG_WAITALL), sizeof(buf));
		t_check_bytes(buf, sizeof(buf), 1, 0);
		plain_exchange(fd[0], fd[1]);
		t_close(fd[0]);
		t_close(fd[1]);
	}
}

static void what_was_taken_back_can_be_adopted_again(void)
{
	int fd[2], i;

	conf_pair(fd);
	for (i = 0; i < 100 / t_slow() + 2; i++) {
		t_send_stream(fd[i & 1], 3, i * 5000, 5000, 3000);
		T_OK(exs_x_downgrade(fd[i & 1]));
		t_recv_stream(fd[!(i & 1)], 3, i * 5000, 5000, 600);
		T_UNTIL(both_on_tcp(fd[0]) && both_on_tcp(fd[1]));
		T_OK(exs_x_adopt(fd[i & 1]));
		t_settle_pair(fd[0], fd[1], conf_here());
	}
	t_close(fd[0]);
	t_close(fd[1]);
}

static void both_ends_may_downgrade_and_adopt(void)
{
	int fd[2], i;

	conf_pair(fd);
	for (i = 0; i < 20; i++) {
		T_OK(exs_x_downgrade(fd[0]));
		T_OK(exs_x_downgrade(fd[1]));
		T_OK(exs_x_adopt(fd[0]));
		if (!fabric_is_tcp(conf_here())) {
			t_send_stream(fd[0], 3, 0, 9000, 3000);
			t_recv_stream(fd[1], 3, 0, 9000, 9000);
			T(both_on_tcp(fd[0]) && both_on_tcp(fd[1]));
		}
		T_OK(exs_x_adopt(fd[1]));
		t_settle_pair(fd[0], fd[1], conf_here());
	}
	t_close(fd[0]);
	t_close(fd[1]);
}

static _Atomic bool restless;

static void await_fabric(int s)
{
	struct t_deadline d = t_deadline_ms(20);

	while (restless && both_on_tcp(s) && !t_over(&d))
		sched_yield();
}

/* Every other time it lets the move on come about: where the ends' messages
 * take long all four would only take back what is under way, for ever. */
static void *back_and_forth(void *arg)
{
	int *s = arg;

	for (int i = 0; restless; i++) {
		/* Another may have moved it on again. */
		T(exs_x_downgrade(*s) == 0 || errno == ECANCELED);
		T_OK(exs_x_adopt(*s));
		if (i % 2)
			await_fabric(*s);
		sched_yield();
	}
	return NULL;
}

/* One moves it back while another has just moved it on again. */
static void threads_may_downgrade_and_adopt_at_once(void)
{
	/* Between hosts a move takes some ten times as long. */
	uint64_t pos = 0, enough = fabric_is_tcp(conf_here()) ? 0
				   : conf_between()	      ? 600
							      : 6000;
	uint64_t least = enough < 20 ? enough : 20; /* on a busy machine */
	struct t_deadline d = t_deadline_ms(10000);
	pthread_t t[4];
	int fd[2], i;

	conf_pair(fd);
	restless = true;
	for (i = 0; i < 4; i++)
		t[i] = t_thread(back_and_forth, &fd[i % 2]);
	do {
		t_send_stream(fd[0], 4, pos, 2000, 2000);
		t_recv_stream(fd[1], 4, pos, 2000, 2000);
		t_send_stream(fd[1], 5, pos, 2000, 700);
		t_recv_stream(fd[0], 5, pos, 2000, 2000);
		pos += 2000;
	} while (t_info(fd[0]).exs_x_downgrades < enough && !t_over(&d));
	T_MSG(t_info(fd[0]).exs_x_downgrades >= least, "%s", t_where(fd[0]));
	restless = false;
	for (i = 0; i < 4; i++)
		t_thread_join(t[i]);
	T_EQ(t_info(fd[0]).exs_x_rx_bytes, t_info(fd[1]).exs_x_tx_bytes);
	t_close(fd[0]);
	t_recv_end(fd[1]);
	t_close(fd[1]);
}

static void *takes_back(void *arg)
{
	T_OK(exs_x_downgrade(*(int *)arg));
	return NULL;
}

/* Bytes that come back by TCP are told of when the next call gives them. */
static void what_is_told_of_on_the_way_back_can_be_received(void)
{
	int fd[2], i, rounds = 50;
	char buf[100] = { 0 };
	exs_qhandle_t q;
	pthread_t t;

	conf_pair(fd);
	q = T_OK(exs_qcreate(1));
	for (i = 0; i < rounds; i++) {
		exs_pollfd_t p = { .exs_fd = fd[1], .exs_events = EXS_POLLIN };

		t_send_all(fd[0], buf, sizeof(buf), 0);
		t = t_thread(takes_back, &fd[1]);
		T_UNTIL(!strcmp(t_info(fd[1]).exs_x_rx_fabric, "tcp"));
		for (size_t n = 0; n < sizeof(buf);) {
			T_OK(exs_poll(&p, 1, 0, q, NULL));
			t_event(q);
			n += (size_t)T_OK(t_recv(fd[1], buf, sizeof(buf) - n,
						 MSG_DONTWAIT));
		}
		t_thread_join(t);
		T_OK(exs_x_adopt(fd[1]));
		t_settle_pair(fd[0], fd[1], conf_here());
	}
	T_OK(exs_qdelete(q));
	t_close(fd[0]);
	t_close(fd[1]);
}

/* Also behind bytes that lie there, by a peer that stays. */
static void an_end_after_a_downgrade_is_told(void)
{
	int fd[2];

	conf_pair(fd);
	T_OK(exs_x_downgrade(fd[0]));
	T_UNTIL(both_on_tcp(fd[0]) && both_on_tcp(fd[1]));
	t_send_stream(fd[0], 7, 0, 1000, 1000);
	T_OK(t_shutdown(fd[0], SHUT_WR));
	t_recv_stream(fd[1], 7, 0, 1000, 100);
	t_recv_end(fd[1]);
	t_send_stream(fd[1], 8, 0, 1000, 1000);
	t_recv_stream(fd[0], 8, 0, 1000, 1000);
	t_close(fd[1]);
	t_recv_end(fd[0]);
	t_close(fd[0]);
}

static void *reads_to_the_end(void *arg)
{
	uint64_t pos = 0;
	char buf[1000];
	ssize_t n;

	while ((n = T_OK(t_recv(*(int *)arg, buf, sizeof(buf), 0))) > 0) {
		t_check_bytes(buf, (size_t)n, 7, pos);
		pos += (uint64_t)n;
	}
	return (void *)(uintptr_t)pos;
}

/* The end of TCP may be there before the word of the move, and before the bytes
 * that went by the fabric. */
static void what_was_sent_by_the_fabric_comes_before_the_end(void)
{
	void *got;
	pthread_t t;
	int fd[2], i;

	t_init();
	for (i = 0; i < 100; i++) {
		struct t_deadline d = t_deadline_ms(20000);
		uint64_t pos = 0;

		t_pair(T_IPV4, fd);
		t = t_thread(reads_to_the_end, &fd[1]);
		do {
			t_send_stream(fd[0], 7, pos, 100, 100);
			pos += 100;
		} while (strcmp(t_info(fd[0]).exs_x_tx_fabric,
				conf_here().fabric) &&
			 !t_over(&d));
		t_send_stream(fd[0], 7, pos, 100, 100);
		pos += 100;
		t_close(fd[0]);
		pthread_join(t, &got);
		T_EQ((uintptr_t)got, pos);
		t_close(fd[1]);
	}
}

static void adopt_plain_pair(int early_bytes)
{
	char buf[20000] = { 0 };
	int fd[2], i;

	t_init();
	t_plain_pair(fd);
	for (i = 0; i < 2 && early_bytes; i++) {
		T_EQ(send(fd[i], buf, early_bytes, 0), early_bytes);
		T_EQ(recv(fd[!i], buf, early_bytes, MSG_WAITALL), early_bytes);
	}
	T_OK(exs_x_adopt(fd[1]));
	T_OK(exs_x_adopt(fd[0]));
	t_settle_pair(fd[0], fd[1], conf_here());
	t_close(fd[0]);
	t_close(fd[1]);
}

static void a_plain_pair_can_be_adopted(void)
{
	adopt_plain_pair(0);
}

static void a_plain_pair_that_was_used_can_be_adopted(void)
{
	adopt_plain_pair(20000);
}

/* As of a server that sends a file with its header: more than the peer's window
 * takes, and the end of it corked. */
static void a_corked_sender_with_a_backlog_moves_on(void)
{
	int fd[2], on = 1, corked = 0;
	socklen_t len = sizeof(corked);
	uint64_t queued = 0;
	unsigned char buf[10007];
	ssize_t n;

	t_init();
	t_plain_pair(fd);
	T_OK(setsockopt(fd[0], IPPROTO_TCP, TCP_CORK, &on, sizeof(on)));
	do {
		t_fill(buf, sizeof(buf), 6, queued);
		n = send(fd[0], buf, sizeof(buf), MSG_DONTWAIT);
		queued += n > 0 ? (uint64_t)n : 0;
	} while (n > 0);
	T_OK(exs_x_adopt(fd[1]));
	T_OK(exs_x_adopt(fd[0]));
	T_UNTIL(!strcmp(t_info(fd[0]).exs_x_tx_fabric, conf_here().fabric));
	T_OK(getsockopt(fd[0], IPPROTO_TCP, TCP_CORK, &corked, &len));
	T_EQ(corked, 1);
	t_recv_stream(fd[1], 6, 0, queued, sizeof(buf));
	t_send_stream(fd[0], 6, queued, 5000, 5000);
	t_recv_stream(fd[1], 6, queued, 5000, 5000);
	T_OK(setsockopt(fd[0], IPPROTO_TCP, TCP_CORK, &(int){ 0 }, sizeof(on)));
	t_settle_pair(fd[0], fd[1], conf_here());
	t_close(fd[0]);
	t_close(fd[1]);
}

static void without_adoption_a_plain_pair_stays_on_tcp(void)
{
	char buf[4000] = { 0 };
	int fd[2], i;

	t_init();
	t_plain_pair(fd);
	for (i = 0; i < 50; i++) {
		t_send_all(fd[0], buf, sizeof(buf), 0);
		t_recv_all(fd[1], buf, sizeof(buf));
		t_send_all(fd[1], buf, sizeof(buf), 0);
		T_EQ(recv(fd[0], buf, sizeof(buf), MSG_WAITALL), sizeof(buf));
	}
	T(both_on_tcp(fd[0]) && both_on_tcp(fd[1]));
	T_EQ(t_info(fd[0]).exs_x_reason, EXS_X_REASON_PLAIN_SOCKET);
	T_EQ(t_info(fd[1]).exs_x_reason, EXS_X_REASON_PLAIN_SOCKET);
	t_close(fd[0]);
	t_close(fd[1]);
}

/* The peer is asleep in a receive while its direction moves under it. */
static void asleep_a(int s, int ctl)
{
	int i;

	for (i = 0; i < 200 / t_slow(); i++) {
		if (i % 2)
			T_OK(exs_x_adopt(s));
		else
			T_OK(exs_x_downgrade(s));
		t_send_stream(s, 1, i * 700, 700, 700);
		t_recv_stream(s, 2, i * 700, 700, 700);
	}
	t_close(s);
}

static void asleep_b(int s, int ctl)
{
	int i;

	for (i = 0; i < 200 / t_slow(); i++) {
		t_recv_stream(s, 1, i * 700, 700, 700);
		t_send_stream(s, 2, i * 700, 700, 700);
	}
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(a_sleeping_receiver_follows_the_switch, asleep_a, asleep_b)

static void posted_a(int s, int ctl)
{
	asleep_a(s, ctl);
}

/* The other end keeps receives posted all the time. */
static void posted_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	char buf[700];
	int i;

	for (i = 0; i < 200 / t_slow(); i++) {
		t_post_recv(s, buf, sizeof(buf), MSG_WAITALL, q, 1);
		T_EQ(t_event_is(q, EXS_EVT_RECV, 1), sizeof(buf));
		t_check_bytes(buf, sizeof(buf), 1, i * 700);
		t_send_stream(s, 2, i * 700, 700, 700);
	}
	t_post_recv(s, buf, 1, 0, q, 2);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 2), 0);
	T_OK(exs_qdelete(q));
	t_close(s);
}

CONF_DUO(posted_receives_follow_the_switch, posted_a, posted_b)

static void outstanding_operations_forbid_a_downgrade(void)
{
	exs_qhandle_t q;
	int fd[2];
	char byte;

	conf_pair(fd);
	q = T_OK(exs_qcreate(1));
	t_post_recv(fd[0], &byte, 1, 0, q, 1);
	T_ERR(exs_x_downgrade(fd[0]), EBUSY);
	t_send_all(fd[1], "x", 1, 0);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 1), 1);
	T_OK(exs_x_downgrade(fd[0]));
	T_OK(exs_qdelete(q));
	t_close(fd[0]);
	t_close(fd[1]);
}

static void downgrade_half_closed(int who_shuts, int who_leaves)
{
	int fd[2], open = !who_shuts;
	char buf[9000];

	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], conf_here());
	t_send_stream(fd[who_shuts], 1, 0, 9000, 9000);
	T_OK(t_shutdown(fd[who_shuts], SHUT_WR));
	T_OK(exs_x_downgrade(fd[who_leaves]));
	T_UNTIL(both_on_tcp(fd[0]) && both_on_tcp(fd[1]));
	T_OK(exs_x_downgrade(fd[!who_leaves]));
	T_EQ(recv(fd[open], buf, sizeof(buf), MSG_WAITALL), sizeof(buf));
	T_EQ(recv(fd[open], buf, 1, 0), 0);
	T_EQ(send(fd[open], buf, sizeof(buf), 0), sizeof(buf));
	T_EQ(recv(fd[who_shuts], buf, sizeof(buf), MSG_WAITALL), sizeof(buf));
	t_close(fd[open]);
	T_EQ(recv(fd[who_shuts], buf, 1, 0), 0);
	t_close(fd[who_shuts]);
}

static void a_half_closed_connection_can_be_taken_back(void)
{
	int i;

	t_init();
	for (i = 0; i < 4; i++)
		downgrade_half_closed(i & 1, i >> 1);
}

/* Unread bytes lie in the ring, END behind them, and the peer has closed: the
 * downgrade saves them for plain calls. */
static void bytes_of_a_closed_peer_can_be_taken_back(void)
{
	char buf[9000];
	int fd[2], who;

	t_init();
	for (who = 0; who < 2; who++) {
		t_pair(T_IPV4, fd);
		t_settle_pair(fd[0], fd[1], conf_here());
		t_send_stream(fd[who], 1, 0, sizeof(buf), sizeof(buf));
		t_close(fd[who]);
		T_OK(exs_x_downgrade(fd[!who]));
		T_EQ(recv(fd[!who], buf, sizeof(buf), MSG_WAITALL),
		     sizeof(buf));
		T_EQ(recv(fd[!who], buf, 1, 0), 0);
		t_close(fd[!who]);
	}
}

static void stopped_peer(int s, int ctl)
{
	t_settle(s, conf_apart());
	t_tell(ctl, 1);
	t_recv_stream(s, 1, 0, 5000, 5000);
	t_send_stream(s, 2, 0, 5000, 5000);
	t_recv_end(s);
	t_close(s);
}

/* A stopped peer cannot give back: bounded, then ETIMEDOUT, and the move
 * completes when it runs again. On tcp there is nothing to move. */
static void a_stopped_peer_makes_a_downgrade_time_out(void)
{
	struct t_want want = conf_apart();
	struct t_peer p;
	int s = t_pair_fork(&p, T_A, stopped_peer), status;

	t_settle(s, want);
	t_expect(p.ctl, 1);
	T_OK(kill(p.pid, SIGSTOP));
	T_EQ(waitpid(p.pid, &status, WUNTRACED), p.pid);
	if (fabric_is_tcp(want))
		T_OK(exs_x_downgrade(s));
	else
		T_ERR(exs_x_downgrade(s), ETIMEDOUT);
	T_OK(kill(p.pid, SIGCONT));
	T_UNTIL(both_on_tcp(s));
	t_send_stream(s, 1, 0, 5000, 5000);
	t_recv_stream(s, 2, 0, 5000, 5000);
	T_OK(exs_x_downgrade(s));
	t_close(s);
	t_peer_join(&p);
}

static const struct t_row rows[] = {
	T_ROW(a_downgrade_moves_both_directions_to_tcp),
	T_ROW(a_downgrade_takes_unread_bytes_along),
	T_ROW(what_was_taken_back_can_be_adopted_again),
	T_ROW(both_ends_may_downgrade_and_adopt),
	T_ROW(threads_may_downgrade_and_adopt_at_once),
	T_ROW(what_is_told_of_on_the_way_back_can_be_received),
	T_ROW(an_end_after_a_downgrade_is_told),
	T_ROW(what_was_sent_by_the_fabric_comes_before_the_end),
	T_ROW(a_plain_pair_can_be_adopted),
	T_ROW(a_plain_pair_that_was_used_can_be_adopted),
	T_ROW(a_corked_sender_with_a_backlog_moves_on),
	T_ROW(without_adoption_a_plain_pair_stays_on_tcp),
	CONF_ROWS(a_sleeping_receiver_follows_the_switch),
	CONF_ROWS(posted_receives_follow_the_switch),
	T_ROW(outstanding_operations_forbid_a_downgrade),
	T_ROW(a_half_closed_connection_can_be_taken_back),
	T_ROW(bytes_of_a_closed_peer_can_be_taken_back),
	T_ROW(a_stopped_peer_makes_a_downgrade_time_out),
};

int main(int argc, char **argv)
{
	return conf_main(argc, argv, "switch", rows, T_COUNT(rows));
}
