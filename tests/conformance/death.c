/* SPDX-License-Identifier: BSD-2-Clause */
/* The death of a peer by SIGKILL ends every wait at once: a blocked receive, a
 * blocked send, a dequeue, a poll of the queue's descriptor. It looks like a
 * close: the end of the stream if nothing was unread, else a reset; sends
 * fail. */
#include <inttypes.h>
#include <linux/sockios.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/conformance/conf.h"
#include "tests/support/bytes.h"

#define ROUNDS 9

/* The slowest that the median of the rounds may be: far below any timer that
 * could stand in for an event, far above a wake-up. */
#define AT_ONCE_NS (INT64_C(20000000) * t_slow())

/* No single round may take as long as a timer would. */
#define NEVER_NS (INT64_C(2000000000) * t_slow())

/* What the survivor does while its peer is killed; returns when it has seen
 * it. */
typedef void survivor(int s);

struct watch {
	_Atomic pid_t tid;
	pid_t victim;
	int64_t killed_ns;
};

static void *kill_when_asleep(void *arg)
{
	struct watch *w = arg;

	t_until_asleep(w->tid);
	w->killed_ns = t_now_ns();
	T_OK(kill(w->victim, SIGKILL));
	return NULL;
}

/* The victim settles, says so, and waits to be killed. */
static void victim(int s, int ctl)
{
	t_settle(s, conf_apart());
	t_tell(ctl, 1);
	t_ask(ctl);
}

static int64_t one_round(enum t_end here, survivor *f)
{
	struct watch w = { .tid = syscall(SYS_gettid) };
	struct t_peer p;
	int64_t seen_ns;
	pthread_t t;
	int s = t_pair_fork(&p, here, victim);

	t_settle(s, conf_apart());
	t_expect(p.ctl, 1);
	w.victim = p.pid;
	t = t_thread(kill_when_asleep, &w);
	f(s);
	seen_ns = t_now_ns();
	t_thread_join(t);
	T_EQ(waitpid(p.pid, NULL, 0), p.pid);
	close(p.ctl);
	t_close(s);
	T_MSG(seen_ns >= w.killed_ns, "seen before it happened");
	return seen_ns - w.killed_ns;
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* Each round in a process of its own: the victim is forked from one that has
 * not started the library. */
static void seen_at_once(survivor *f)
{
	int64_t took[ROUNDS];
	int i;

	for (i = 0; i < ROUNDS; i++) {
		int out[2];
		pid_t pid;

		T_OK(pipe(out));
		pid = t_fork();
		if (pid == 0) {
			took[i] = one_round(i % 2 ? T_A : T_B, f);
			T_EQ(write(out[1], &took[i], 8), 8);
			exit(0);
		}
		t_join(pid);
		T_EQ(read(out[0], &took[i], 8), 8);
		close(out[0]);
		close(out[1]);
	}
	qsort(took, ROUNDS, sizeof(took[0]), compare);
	T_MSG(took[ROUNDS / 2] < AT_ONCE_NS, "the median took %lld us",
	      (long long)took[ROUNDS / 2] / 1000);
	T_MSG(took[ROUNDS - 1] < NEVER_NS, "the slowest took %lld us",
	      (long long)took[ROUNDS - 1] / 1000);
}

static void blocked_in_recv(int s)
{
	char byte;
	ssize_t n = t_recv(s, &byte, 1, 0);

	T_MSG(n == 0 || (n < 0 && errno == ECONNRESET), "recv gave %zd (%s)", n,
	      t_errname(errno));
}

static void a_blocked_receive_sees_a_killed_peer_at_once(void)
{
	seen_at_once(blocked_in_recv);
}

static void blocked_in_send(int s)
{
	char buf[100000] = { 0 };

	while (t_send(s, buf, sizeof(buf), MSG_NOSIGNAL) > 0)
		;
	T_MSG(errno == EPIPE || errno == ECONNRESET, "send says %s",
	      t_errname(errno));
}

static void a_blocked_send_sees_a_killed_peer_at_once(void)
{
	seen_at_once(blocked_in_send);
}

static void await_recv_event(exs_qhandle_t q)
{
	exs_event_t e;

	T_EQ(exs_qdequeue(q, &e, 1, NULL), 1);
	T_EQ(e.exs_evt_type, EXS_EVT_RECV);
	T_EQ(e.exs_evt_un.exs_evt_xfer.exs_evt_length, 0);
	T_MSG(e.exs_errno == 0 || e.exs_errno == ECONNRESET, "event says %s",
	      t_errname(e.exs_errno));
}

static void dequeuing_a_receive(int s)
{
	exs_qhandle_t q = T_OK(exs_qcreate(1));
	char byte;

	t_post_recv(s, &byte, 1, 0, q, 1);
	await_recv_event(q);
	T_OK(exs_qdelete(q));
}

static void a_dequeue_of_a_receive_sees_a_killed_peer_at_once(void)
{
	seen_at_once(dequeuing_a_receive);
}

static void dequeuing_a_send(int s)
{
	exs_qhandle_t q = T_OK(exs_qcreate(1));
	size_t big = 32 << 20;
	char *buf = calloc(1, big);
	exs_event_t e;

	t_post_send(s, buf, big, 0, q, 1);
	T_EQ(exs_qdequeue(q, &e, 1, NULL), 1);
	T_EQ(e.exs_evt_type, EXS_EVT_SEND);
	T_MSG(e.exs_errno == EPIPE || e.exs_errno == ECONNRESET ||
		      e.exs_evt_un.exs_evt_xfer.exs_evt_length < big,
	      "event says %s", t_errname(e.exs_errno));
	T_OK(exs_qdelete(q));
	free(buf);
}

static void a_dequeue_of_a_send_sees_a_killed_peer_at_once(void)
{
	seen_at_once(dequeuing_a_send);
}

static void polling_the_queue(int s)
{
	exs_qhandle_t q = T_OK(exs_qcreate(1));
	struct timeval none = { 0 };
	exs_event_t e;
	char byte;

	t_post_recv(s, &byte, 1, 0, q, 1);
	do
		t_readable(exs_x_qfd(q), -1);
	while (T_OK(exs_qdequeue(q, &e, 1, &none)) == 0);
	T_EQ(e.exs_evt_type, EXS_EVT_RECV);
	T_EQ(e.exs_evt_un.exs_evt_xfer.exs_evt_length, 0);
	T_OK(exs_qdelete(q));
}

static void a_poll_of_the_queue_sees_a_killed_peer_at_once(void)
{
	seen_at_once(polling_the_queue);
}

/* The victim streams; what arrives is a prefix of the stream, then the end or
 * a reset. */
static void streaming_victim(int s, int ctl)
{
	t_settle(s, conf_apart());
	t_send_stream(s, 1, 0, UINT64_MAX / 2, 30000);
}

static void read_until_dead(int s, pid_t pid, uint64_t kill_at)
{
	static char buf[50000];
	bool killed = false;
	uint64_t pos = 0;
	ssize_t n;

	for (;;) {
		n = t_recv(s, buf, sizeof(buf), 0);
		if (n <= 0)
			break;
		t_check_bytes(buf, n, 1, pos);
		pos += n;
		if (!killed && pos >= kill_at) {
			T_OK(kill(pid, SIGKILL));
			killed = true;
		}
	}
	T_MSG(n == 0 || errno == ECONNRESET, "recv says %s", t_errname(errno));
	T(killed);
}

static void killed_streamer(struct t_rng *r)
{
	uint64_t kill_at = 1 + t_below(r, 4 << 20);
	struct t_peer p;
	int s = t_pair_fork(&p, t_below(r, 2) ? T_A : T_B, streaming_victim);

	t_settle(s, conf_apart());
	read_until_dead(s, p.pid, kill_at);
	T_EQ(waitpid(p.pid, NULL, 0), p.pid);
	close(p.ctl);
	t_close(s);
}

static void a_killed_sender_leaves_a_prefix_of_its_stream(void)
{
	int i;

	for (i = 0; i < 20; i++) {
		pid_t pid = t_fork();

		if (pid == 0) {
			struct t_rng r = { i };

			t_note("seed %d", i);
			killed_streamer(&r);
			exit(0);
		}
		t_join(pid);
	}
}

/* After the death: the end again and again, sends break, and nothing hangs. */
static void a_survivor_can_close_in_peace(void)
{
	struct t_peer p;
	int s = t_pair_fork(&p, T_A, victim);
	char byte;

	t_settle(s, conf_apart());
	t_expect(p.ctl, 1);
	t_peer_kill(&p);
	conf_recv_dead_end(s);
	T_EQ(T_OK(t_recv(s, &byte, 1, 0)), 0);
	T_UNTIL(t_send(s, "x", 1, MSG_NOSIGNAL) < 0);
	T_ERR(t_send(s, "x", 1, MSG_NOSIGNAL), EPIPE);
	T_OK(exs_x_downgrade(s));
	T(t_recv(s, &byte, 1, MSG_DONTWAIT) <= 0);
	t_close(s);
}

/* What lay unread in the ring when its writer died can still be read, also
 * by plain calls after a downgrade. */
static void victim_with_unread_bytes(int s, int ctl)
{
	t_settle(s, conf_apart());
	t_send_stream(s, 1, 0, 20000, 20000);
	t_tell(ctl, 1);
	t_ask(ctl);
}

/* With bytes of ours unread there it is a reset, told once when what it had
 * sent is read. */
static void unread_bytes(bool downgraded, bool reset)
{
	struct t_peer p;
	int s = t_pair_fork(&p, T_B, victim_with_unread_bytes), on_its_way;
	int reason;
	char buf[20000];

	t_settle(s, conf_apart());
	t_expect(p.ctl, 1);
	if (reset)
		t_send_stream(s, 2, 0, 7000, 100);
	/* Over TCP what is on its way when the peer dies comes after its
	 * end. */
	T_UNTIL(ioctl(s, SIOCOUTQ, &on_its_way) == 0 && !on_its_way);
	t_peer_kill(&p);
	if (!downgraded) {
		t_recv_stream(s, 1, 0, 20000, 3000);
		if (reset && !conf_between())
			T_ERR(t_recv(s, buf, 1, 0), ECONNRESET);
		conf_recv_dead_end(s);
		t_close(s);
		return;
	}
	T_OK(exs_x_downgrade(s));
	reason = t_info(s).exs_x_reason;
	/* A call that checks the descriptor again finds the same connection. */
	t_spin_ns(1000000);
	T_EQ(t_recv(s, buf, 100, MSG_WAITALL), 100);
	T_EQ(t_info(s).exs_x_reason, reason);
	T_EQ(recv(s, buf + 100, sizeof(buf) - 100, MSG_WAITALL),
	     sizeof(buf) - 100);
	t_check_bytes(buf, sizeof(buf), 1, 0);
	/* As conf_recv_dead_end() says. */
	if (conf_between() || reset)
		T_ERR(recv(s, buf, 1, 0), ECONNRESET);
	T_EQ(recv(s, buf, 1, 0), 0);
	t_close(s);
}

static void a_peer_killed_that_had_read_all_is_an_end(void)
{
	struct t_peer p;
	int s = t_pair_fork(&p, T_B, victim);

	t_settle(s, conf_apart());
	t_expect(p.ctl, 1);
	t_peer_kill(&p);
	conf_recv_dead_end(s);
	t_close(s);
}

/* What was sent over TCP has arrived: the Nagle algorithm would hold it back
 * until what was sent before is acknowledged. */
static bool arrived(int s)
{
	int unacknowledged;

	T_OK(ioctl(s, SIOCOUTQ, &unacknowledged));
	return unacknowledged == 0;
}

/* Says when it sends on the fabric again, and waits to be killed with bytes
 * unread: a reset, for the survivor. */
static void victim_that_moves(int s, int ctl)
{
	t_settle(s, conf_apart());
	t_expect(ctl, 1);
	t_send_stream(s, 1, 0, 7000, 7000);
	T_UNTIL(arrived(s));
	t_tell(ctl, 2);
	t_expect(ctl, 3);
	T_UNTIL(!strcmp(t_info(s).exs_x_tx_fabric, conf_apart().fabric));
	t_send_stream(s, 1, 7000, 3000, 3000);
	t_tell(ctl, 4);
	t_ask(ctl);
}

struct moved {
	pid_t survivor;
	struct t_peer victim;
};

/* The stream until it ends, and what the last call gave. */
static uint64_t read_all(int s, ssize_t *ret_last)
{
	uint64_t pos = 0;
	char buf[2500];

	while ((*ret_last = t_recv(s, buf, sizeof(buf), 0)) > 0) {
		t_check_bytes(buf, *ret_last, 1, pos);
		pos += *ret_last;
	}
	return pos;
}

/* The survivor stands still from before the victim moves until it is dead. */
static void kill_unseen(int ctl, void *arg)
{
	struct moved *m = arg;

	T_OK(kill(m->victim.pid, SIGSTOP));
	t_until_all(m->victim.pid, 'T');
	t_tell(ctl, 1);
	t_expect(ctl, 2);
	/* Its service may still have to say that the victim can move. */
	t_until_served(m->survivor);
	T_OK(kill(m->survivor, SIGSTOP));
	t_until_all(m->survivor, 'T');
	T_OK(kill(m->victim.pid, SIGCONT));
	t_tell(m->victim.ctl, 3);
	t_expect(m->victim.ctl, 4);
	T_OK(kill(m->victim.pid, SIGKILL));
	t_until_all(m->victim.pid, 'Z');
	T_OK(kill(m->survivor, SIGCONT));
}

/* The news that the peer has moved comes when TCP is reset already, with bytes
 * unread there: they come first, then those of the ring. */
static void a_move_heard_of_after_a_reset_loses_nothing(void)
{
	struct moved m = { .survivor = getpid() };
	struct t_peer killer;
	uint64_t pos;
	ssize_t n;
	int s = t_pair_fork(&m.victim, T_A, victim_that_moves);

	t_settle(s, conf_apart());
	T_OK(exs_x_downgrade(s));
	T_UNTIL(!strcmp(t_info(s).exs_x_rx_fabric, "tcp"));
	t_send_stream(s, 2, 0, 5000, 5000);
	T_UNTIL(arrived(s));
	t_tell(m.victim.ctl, 1);
	t_expect(m.victim.ctl, 2);
	t_peer_start(&killer, kill_unseen, &m);
	t_expect(killer.ctl, 1);
	T_OK(exs_x_adopt(s));
	t_tell(killer.ctl, 2);
	t_peer_join(&killer);
	pos = read_all(s, &n);
	T_MSG(n < 0 && errno == ECONNRESET, "recv gave %zd (%s)", n,
	      t_errname(errno));
	/* The end of it may have been on its way. */
	T(pos >= 7000);
	if (!strcmp(conf_apart().fabric, "shm"))
		T_EQ(pos, 10000);
	T_EQ(waitpid(m.victim.pid, NULL, 0), m.victim.pid);
	close(m.victim.ctl);
	t_close(s);
}

/* Sends when told, in many pieces, and waits to be killed. */
static void victim_that_sends_on(int s, int ctl)
{
	t_settle(s, conf_apart());
	t_tell(ctl, 1);
	t_expect(ctl, 2);
	t_send_stream(s, 1, 0, 8000, 200);
	t_tell(ctl, 3);
	t_ask(ctl);
}

static void kill_while_it_stands(int ctl, void *arg)
{
	struct moved *m = arg;

	(void)ctl;
	T_OK(kill(m->survivor, SIGSTOP));
	t_until_all(m->survivor, 'T');
	t_tell(m->victim.ctl, 2);
	t_expect(m->victim.ctl, 3);
	T_OK(kill(m->victim.pid, SIGKILL));
	t_until_all(m->victim.pid, 'Z');
	T_OK(kill(m->survivor, SIGCONT));
}

/* The survivor finds what was sent and that the victim is gone at the same
 * time, and lives. Between hosts the end of it may have been on its way. */
static void what_came_while_we_stood_still_is_read(void)
{
	struct moved m = { .survivor = getpid() };
	struct t_peer killer;
	int s = t_pair_fork(&m.victim, T_A, victim_that_sends_on);
	uint64_t pos;
	ssize_t n;

	t_settle(s, conf_apart());
	t_expect(m.victim.ctl, 1);
	t_peer_start(&killer, kill_while_it_stands, &m);
	t_peer_join(&killer);
	pos = read_all(s, &n);
	T_MSG(n == 0 || errno == ECONNRESET, "recv gave %zd (%s)", n,
	      t_errname(errno));
	T(pos == 8000 || conf_between());
	T_EQ(waitpid(m.victim.pid, NULL, 0), m.victim.pid);
	close(m.victim.ctl);
	t_close(s);
}

/* One that closed and is gone is not a fabric that failed. */
static void closer(int s, int ctl)
{
	t_settle(s, conf_apart());
	t_send_stream(s, 1, 0, 20000, 20000);
	t_close(s);
}

static void read_where_it_is(void (*leaves)(int s, int ctl))
{
	struct t_peer p;
	int s = t_pair_fork(&p, T_B, leaves);
	const char *fabric = conf_apart().fabric;

	t_settle(s, conf_apart());
	T_UNTIL(!t_info(s).exs_x_paired);
	T_MSG(!strcmp(t_info(s).exs_x_rx_fabric, fabric) &&
		      t_info(s).exs_x_reason != EXS_X_REASON_FABRIC_LOST,
	      "%s", t_where(s));
	t_peer_join(&p);
	t_recv_stream(s, 1, 0, 20000, 3000);
	t_recv_end(s);
	t_close(s);
}

/* Several times: its end is told in two ways, which race. */
static void in_rounds(void (*leaves)(int s, int ctl))
{
	for (int i = 0; i < ROUNDS; i++) {
		pid_t pid = t_fork();

		if (pid == 0) {
			read_where_it_is(leaves);
			exit(0);
		}
		t_join(pid);
	}
}

static void what_a_peer_sent_before_it_closed_is_read_where_it_is(void)
{
	in_rounds(closer);
}

/* The kernel ends its TCP, after all that it opened later. */
static void leaver(int s, int ctl)
{
	t_settle(s, conf_apart());
	t_send_stream(s, 1, 0, 20000, 20000);
}

static void what_a_peer_sent_before_it_exited_is_read_where_it_is(void)
{
	in_rounds(leaver);
}

/* Reads byte by byte, from before the connection goes back until it has. */
struct reader {
	int s;
	_Atomic int begun;
	uint64_t pos;
	ssize_t last;
};

static void *read_bytes(void *arg)
{
	struct reader *r = arg;
	char c;

	while ((r->last = t_recv(r->s, &c, 1, 0)) > 0) {
		t_check_bytes(&c, 1, 1, r->pos++);
		r->begun = 1;
	}
	return NULL;
}

static void read_while_it_goes_back(void)
{
	struct t_peer p;
	struct reader r = { .s = t_pair_fork(&p, T_B, leaver) };
	pthread_t t;

	t_settle(r.s, conf_apart());
	T_UNTIL(!t_info(r.s).exs_x_paired);
	t_peer_join(&p);
	t = t_thread(read_bytes, &r);
	while (!r.begun)
		;
	T_OK(exs_x_downgrade(r.s));
	t_thread_join(t);
	T_MSG(r.last == 0 && r.pos == 20000, "%zd after %" PRIu64 " bytes",
	      r.last, r.pos);
	t_close(r.s);
}

/* What a call takes on the way back is not overtaken by what another reads. */
static void a_downgrade_beside_a_reader_keeps_all_bytes_in_order(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		pid_t pid = t_fork();

		if (pid == 0) {
			read_while_it_goes_back();
			exit(0);
		}
		t_join(pid);
	}
}

static void *send_for_ever(void *arg)
{
	static char buf[20000];

	for (;;)
		t_send(*(int *)arg, buf, sizeof(buf), 0);
	return NULL;
}

static void busy_leaver(int s, int ctl)
{
	signal(SIGPIPE, SIG_DFL);
	t_settle(s, conf_apart());
	t_thread(send_for_ever, &s);
	t_ask(ctl);
	exit(0);
}

static void a_process_may_exit_while_a_thread_sends(void)
{
	struct t_peer p;
	int s = t_pair_fork(&p, T_B, busy_leaver);
	static char buf[30000];
	uint64_t got = 0;
	ssize_t n;

	t_settle(s, conf_apart());
	while ((n = t_recv(s, buf, sizeof(buf), 0)) > 0) {
		if (got < 1000000 && got + (uint64_t)n >= 1000000)
			t_tell(p.ctl, 1);
		got += (uint64_t)n;
	}
	t_peer_join(&p);
	T_EQ(n, 0);
	t_close(s);
}

static void bytes_of_a_killed_peer_stay_readable(void)
{
	unread_bytes(false, false);
}

static void a_peer_killed_with_bytes_unread_is_a_reset(void)
{
	unread_bytes(false, true);
}

static void a_downgrade_saves_the_bytes_of_a_killed_peer(void)
{
	unread_bytes(true, false);
}

static void a_downgrade_saves_the_reset_by_a_killed_peer(void)
{
	unread_bytes(true, true);
}

static const struct t_row rows[] = {
	T_ROW(a_blocked_receive_sees_a_killed_peer_at_once),
	T_ROW(a_blocked_send_sees_a_killed_peer_at_once),
	T_ROW(a_dequeue_of_a_receive_sees_a_killed_peer_at_once),
	T_ROW(a_dequeue_of_a_send_sees_a_killed_peer_at_once),
	T_ROW(a_poll_of_the_queue_sees_a_killed_peer_at_once),
	T_ROW(a_killed_sender_leaves_a_prefix_of_its_stream),
	T_ROW(a_move_heard_of_after_a_reset_loses_nothing),
	T_ROW(what_came_while_we_stood_still_is_read),
	T_ROW(a_survivor_can_close_in_peace),
	T_ROW(bytes_of_a_killed_peer_stay_readable),
	T_ROW(a_peer_killed_with_bytes_unread_is_a_reset),
	T_ROW(a_peer_killed_that_had_read_all_is_an_end),
	T_ROW(what_a_peer_sent_before_it_closed_is_read_where_it_is),
	T_ROW(what_a_peer_sent_before_it_exited_is_read_where_it_is),
	T_ROW(a_downgrade_saves_the_bytes_of_a_killed_peer),
	T_ROW(a_downgrade_saves_the_reset_by_a_killed_peer),
	T_ROW(a_downgrade_beside_a_reader_keeps_all_bytes_in_order),
	T_ROW(a_process_may_exit_while_a_thread_sends),
};

int main(int argc, char **argv)
{
	return conf_main(argc, argv, "death", rows, T_COUNT(rows));
}
