/* SPDX-License-Identifier: BSD-2-Clause */
/* A peer that met honestly, and then writes anything into its segment, on its
 * link and into TCP. Its victim (victim.h) may lose the connection, and nothing
 * else: it does not end, serves each face's next connection, keeps neither
 * descriptors nor mappings nor threads, comes to rest, and answers another
 * connection at most ten times as late as the same program that nobody attacks
 * answers meanwhile. Clocks go on while all of this is stopped, or has no CPU:
 * a meeting that is called off then is made again, and no answer is late by it.
 *
 * scribble [--seed SEED] ROUNDS VICTIM... */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fault/hand.h"
#include "tests/fault/link.h"
#include "tests/fault/victim.h"
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

#define PORTS 6 /* a victim listens at; the last is left alone */
#define ACTS  40
/* Another connection may wait this many times as long as it does in a program
 * that nobody attacks; when hardly anything was measured, some more. */
#define TIMES	  10
#define GRACE_NS  200000
#define LONGEST_S 2
/* Of fewer, a busy CPU that only one of the two programs has delays a tenth. */
#define MANY 1000
/* A thread that wakes so often, and then only after half a second, stood still
 * with its process. */
#define TURN_MS	 10
#define STILL_NS 500000000
#define TRIES	 4

struct victim {
	pid_t pid;
	int control;
	struct victim_port port[PORTS];
};

static char buf[20000];
static unsigned int met_again;

/* --- while all stands still ---------------------------------------------- */

static _Atomic int64_t still; /* for how long, in all */
static _Atomic unsigned int turns;

static void *watch(void *arg)
{
	int64_t was = t_now_ns(), now;

	for (;; was = now) {
		poll(NULL, 0, TURN_MS);
		now = t_now_ns();
		if (now - was > STILL_NS)
			atomic_fetch_add(&still, now - was);
		atomic_fetch_add(&turns, 1);
	}
	return arg;
}

static void begin_watch(void)
{
	pthread_t t;

	T_EQ(pthread_create(&t, NULL, watch, NULL), 0);
	T_EQ(pthread_detach(t), 0);
}

/* A time that has just ended is counted by the turn that it was part of. */
static int64_t stood_still(void)
{
	unsigned int n = atomic_load(&turns);

	T_UNTIL(atomic_load(&turns) != n);
	return atomic_load(&still);
}

/* --- a victim ------------------------------------------------------------ */

static void run_victim(const int in[2], const int out[2], char **command,
		       int port)
{
	char *argv[16], text[8];
	int i;

	snprintf(text, sizeof(text), "%d", port);
	for (i = 0; command[i]; i++)
		argv[i] = command[i];
	argv[i++] = text;
	argv[i] = NULL;
	dup2(in[0], STDIN_FILENO);
	dup2(out[1], STDOUT_FILENO);
	close(in[1]);
	execv(argv[0], argv);
	_exit(127);
}

static void start(struct victim *v, char **command, int port)
{
	int in[2], out[2];

	T_OK(pipe(in));
	T_OK(pipe(out));
	v->pid = t_fork();
	if (!v->pid)
		run_victim(in, out, command, port);
	close(in[0]);
	close(out[1]);
	v->control = in[1];
	T_OK(fcntl(v->control, F_SETFD, FD_CLOEXEC));
	for (size_t done = 0; done < sizeof(v->port);) {
		ssize_t n = read(out[0], (char *)v->port + done,
				 sizeof(v->port) - done);

		T_MSG(n > 0, "the victim does not start");
		done += (size_t)n;
	}
	close(out[0]);
}

/* It ends by itself, with status 0: a sanitizer would have said another. */
static void stop(struct victim *v)
{
	close(v->control);
	t_join(v->pid);
}

static int connect_to(struct victim_port port)
{
	struct t_addr to = t_loopback(T_IPV4, (int)port.port);
	int s;

	t_type = (int)port.type;
	s = t_connect(&to);
	t_type = SOCK_STREAM;
	return s;
}

static void echo(int s, uint64_t *pos, size_t len)
{
	t_fill(buf, len, 1, *pos);
	t_send_all(s, buf, len, MSG_NOSIGNAL);
	t_recv_all(s, buf, len);
	t_check_bytes(buf, len, 1, *pos);
	*pos += len;
}

/* Until both directions are in shared memory; whether they are. */
static bool move(int s, uint64_t *pos)
{
	struct t_deadline d = t_deadline_ms(20000);

	*pos = 0;
	while (!t_is(s, T_SHM)) {
		if (!t_tick(&d))
			return false;
		echo(s, pos, 2000);
	}
	return true;
}

/* The next connection to the port, or from the victim (port 0), in shared
 * memory; so many bytes went each way. */
static int meet(struct victim_port port, int l, uint64_t *ret_pos)
{
	for (int tries = 1;; tries++) {
		int64_t was = atomic_load(&still);
		int s = port.port ? connect_to(port) : t_accept(l);

		if (move(s, ret_pos))
			return s;
		T_MSG(stood_still() > was && tries < TRIES,
		      "the victim is not met: %s", t_where(s));
		met_again++;
		t_close(s);
	}
}

/* --- what another connection waits --------------------------------------- */

/* How many echoes took how long, in eighths of powers of two of nanoseconds. */
struct times {
	unsigned int n[512];
	unsigned int all;
	int64_t worst;
};

static void count(struct times *t, int64_t ns)
{
	int log = 63 - __builtin_clzll((uint64_t)ns | 8);

	t->n[8 * log + (int)(ns >> (log - 3) & 7)]++;
	t->all++;
	if (ns > t->worst)
		t->worst = ns;
}

/* So many of a hundred took no longer. */
static int64_t within(const struct times *t, unsigned int percent)
{
	unsigned int sum = 0;
	int i = 0;

	while (i < 511 && (sum += t->n[i]) * 100ull < t->all * percent)
		i++;
	return (int64_t)(8 + i % 8 + 1) << i / 8 >> 3;
}

struct answers {
	int s;
	uint64_t pos;
	struct times times;
};

static void ask(struct answers *a)
{
	int64_t was = atomic_load(&still), began = t_now_ns(), ns;

	echo(a->s, &a->pos, 8);
	ns = t_now_ns() - began;
	if (ns > STILL_NS)
		ns -= stood_still() - was;
	count(&a->times, ns > 0 ? ns : 0);
}

static void compare(const struct answers *alone, const struct answers *attacked,
		    unsigned int percent)
{
	int64_t a = within(&alone->times, percent);
	int64_t b = within(&attacked->times, percent);

	printf("%u %% of %u echoes within %lld us, of a program that nobody "
	       "attacks %lld us\n",
	       percent, attacked->times.all, (long long)b / 1000,
	       (long long)a / 1000);
	T_MSG(b <= TIMES * a + GRACE_NS,
	      "another connection waits %lld times as long",
	      (long long)(b / a));
}

static struct answers asked(int ctl)
{
	struct victim_port to = { .port = (uint32_t)t_ask(ctl),
				  .type = SOCK_STREAM };
	struct answers a = { 0 };

	a.s = meet(to, -1, &a.pos);
	return a;
}

static void other_connection(int ctl, void *arg)
{
	struct answers alone, attacked;
	int64_t most;

	t_init();
	begin_watch();
	alone = asked(ctl);
	attacked = asked(ctl);
	t_tell(ctl, 1);
	while (!t_readable(ctl, 1)) {
		ask(&alone);
		ask(&attacked);
	}
	compare(&alone, &attacked, 50);
	if (attacked.times.all >= MANY)
		compare(&alone, &attacked, 90);
	most = LONGEST_S * 1000000000ll * t_slow();
	if (most < TIMES * alone.times.worst)
		most = TIMES * alone.times.worst;
	printf("the longest %lld us\n", (long long)attacked.times.worst / 1000);
	T_MSG(attacked.times.worst < most, "another connection waited %lld ms",
	      (long long)attacked.times.worst / 1000000);
	t_expect(ctl, 2);
	t_close(alone.s);
	t_close(attacked.s);
}

/* --- what the victim keeps ----------------------------------------------- */

struct account {
	int fds, threads, segments;
	long ticks; /* of the CPU */
};

static int entries(pid_t pid, const char *what)
{
	char path[64];
	DIR *d;
	int n = -2;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, what);
	d = opendir(path);
	T_MSG(d, "the victim is gone");
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static FILE *of_proc(pid_t pid, const char *what)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, what);
	f = fopen(path, "re");
	T_MSG(f, "the victim is gone");
	return f;
}

static struct account account(pid_t pid)
{
	struct account a = { .fds = entries(pid, "fd"),
			     .threads = entries(pid, "task") };
	FILE *f = of_proc(pid, "maps");
	long user, kernel;
	char line[512];

	while (fgets(line, sizeof(line), f))
		a.segments += strstr(line, "/memfd:") != NULL;
	fclose(f);
	f = of_proc(pid, "stat");
	T(fgets(line, sizeof(line), f));
	fclose(f);
	T_EQ(sscanf(strrchr(line, ')') + 2,
		    "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld",
		    &user, &kernel),
	     2);
	a.ticks = user + kernel;
	return a;
}

/* The victim uses no CPU for a while: what it was given to do is done. */
static struct account at_rest(pid_t pid)
{
	struct account was, is = account(pid);
	int turn = 0;

	do {
		T_MSG(turn++ < 200 * t_slow(),
		      "the victim does not come to rest");
		was = is;
		poll(NULL, 0, 100);
		is = account(pid);
	} while (is.ticks != was.ticks);
	return is;
}

static void keeps_nothing(pid_t pid, struct account before)
{
	struct account a = at_rest(pid);

	T_MSG(a.fds <= before.fds, "the victim keeps %d descriptors, of %d",
	      a.fds, before.fds);
	T_MSG(a.threads <= before.threads, "the victim keeps %d threads, of %d",
	      a.threads, before.threads);
	T_MSG(a.segments <= before.segments,
	      "the victim keeps %d mappings, of %d", a.segments,
	      before.segments);
}

/* --- the attack ---------------------------------------------------------- */

static void act(struct t_rng *r, struct t_hand *h, int s)
{
	size_t len = t_chunk(r, sizeof(buf));

	switch (t_below(r, 10)) {
	case 0:
	case 1:
	case 2:
	case 3:
		t_hand_scribble(r, h);
		break;
	case 4:
	case 5:
		t_lie(r, h->link, h->head);
		break;
	case 6: /* past the library */
		send(s, buf, len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (t_below(r, 16) == 0)
			shutdown(s, SHUT_WR);
		break;
	case 7:
		t_send(s, buf, len, MSG_DONTWAIT | MSG_NOSIGNAL);
		break;
	case 8:
		t_recv(s, buf, len, MSG_DONTWAIT);
		break;
	default: /* The victim has some time to look. */
		t_readable(h->link, 1);
	}
}

static void leave(struct t_rng *r, int s)
{
	struct linger hard = { .l_onoff = 1 };

	if (t_below(r, 8) == 0)
		T_OK(exs_setsockopt(s, SOL_SOCKET, SO_LINGER, &hard,
				    sizeof(hard)));
	t_close(s);
}

static int scribble(struct t_rng *r, int s)
{
	int acts = 1 + (int)t_below(r, ACTS), link;
	struct t_hand h;

	link = t_link_of(s);
	T(link >= 0);
	t_hand_lay(&h, s, link);
	for (int k = 0; k < acts; k++)
		act(r, &h, s);
	t_hand_lift(&h);
	close(link);
	leave(r, s);
	return acts;
}

/* The connection of a round: to each port but the last, and from the victim. */
static int meet_face(const struct victim *v, int l, int round)
{
	int face = round % PORTS;
	uint64_t pos;

	return meet(face == PORTS - 1 ? (struct victim_port){ 0 }
				      : v->port[face],
		    l, &pos);
}

static void attack(struct t_rng *r, const struct victim *v, int rounds, int l)
{
	long acts = 0;

	for (int i = 0; i < rounds; i++) {
		t_note("round %d", i);
		acts += scribble(r, meet_face(v, l, i));
		T_MSG(waitpid(v->pid, NULL, WNOHANG) == 0,
		      "the victim has ended");
	}
	t_note(NULL);
	printf("%d rounds, %ld acts, %u met again\n", rounds, acts, met_again);
}

/* Each face once; what the library keeps for later is there then. */
static void be_honest(const struct victim *v, int l)
{
	for (int i = 0; i < 2 * PORTS; i++) {
		t_close(meet_face(v, l, i));
	}
}

static void torment(uint64_t seed, int rounds, char **command)
{
	struct t_rng r = { seed };
	struct victim alone = { 0 }, v = { 0 };
	struct account before;
	struct t_peer other;
	struct t_addr at;
	int l;

	t_peer_start(&other, other_connection, NULL);
	start(&alone, command, 0);
	t_init();
	begin_watch();
	l = t_listener(T_IPV4, &at);
	start(&v, command, t_port_of(l));
	t_tell(other.ctl, (int)alone.port[PORTS - 1].port);
	t_tell(other.ctl, (int)v.port[PORTS - 1].port);
	t_expect(other.ctl, 1);
	be_honest(&v, l);
	before = at_rest(v.pid);
	attack(&r, &v, rounds, l);
	/* Its faces all serve again. */
	be_honest(&v, l);
	t_tell(other.ctl, 2);
	t_peer_join(&other);
	keeps_nothing(v.pid, before);
	t_close(l);
	stop(&v);
	stop(&alone);
}

int main(int argc, char **argv)
{
	uint64_t seed = 1;
	int rounds;

	if (argc > 2 && !strcmp(argv[1], "--seed")) {
		seed = strtoull(argv[2], NULL, 10);
		argv += 2;
		argc -= 2;
	}
	rounds = argc > 2 && argc < 12 ? atoi(argv[1]) : 0;
	if (rounds <= 0) {
		fprintf(stderr, "scribble [--seed SEED] ROUNDS VICTIM...\n");
		return 2;
	}
	/* A failure ends without a flush, and needs the figures before it. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	setenv("EXS_PROVIDER", "shm,tcp", 1);
	setenv("EXS_UPGRADE", "connect", 1);
	/* Each lie is worth a warning: not here. */
	setenv("EXS_LOG", "off", 0);
	t_guard(60 + (unsigned int)rounds / 4);
	torment(seed, rounds, argv + 2);
	return 0;
}
