/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls on connected TCP sockets; each behaviour prints one line. The lines are
 * the same natively and under exs run. A row that takes longer than ten
 * seconds, forty with a sanitizer, is ended, "HUNG". Usage: behave [--list]
 * [--cold] [--swap] [--here] [--unix] [--packet] [--pair] [PATTERN...]; --cold
 * leaves out the bytes that move a connection, --here runs the rows in this
 * process, for debuggers, --unix uses connections of UNIX sockets, --packet
 * those of SOCK_SEQPACKET, and --pair makes them by socketpair. */
#include "behave.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bits.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LIMIT_S 40
#else
#define LIMIT_S 10
#endif
/* The shortest time that a row has a call wait for nothing is 40 ms. */
#define WAITED_NS 35000000

struct row {
	const char *name, *more;
	void (*f)(void);
	int arg;
};

/* What a row said: shared, so that what it said before its death is kept. */
struct said {
	uint32_t len;
	char text[16384];
};

int here = -1, peer = -1, which_row;
int stream_family = AF_INET, stream_type = SOCK_STREAM;

static struct row rows[2048];
static size_t n_rows;
static struct said *said;
static bool is_cold, is_swapped, is_here, is_pair;
static pthread_t later_thread;

#ifdef __SANITIZE_ADDRESS__
/* Rows end where they are, and the shim comes before the sanitizer. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0:verify_asan_link_order=0";
}
#endif

void add_row(const char *name, const char *more, void (*f)(void), int arg)
{
	if (n_rows == sizeof(rows) / sizeof(rows[0]))
		abort(); /* or the last would never be run */
	rows[n_rows++] = (struct row){ name, more, f, arg };
}

/* --- saying ------------------------------------------------------------- */

void say(const char *fmt, ...)
{
	size_t room = sizeof(said->text) - said->len;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = room > 1 ? snprintf(said->text + said->len, room, " ") : 0;
	said->len += (uint32_t)n;
	room -= (size_t)n;
	n = vsnprintf(said->text + said->len, room, fmt, ap);
	said->len += (uint32_t)(n < (int)room ? n : (int)room - 1);
	va_end(ap);
}

long is(const char *what, long ret)
{
	int err = errno;

	if (ret == -1)
		say("%s=%s", what, strerrorname_np(err));
	else
		say("%s=%ld", what, ret);
	errno = err;
	return ret;
}

long got(const char *what, long ret, const void *buf)
{
	char text[64];
	const unsigned char *c = buf;
	int n = ret < 32 ? (int)ret : 32;

	if (ret < 0)
		return is(what, ret);
	for (int i = 0; i < n; i++)
		text[i] = (char)(c[i] < 32 || c[i] > 126 ? '.' : c[i]);
	text[n < 0 ? 0 : n] = '\0';
	say("%s=%ld\"%s\"", what, ret, text);
	return ret;
}

void events(const char *what, unsigned int ev)
{
	char text[128] = "";

	for (size_t i = 0; i < BIT_NAMES; i++) {
		if (!(ev & bit_names[i].bit))
			continue;
		if (text[0])
			strcat(text, "|");
		strcat(text, bit_names[i].name);
		ev &= ~bit_names[i].bit;
	}
	say("%s=%s%s", what, text[0] ? text : "none", ev ? "|other" : "");
}

struct moment now(void)
{
	struct rusage u;

	getrusage(RUSAGE_THREAD, &u);
	return (struct moment){ now_ns(), u.ru_nvcsw };
}

/* A thread that merely got no CPU for a while has not slept. */
void pace(struct moment since)
{
	struct moment m = now();

	say(m.sleeps == since.sleeps || m.ns - since.ns < WAITED_NS
		    ? "(at once)"
		    : "(waited)");
}

void die(const char *why)
{
	say("CANNOT %s (%s)", why, strerrorname_np(errno));
	exit(0);
}

/* --- doing -------------------------------------------------------------- */

int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

void pass_ms(int ms)
{
	poll(NULL, 0, ms);
}

void settle(int fd, short ev)
{
	int64_t end = now_ns() + 200000000;

	while (now_ns() < end) {
		struct pollfd p = { .fd = fd, .events = ev };

		if (poll(&p, 1, 50) > 0 && (p.revents & (ev | POLLNVAL)))
			return;
		if (p.revents) /* something else, which does not go away */
			pass_ms(1);
	}
}

void poll_one(const char *what, int fd, short ev, int ms)
{
	struct pollfd p = { .fd = fd, .events = ev };
	struct moment start = now();
	int n = poll(&p, 1, ms);

	is(what, n);
	if (ms)
		pace(start);
	if (n > 0)
		events("revents", (unsigned short)p.revents);
}

struct later {
	int ms;
	void (*f)(void);
};

static void *be_late(void *arg)
{
	struct later *l = arg;

	pass_ms(l->ms);
	l->f();
	return NULL;
}

void later(int ms, void (*f)(void))
{
	static struct later l;
	sigset_t all, old;

	l = (struct later){ ms, f };
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (pthread_create(&later_thread, NULL, be_late, &l))
		die("start a thread");
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void later_end(void)
{
	pthread_join(later_thread, NULL);
}

void put_all(int fd, const void *buf, size_t n)
{
	for (size_t done = 0; done < n;) {
		struct pollfd p = { .fd = fd, .events = POLLOUT };
		ssize_t r = send(fd, (const char *)buf + done, n - done,
				 MSG_NOSIGNAL);

		if (r < 0 && errno == EAGAIN && poll(&p, 1, 2000) > 0)
			continue;
		if (r < 0)
			die("send");
		done += (size_t)r;
	}
}

void get_all(int fd, void *buf, size_t n)
{
	for (size_t done = 0; done < n;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t r = recv(fd, (char *)buf + done, n - done, 0);

		if (r < 0 && errno == EAGAIN && poll(&p, 1, 2000) > 0)
			continue;
		if (r <= 0)
			die("receive");
		done += (size_t)r;
	}
}

void put_text(int fd, const char *text)
{
	put_all(fd, text, strlen(text));
}

void get_now(const char *what, int fd, size_t n)
{
	char buf[4096];

	got(what,
	    recv(fd, buf, n < sizeof(buf) ? n : sizeof(buf), MSG_DONTWAIT),
	    buf);
}

size_t fill(int fd)
{
	static char buf[65536];
	size_t all = 0;

	/* The other end acknowledges up to 40 ms late, and is asked after
	 * 200 ms whether its buffer got larger. */
	for (int in_vain = 0; in_vain < 50; in_vain++) {
		ssize_t r;

		for (; (r = send(fd, buf, sizeof(buf),
				 MSG_DONTWAIT | MSG_NOSIGNAL)) > 0;
		     in_vain = 0)
			all += (size_t)r;
		pass_ms(5);
	}
	return all;
}

size_t drain(int fd)
{
	static char buf[65536];
	struct pollfd p = { .fd = fd, .events = POLLIN };
	size_t all = 0;
	ssize_t r;

	while (poll(&p, 1, 20) > 0 &&
	       (r = recv(fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0)
		all += (size_t)r;
	return all;
}

void nonblock(int fd, bool on)
{
	int fl = fcntl(fd, F_GETFL);

	fcntl(fd, F_SETFL, on ? fl | O_NONBLOCK : fl & ~O_NONBLOCK);
}

void reset(int fd)
{
	struct linger l = { .l_onoff = 1 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	close(fd);
}

void child(const char *what, pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid)
		is(what, -1);
	else if (WIFSIGNALED(status))
		say("%s=SIG%s", what, sigabbrev_np(WTERMSIG(status)));
	else
		say("%s=exit %d", what, WEXITSTATUS(status));
}

/* --- connections -------------------------------------------------------- */

int listener(int domain, struct sockaddr_storage *at, socklen_t *len)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
	struct sockaddr un = { .sa_family = AF_UNIX };
	int l;

	if (domain == AF_INET)
		domain = stream_family;
	l = socket(domain, domain == AF_UNIX ? stream_type : SOCK_STREAM, 0);

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	in6.sin6_addr = in6addr_any;
	if (domain == AF_INET)
		memcpy(at, &in, *len = sizeof(in));
	else if (domain == AF_UNIX) /* the kernel chooses an abstract name */
		memcpy(at, &un, *len = sizeof(un.sa_family));
	else
		memcpy(at, &in6, *len = sizeof(in6));
	if (l < 0 || bind(l, (struct sockaddr *)at, *len) || listen(l, 64))
		die("listen");
	*len = sizeof(*at);
	if (getsockname(l, (struct sockaddr *)at, len))
		die("listen");
	return l;
}

static void fresh_pair(void)
{
	int sv[2];

	if (socketpair(AF_UNIX, stream_type, 0, sv))
		die("make a pair");
	here = sv[is_swapped];
	peer = sv[!is_swapped];
}

void cold_pair(int domain, bool mapped)
{
	struct sockaddr_storage at;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&at;
	socklen_t len;
	int l, c, s;

	if (is_pair && domain == AF_INET) {
		fresh_pair();
		return;
	}
	l = listener(domain, &at, &len);
	c = socket(at.ss_family,
		   at.ss_family == AF_UNIX ? stream_type : SOCK_STREAM, 0);

	if (domain == AF_INET6) {
		in6->sin6_addr = in6addr_loopback;
		if (mapped) {
			static const uint8_t v4[] = {
				0xff, 0xff, 127, 0, 0, 1
			};

			memset(&in6->sin6_addr, 0, sizeof(in6->sin6_addr));
			memcpy(&in6->sin6_addr.s6_addr[10], v4, sizeof(v4));
		}
	}
	if (c < 0 || connect(c, (struct sockaddr *)&at, len))
		die("connect");
	s = accept(l, NULL, NULL);
	if (s < 0)
		die("accept");
	close(l);
	if (at.ss_family == AF_UNIX)
		goto out;
	/* When small pieces go is a matter of acknowledgements otherwise. */
	setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
out:
	here = is_swapped ? s : c;
	peer = is_swapped ? c : s;
}

void warm(int x, int y)
{
	static char out[1024], in[1024];

	for (int i = 0; i < 18 && !is_cold; i++) {
		struct pollfd p[] = { { .fd = x, .events = POLLIN },
				      { .fd = y, .events = POLLIN } };

		for (int k = 0; k < (int)sizeof(out); k++)
			out[k] = (char)(i * 7 + k);
		put_all(x, out, sizeof(out));
		get_all(y, in, sizeof(in));
		if (memcmp(in, out, sizeof(in)) != 0)
			die("get the same bytes there");
		put_all(y, out, sizeof(out));
		get_all(x, in, sizeof(in));
		if (memcmp(in, out, sizeof(in)) != 0)
			die("get the same bytes back");
		if (i % 2 == 0 && poll(p, 2, 1) != 0)
			die("be idle");
	}
}

void pair(void)
{
	cold_pair(AF_INET, false);
	warm(here, peer);
}

/* --- rows --------------------------------------------------------------- */

static void run(const struct row *r)
{
	which_row = r->arg;
	r->f();
	exit(0); /* not _exit(): what a program does at its end is part of it */
}

static void tell(const struct row *r, const char *end)
{
	printf("%s%s:%.*s%s%s\n", r->name, r->more, (int)said->len, said->text,
	       *end ? " " : "", end);
	fflush(stdout);
}

/* With more signals (within.c), a row takes longer. */
static int limit_s(void)
{
	const char *n = getenv("BEHAVE_SIGNALS");
	int hundreds = n ? atoi(n) / 100 : 1;

	return LIMIT_S * (hundreds > 1 ? hundreds : 1);
}

/* The row's own children go with it. */
static void run_apart(const struct row *r)
{
	const struct timespec second = { .tv_sec = 1 };
	int left = limit_s();
	char end[32] = "";
	sigset_t chld;
	int status;
	pid_t pid;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	said->len = 0;
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		exit(2);
	if (pid == 0) {
		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sigprocmask(SIG_UNBLOCK, &chld, NULL);
		signal(SIGPIPE, SIG_IGN);
		run(r);
	}
	setpgid(pid, pid);
	while (waitpid(pid, &status, WNOHANG) == 0) {
		/* A second at a time: if the machine stands still, so do the
		 * row and, but for one second, its limit. */
		if (sigtimedwait(&chld, NULL, &second) >= 0 ||
		    errno != EAGAIN || --left)
			continue;
		strcpy(end, "HUNG");
		break;
	}
	kill(-pid, SIGKILL);
	if (end[0])
		waitpid(pid, &status, 0);
	else if (WIFSIGNALED(status))
		snprintf(end, sizeof(end), "KILLED by SIG%s",
			 sigabbrev_np(WTERMSIG(status)));
	else if (WEXITSTATUS(status))
		snprintf(end, sizeof(end), "EXITED with %d",
			 WEXITSTATUS(status));
	tell(r, end);
}

static bool wanted(const struct row *r, char **patterns)
{
	char name[128];

	snprintf(name, sizeof(name), "%s%s", r->name, r->more);
	for (char **p = patterns; *p; p++)
		if (fnmatch(*p, name, 0) == 0)
			return true;
	return !*patterns;
}

int main(int argc, char **argv)
{
	bool list = false;

	for (argv++; *argv && strncmp(*argv, "--", 2) == 0; argv++) {
		list = list || strcmp(*argv, "--list") == 0;
		is_cold = is_cold || strcmp(*argv, "--cold") == 0;
		is_swapped = is_swapped || strcmp(*argv, "--swap") == 0;
		is_here = is_here || strcmp(*argv, "--here") == 0;
		is_pair = is_pair || strcmp(*argv, "--pair") == 0;
		if (strcmp(*argv, "--packet") == 0)
			stream_type = SOCK_SEQPACKET;
		if (is_pair || stream_type == SOCK_SEQPACKET ||
		    strcmp(*argv, "--unix") == 0)
			stream_family = AF_UNIX;
	}
	said = mmap(NULL, sizeof(*said), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (said == MAP_FAILED)
		return 2;
	for (const struct row *r = rows; r < rows + n_rows; r++) {
		if (!wanted(r, argv))
			continue;
		if (list) {
			printf("%s%s\n", r->name, r->more);
		} else if (is_here) {
			signal(SIGPIPE, SIG_IGN);
			said->len = 0;
			which_row = r->arg;
			r->f();
			tell(r, "");
		} else {
			run_apart(r);
		}
	}
	return 0;
}
