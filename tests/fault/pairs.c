/* SPDX-License-Identifier: BSD-2-Clause */
/* A socket pair, of which a forked child has the other end: both move to shared
 * memory, and then the child writes anything into its segment, on its link and
 * into the connection, and ends. The parent, a program that knows nothing of
 * the library, serves the next pair, and keeps nothing of those before. For
 * exs run, with EXS_UPGRADE=connect:
 *
 * pairs ROUNDS [SEED] */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/meet/pair.h"
#include "providers/shm/shm_wire.h"

#define ACTS  40
#define SIZE  2000
#define LATE  20 /* seconds */
#define ONCE  4	 /* descriptors that the library makes when it needs one */
#define BAD   3	 /* the status of a process that could not do its part */
#define LARGE 9000

/* Options of a sanitizer that is built in, as in victim.c. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0:verify_asan_link_order=0";
}

static uint64_t state;

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "pairs: %s (%s)\n", what, strerror(errno));
	_exit(BAD);
}

/* xorshift64* */
static uint64_t any(void)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1dull;
}

static uint32_t below(uint32_t n)
{
	return (uint32_t)(any() >> 32) % n;
}

/* Odd numbers as likely as any. */
static uint64_t number(void)
{
	static const uint64_t odd[] = {
		0,	    1,		16,	    65536,	    1ull << 31,
		1ull << 32, 1ull << 63, UINT64_MAX, UINT64_MAX - 15
	};

	return below(2) ? any() >> below(64)
			: odd[below(sizeof(odd) / sizeof(*odd))];
}

/* --- what a process has -------------------------------------------------- */

static int descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	if (!d)
		fail("/proc/self/fd");
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* The segments of connections; *mine gets the one that this process made, which
 * it may write. */
static int segments(struct shmp_segment **mine, size_t *bytes)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long from, to;
	char line[512], may[5];
	int n = 0;

	if (!f)
		fail("/proc/self/maps");
	while (fgets(line, sizeof(line), f)) {
		if (!strstr(line, "/memfd:libexs (deleted)") ||
		    sscanf(line, "%lx-%lx %4s", &from, &to, may) != 3)
			continue;
		n++;
		if (!mine || may[1] != 'w')
			continue;
		*mine = (struct shmp_segment *)from; /* NOLINT: as the text */
		*bytes = to - from;
	}
	fclose(f);
	return n;
}

/* The library's socket to the other one. */
static int link_of(void)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	int type, ret = -1;
	socklen_t len;

	if (!d)
		fail("/proc/self/fd");
	while (ret < 0 && (e = readdir(d))) {
		len = sizeof(type);
		if (getsockopt(atoi(e->d_name), SOL_SOCKET, SO_TYPE, &type,
			       &len) == 0 &&
		    type == SOCK_SEQPACKET)
			ret = atoi(e->d_name);
	}
	closedir(d);
	return ret;
}

/* --- the child ----------------------------------------------------------- */

static void all(bool sends, int fd, size_t len)
{
	static char buf[SIZE];
	size_t done = 0;
	ssize_t n;

	while (done < len) {
		n = sends ? send(fd, buf, len - done, MSG_NOSIGNAL)
			  : recv(fd, buf, len - done, 0);
		if (n <= 0)
			fail("an honest pair");
		done += (size_t)n;
	}
}

/* Until each end has made its segment and both directions are there; false:
 * that took too long. */
static bool move(int fd)
{
	time_t until = time(NULL) + LATE;

	while (segments(NULL, NULL) < 2) {
		if (time(NULL) > until)
			return false;
		all(true, fd, SIZE);
		all(false, fd, SIZE);
	}
	for (int i = 0; i < 8; i++) {
		all(true, fd, SIZE);
		all(false, fd, SIZE);
	}
	return true;
}

static void scribble(struct shmp_segment *seg, size_t bytes)
{
	uint32_t at =
		below(2) ? below(SHMP_RING_OFFSET) : below((uint32_t)bytes);
	_Atomic uint64_t *word = (void *)((char *)seg + (at & ~7u));

	if (below(4) == 0)
		for (int i = 0; i < 2000; i++)
			atomic_store(word, any());
	else if (at >= SHMP_RING_OFFSET && below(2))
		atomic_store((_Atomic uint32_t *)word,
			     below(8) << SHMP_KIND_SHIFT | below(LARGE));
	else
		atomic_store(word, number());
}

static void lie(int link)
{
	struct exi_pair_msg m[2] = { { .magic = EXI_PAIR_MAGIC,
				       .version = EXI_PAIR_VERSION } };
	size_t len = below(8) ? sizeof(m[0]) : below(sizeof(m));

	m[0].type =
		(uint16_t)(below(8) ? below(EXI_PAIR_TYPE_MAX + 2) : number());
	m[0].a = number();
	m[0].b = number();
	m[0].c = number();
	/* One byte is a doorbell. */
	(void)syscall(SYS_sendto, link, m, below(2) ? 1 : len,
		      MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
}

static void act(int fd, int link, struct shmp_segment *seg, size_t bytes)
{
	static char buf[LARGE];
	struct pollfd p = { .fd = link, .events = POLLIN };

	switch (below(8)) {
	case 0:
	case 1:
	case 2:
		scribble(seg, bytes);
		break;
	case 3:
	case 4:
		lie(link);
		break;
	case 5: /* past the library, or with it */
		if (below(2))
			(void)send(fd, buf, below(LARGE),
				   MSG_DONTWAIT | MSG_NOSIGNAL);
		else
			(void)syscall(SYS_sendto, fd, buf, below(LARGE),
				      MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
		if (below(16) == 0)
			(void)syscall(SYS_shutdown, fd, SHUT_WR);
		break;
	case 6:
		(void)recv(fd, buf, below(LARGE), MSG_DONTWAIT);
		break;
	default: /* The parent has some time to look. */
		poll(&p, 1, 1);
	}
}

static _Noreturn void attack(int fd)
{
	struct shmp_segment *seg = NULL;
	size_t bytes = 0;
	int link;

	if (!move(fd))
		fail("the pair does not move");
	segments(&seg, &bytes);
	link = link_of();
	if (!seg || link < 0)
		fail("no segment, or no link");
	/* From here on this process may end in any way, but it ends. */
	signal(SIGSEGV, SIG_DFL);
	alarm(LATE);
	for (uint32_t k = 1 + below(ACTS); k; k--)
		act(fd, link, seg, bytes);
	kill(getpid(), SIGKILL);
	_exit(2);
}

/* --- the parent ---------------------------------------------------------- */

/* Sends back what comes, until the end. */
static void serve(int fd, bool waits)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	static char buf[LARGE];
	ssize_t n;

	if (!waits)
		fcntl(fd, F_SETFL, O_NONBLOCK);
	for (;;) {
		if (!waits)
			poll(&p, 1, 1000);
		n = recv(fd, buf, sizeof(buf), 0);
		if (n > 0)
			n = send(fd, buf, (size_t)n, MSG_NOSIGNAL);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n <= 0)
			return;
	}
}

static void serve_child(int i, bool honest)
{
	int sv[2], status;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv))
		fail("socketpair");
	pid = fork();
	if (pid < 0)
		fail("fork");
	/* Either end may be the child's. */
	if (pid == 0) {
		close(sv[i & 1]);
		state += (uint64_t)i;
		if (!honest)
			attack(sv[!(i & 1)]);
		_exit(move(sv[!(i & 1)]) ? 0 : BAD);
	}
	close(sv[!(i & 1)]);
	serve(sv[i & 1], i & 2);
	close(sv[i & 1]);
	if (waitpid(pid, &status, 0) != pid)
		fail("waitpid");
	if (honest && status)
		fail("an honest child did not end well");
	if (WIFEXITED(status) && WEXITSTATUS(status) == BAD)
		fail("a child could not attack");
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 0, fds;
	time_t until;

	state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	if (rounds <= 0 || !state)
		return 2;
	for (int i = 0; i < 4; i++)
		serve_child(i, true);
	fds = descriptors();
	for (int i = 0; i < rounds; i++) {
		serve_child(i, false);
		any();
	}
	for (int i = 0; i < 4; i++)
		serve_child(i, true);
	/* What is closed apart is closed soon. */
	until = time(NULL) + LATE;
	while (descriptors() > fds + ONCE || segments(NULL, NULL)) {
		if (time(NULL) > until) {
			fprintf(stderr,
				"pairs: %d descriptors, of %d, and %d "
				"segments are kept\n",
				descriptors(), fds, segments(NULL, NULL));
			return 1;
		}
		poll(NULL, 0, 10);
	}
	printf("%d rounds\n", rounds);
	return 0;
}
