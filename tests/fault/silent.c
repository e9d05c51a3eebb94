/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers that were met and then do nothing of what the protocol asks of them, or
 * what it does not end: whoever waits for them waits for a second, of all of
 * them together, and gathers no more than there can be. */
#include <errno.h>
#include <grp.h>
#include <linux/sockios.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/link/control.h"
#include "core/link/ending.h"
#include "core/meet/find.h"
#include "core/meet/begin.h"
#include "core/meet/meet.h"
#include "core/meet/pair.h"
#include "core/sock/base.h"
#include "core/sock/table.h"
#include "core/sock/tcp.h"
#include "providers/shm/shm_int.h"
#include "tests/fault/link.h"
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

/* --- a ring that does not end ------------------------------------------- */

#define STEP 4096u

/* A record from a position up to the next multiple of STEP. */
static void put_record(struct exi_conn *c, uint64_t pos)
{
	struct shmp_tx *tx = &shmp_shared(c)->tx;
	uint32_t len = shmp_fits(STEP - (uint32_t)(pos % STEP));

	atomic_store(&shmp_out(shmp_priv(c), tx, pos)->word,
		     shmp_word(SHMP_DATA, len, pos, tx->bytes));
}

#define BEFORE 2 /* records */

/* Hangs up with records in its ring, and writes the rest of the lap when it is
 * told that this was noticed. */
static void writes_on(int s, int ctl)
{
	struct exi_conn *c;
	struct shmp_tx *tx;
	uint64_t pos, end;
	int link;

	t_settle(s, T_SHM);
	t_expect(ctl, 1);
	c = exi_sock_find(s)->fab;
	tx = &shmp_shared(c)->tx;
	link = t_link_of(s);
	T(link >= 0);
	end = tx->head + tx->bytes - 2 * STEP;
	put_record(c, tx->head);
	for (pos = tx->head / STEP * STEP + STEP; pos < end; pos += STEP) {
		if (pos / STEP == tx->head / STEP + BEFORE) {
			T_OK(shutdown(link, SHUT_RDWR));
			t_expect(ctl, 2);
		}
		put_record(c, pos);
	}
	t_tell(ctl, 3);
	t_expect(ctl, 4);
}

/* What is read after the peer hung up, which wrote on. */
static uint64_t heard_of_one_that_writes_on(bool leaves)
{
	static char buf[65536];
	uint64_t all = 0;
	struct t_peer p;
	ssize_t n;
	int s = t_pair_fork(&p, T_A, writes_on);

	t_settle(s, T_SHM);
	t_tell(p.ctl, 1);
	T_UNTIL(atomic_load(&exi_sock_find(s)->sh->gone));
	t_tell(p.ctl, 2);
	t_expect(p.ctl, 3);
	if (leaves)
		T_OK(exs_x_downgrade(s));
	t_tell(p.ctl, 4); /* closes, and TCP says the end */
	t_peer_join(&p);
	while ((n = t_recv(s, buf, sizeof(buf), 0)) > 0)
		all += (uint64_t)n;
	T(n == 0 || errno == ECONNRESET);
	t_close(s);
	return all;
}

static void what_a_gone_peer_writes_on_is_not_read(void)
{
	uint64_t all = heard_of_one_that_writes_on(false);

	T_MSG(all > 0 && all <= BEFORE * STEP, "%llu bytes",
	      (unsigned long long)all);
}

static void what_a_gone_peer_writes_on_is_not_gathered(void)
{
	uint64_t all = heard_of_one_that_writes_on(true);

	T_MSG(all > 0 && all <= BEFORE * STEP, "%llu bytes",
	      (unsigned long long)all);
}

#define MANY (8u << 20) /* more than a process is to hold of one peer */

static void fill_tcp(int s, size_t n, int flags)
{
	static const char bytes[65536];
	ssize_t ret = 1;

	for (; n && ret > 0; n -= (size_t)ret)
		ret = send(s, bytes, n < sizeof(bytes) ? n : sizeof(bytes),
			   flags | MSG_NOSIGNAL);
}

/* Says that much is on TCP before the ring, hangs up, and sends it. */
static void sends_without_end(int s, int ctl)
{
	struct exi_sock *sk;
	struct exi_half *tx;
	uint64_t rx_bytes, tx_bytes;
	int link;

	t_settle(s, T_SHM);
	t_expect(ctl, 1);
	T_OK(exs_x_downgrade(s));
	sk = exi_sock_find(s);
	tx = &sk->sh->half[EXI_TX];
	link = t_link_of(s);
	T(link >= 0);
	T_OK(sk->base->counts(sk, &rx_bytes, &tx_bytes));
	t_link_say(link, EXI_PAIR_SWITCH, tx->epoch + 1, tx_bytes + MANY,
		   shmp_shared(sk->fab)->tx.head);
	fill_tcp(s, MANY, MSG_DONTWAIT);
	T_OK(shutdown(link, SHUT_RDWR));
	t_tell(ctl, 2);
	fill_tcp(s, MANY, 0);
}

/* All of it comes, and nothing of what is behind it. */
static void what_a_gone_peer_sends_on_tcp_comes(void)
{
	static char buf[65536];
	size_t all = 0;
	struct t_peer p;
	ssize_t n;
	int s;

	setenv("EXS_RING_KB", "64", 1);
	s = t_pair_fork(&p, T_A, sends_without_end);
	t_settle(s, T_SHM);
	t_tell(p.ctl, 1);
	t_expect(p.ctl, 2);
	T_UNTIL(atomic_load(&exi_sock_find(s)->sh->gone));
	T_OK(exs_x_downgrade(s));
	while ((n = t_recv(s, buf, sizeof(buf), 0)) > 0)
		all += (size_t)n;
	T_MSG(n == 0, "%zd, %d", n, errno);
	t_close(s);
	t_peer_join(&p);
	T_MSG(all == MANY, "%zu bytes", all);
}

/* Reads nothing more, hangs up its link, and keeps its stream until it is told
 * to end. */
static void keeps_its_stream(int s, int ctl)
{
	int link;

	t_settle(s, T_SHM);
	t_expect(ctl, 1);
	link = t_link_of(s);
	T(link >= 0);
	T_OK(shutdown(link, SHUT_RDWR));
	t_expect(ctl, 2);
}

/* When the peer, whose link hung up, will count as gone. */
static uint64_t hung_up(int s)
{
	struct exi_sock *sk = exi_sock_find(s);
	uint64_t ret = 0;

	exi_lock(&sk->link_lock);
	if (sk->link)
		ret = sk->link->dying;
	exi_unlock(&sk->link_lock);
	return ret;
}

/* Met, with bytes that the peer left unread, and no link any more. */
static int left_by_one_that_keeps_its_stream(struct t_peer *p)
{
	int s;

	setenv("T_UNIX", "1", 1);
	s = t_pair_fork(p, T_A, keeps_its_stream);
	t_settle(s, T_SHM);
	T_EQ(t_send(s, "unread", 6, 0), 6);
	t_tell(p->ctl, 1);
	T_UNTIL(hung_up(s));
	return s;
}

/* Its stream has not ended, so the kernel would have a call wait; and then it
 * tells what was unread. False, without a check: the host was slow. */
static bool lasts_as_long_as_its_stream(void)
{
	exs_event_t early, e;
	ssize_t got, sent;
	struct t_peer p;
	uint64_t until;
	exs_qhandle_t q;
	int s, n, err;
	bool in_time;
	char c;

	s = left_by_one_that_keeps_its_stream(&p);
	until = hung_up(s);
	got = t_recv(s, &c, 1, MSG_DONTWAIT);
	err = errno;
	sent = t_send(s, "more", 4, MSG_DONTWAIT);
	q = T_OK(exs_qcreate(1));
	t_post_recv(s, &c, 1, 0, q, 1);
	n = exs_qdequeue(q, &early, 1, &(struct timeval){ 0 });
	t_tell(p.ctl, 2);
	t_peer_join(&p);
	e = n ? early : t_event(q);
	in_time = exi_now_ns() < until;
	T_OK(exs_qdelete(q));
	t_close(s);
	if (!in_time)
		return false;
	T_MSG(got == -1 && err == EAGAIN, "%zd, %d", got, err);
	T_EQ(sent, 4);
	T_EQ(n, 0);
	T_EQ(e.exs_errno, ECONNRESET);
	return true;
}

static void a_stream_whose_link_ended_lasts(void)
{
	int tries = 20;

	while (!lasts_as_long_as_its_stream())
		T(--tries);
}

static void a_stream_whose_link_ended_does_not_last_for_ever(void)
{
	struct t_peer p;
	char c;
	int s = left_by_one_that_keeps_its_stream(&p);

	T_UNTIL(t_recv(s, &c, 1, MSG_DONTWAIT) == 0);
	T_EQ(t_recv(s, &c, 1, 0), 0);
	T_EQ(t_send(s, "more", 4, 0), -1);
	T_EQ(errno, EPIPE);
	t_tell(p.ctl, 2);
	t_peer_join(&p);
	t_close(s);
}

/* --- a close that owes -------------------------------------------------- */

#define OWED (6u << 20) /* more than TCP has room for, and less than a ring */

/* Takes what comes on shared memory back to TCP, where it reads nothing, until
 * it is told to; or the connection is to be reset. */
static void reads_late(int s, int ctl)
{
	char c;
	ssize_t n;

	t_settle(s, T_SHM);
	t_expect(ctl, 1);
	T_OK(exs_x_downgrade(s));
	t_tell(ctl, 2);
	if (t_ask(ctl)) {
		t_recv_stream(s, 9, 0, OWED, 65536);
		t_recv_end(s);
		return;
	}
	while ((n = t_recv(s, &c, 1, 0)) > 0)
		;
	T(n < 0 && errno == ECONNRESET);
}

/* How long the close took, in ms. */
static int64_t close_with_linger(struct linger l, bool arrives)
{
	int64_t start;
	struct t_peer p;
	int s;

	setenv("EXS_RING_KB", "8192", 1);
	t_become_nobody(); /* root's buffers have room for all */
	s = t_pair_fork(&p, T_A, reads_late);
	T_OK(setsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
	t_settle(s, T_SHM);
	t_send_stream(s, 9, 0, OWED, 65536);
	t_tell(p.ctl, 1);
	t_expect(p.ctl, 2);
	start = t_now_ns();
	t_close(s);
	start = t_now_ns() - start;
	t_tell(p.ctl, arrives);
	t_peer_join(&p);
	t_no_children();
	return start / 1000000;
}

static void a_close_does_not_wait_for_a_peer_that_does_not_read(void)
{
	int64_t ms = close_with_linger((struct linger){ 0 }, true);

	T_MSG(ms < 1000 * t_slow(), "%lld ms", (long long)ms);
}

static void a_close_lingers_as_long_as_it_was_told(void)
{
	int64_t ms = close_with_linger((struct linger){ 1, 1 }, true);

	T_MSG(ms >= 990 && ms < 2000 * t_slow(), "%lld ms", (long long)ms);
}

static void a_close_with_no_time_to_linger_resets(void)
{
	int64_t ms = close_with_linger((struct linger){ 1, 0 }, false);

	T_MSG(ms < 1000 * t_slow(), "%lld ms", (long long)ms);
}

/* --- calls that never wait on TCP ----------------------------------------- */

/* Met, and silent from there on. */
static void falls_silent(int s, int ctl)
{
	t_settle(s, T_SHM);
	t_tell(ctl, 1);
	raise(SIGSTOP);
}

/* Met, but never said GO, so that nothing is on a ring. */
static void says_no_go(int s, int ctl)
{
	struct exi_sock *sk = exi_sock_find(s);

	atomic_store(&sk->sh->hold_here, 1);
	t_tell(ctl, 1);
	t_expect(ctl, 2);
	t_recv_stream(s, 1, 0, 5000, 5000);
	t_send_stream(s, 2, 0, 5000, 5000);
	T_UNTIL(sk->fab && sk->fab->bell >= 0);
	t_tell(ctl, 3);
	raise(SIGSTOP);
	t_recv_stream(s, 3, 0, 5000, 5000);
	t_recv_end(s);
}

static void await_stop(pid_t pid)
{
	siginfo_t info;

	T_OK(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOWAIT));
}

static bool is_up(int s)
{
	struct exi_sock *sk = exi_sock_find(s);
	bool ret;

	exi_lock(&sk->link_lock);
	ret = sk->link && sk->link->state == EXI_LINK_UP;
	exi_unlock(&sk->link_lock);
	return ret;
}

/* A connection whose peer is stopped, and was not ready to move anything. */
static int with_no_go(struct t_peer *p)
{
	int s = t_pair_fork(p, T_A, says_no_go);

	t_expect(p->ctl, 1);
	t_tell(p->ctl, 2);
	t_send_stream(s, 1, 0, 5000, 5000);
	t_recv_stream(s, 2, 0, 5000, 5000);
	t_expect(p->ctl, 3);
	T_UNTIL(is_up(s));
	await_stop(p->pid);
	return s;
}

static void goes_on(int s, struct t_peer *p)
{
	T_OK(kill(p->pid, SIGCONT));
	t_send_stream(s, 3, 0, 5000, 5000);
	t_close(s);
	t_peer_join(p);
}

static int set_option(int s, int name)
{
	return exs_setsockopt(s, SOL_SOCKET, name, &(int){ 1 }, sizeof(int));
}

#define AT_MOST_MS (1900 * t_slow())

/* Their results are those of TCP, and so is what follows. */
static void on_tcp_they_go_on(void)
{
	int64_t start;
	struct t_peer p;
	int s = with_no_go(&p);

	start = t_now_ns();
	T_EQ(t_send(s, "!", 1, MSG_OOB), 1);
	T((t_now_ns() - start) / 1000000 < AT_MOST_MS);
	goes_on(s, &p);
	s = with_no_go(&p);
	start = t_now_ns();
	T_OK(set_option(s, SO_TIMESTAMP));
	T((t_now_ns() - start) / 1000000 < AT_MOST_MS);
	goes_on(s, &p);
}

/* What lies in the ring would be missing. */
static void from_the_ring_they_reset(void)
{
	static const int options[] = { SO_TIMESTAMP, SO_ZEROCOPY, SO_PEEK_OFF };
	unsigned int i;

	for (i = 0; i < T_COUNT(options) + 1; i++) {
		int64_t start;
		struct t_peer p;
		int s = t_pair_fork(&p, T_A, falls_silent);

		t_settle(s, T_SHM);
		t_expect(p.ctl, 1);
		await_stop(p.pid);
		start = t_now_ns();
		if (i < T_COUNT(options))
			T_OK(set_option(s, options[i]));
		else
			T_ERR(t_send(s, "!", 1, MSG_OOB | MSG_NOSIGNAL),
			      ECONNRESET);
		T((t_now_ns() - start) / 1000000 < AT_MOST_MS);
		if (i < T_COUNT(options))
			T_ERR(t_recv(s, &(char){ 0 }, 1, 0), ECONNRESET);
		t_close(s);
		t_peer_kill(&p);
	}
}

/* --- what has the place of a connection that was waited for -------------- */

/* A connects when it is told. */
static void comes_late(int ctl, void *arg)
{
	struct t_addr at;
	int s;

	t_init();
	at = t_loopback(T_IPV4, (int)t_ask(ctl));
	s = t_connect(&at);
	t_tell(ctl, 1);
	t_settle(s, T_SHM);
	if (arg)
		raise(SIGSTOP);
	t_recv_stream(s, 3, 0, 5000, 5000);
	t_close(s);
}

static void *downgrades(void *arg)
{
	int *s = arg;

	*s = exs_x_downgrade(*s) ? errno : 0;
	return NULL;
}

/* A thread waits for a silent peer; another one closes that connection, and
 * accepts one that gets its number and its place. What the waiting thread does
 * after it is of the connection that it waited for. */
static void what_comes_after_it_is_not_touched(void)
{
	struct t_peer silent, late;
	uint32_t generation;
	struct exi_sock *sk;
	struct t_addr at;
	int l, s, waited;
	pthread_t t;

	t_peer_start(&silent, comes_late, &silent);
	t_peer_start(&late, comes_late, NULL);
	t_init();
	l = t_listener(T_IPV4, &at);
	t_tell(silent.ctl, (uint64_t)t_port_of(l));
	waited = s = t_accept(l);
	t_settle(s, T_SHM);
	t_expect(silent.ctl, 1);
	await_stop(silent.pid);
	sk = exi_sock_find(s);
	generation = sk->generation;
	t = t_thread(downgrades, &waited);
	T_UNTIL(atomic_load(&sk->sh->down_wait));
	t_tell(late.ctl, (uint64_t)t_port_of(l));
	t_expect(late.ctl, 1);
	t_close(s);
	T_EQ(t_accept(l), s);
	T(exi_sock_find(s) == sk);
	t_settle(s, T_SHM);
	t_thread_join(t);
	T_EQ(waited, EBADF);
	T(exi_link_part(sk, generation));
	exi_link_unanswered(sk, generation);
	exi_link_over(sk, generation);
	T(t_is(s, T_SHM));
	t_send_stream(s, 3, 0, 5000, 5000);
	t_close(s);
	t_peer_join(&late);
	t_peer_kill(&silent);
	t_close(l);
}

/* --- a process that hears late -------------------------------------------- */

#define LEFT 3000

/* Leaves bytes unread and closes when any process tells it to. */
static void leaves_bytes(int s, int ctl)
{
	t_settle(s, T_SHM);
	t_send_stream(s, 1, 0, LEFT, LEFT);
	t_tell(ctl, 1);
	t_expect(ctl, 2);
	t_close(s);
	t_tell(ctl, 3);
}

static void *lets_the_parent_hear(void *arg)
{
	t_until_asleep(getpid());
	T_OK(kill(getppid(), SIGCONT));
	return arg;
}

/* Begins the way to TCP while its parent, whose service watches the link, has
 * not heard yet that the peer has closed. */
static void goes_to_tcp(int s, int ctl)
{
	pthread_t t;

	t_until_served(getppid());
	T_OK(kill(getppid(), SIGSTOP));
	t_until_all(getppid(), 'T');
	t_tell(ctl, 2);
	t_expect(ctl, 3);
	t = t_thread(lets_the_parent_hear, NULL);
	T_OK(set_option(s, SO_PEEK_OFF));
	t_thread_join(t);
	exit(0);
}

static void what_a_gone_peer_left_outlives_a_child_that_heard_late(void)
{
	struct t_peer p;
	int s = t_pair_fork(&p, T_B, leaves_bytes), go[2];
	char byte = 0;
	pid_t pid;

	t_settle(s, T_SHM);
	t_expect(p.ctl, 1);
	T_OK(pipe(go));
	pid = t_fork();
	if (pid == 0) {
		T_EQ(read(go[0], &byte, 1), 1);
		goes_to_tcp(s, p.ctl);
	}
	T_EQ(write(go[1], &byte, 1), 1);
	t_join(pid);
	t_recv_stream(s, 1, 0, LEFT, LEFT);
	t_recv_end(s);
	t_close(s);
	t_peer_join(&p);
	close(go[0]);
	close(go[1]);
}

/* --- peers that come back ------------------------------------------------- */

struct visitor {
	uid_t uid;
	bool accepts;
	int times;
};

static void become(uid_t uid)
{
	T_OK(setgroups(0, NULL));
	T_OK(setresgid(uid, uid, uid));
	T_OK(setresuid(uid, uid, uid));
}

/* One connection after the other, and silence on each. */
static void visit(int ctl, void *arg)
{
	const struct visitor *v = arg;
	struct t_addr at;
	int l = -1, i;

	become(v->uid);
	t_init();
	if (v->accepts) {
		l = t_listener(T_IPV4, &at);
		t_tell(ctl, (uint64_t)t_port_of(l));
	} else {
		at = t_loopback(T_IPV4, (int)t_ask(ctl));
	}
	for (i = 0; i < v->times; i++) {
		int s = v->accepts ? t_accept(l) : t_connect(&at);

		t_settle_anywhere(s, false);
		t_tell(ctl, 1);
		raise(SIGSTOP);
		t_close(s);
	}
}

struct cost {
	int reason;
	int64_t ms; /* of a call for which it must go to TCP */
};

static struct cost receive(struct t_peer *p, int s)
{
	struct cost ret;
	int64_t start;

	t_settle_anywhere(s, true);
	t_expect(p->ctl, 1);
	await_stop(p->pid);
	ret.reason = t_info(s).exs_x_reason;
	start = t_now_ns();
	T_OK(set_option(s, SO_TIMESTAMP));
	ret.ms = (t_now_ns() - start) / 1000000;
	t_close(s);
	T_OK(kill(p->pid, SIGCONT));
	return ret;
}

#define SOON_MS (500 * t_slow())

/* Whichever end they are; another user's are met as ever. */
static void who_was_silent_is_not_met_for_a_while(void)
{
	struct visitor a = { 1, false, 2 }, b = { 1, true, 1 },
		       c = { 2, false, 1 };
	struct t_peer p, q, r;
	struct t_addr at;
	struct cost cost;
	int l;

	t_need_root("become other users");
	t_peer_start(&p, visit, &a);
	t_peer_start(&q, visit, &b);
	t_peer_start(&r, visit, &c);
	t_init();
	l = t_listener(T_IPV4, &at);
	t_tell(p.ctl, (uint64_t)t_port_of(l));
	cost = receive(&p, t_accept(l));
	T(cost.reason == EXS_X_REASON_NONE && cost.ms < AT_MOST_MS);
	T(cost.ms >= 900);
	cost = receive(&p, t_accept(l));
	T_EQ(cost.reason, EXS_X_REASON_TIMEOUT);
	T(cost.ms < SOON_MS);
	at = t_loopback(T_IPV4, (int)t_ask(q.ctl));
	cost = receive(&q, t_connect(&at));
	T_EQ(cost.reason, EXS_X_REASON_TIMEOUT);
	T(cost.ms < SOON_MS);
	t_tell(r.ctl, (uint64_t)t_port_of(l));
	cost = receive(&r, t_accept(l));
	T_EQ(cost.reason, EXS_X_REASON_NONE);
	t_peer_join(&p);
	t_peer_join(&q);
	t_peer_join(&r);
	t_close(l);
}

/* --- a peer that takes its direction back, and reads nothing ------------ */

#define ROUNDS 60

static void goes_up_and_down(int s, int ctl)
{
	int i;

	t_settle(s, T_SHM);
	for (i = 0; i < ROUNDS; i++) {
		t_expect(ctl, 1);
		T_OK(exs_x_downgrade(s));
		T_OK(exs_x_adopt(s));
		t_tell(ctl, 2);
	}
}

/* What TCP holds when nothing more is taken, after half of the rounds and
 * all. */
static void what_a_peer_takes_back_does_not_pile_up_on_tcp(void)
{
	static char buf[65536];
	int i, s, queued, half = 0;
	struct t_peer p;

	setenv("EXS_RING_KB", "256", 1);
	s = t_pair_fork(&p, T_A, goes_up_and_down);
	t_settle(s, T_SHM);
	for (i = 0; i < ROUNDS; i++) {
		while (t_send(s, buf, sizeof(buf), MSG_DONTWAIT) > 0)
			;
		T(errno == EAGAIN);
		t_tell(p.ctl, 1);
		t_expect(p.ctl, 2);
		T_OK(ioctl(s, SIOCOUTQ, &queued));
		half = i < ROUNDS / 2 ? queued : half;
	}
	t_peer_join(&p);
	t_close(s);
	T_MSG(half && queued < half + (2 << 20), "%d bytes, then %d", half,
	      queued);
}

/* --- who waits at a name that goes ---------------------------------------- */

/* A name of s, which waits there for its peer. The service does not look. */
static struct sockaddr_un listen_as(int s, socklen_t *ret_len)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	struct exi_sock *sk = exi_sock_find(s);
	int fd = T_OK(socket(AF_UNIX,
			     SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

	T_OK(bind(fd, (struct sockaddr *)&name, sizeof(name.sun_family)));
	T_OK(listen(fd, EXI_LINK_CANDIDATES));
	*ret_len = sizeof(name);
	T_OK(getsockname(fd, (struct sockaddr *)&name, ret_len));
	exi_lock(&sk->link_lock);
	T(!sk->link);
	sk->link = exi_meet_link_new(sk, EXI_LINK_LISTEN, EXI_MEET_STEP_NS,
				     exi_begin_expired);
	T(sk->link);
	sk->link->listener = fd;
	exi_unlock(&sk->link_lock);
	return name;
}

/* As many as the kernel lets in. */
static void all_who_wait_at_a_name_are_told_that_it_goes(void)
{
	struct exi_pair_msg m;
	struct sockaddr_un name;
	int c[2 * EXI_LINK_CANDIDATES], n = 0, l, s;
	struct exi_sock *sk;
	struct t_addr at;
	socklen_t len;

	setenv("EXS_UPGRADE", "never", 1);
	t_init();
	l = t_plain_listener(&at);
	s = t_connect(&at);
	sk = exi_sock_find(s);
	name = listen_as(s, &len);
	for (;; n++) {
		T(n < (int)T_COUNT(c));
		c[n] = T_OK(socket(
			AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
			0));
		if (connect(c[n], (struct sockaddr *)&name, len))
			break;
	}
	T_EQ(errno, EAGAIN);
	T(n >= EXI_LINK_CANDIDATES);
	close(c[n]);
	exi_link_over(sk, sk->generation);
	while (n--) {
		T_EQ(recv(c[n], &m, sizeof(m), 0), sizeof(m));
		T_EQ(m.type, EXI_PAIR_NO);
		T_EQ(m.a, EXS_X_REASON_PEER_REQUEST);
		T_EQ(recv(c[n], &m, sizeof(m), 0), 0);
		close(c[n]);
	}
	t_close(s);
	close(l);
}

static const struct t_row rows[] = {
	T_ROW(a_close_does_not_wait_for_a_peer_that_does_not_read),
	T_ROW(a_close_lingers_as_long_as_it_was_told),
	T_ROW(a_close_with_no_time_to_linger_resets),
	T_ROW(what_a_peer_takes_back_does_not_pile_up_on_tcp),
	T_ROW(what_a_gone_peer_writes_on_is_not_read),
	T_ROW(what_a_gone_peer_writes_on_is_not_gathered),
	T_ROW(what_a_gone_peer_sends_on_tcp_comes),
	T_ROW(a_stream_whose_link_ended_lasts),
	T_ROW(a_stream_whose_link_ended_does_not_last_for_ever),
	T_ROW(on_tcp_they_go_on),
	T_ROW(from_the_ring_they_reset),
	T_ROW(what_a_gone_peer_left_outlives_a_child_that_heard_late),
	T_ROW(what_comes_after_it_is_not_touched),
	T_ROW(who_was_silent_is_not_met_for_a_while),
	T_ROW(all_who_wait_at_a_name_are_told_that_it_goes),
};

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	setenv("EXS_PROVIDER", "shm,tcp", 1);
	/* Each silence is worth a warning: not here. */
	setenv("EXS_LOG", "off", 0);
	return t_run("silent", rows, T_COUNT(rows), argc > 1 ? argv[1] : NULL);
}
