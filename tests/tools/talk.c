/* SPDX-License-Identifier: BSD-2-Clause */
/* Two programs that know nothing of the library, one of which answers what the
 * other sends, until both ends are said to be where they should be: talk serve
 * WANTED ADDRESS [confined|root FOLDER], talk call WANTED ADDRESS PORT MS. The
 * first prints its port, the second the number of bytes each way. WANTED is
 * shm, or the reason why not; or nothing is waited for. They talk for MS at
 * least. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <err.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BLOCK  8192
#define ROUNDS 60    /* at least */
#define MOST   20000 /* ms */

/* What the library says of the connection; without one, whatever is wanted. */
static bool is_as_wanted(int fd, const char *wanted)
{
	int (*sockinfo)(int, exs_x_sockinfo_t *);
	const char *(*name)(int);
	exs_x_sockinfo_t i;

	*(void **)&sockinfo = dlsym(RTLD_DEFAULT, "exs_x_sockinfo");
	*(void **)&name = dlsym(RTLD_DEFAULT, "exs_x_reason_name");
	if (!sockinfo || !*wanted)
		return true;
	if (!name || sockinfo(fd, &i) < 0)
		err(1, "exs_x_sockinfo");
	if (strcmp(wanted, "shm") == 0)
		return strcmp(i.exs_x_rx_fabric, "shm") == 0 &&
		       strcmp(i.exs_x_tx_fabric, "shm") == 0;
	return strcmp(i.exs_x_rx_fabric, "tcp") == 0 &&
	       strcmp(i.exs_x_tx_fabric, "tcp") == 0 &&
	       strcmp(name(i.exs_x_reason), wanted) == 0;
}

static bool get(int fd, char *buf)
{
	ssize_t n;

	for (size_t got = 0; got < BLOCK; got += (size_t)n) {
		n = recv(fd, buf + got, BLOCK - got, 0);
		if (n < 0)
			err(1, "recv");
		if (n == 0)
			return false;
	}
	return true;
}

static void put(int fd, const char *buf)
{
	if (send(fd, buf, BLOCK, MSG_NOSIGNAL) != BLOCK)
		err(1, "send");
}

/* A filter that allows everything. */
static void confine(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { .len = 1, .filter = code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
		err(1, "seccomp");
}

static struct sockaddr_in address(const char *text, int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)port) };

	if (inet_pton(AF_INET, text, &a.sin_addr) != 1)
		errx(1, "%s is no address", text);
	return a;
}

static int serve(const char *wanted, const char *at, char **more)
{
	struct sockaddr_in a = address(at, 0);
	int listener = socket(AF_INET, SOCK_STREAM, 0), fd;
	bool confined = *more && strcmp(*more, "confined") == 0;
	socklen_t len = sizeof(a);
	static char buf[BLOCK];

	if (listener < 0 || bind(listener, (struct sockaddr *)&a, len) < 0 ||
	    listen(listener, 1) < 0 ||
	    getsockname(listener, (struct sockaddr *)&a, &len) < 0)
		err(1, "listen");
	printf("%d\n", ntohs(a.sin_port));
	fflush(stdout);
	if (*more && !confined && chroot(more[1]) < 0)
		err(1, "chroot");
	fd = accept(listener, NULL, NULL);
	if (fd < 0)
		err(1, "accept");
	close(listener);
	while (get(fd, buf)) {
		if (confined && is_as_wanted(fd, "shm")) {
			confine();
			confined = false;
			wanted = ""; /* the library is asked no more */
		}
		buf[0] = !confined && is_as_wanted(fd, wanted);
		put(fd, buf);
	}
	return close(fd);
}

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int call(const char *wanted, const char *to, const char *port,
		const char *ms)
{
	struct sockaddr_in a = address(to, atoi(port));
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	long began = now_ms(), rounds = 0;
	static char buf[BLOCK];

	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		err(1, "connect");
	do {
		if (rounds) /* the handshake takes place beside it */
			poll(NULL, 0, rounds < ROUNDS ? 0 : 1);
		put(fd, buf);
		if (!get(fd, buf))
			errx(1, "the server ended");
	} while (++rounds < ROUNDS || now_ms() < began + atoi(ms) ||
		 ((!buf[0] || !is_as_wanted(fd, wanted)) &&
		  now_ms() < began + MOST));
	printf("%ld\n", rounds * BLOCK);
	return close(fd);
}

int main(int argc, char **argv)
{
	if (argc >= 4 && strcmp(argv[1], "serve") == 0)
		return serve(argv[2], argv[3], argv + 4);
	if (argc == 6 && strcmp(argv[1], "call") == 0)
		return call(argv[2], argv[3], argv[4], argv[5]);
	fprintf(stderr, "usage: talk serve|call WANTED ADDRESS ...\n");
	return 1;
}
