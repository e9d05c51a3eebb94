/* SPDX-License-Identifier: BSD-2-Clause */
/* One of two processes is killed, stopped or held up at a point of the library
 * (points.h): at each in turn, at either end. The other one ends soon; what it
 * received is the beginning of what was sent, nothing lost or repeated in it.
 * Of a process that is only held up no byte is missing. No name and no process
 * is left, and the next server has the port. The end that connects closes its
 * connection, or passes it to another program, which goes on by plain calls.
 *
 * crash FABRIC [--part K/N] [--times N] [--sample] [--exec] [POINT]: the K-th
 * of N parts of the trials, from 0; a point strikes when it is passed for the
 * N-th time at the latest; each point once at each end: one of three kills, one
 * stops and one holds up; only the points before exec. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/life/plain.h"
#include "core/link/control.h"
#include "core/meet/latent.h"
#include "tests/fault/points.h"
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/talk.h"
#include "tests/support/wait.h"

#define MOST_POINTS 8192
#define TRIES	    4
/* All of its calls, of which it makes few, and its end. */
#define END_MS	    6000
#define FAR_END_MS  50000
#define PATIENCE_US 200000 /* with a stopped peer */
/* Between hosts they meet, and end, more slowly than that; and who lost
 * patience before the strike is never struck. */
#define FAR_PATIENCE_S 3

static const char *const strikes[] = { "killed", "stopped", "held up" };

static struct t_want want; /* where a connection is at its best */
static enum t_strike how;
static bool strikes_now;
static bool far;   /* the fabric is one between hosts */
static bool execs; /* A passes its connection to another program */
static int port;   /* of all servers; 0: any */
static int holder; /* a socket of that port */
static int64_t longest, longest_no_cpu, stood_still;

/* --- how long calls take ------------------------------------------------- */

/* A call of the process that is left takes a second at most from the strike on;
 * between hosts fifteen, and a close then waits five for what it sent:
 * exs_x_adopt(3), exs_close(3). The kernel has some time to end what was
 * killed. What the caller waited for a CPU does not count. What other threads
 * waited for one does, so a trial in which a call takes longer is made again: a
 * busy host is late once, the library each time. */
#define SPARE_MS 200

static struct {
	const char *begins; /* with these letters */
	int ms, far_ms;
	int64_t longest;
} kinds[] = {
	{ "close", 1000, 20000 },
	{ "exs_x_adopt", 1000, 15000 },
	{ "exs_x_downgrade", 1000, 15000 },
	{ "exi_go_plain", 1000, 15000 },
	{ "fork", 1000, 15000 },
	{ "send", 1000, 15000 },
	{ "recv", 1000, 15000 },
	{ "", 1000, 15000 },
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* The longest call of each kind in a trial, which its processes share. */
static struct {
	_Atomic int64_t ns;
	_Atomic int64_t no_cpu; /* not in ns */
	const char *_Atomic name;
} * worst;

static size_t kind_of(const char *name)
{
	size_t i = 0;

	while (strncmp(name, kinds[i].begins, strlen(kinds[i].begins)) != 0)
		i++;
	return i;
}

/* How long this thread could run and had no CPU, since it last asked. */
static int64_t had_no_cpu(void)
{
	static _Thread_local int64_t before;
	static _Thread_local pid_t whose;
	FILE *f = fopen("/proc/thread-self/schedstat", "re");
	int64_t ran, waited, n;

	/* A child, to which fork() returns, too, has an account of its own. */
	if (whose != gettid())
		before = 0;
	whose = gettid();
	waited = before;
	if (!f)
		return 0;
	if (fscanf(f, "%" SCNd64 " %" SCNd64, &ran, &waited) != 2)
		waited = before;
	fclose(f);
	n = waited - before;
	before = waited;
	return n;
}

static void count_call(int64_t began, const char *name)
{
	int64_t struck = t_points_struck_at();
	int64_t ns = t_now_ns() - (began > struck ? began : struck);
	int64_t no_cpu = had_no_cpu();
	size_t i = kind_of(name);

	/* A busy host is not the library. */
	ns -= no_cpu;
	if (struck && ns > worst[i].ns) {
		worst[i].ns = ns;
		worst[i].no_cpu = no_cpu;
		worst[i].name = name;
	}
}

#define TIMED(call)                                                            \
	({                                                                     \
		int64_t began_ = t_now_ns();                                   \
		__auto_type ret_ = (call);                                     \
		count_call(began_, #call);                                     \
		ret_;                                                          \
	})

/* --- the two ends -------------------------------------------------------- */

/* Of a connection whose other end may have been struck. */
static void may_end(const struct t_talk *t, ssize_t n, const char *call)
{
	/* Calls with a time-out end when a stopped process goes on, as the
	 * kernel's do: signal(7). */
	static const int gone[] = { ECONNRESET, EPIPE, ENOTCONN, 0 };
	static const int late[] = { EAGAIN, EINTR, 0 };

	T_MSG(strikes_now && how != T_DELAY, "%s gave %zd (%s); %s", call, n,
	      n ? t_errname(errno) : "the end",
	      t->plain ? "another program" : t_where(t->s));
	T_MSG(n == 0 || t_one_of(errno, gone) ||
		      (how == T_STOP && t_one_of(errno, late)),
	      "%s says %s", call, t_errname(errno));
}

static void swap_until_there(struct t_talk *e)
{
	struct t_deadline d = t_deadline_ms(20000);

	do {
		T_MSG(t_tick(&d), "never there: %s", t_where(e->s));
		t_talk_swap(e, 500);
	} while (!e->lost && !t_is(e->s, want));
}

static void by_queue(struct t_talk *e)
{
	exs_qhandle_t q = T_OK(exs_qcreate(1));
	char out[1000];
	exs_event_t ev;

	t_fill(out, sizeof(out), 1, e->sent);
	if (TIMED(exs_send(e->s, out, sizeof(out), MSG_NOSIGNAL, q, NULL, 0))) {
		t_talk_ended(e, -1, "a submission");
	} else {
		ev = TIMED(t_event(q));
		errno = ev.exs_errno;
		if (errno)
			t_talk_ended(e, -1, "an operation");
		else
			e->sent += sizeof(out);
	}
	T_OK(TIMED(exs_qdelete(q)));
	if (!e->lost)
		t_talk_get_all(e, 2, sizeof(out));
}

/* A child that has the connection, too, and goes, one of them to a program. */
static void fork_some(bool program)
{
	pid_t pid = T_OK(TIMED(fork()));

	if (!pid) {
		if (program)
			execl("/bin/true", "true", NULL);
		_exit(0);
	}
}

static void hurry(int s)
{
	struct timeval tv = { .tv_usec = PATIENCE_US };

	if (!strikes_now || how != T_STOP)
		return;
	if (far)
		tv = (struct timeval){ .tv_sec = FAR_PATIENCE_S * t_slow() };
	T_OK(exs_setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	T_OK(exs_setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)));
}

static void finish(struct t_talk *e, uint64_t seed)
{
	int64_t began;
	ssize_t n;

	if (!e->lost && TIMED(t_shutdown(e->s, SHUT_WR)))
		t_talk_ended(e, -1, "shutdown");
	while (!e->lost && (n = t_talk_get(e, seed, 1000)) <= 0) {
		if (n < 0)
			t_talk_ended(e, n, "recv");
		break;
	}
	began = t_now_ns();
	t_close(e->s);
	count_call(began, "close");
}

/* As the shim's execve() does. The program is this one, too: after(). */
static void exec_with(const struct t_talk *e, int ctl)
{
	char s[16], line[16], sent[24], received[24], as[16];
	int ret;

	t_points_of(T_SIDE_A);
	exi_latent_promote_all();
	ret = TIMED(exi_go_plain(e->s, EXS_X_REASON_EXEC, NULL));
	T_MSG(!ret || (strikes_now && how != T_DELAY), "going plain says %s",
	      t_errname(-ret));
	exi_link_before_exec();
	T_OK(fcntl(e->s, F_SETFD, 0));
	T_OK(fcntl(ctl, F_SETFD, 0));
	snprintf(s, sizeof(s), "%d", e->s);
	snprintf(line, sizeof(line), "%d", ctl);
	snprintf(sent, sizeof(sent), "%" PRIu64, e->sent);
	snprintf(received, sizeof(received), "%" PRIu64, e->received);
	snprintf(as, sizeof(as), "%d", strikes_now ? (int)how : T_STRIKES);
	execl("/proc/self/exe", "crash", "--after", s, line, sent, received, as,
	      NULL);
	T_OK(-1);
}

static int after(char **argv)
{
	struct timeval tv = { .tv_usec = PATIENCE_US };
	struct t_talk e = {
		.s = atoi(argv[0]),
		.plain = true,
		.sent = strtoull(argv[2], NULL, 10),
		.received = strtoull(argv[3], NULL, 10),
		.may_end = may_end,
	};
	int ctl = atoi(argv[1]);
	ssize_t n = 0;

	how = (enum t_strike)atoi(argv[4]);
	strikes_now = how != T_STRIKES;
	signal(SIGPIPE, SIG_IGN);
	if (how == T_STOP)
		T_OK(setsockopt(e.s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	t_talk_swap(&e, 2000);
	if (!e.lost && shutdown(e.s, SHUT_WR))
		t_talk_ended(&e, -1, "shutdown");
	while (!e.lost && (n = t_talk_get(&e, 2, 1000)) > 0)
		;
	if (n < 0)
		t_talk_ended(&e, n, "recv");
	close(e.s);
	t_tell(ctl, e.sent);
	t_tell(ctl, e.received);
	return 0;
}

static void run_a(int ctl, void *arg)
{
	struct t_addr to = t_loopback(T_IPV4, (int)t_ask(ctl));
	struct t_talk e = { .may_end = may_end, .called = count_call };

	if (!execs)
		t_points_of(T_SIDE_A);
	t_init();
	e.s = T_OK(exs_socket(to.domain, SOCK_STREAM | SOCK_CLOEXEC, 0));
	hurry(e.s);
	if (TIMED(exs_connect(e.s, (struct sockaddr *)&to.ss, to.len, 0,
			      T_SYNC))) {
		T_MSG(strikes_now &&
			      (errno == ECONNREFUSED || errno == ECONNRESET),
		      "connect says %s", t_errname(errno));
		return;
	}
	swap_until_there(&e);
	t_talk_swap(&e, 4000);
	if (!e.lost)
		t_talk_loan(&e);
	if (!e.lost)
		by_queue(&e);
	t_talk_put(&e, 1, 3000);
	(void)TIMED(exs_x_downgrade(e.s));
	t_talk_get_all(&e, 2, 3000);
	t_talk_swap(&e, 500);
	(void)TIMED(exs_x_adopt(e.s));
	swap_until_there(&e);
	if (!e.lost)
		fork_some(false);
	t_talk_swap(&e, 500);
	if (!e.lost)
		fork_some(true);
	t_talk_swap(&e, 500);
	if (execs && !e.lost)
		exec_with(&e, ctl);
	finish(&e, 2);
	t_tell(ctl, e.sent);
	t_tell(ctl, e.received);
}

/* As servers do that want to be restarted. */
static int serve(void)
{
	struct t_addr at = t_loopback(T_IPV4, port);
	int l = T_OK(exs_socket(at.domain, SOCK_STREAM | SOCK_CLOEXEC, 0));
	int on = 1;

	T_OK(exs_setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
	T_UNTIL(exs_bind(l, (struct sockaddr *)&at.ss, at.len) == 0 ||
		errno != EADDRINUSE);
	T_OK(exs_listen(l, 5));
	T(t_port_of(l) && (!port || t_port_of(l) == port));
	return l;
}

/* Sends back what comes. The client may be struck before it connects: then the
 * line says so. */
static void run_b(int ctl, void *arg)
{
	struct pollfd p[2] = { { .events = POLLIN },
			       { .fd = ctl, .events = POLLIN } };
	struct t_talk e = { .may_end = may_end, .called = count_call };
	ssize_t n;

	t_points_of(T_SIDE_B);
	t_init();
	p[0].fd = serve();
	t_tell(ctl, (uint64_t)t_port_of(p[0].fd));
	T_OK(poll(p, 2, -1));
	if (!p[0].revents)
		return;
	e.s = t_accept(p[0].fd);
	hurry(e.s);
	n = t_talk_answer(&e);
	if (n < 0)
		t_talk_ended(&e, n, "recv");
	finish(&e, 1);
	t_close(p[0].fd);
	t_tell(ctl, e.sent);
	t_tell(ctl, e.received);
}

/* --- a trial ------------------------------------------------------------- */

enum state {
	RUNS,
	IS_STOPPED,
	IS_KILLED,
	HAS_ENDED
};

struct side {
	struct t_peer p;
	enum state state;
	bool failed; /* it said why */
};

static void look(struct side *s)
{
	int status;

	if (s->state == IS_KILLED || s->state == HAS_ENDED ||
	    T_OK(waitpid(s->p.pid, &status, WNOHANG | WUNTRACED)) == 0)
		return;
	if (WIFSTOPPED(status)) {
		s->state = IS_STOPPED;
		return;
	}
	if (WIFSIGNALED(status)) {
		T_EQ(WTERMSIG(status), SIGKILL);
		s->state = IS_KILLED;
		return;
	}
	s->failed = WEXITSTATUS(status) != 0;
	s->state = HAS_ENDED;
}

/* Of the time between two looks, what counts: while the machine stands still,
 * nobody ends. */
#define TURN_NS 100000000

/* After as much of that, a call that was late and a process that failed say
 * nothing: clocks went on, and what takes milliseconds was called off. */
#define STILL_NS 500000000

static int64_t looked; /* when, last */

/* Between two looks; the time that counts. */
static int64_t turn(void)
{
	int64_t was = looked, ns;

	poll(NULL, 0, 1);
	looked = t_now_ns();
	ns = looked - was;
	if (ns > stood_still)
		stood_still = ns;
	return ns < TURN_NS ? ns : TURN_NS;
}

/* Until neither runs; of one that was struck: in time. */
static void watch(struct side sides[T_SIDES], enum t_side struck)
{
	struct side *a = &sides[T_SIDE_A], *b = &sides[T_SIDE_B];
	int64_t since = 0, ran = 0, most;
	bool told = false;

	while (a->state == RUNS || b->state == RUNS) {
		ran += turn();
		look(a);
		look(b);
		most = since ? since + (far ? FAR_END_MS : END_MS) * 1000000ll
			     : (far ? 90000 : 30000) * 1000000ll;
		if ((a->state == RUNS || b->state == RUNS) &&
		    ran > most * t_slow()) {
			t_stuck(a->state == RUNS ? a->p.pid : b->p.pid);
			t_fail(__FILE__, __LINE__, "%s does not end",
			       a->state == RUNS ? "A" : "B");
		}
		if (!since && (sides[struck].state == IS_KILLED ||
			       sides[struck].state == IS_STOPPED))
			since = ran;
		/* There is nobody to accept, perhaps. */
		if (a->state != RUNS && !told)
			told = !shutdown(b->p.ctl, SHUT_WR);
	}
	if (since && ran - since > longest)
		longest = ran - since;
}

/* A's port, or 0: B was struck before it had one. */
static int port_of(struct side *b)
{
	int64_t ran = 0;
	uint64_t word;

	while (!t_readable(b->p.ctl, 0)) {
		ran += turn();
		look(b);
		if (b->state != RUNS && !t_readable(b->p.ctl, 0))
			return 0;
		T_MSG(ran < 30000000000 * t_slow(), "B has no port");
	}
	return recv(b->p.ctl, &word, sizeof(word), 0) == sizeof(word)
		       ? (int)word
		       : 0;
}

static uint64_t ask_left(struct side *s)
{
	T(t_readable(s->p.ctl, 0));
	return t_ask(s->p.ctl);
}

/* Whether no process failed. */
static bool end_trial(struct side sides[T_SIDES])
{
	uint64_t n[T_SIDES][2];
	bool failed;

	for (int i = 0; i < T_SIDES; i++)
		if (sides[i].state == IS_STOPPED) {
			sides[i].state = RUNS;
			T_OK(kill(sides[i].p.pid, SIGCONT));
		}
	/* Who was stopped goes on, and finds nobody. */
	watch(sides, T_SIDE_A);
	failed = sides[T_SIDE_A].failed || sides[T_SIDE_B].failed;
	if ((how == T_DELAY || !strikes_now) && !failed) {
		for (int i = 0; i < T_SIDES; i++) {
			T_EQ(sides[i].state, HAS_ENDED);
			n[i][0] = ask_left(&sides[i]);
			n[i][1] = ask_left(&sides[i]);
		}
		T_EQ(n[0][0], n[1][1]);
		T_EQ(n[1][0], n[0][1]);
	}
	for (int i = 0; i < T_SIDES; i++)
		close(sides[i].p.ctl);
	return !failed;
}

/* Of the port of the first server, which all others have, too: a socket that is
 * bound and does not listen. Between two servers the kernel gives the port to
 * no client of the host, and a server binds beside it. */
static void hold(int at)
{
	struct t_addr a = t_loopback(T_IPV4, at);
	int on = 1;

	port = at;
	if (a.domain == AF_UNIX)
		return;
	holder = T_OK(socket(a.domain, SOCK_STREAM | SOCK_CLOEXEC, 0));
	T_OK(setsockopt(holder, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
	T_UNTIL(bind(holder, (struct sockaddr *)&a.ss, a.len) == 0);
}

static bool trial(enum t_side struck)
{
	struct side sides[T_SIDES] = { 0 };
	bool ret;
	int at;

	looked = t_now_ns();
	t_peer_start(&sides[T_SIDE_B].p, run_b, NULL);
	t_peer_start(&sides[T_SIDE_A].p, run_a, NULL);
	at = port_of(&sides[T_SIDE_B]);
	if (at)
		t_tell(sides[T_SIDE_A].p.ctl, (uint64_t)at);
	else
		T_OK(kill(sides[T_SIDE_A].p.pid, SIGKILL));
	watch(sides, struck);
	ret = end_trial(sides);
	if (at && !port)
		hold(at);
	T_UNTIL(t_names_of(port) == 0);
	/* A child that runs late would pass points of the next trial. */
	T_UNTIL(waitpid(-1, NULL, WNOHANG) < 0);
	return ret;
}

/* --- the matrix ---------------------------------------------------------- */

static struct {
	const char *fabric, *only;
	unsigned int part, parts, times;
	bool sample, only_exec;
	unsigned int trials, struck, late;
} run = { .parts = 1, .times = 4 };

static uint32_t hash(const char *point, unsigned int rest)
{
	uint32_t h = 2166136261u; /* FNV-1a */

	for (; *point; point++)
		h = (h ^ (unsigned char)*point) * 16777619u;
	h = (h ^ rest) * 16777619u;
	return h ^ h >> 16;
}

/* A trial is in the same part whenever it is made, whatever others there are:
 * how often a point is passed differs from run to run. */
static bool is_in_part(enum t_side side, const char *point, unsigned int n)
{
	return hash(point, n << 4 | (unsigned int)execs << 3 |
				   (unsigned int)side << 2 |
				   (unsigned int)how) %
		       run.parts ==
	       run.part;
}

/* How a sample strikes at a point. */
static enum t_strike sampled(enum t_side side, const char *point, bool may_stop)
{
	uint32_t h = hash(point, (unsigned int)execs << 1 | (unsigned int)side);

	return h % T_STRIKES == T_STOP && !may_stop ? T_KILL : h % T_STRIKES;
}

static int by_address(const void *a, const void *b)
{
	const struct t_point *p = a, *q = b;

	return p->at < q->at ? -1 : p->at > q->at;
}

/* Whether all calls of the other side took no longer than they may. What was
 * late is told: nothing else is known of a call that is late once. */
static bool in_time(const char *what)
{
	bool ret = true;

	for (size_t i = 0; i < KINDS; i++) {
		int64_t ms = worst[i].ns / 1000000;
		int most = far ? kinds[i].far_ms : kinds[i].ms;

		if (ms > most + SPARE_MS * t_slow()) {
			printf("late: %s: %s took %lld ms, of %d; it had no "
			       "CPU for %lld, and the test none for %lld\n",
			       what, worst[i].name, (long long)ms, most,
			       (long long)worst[i].no_cpu / 1000000,
			       (long long)stood_still / 1000000);
			ret = false;
			continue;
		}
		if (ms > kinds[i].longest)
			kinds[i].longest = ms;
		if (worst[i].no_cpu > longest_no_cpu)
			longest_no_cpu = worst[i].no_cpu;
	}
	return ret;
}

/* A point that was passed n times before may not be this time: how often a
 * thread looks, and which of two comes first, is up to the host. Such a trial
 * is made again, too. */
static void strike_once(enum t_side side, const struct t_point *p,
			unsigned int n)
{
	int late = 0, missed = 0, still = 0;
	bool failed, slow, stood;
	char what[160];

	snprintf(what, sizeof(what), "%s is %s at %s, time %u",
		 side == T_SIDE_A ? "A" : "B", strikes[how],
		 t_point_name(p->at), n);
	t_note("%s", what);
	for (;;) {
		for (size_t i = 0; i < KINDS; i++)
			worst[i].ns = 0;
		stood_still = 0;
		t_points_begin();
		t_points_strike(side, p->at, n, how);
		failed = !trial(side);
		slow = !failed && !in_time(what);
		stood = stood_still > STILL_NS;
		if (failed)
			printf("failed: %s; the machine stood still for %lld "
			       "ms\n",
			       what, (long long)stood_still / 1000000);
		if (failed || slow) {
			T_MSG(slow || stood, "a process failed");
			T_MSG(++*(stood ? &still : &late) < TRIES,
			      "it failed, or a call took too long, each time");
		} else if (t_points_struck() || ++missed == TRIES)
			break;
	}
	run.trials++;
	run.late += late + still > 0;
	run.struck += t_points_struck();
	if (!t_points_struck())
		printf("not passed again, in %d trials: %s\n", TRIES, what);
}

static void strike_at(enum t_side side, const struct t_point *p)
{
	const char *name = t_point_name(p->at);
	unsigned int most;

	if (run.only && strcmp(run.only, name))
		return;
	for (how = 0; how < T_STRIKES; how++) {
		if (run.sample && how != sampled(side, name, p->own > 0))
			continue;
		most = how == T_STOP ? p->own : p->passed;
		for (unsigned int n = 1; n <= most && n <= run.times; n++)
			if (is_in_part(side, name, n))
				strike_once(side, p, n);
	}
}

static struct t_point points[T_SIDES][MOST_POINTS];
static size_t n_points[T_SIDES];

/* The points are what nobody who is struck passes. */
static void survey(void)
{
	strikes_now = false;
	t_points_begin();
	T(trial(T_SIDE_A));
	strikes_now = true;
	for (enum t_side side = T_SIDE_A; side < T_SIDES; side++) {
		n_points[side] = t_points(side, points[side], MOST_POINTS);
		T(n_points[side] > 0);
		qsort(points[side], n_points[side], sizeof(points[side][0]),
		      by_address);
	}
}

static size_t strike_all(enum t_side side)
{
	for (size_t i = 0; i < n_points[side]; i++)
		strike_at(side, &points[side][i]);
	return n_points[side];
}

static void strike_everywhere(void)
{
	size_t a = 0, b = 0, exec;

	if (!run.only_exec) {
		survey();
		a = strike_all(T_SIDE_A);
		b = strike_all(T_SIDE_B);
	}
	/* To the other end it is a way back to TCP like any. */
	execs = true;
	survey();
	exec = strike_all(T_SIDE_A);
	printf("%s: %zu points of A, %zu before its exec, and %zu of B; %u "
	       "trials, %u struck, %u late and made again; calls of who was "
	       "left had no CPU for up to %lld ms; all of them and its end "
	       "took %lld ms\n",
	       run.fabric, a, exec, b, run.trials, run.struck, run.late,
	       (long long)longest_no_cpu / 1000000,
	       (long long)longest / 1000000);
	printf("calls took up to (ms):");
	for (size_t i = 0; i < KINDS; i++)
		printf(" %s %lld%s",
		       *kinds[i].begins ? kinds[i].begins : "others",
		       (long long)kinds[i].longest, i + 1 < KINDS ? "," : "\n");
	/* A small part may have no trial. */
	T(run.struck > 0 || (!run.trials && run.parts > 1));
}

int main(int argc, char **argv)
{
	char list[32];

	if (argc == 7 && !strcmp(argv[1], "--after"))
		return after(argv + 2);
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--part") && i + 1 < argc) {
			if (sscanf(argv[++i], "%u/%u", &run.part, &run.parts) !=
			    2)
				run.parts = 0;
		} else if (!strcmp(argv[i], "--times") && i + 1 < argc)
			run.times = (unsigned int)atoi(argv[++i]);
		else if (!strcmp(argv[i], "--sample"))
			run.sample = true;
		else if (!strcmp(argv[i], "--exec"))
			run.only_exec = true;
		else if (!run.fabric)
			run.fabric = argv[i];
		else
			run.only = argv[i];
	}
	if (!run.fabric || run.part >= run.parts) {
		fprintf(stderr, "crash FABRIC [--part K/N] [--times N] "
				"[--sample] [--exec] [POINT]\n");
		return 2;
	}
	if (run.sample)
		run.times = 1;
	want = strcmp(run.fabric, "tcp")
		       ? (struct t_want){ run.fabric, EXS_X_REASON_NONE }
		       : (struct t_want){ "tcp", EXS_X_REASON_NO_PROVIDER };
	far = !strcmp(run.fabric, "verbs") || !strcmp(run.fabric, "ofi");
	snprintf(list, sizeof(list), "%s%s", run.fabric,
		 strcmp(run.fabric, "tcp") ? ",tcp" : "");
	signal(SIGPIPE, SIG_IGN);
	setenv("EXS_PROVIDER", list, 1);
	setenv("EXS_UPGRADE", "connect", 0);
	setenv("EXS_LOG", "off", 0);
	worst = mmap(NULL, KINDS * sizeof(*worst), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	T(worst != MAP_FAILED);
	T_OK(prctl(PR_SET_CHILD_SUBREAPER, 1)); /* of children of the struck */
	strike_everywhere();
	return 0;
}
