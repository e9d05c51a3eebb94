/* SPDX-License-Identifier: BSD-2-Clause */
/* A queue in an event loop of libuv, beside a timer: it echoes what a client
 * sends, and the timer keeps running.
 *
 *	uv PORT		port 0 picks one; ends with its first client
 */
#include <err.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/exs_ext.h>
#include <uv.h>

static exs_qhandle_t q;
static uv_poll_t events;
static uv_timer_t timer;
static char buf[65536];
static long bytes, ticks;

static void must(ssize_t ret, const char *what)
{
	if (ret)
		err(1, "%s", what);
}

static void hear(int s)
{
	must(exs_recv(s, buf, sizeof(buf), 0, q, NULL, 0), "exs_recv");
}

static void serve(const exs_event_t *e)
{
	size_t n = e->exs_evt_un.exs_evt_xfer.exs_evt_length;
	int s = e->exs_evt_socket;

	errno = e->exs_errno;
	must(e->exs_errno, "an operation");
	switch (e->exs_evt_type) {
	case EXS_EVT_ACCEPT:
		hear(e->exs_evt_un.exs_evt_accept.exs_evt_newfd);
		break;
	case EXS_EVT_SEND:
		hear(s);
		break;
	case EXS_EVT_RECV:
		bytes += (long)n;
		if (n)
			must(exs_send(s, buf, n, 0, q, NULL, 0), "exs_send");
		else
			must(exs_close(s, q, NULL), "exs_close");
		break;
	default: /* closed */
		uv_close((uv_handle_t *)&events, NULL);
		uv_close((uv_handle_t *)&timer, NULL);
	}
}

/* The queue's descriptor is readable: takes what is there, without waiting. */
static void on_events(uv_poll_t *p, int status, int what)
{
	struct timeval now = { 0 };
	exs_event_t ev[16];
	int n = exs_qdequeue(q, ev, 16, &now);

	for (int i = 0; i < n; i++)
		serve(&ev[i]);
}

static void on_time(uv_timer_t *t)
{
	ticks++;
}

int main(int argc, char **argv)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6 }; /* and IPv4 */
	socklen_t len = sizeof(a);
	int s;

	if (argc != 2)
		errx(2, "usage: uv PORT");
	must(exs_init(EXS_VERSION), "exs_init");
	q = exs_qcreate(16);
	s = exs_socket(AF_INET6, SOCK_STREAM, 0);
	a.sin6_port = htons((uint16_t)atoi(argv[1]));
	must(exs_bind(s, (struct sockaddr *)&a, len), argv[1]);
	must(exs_listen(s, 1), argv[1]);
	must(exs_getsockname(s, (struct sockaddr *)&a, &len), argv[1]);
	printf("listening on port %u\n", ntohs(a.sin6_port));
	fflush(stdout);
	must(exs_accept(s, NULL, 0, q, NULL), "exs_accept");

	uv_poll_init(uv_default_loop(), &events, exs_x_qfd(q));
	uv_poll_start(&events, UV_READABLE, on_events);
	uv_timer_init(uv_default_loop(), &timer);
	uv_timer_start(&timer, on_time, 1, 1);
	uv_run(uv_default_loop(), UV_RUN_DEFAULT);
	printf("%ld bytes, %s\n", bytes, ticks ? "and it ticked" : "no tick");
	return 0;
}
