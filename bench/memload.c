/* SPDX-License-Identifier: BSD-2-Clause */
/* Load for memcached: plain calls, one thread, one outstanding get on each
 * connection. Prints gets per second. */
#include <err.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#define CLIENTS_MAX 1024
#define VALUE	    "0123456789abcdef0123456789abcdef"

static const char set[] = "set key 0 0 32\r\n" VALUE "\r\n";
static const char stored[] = "STORED\r\n";
static const char get[] = "get key\r\n";
static const char value[] = "VALUE key 0 32\r\n" VALUE "\r\nEND\r\n";

struct client {
	int fd;
	size_t have; /* of the answer */
	char answer[sizeof(value)];
};

static struct client clients[CLIENTS_MAX];

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void ask(struct client *c, const char *what, size_t len)
{
	c->have = 0;
	if (send(c->fd, what, len, MSG_NOSIGNAL) != (ssize_t)len)
		err(1, "send");
}

/* Whether the answer is complete; a wrong one ends the program. */
static int take(struct client *c, const char *expected, size_t len)
{
	ssize_t n = recv(c->fd, c->answer + c->have, len - c->have, 0);

	if (n <= 0)
		errx(1, "recv: %s", n ? strerror(errno) : "the server left");
	c->have += (size_t)n;
	if (memcmp(c->answer, expected, c->have))
		errx(1, "not the answer that was expected: %.*s", (int)c->have,
		     c->answer);
	return c->have == len;
}

static void open_client(struct client *c, uint16_t port)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int on = 1;

	c->fd = socket(AF_INET, SOCK_STREAM, 0);
	if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof(to)) ||
	    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)))
		err(1, "cannot reach port %u", port);
}

static uint64_t drive_one(struct client *c, double end)
{
	uint64_t done = 0;

	do {
		ask(c, get, sizeof(get) - 1);
		while (!take(c, value, sizeof(value) - 1))
			;
	} while (++done % 64 || now() < end);
	return done;
}

static uint64_t drive_many(int n, double end)
{
	int ep = epoll_create1(EPOLL_CLOEXEC), flying = n;
	struct epoll_event ev[64];
	uint64_t done = 0;

	for (int i = 0; i < n; i++) {
		struct epoll_event in = { .events = EPOLLIN,
					  .data.ptr = &clients[i] };

		if (epoll_ctl(ep, EPOLL_CTL_ADD, clients[i].fd, &in))
			err(1, "epoll_ctl");
		ask(&clients[i], get, sizeof(get) - 1);
	}
	while (flying) {
		int ready = epoll_wait(ep, ev, 64, -1);
		double t = now();

		for (int i = 0; i < ready; i++) {
			struct client *c = ev[i].data.ptr;

			if (!take(c, value, sizeof(value) - 1))
				continue;
			done++;
			if (t < end)
				ask(c, get, sizeof(get) - 1);
			else
				flying--;
		}
	}
	return done;
}

int main(int argc, char **argv)
{
	uint64_t done;
	double start;
	int n;

	if (argc != 4 || (n = atoi(argv[2])) < 1 || n > CLIENTS_MAX)
		errx(2, "usage: %s PORT CLIENTS SECONDS", argv[0]);
	for (int i = 0; i < n; i++)
		open_client(&clients[i], (uint16_t)atoi(argv[1]));
	ask(&clients[0], set, sizeof(set) - 1);
	while (!take(&clients[0], stored, sizeof(stored) - 1))
		;
	start = now();
	done = n == 1 ? drive_one(&clients[0], start + atof(argv[3]))
		      : drive_many(n, start + atof(argv[3]));
	printf("%.1f\n", (double)done / (now() - start));
	return 0;
}
