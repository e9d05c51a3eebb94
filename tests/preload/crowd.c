/* SPDX-License-Identifier: BSD-2-Clause */
/* A server with more connections than one wait reports: one that has nothing
 * for as long as the server takes for the others is still in use, and its peer
 * sends no wake-up. Both ends are in this thread. */
#include <dlfcn.h>
#include <err.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/exs_ext.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MANY   320
#define BATCH  16
#define ROUNDS 10
#define LIMIT  60 /* s, after which a connection must have moved */

static int (*ask)(int, exs_x_sockinfo_t *);
static int ends[MANY][2], ep;

static void must(ssize_t n, ssize_t wanted, const char *what)
{
	if (n != wanted)
		err(1, "%s: %zd, not %zd", what, n, wanted);
}

static exs_x_sockinfo_t info(int fd)
{
	exs_x_sockinfo_t ret;

	must(ask(fd, &ret), 0, "exs_x_sockinfo");
	return ret;
}

static void move(const int *e)
{
	time_t end = time(NULL) + LIMIT;
	char more[512] = "";

	while (strcmp(info(e[0]).exs_x_tx_fabric, "shm") ||
	       strcmp(info(e[1]).exs_x_rx_fabric, "shm")) {
		if (time(NULL) > end)
			errx(1, "a connection stays on TCP");
		must(write(e[0], more, sizeof(more)), sizeof(more), "write");
		must(recv(e[1], more, sizeof(more), MSG_WAITALL), sizeof(more),
		     "recv");
	}
}

static void open_ends(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr = { htonl(INADDR_LOOPBACK) } };
	struct epoll_event ev = { .events = EPOLLIN };
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM, 0);

	must(bind(l, (struct sockaddr *)&a, len), 0, "bind");
	must(listen(l, 1), 0, "listen");
	must(getsockname(l, (struct sockaddr *)&a, &len), 0, "getsockname");
	for (int i = 0; i < MANY; i++) {
		int *e = ends[i];

		e[0] = socket(AF_INET, SOCK_STREAM, 0);
		must(connect(e[0], (struct sockaddr *)&a, len), 0, "connect");
		e[1] = accept(l, NULL, NULL);
		ev.data.fd = e[1];
		must(epoll_ctl(ep, EPOLL_CTL_ADD, e[1], &ev), 0, "epoll_ctl");
	}
	close(l);
	/* A connection whose set nobody was seen to wait for does not move. */
	must(epoll_wait(ep, &ev, 1, 0), 0, "epoll_wait");
	for (int i = 0; i < MANY; i++)
		move(ends[i]);
}

static void serve_all(void)
{
	struct epoll_event ev[BATCH];
	char c = 0;

	for (int i = 0; i < MANY; i += BATCH) {
		int n = 0;

		for (int j = 0; j < BATCH; j++)
			must(write(ends[i + j][0], &c, 1), 1, "write");
		while (n < BATCH) {
			int k = epoll_wait(ep, ev, BATCH, 60000);

			if (k <= 0)
				err(1, "epoll_wait: %d", k);
			for (n += k; k > 0; k--)
				must(read(ev[k - 1].data.fd, &c, 1), 1, "read");
		}
	}
}

static unsigned long bells(void)
{
	unsigned long ret = 0;

	for (int i = 0; i < MANY; i++)
		ret += info(ends[i][0]).exs_x_bells_sent;
	return ret;
}

int main(void)
{
	struct rlimit r;
	unsigned long n;

	must(getrlimit(RLIMIT_NOFILE, &r), 0, "getrlimit");
	r.rlim_cur = r.rlim_max;
	must(setrlimit(RLIMIT_NOFILE, &r), 0, "setrlimit");
	*(void **)&ask = dlsym(RTLD_DEFAULT, "exs_x_sockinfo");
	if (!ask)
		errx(1, "not under exs run");
	ep = epoll_create1(0);
	open_ends();
	serve_all(); /* all are in use from here on */
	n = bells();
	for (int i = 0; i < ROUNDS; i++)
		serve_all();
	n = bells() - n;
	if (n > MANY)
		errx(1, "%lu wake-ups for %d messages", n, MANY * ROUNDS);
	return 0;
}
