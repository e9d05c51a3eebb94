/* SPDX-License-Identifier: BSD-2-Clause */
/* Upgrade under fire: both directions of several connections stream chunks of
 * random size while both ends are forced to TCP and back at random moments,
 * thousands of times. Every byte tells its position, so one that is lost,
 * repeated or out of order ends the test.
 *
 * A run is a row of episodes. In each, end A connects and end B accepts so
 * many connections; each end of each has a sender, a receiver and a disturber.
 * The two ends are two threads of one process, or two processes. */
#include <getopt.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>
#include "tests/fault/files.h"
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

#define PAIRS_MAX   8
#define ASYNC_DEPTH 8

struct variant {
	const char *name;
	const char *says;
	size_t chunk_max;
	/* Bytes of a direction before it half-closes, at most; 0: until the
	 * episode's time is over. */
	uint64_t bytes_max;
	bool nagle;
	bool cork;
	bool more;
	bool urgent;
	bool async; /* end A works with events */
	/* Descriptors come with some bytes: a program of plain calls, under exs
	 * run, which another program disturbs. */
	bool files;
};

static const struct variant variants[] = {
	{ "stream", "chunks of any size, TCP_NODELAY", .chunk_max = 60000 },
	{ "nagle", "small chunks that Nagle holds back", .chunk_max = 200,
	  .nagle = true },
	{ "cork", "TCP_CORK set and taken away", .chunk_max = 3000,
	  .cork = true },
	{ "more", "half the chunks say MSG_MORE", .chunk_max = 3000,
	  .more = true },
	{ "halfclose", "short streams that half-close around the switch",
	  .chunk_max = 9000, .bytes_max = 300000 },
	{ "urgent", "urgent data, by plain calls and by exs_send()",
	  .chunk_max = 9000, .urgent = true },
	{ "async", "one end works with events", .chunk_max = 60000,
	  .async = true },
	{ "files", "descriptors come with some bytes, by plain calls",
	  .chunk_max = 9000, .bytes_max = 3000000, .files = true },
};

static struct {
	const struct variant *v;
	int pairs;
	bool apart;
	int seconds;
	uint64_t switches;
	uint64_t seed;
	const char *fabric;
} opt = { .pairs = 1, .seconds = 15, .switches = 2000 };

enum urgent_mode {
	URGENT_NONE,
	URGENT_SKIPPED, /* sent by plain send(), never read */
	URGENT_READ,	/* and read by plain recv() */
	URGENT_INLINE,	/* in the stream: SO_OOBINLINE */
	URGENT_EXS,	/* sent by exs_send() */
	URGENT_MODES,
};

/* One direction: what its ends tell each other besides the bytes. */
struct direction {
	_Atomic uint64_t sent;
	_Atomic uint64_t received;
	_Atomic bool ended; /* the receiver has seen the end */
	_Atomic int files;  /* sent, and not received */
	uint64_t limit;
	enum urgent_mode urgent;
};

/* Seen by both processes. */
static struct shared {
	_Atomic bool stop;
	_Atomic uint64_t downgrades;
	_Atomic uint64_t late;	   /* said ETIMEDOUT first */
	_Atomic uint64_t upgrades; /* as the library counts them */
	_Atomic uint64_t urgent_ok;
	uint64_t episode;
	struct direction dir[PAIRS_MAX][2];
} * shared;

/* One end of one connection. */
struct end {
	int s;
	int pair;
	int which; /* 0 is A */
	struct direction *out;
	struct direction *in;
	uint64_t out_seed;
	uint64_t in_seed;
};

static struct t_rng rng_for(const struct end *e, int what)
{
	uint64_t x = opt.seed;

	x = x * 1000003 + shared->episode;
	x = x * 101 + e->pair * 10 + e->which * 5 + what;
	return (struct t_rng){ x };
}

static bool over(const struct end *e, uint64_t sent)
{
	return shared->stop || (e->out->limit && sent >= e->out->limit);
}

static void set_option(int s, int name, int value)
{
	T_OK(exs_setsockopt(s, IPPROTO_TCP, name, &value, sizeof(value)));
}

static void finish_sending(struct end *e, uint64_t sent)
{
	if (opt.v->cork)
		set_option(e->s, TCP_CORK, 0);
	T_EQ(e->out->sent, sent);
	T_OK(opt.v->files ? shutdown(e->s, SHUT_WR)
			  : t_shutdown(e->s, SHUT_WR));
}

static void *sender(void *arg)
{
	struct end *e = arg;
	struct t_rng r = rng_for(e, 1);
	char *buf = malloc(opt.v->chunk_max);
	uint64_t sent = e->out->sent;

	while (!over(e, sent)) {
		size_t n = t_chunk(&r, opt.v->chunk_max);
		int flags = opt.v->more && t_below(&r, 2) ? MSG_MORE : 0;

		if (opt.v->cork && t_below(&r, 8) == 0)
			set_option(e->s, TCP_CORK, t_below(&r, 2));
		t_fill(buf, n, e->out_seed, sent);
		if (!opt.v->files) {
			t_send_all(e->s, buf, n, flags);
		} else if (t_below(&r, 400)) {
			t_send_plain(e->s, buf, n);
		} else { /* it leaves the fabric for good */
			e->out->files++;
			t_send_file(e->s, buf, n, sent);
		}
		sent += n;
		e->out->sent = sent;
	}
	free(buf);
	finish_sending(e, sent);
	return NULL;
}

static void seen_end(struct end *e, uint64_t received)
{
	T_EQ(received, e->in->sent);
	T_EQ(e->in->files, 0);
	e->in->ended = true;
}

/* A file comes with the first of its bytes. */
static ssize_t receive_files(struct end *e, char *buf, size_t n, uint64_t at)
{
	uint64_t file = UINT64_MAX;
	ssize_t ret = t_recv_file(e->s, buf, n, &file);

	if (file != UINT64_MAX) {
		T(file >= at && file < at + (uint64_t)ret);
		e->in->files--;
	}
	return ret;
}

static void *receiver(void *arg)
{
	struct end *e = arg;
	struct t_rng r = rng_for(e, 2);
	size_t max = opt.v->chunk_max * 2;
	char *buf = malloc(max);
	uint64_t received = e->in->received;
	ssize_t n;

	for (;;) {
		size_t len = t_chunk(&r, max);

		n = opt.v->files ? receive_files(e, buf, len, received)
				 : t_recv(e->s, buf, len, 0);
		if (n <= 0)
			break;
		t_check_bytes(buf, n, e->in_seed, received);
		received += n;
		e->in->received = received;
	}
	T_MSG(n == 0, "recv says %s; %s", t_errname(errno), t_where(e->s));
	seen_end(e, received);
	free(buf);
	return NULL;
}

static void *async_sender(void *arg)
{
	struct end *e = arg;
	struct t_rng r = rng_for(e, 1);
	exs_qhandle_t q = T_OK(exs_qcreate(ASYNC_DEPTH));
	char *bufs = malloc(ASYNC_DEPTH * opt.v->chunk_max);
	uint64_t pos = e->out->sent, sent = pos;
	long next = 0, done = 0;

	while (!over(e, sent) || done < next) {
		while (!over(e, sent) && next - done < ASYNC_DEPTH) {
			char *buf =
				bufs + next % ASYNC_DEPTH * opt.v->chunk_max;
			size_t n = t_chunk(&r, opt.v->chunk_max);

			t_fill(buf, n, e->out_seed, pos);
			t_post_send(e->s, buf, n, 0, q, next++);
			pos += n;
		}
		if (done < next)
			sent += t_event_is(q, EXS_EVT_SEND, done++);
		e->out->sent = sent;
	}
	T_EQ(sent, pos);
	T_OK(exs_qdelete(q));
	free(bufs);
	finish_sending(e, sent);
	return NULL;
}

static void *async_receiver(void *arg)
{
	struct end *e = arg;
	struct t_rng r = rng_for(e, 2);
	exs_qhandle_t q = T_OK(exs_qcreate(ASYNC_DEPTH));
	size_t max = opt.v->chunk_max;
	char *bufs = malloc(ASYNC_DEPTH * max);
	uint64_t received = e->in->received;
	long next, done;
	size_t n;

	for (next = 0; next < ASYNC_DEPTH; next++)
		t_post_recv(e->s, bufs + next * max, t_chunk(&r, max), 0, q,
			    next);
	for (done = 0;; done++) {
		char *buf = bufs + done % ASYNC_DEPTH * max;

		n = t_event_is(q, EXS_EVT_RECV, done);
		if (n == 0)
			break;
		t_check_bytes(buf, n, e->in_seed, received);
		received += n;
		e->in->received = received;
		t_post_recv(e->s, buf, t_chunk(&r, max), 0, q, next++);
	}
	while (++done < next)
		T_EQ(t_event_is(q, EXS_EVT_RECV, done), 0);
	seen_end(e, received);
	T_OK(exs_qdelete(q));
	free(bufs);
	return NULL;
}

/* A direction for which the library was told to send urgent data stays on
 * TCP. What plain calls sent leaves no trace once the receiver is past it: such
 * a direction may move then, and must lose nothing. */
static void check_urgent(struct end *e)
{
	exs_x_sockinfo_t i = t_info(e->s);

	if (e->out->urgent == URGENT_EXS) {
		T_MSG(!strcmp(i.exs_x_tx_fabric, "tcp"), "%s", t_where(e->s));
		T_EQ(i.exs_x_tx_fabric_bytes, 0);
	}
	if (e->in->urgent == URGENT_EXS) {
		T_MSG(!strcmp(i.exs_x_rx_fabric, "tcp"), "%s", t_where(e->s));
		T_EQ(i.exs_x_rx_fabric_bytes, 0);
	}
}

static bool on_fabric(int s)
{
	exs_x_sockinfo_t i = t_info(s);

	return strcmp(i.exs_x_tx_fabric, "tcp") ||
	       strcmp(i.exs_x_rx_fabric, "tcp");
}

static bool all_over(const struct end *e)
{
	return e->out->ended && e->in->ended;
}

/* For a random while, or until something is on the fabric. */
static void let_it_run(struct end *e, struct t_rng *r)
{
	struct t_deadline d;

	switch (t_below(r, 4)) {
	case 0:
		break;
	case 1:
		t_spin_ns(t_below(r, 200000));
		break;
	default:
		d = t_deadline_ms(20);
		while (!on_fabric(e->s) && !all_over(e) && t_tick(&d))
			;
		t_spin_ns(t_below(r, 100000));
	}
}

/* A peer that gets no CPU for a second makes the call say ETIMEDOUT. The way
 * back continues: a later call finds it done. The calls are counted, for the
 * clock also goes on while both ends get no CPU. */
static int repeat(struct end *e, int call(int))
{
	int ret, late = 0;

	while ((ret = call(e->s)) && errno == ETIMEDOUT) {
		shared->late++;
		T_MSG(++late < 20, "never down; %s", t_where(e->s));
	}
	return ret;
}

static void force_down(struct end *e)
{
	int ret = repeat(e, exs_x_downgrade);

	if (opt.v->async && e->which == 0) {
		T_MSG(ret == 0 || errno == EBUSY, "downgrade says %s",
		      t_errname(errno));
		return;
	}
	T_MSG(ret == 0, "downgrade says %s; %s", t_errname(errno),
	      t_where(e->s));
	shared->downgrades++;
}

/* Refused where it can no longer be: an end of stream, urgent data. It waits
 * for a way back that was late. */
static void force_up(struct end *e)
{
	int ret = repeat(e, exs_x_adopt);

	if (ret == 0 || errno == ENOTCONN ||
	    (errno == EOPNOTSUPP && opt.v->urgent))
		return;
	T_MSG(all_over(e), "adopt says %s; %s", t_errname(errno),
	      t_where(e->s));
}

static void *disturber(void *arg)
{
	struct end *e = arg;
	struct t_rng r = rng_for(e, 3);

	while (!opt.v->files && !all_over(e)) {
		if (t_below(&r, 4))
			force_down(e);
		if (t_below(&r, 4) == 0)
			let_it_run(e, &r);
		force_up(e);
		let_it_run(e, &r);
		if (opt.v->urgent)
			check_urgent(e);
	}
	return NULL;
}

struct runner {
	int which;
	int ctl;
	int port;     /* A: where B listens */
	int listener; /* B */
	struct end end[PAIRS_MAX];
};

static void meet(struct runner *run)
{
	t_tell(run->ctl, 1);
	t_expect(run->ctl, 1);
}

/* Half the directions of an episode, in one of the ways. */
static void send_urgent(struct end *e)
{
	char byte;

	if (e->out->urgent == URGENT_NONE)
		return;
	t_send_stream(e->s, e->out_seed, 0, 10, 10);
	t_fill(&byte, 1, e->out_seed, 10);
	if (e->out->urgent == URGENT_EXS)
		T_EQ(t_send(e->s, &byte, 1, MSG_OOB), 1);
	else
		T_EQ(send(e->s, &byte, 1, MSG_OOB), 1);
	e->out->sent = 10 + (e->out->urgent == URGENT_INLINE);
}

static void recv_urgent(struct end *e)
{
	struct pollfd p = { .fd = e->s, .events = POLLPRI };
	char byte, want;

	if (e->in->urgent != URGENT_READ)
		return;
	T_EQ(poll(&p, 1, 20000), 1);
	T_EQ(recv(e->s, &byte, 1, MSG_OOB), 1);
	t_fill(&want, 1, e->in_seed, 10);
	T_EQ(byte, want);
	shared->urgent_ok++;
}

/* Where an urgent byte is left out of the stream, its position is not: the
 * stream's pattern goes on as if it had not been. */
static void exchange_urgent(struct runner *run)
{
	int i, on = 1;

	for (i = 0; i < opt.pairs; i++) {
		if (run->end[i].in->urgent == URGENT_INLINE)
			T_OK(exs_setsockopt(run->end[i].s, SOL_SOCKET,
					    SO_OOBINLINE, &on, sizeof(on)));
	}
	meet(run);
	for (i = 0; i < opt.pairs; i++)
		send_urgent(&run->end[i]);
	meet(run);
	for (i = 0; i < opt.pairs; i++)
		recv_urgent(&run->end[i]);
	meet(run);
}

static void open_end(struct runner *run, int i)
{
	struct end *e = &run->end[i];
	struct t_addr to = t_loopback(T_IPV4, run->port);

	memset(e, 0, sizeof(*e));
	e->pair = i;
	e->which = run->which;
	e->s = run->which == 0 ? t_connect(&to) : t_accept(run->listener);
	/* Several on their way may be accepted in another order. */
	meet(run);
	e->out = &shared->dir[i][run->which];
	e->in = &shared->dir[i][!run->which];
	e->out_seed = opt.seed + i * 2 + run->which;
	e->in_seed = opt.seed + i * 2 + !run->which;
	if (!opt.v->nagle && !t_is_unix())
		set_option(e->s, TCP_NODELAY, 1);
	/* A short stream would be over before it moved. */
	if (opt.v->bytes_max && shared->episode % 4)
		t_settle(e->s,
			 (struct t_want){ opt.fabric, EXS_X_REASON_NONE });
}

static uint64_t progress(void)
{
	uint64_t sum = 0;
	int i;

	for (i = 0; i < opt.pairs * 2; i++)
		sum += shared->dir[i / 2][i % 2].received +
		       shared->dir[i / 2][i % 2].sent;
	return sum;
}

static void show(const struct runner *run)
{
	int i;

	for (i = 0; i < opt.pairs; i++) {
		const struct end *e = &run->end[i];

		fprintf(stderr,
			"\tpair %d end %c: out %llu of which the peer has "
			"%llu%s; %s\n",
			i, "AB"[run->which],
			(unsigned long long)e -> out -> sent,
			(unsigned long long)e -> out -> received,
			e -> out -> ended ? ", ended" : "", t_where(e->s));
	}
}

struct watchdog {
	const struct runner *run;
	int quit; /* an eventfd */
};

/* A stream that stands still for long has lost bytes or a wake-up. */
static void *watchdog(void *arg)
{
	struct watchdog *w = arg;
	uint64_t last = progress();

	while (!t_readable(w->quit, 20000 * t_slow())) {
		uint64_t now = progress();

		if (now != last) {
			last = now;
			continue;
		}
		show(w->run);
		t_readable(w->quit, 2000);
		t_fail(__FILE__, __LINE__, "end %c stands still",
		       "AB"[w->run->which]);
	}
	return NULL;
}

static void run_threads(struct runner *run)
{
	struct watchdog w = { .run = run, .quit = T_OK(eventfd(0, 0)) };
	bool async = opt.v->async && run->which == 0;
	pthread_t t[PAIRS_MAX][3], dog = t_thread(watchdog, &w);
	uint64_t one = 1;
	int i, j;

	for (i = 0; i < opt.pairs; i++) {
		t[i][0] = t_thread(async ? async_sender : sender, &run->end[i]);
		t[i][1] = t_thread(async ? async_receiver : receiver,
				   &run->end[i]);
		t[i][2] = t_thread(disturber, &run->end[i]);
	}
	for (i = 0; i < opt.pairs; i++)
		for (j = 0; j < 3; j++)
			t_thread_join(t[i][j]);
	T_EQ(write(w.quit, &one, sizeof(one)), sizeof(one));
	t_thread_join(dog);
	close(w.quit);
}

static void episode(struct runner *run)
{
	int i;

	for (i = 0; i < opt.pairs; i++)
		open_end(run, i);
	if (opt.v->urgent)
		exchange_urgent(run);
	run_threads(run);
	for (i = 0; i < opt.pairs; i++) {
		exs_x_sockinfo_t info = t_info(run->end[i].s);

		shared->upgrades += info.exs_x_upgrades;
		if (opt.v->urgent)
			check_urgent(&run->end[i]);
	}
	meet(run);
	for (i = 0; i < opt.pairs; i++)
		t_close(run->end[i].s);
	meet(run);
}

/* What the next episode shall be; only A decides, while B waits. */
static void plan(uint64_t number)
{
	struct t_rng r = { opt.seed + number };
	int i;

	shared->episode = number;
	shared->stop = false;
	for (i = 0; i < opt.pairs * 2; i++) {
		struct direction *d = &shared->dir[i / 2][i % 2];

		memset(d, 0, sizeof(*d));
		if (opt.v->bytes_max)
			d->limit = t_chunk(&r, opt.v->bytes_max);
		if (opt.v->urgent)
			d->urgent = t_below(&r, 2 * URGENT_MODES);
		if (d->urgent >= URGENT_MODES)
			d->urgent = URGENT_NONE;
	}
}

static void *stop_later(void *arg)
{
	struct t_rng *r = arg;
	struct t_deadline d = t_deadline_ms(200 + t_below(r, 1500));

	while (t_tick(&d))
		;
	shared->stop = true;
	return NULL;
}

/* A stream must end some time where no limit of bytes ends it. */
static void timed_episode(struct runner *run, struct t_rng *r)
{
	pthread_t t;

	if (opt.v->bytes_max) {
		episode(run);
		return;
	}
	t = t_thread(stop_later, r);
	episode(run);
	t_thread_join(t);
}

/* Where urgent data is about, most switches are refused. */
static bool switched(void)
{
	return opt.v->files ||
	       shared->upgrades >= (strcmp(opt.v->name, "urgent") ? 20 : 2);
}

static void run_a(int ctl)
{
	struct runner run = { .which = 0, .ctl = ctl };
	struct t_rng r = { opt.seed ^ 0x5eed };
	struct t_deadline d = t_deadline_ms(opt.seconds * 1000);
	/* The deadline on a busy host. */
	struct t_deadline busy = t_deadline_ms(opt.seconds * 1000 + 30000);
	uint64_t number = 0;

	run.port = t_ask(ctl);
	do {
		plan(number++);
		t_tell(ctl, 1);
		timed_episode(&run, &r);
	} while ((!t_over(&d) && shared->downgrades < opt.switches) ||
		 (!switched() && !t_over(&busy)));
	t_tell(ctl, 0);
}

static void run_b(int ctl)
{
	struct runner run = { .which = 1, .ctl = ctl };
	struct t_addr at;

	run.listener = t_listener(T_IPV4, &at);
	t_tell(ctl, t_port_of(run.listener));
	while (t_ask(ctl))
		episode(&run);
	t_close(run.listener);
}

static void b_process(int ctl, void *arg)
{
	t_init();
	run_b(ctl);
}

static void *b_thread(void *arg)
{
	run_b(*(int *)arg);
	return NULL;
}

static void run_apart(void)
{
	struct t_peer p;

	t_peer_start(&p, b_process, NULL);
	t_init();
	run_a(p.ctl);
	t_peer_join(&p);
}

static void run_here(void)
{
	pthread_t t;
	int ctl[2];

	t_init();
	T_OK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ctl));
	t = t_thread(b_thread, &ctl[1]);
	run_a(ctl[0]);
	t_thread_join(t);
	close(ctl[0]);
	close(ctl[1]);
}

static void usage(const char *program)
{
	int i;

	printf("usage: %s [--pairs N] [--apart] [--seconds N] [--switches N] "
	       "[--seed N] [--all] VARIANT\n",
	       program);
	for (i = 0; i < T_COUNT(variants); i++)
		printf("\t%-10s %s\n", variants[i].name, variants[i].says);
	exit(2);
}

static const struct variant *find_variant(const char *name)
{
	int i;

	for (i = 0; i < T_COUNT(variants); i++)
		if (!strcmp(variants[i].name, name))
			return &variants[i];
	return NULL;
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "pairs", required_argument, NULL, 'p' },
		{ "apart", no_argument, NULL, 'a' },
		{ "seconds", required_argument, NULL, 's' },
		{ "switches", required_argument, NULL, 'n' },
		{ "seed", required_argument, NULL, 'r' },
		{ "all", no_argument, NULL, 'A' },
		{ 0 },
	};
	int c;

	opt.seed = t_now_ns();
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'p')
			opt.pairs = atoi(optarg);
		else if (c == 'a')
			opt.apart = true;
		else if (c == 's')
			opt.seconds = atoi(optarg);
		else if (c == 'n')
			opt.switches = strtoull(optarg, NULL, 0);
		else if (c == 'r')
			opt.seed = strtoull(optarg, NULL, 0);
		else if (c == 'A')
			opt.seconds = 300, opt.switches = 1000000;
		else
			usage(argv[0]);
	}
	opt.v = optind < argc ? find_variant(argv[optind]) : NULL;
	if (!opt.v || opt.pairs < 1 || opt.pairs > PAIRS_MAX)
		usage(argv[0]);
}

int main(int argc, char **argv)
{
	struct t_fds start;

	parse(argc, argv);
	t_guard(opt.seconds * 2 + 90);
	signal(SIGPIPE, SIG_IGN);
	t_note("variant %s, %d pairs, %s, --seed %llu", opt.v->name, opt.pairs,
	       opt.apart ? "apart" : "in one process",
	       (unsigned long long)opt.seed);
	/* A small ring wraps, fills and drains all the time; one of 64 begins
	 * with 16, and large chunks make it grow. */
	setenv("EXS_RING_KB", opt.v->chunk_max > 9000 ? "64" : "16", 0);
	setenv("EXS_PROVIDER", "shm,tcp", 0);
	opt.fabric = strndup(getenv("EXS_PROVIDER"),
			     strcspn(getenv("EXS_PROVIDER"), ","));
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	T(shared != MAP_FAILED);
	t_fds_take(&start);
	if (opt.apart)
		run_apart();
	else
		run_here();
	t_fds_settled(&start);
	printf("%s: %llu episodes, %llu downgrades (%llu late), %llu upgrades, "
	       "seed %llu\n",
	       opt.v->name, (unsigned long long)shared->episode + 1,
	       (unsigned long long)shared->downgrades,
	       (unsigned long long)shared->late,
	       (unsigned long long)shared->upgrades,
	       (unsigned long long)opt.seed);
	/* A host that gives a process no CPU is late once at all its ends. */
	T_MSG(shared->late <= opt.pairs * 2 + shared->downgrades / 1000,
	      "%llu downgrades were late", (unsigned long long)shared->late);
	T_MSG(switched(), "hardly anything was switched: %llu",
	      (unsigned long long)shared->upgrades);
	return 0;
}
