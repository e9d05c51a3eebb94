/* SPDX-License-Identifier: BSD-2-Clause */
/* Echoes the bytes of a thousand clients, with one queue and one thread.
 *
 *	echo PORT CLIENTS	port 0 picks one; ends after so many clients */
#include <err.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/exs.h>
#include <sys/resource.h>

#define DESCRIPTORS 8192 /* each has one operation outstanding, never more */

struct client {
	int s;
	char buf[4096];
};
static exs_qhandle_t q;
static long left, bytes, most, now;
static int listener;

static void must(ssize_t ret, const char *what)
{
	if (ret)
		err(1, "%s", what);
}

static void next_client(void)
{
	must(exs_accept(listener, NULL, 0, q, NULL), "exs_accept");
}

static void hear(struct client *c)
{
	must(exs_recv(c->s, c->buf, sizeof(c->buf), 0, q, c, 0), "exs_recv");
}

static void welcome(int s)
{
	struct client *c = malloc(sizeof(*c));

	if (s < 0 || !c)
		err(1, "a client more");
	c->s = s;
	hear(c);
	most = ++now > most ? now : most;
	next_client();
}

static void serve(const exs_event_t *e)
{
	struct client *c = e->exs_evt_ahandle;
	size_t n = e->exs_evt_un.exs_evt_xfer.exs_evt_length;

	if (e->exs_evt_type == EXS_EVT_ACCEPT) {
		welcome(e->exs_evt_un.exs_evt_accept.exs_evt_newfd);
	} else if (e->exs_evt_type == EXS_EVT_CLOSE) {
		free(c);
		left--;
		now--;
	} else if (e->exs_errno || !n) {
		must(exs_close(c->s, q, c), "exs_close");
	} else if (e->exs_evt_type == EXS_EVT_RECV) {
		bytes += (long)n;
		must(exs_send(c->s, c->buf, n, MSG_NOSIGNAL, q, c, 0), "send");
	} else {
		hear(c);
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6 }; /* and IPv4 */
	struct rlimit many = { DESCRIPTORS, DESCRIPTORS };
	socklen_t len = sizeof(a);
	exs_event_t e;

	if (argc != 3)
		errx(2, "usage: echo PORT CLIENTS");
	setrlimit(RLIMIT_NOFILE, &many);
	left = atol(argv[2]);
	must(exs_init(EXS_VERSION), "exs_init");
	q = exs_qcreate(DESCRIPTORS);
	listener = exs_socket(AF_INET6, SOCK_STREAM, 0);
	a.sin6_port = htons((uint16_t)atoi(argv[1]));
	must(exs_bind(listener, (struct sockaddr *)&a, len), argv[1]);
	must(exs_listen(listener, 1000), argv[1]);
	must(exs_getsockname(listener, (struct sockaddr *)&a, &len), argv[1]);
	printf("listening on port %u\n", ntohs(a.sin6_port));
	fflush(stdout);
	next_client();
	while (left && exs_qdequeue(q, &e, 1, NULL) == 1)
		serve(&e);
	printf("%ld bytes, %ld clients at once\n", bytes, most);
	return 0;
}
