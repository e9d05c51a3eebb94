/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations of 8 bytes on a connection over shared memory, both ends in this
 * thread: a function each, whose instructions count.py counts. */
#include <err.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/exs.h>
#include <sys/exs_ext.h>

#include "count.h"

#define WAIT EXS_QHANDLE_INVALID, NULL, EXS_MHANDLE_UNREGISTERED

static int ends[2];
static exs_qhandle_t sent, received;
static exs_mhandle_t mem;
static char buf[2 * SIZE];

static void must(ssize_t n, ssize_t wanted, const char *what)
{
	if (n != wanted)
		err(1, "%s: %zd, not %zd", what, n, wanted);
}

OP(api_send)
{
	must(exs_send(ends[0], buf, SIZE, 0, WAIT), SIZE, "exs_send");
}

OP(api_recv)
{
	must(exs_recv(ends[1], buf + SIZE, SIZE, 0, WAIT), SIZE, "exs_recv");
}

OP(api_post_recv)
{
	must(exs_recv(ends[1], buf + SIZE, SIZE, 0, received, NULL, mem), 0,
	     "exs_recv");
}

OP(api_post_send)
{
	must(exs_send(ends[0], buf, SIZE, 0, sent, NULL, mem), 0, "exs_send");
}

OP(api_dequeue_sent)
{
	exs_event_t ev;

	must(exs_qdequeue(sent, &ev, 1, NULL), 1, "exs_qdequeue");
	must(ev.exs_errno, 0, "a send");
}

OP(api_dequeue_received)
{
	exs_event_t ev;

	must(exs_qdequeue(received, &ev, 1, NULL), 1, "exs_qdequeue");
	must(ev.exs_errno, 0, "a receive");
}

static void open_ends(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof(a);
	exs_qhandle_t q = EXS_QHANDLE_INVALID;
	int l = exs_socket(AF_INET, SOCK_STREAM, 0);

	must(exs_bind(l, (struct sockaddr *)&a, len), 0, "exs_bind");
	must(exs_listen(l, 1), 0, "exs_listen");
	must(exs_getsockname(l, (struct sockaddr *)&a, &len), 0,
	     "exs_getsockname");
	ends[0] = exs_socket(AF_INET, SOCK_STREAM, 0);
	must(exs_connect(ends[0], (struct sockaddr *)&a, len, 0, q, NULL), 0,
	     "exs_connect");
	ends[1] = exs_accept(l, NULL, 0, q, NULL);
	if (ends[1] < 0)
		err(1, "exs_accept");
	must(exs_close(l, q, NULL), 0, "exs_close");
	sent = exs_qcreate(16);
	received = exs_qcreate(16);
	mem = exs_mregister(buf, sizeof(buf), 0);
}

static int on_shm(void)
{
	exs_x_sockinfo_t there, back;

	must(exs_x_sockinfo(ends[0], &there), 0, "exs_x_sockinfo");
	must(exs_x_sockinfo(ends[1], &back), 0, "exs_x_sockinfo");
	return !strcmp(there.exs_x_tx_fabric, "shm") &&
	       !strcmp(back.exs_x_rx_fabric, "shm");
}

int main(void)
{
	must(exs_init(EXS_VERSION), 0, "exs_init");
	open_ends();
	for (int i = 0; !on_shm(); i++) {
		char more[512];

		if (i == MOVES_AFTER)
			errx(1, "the connection stays on TCP");
		must(exs_send(ends[0], more, sizeof(more), 0, WAIT),
		     sizeof(more), "exs_send");
		must(exs_recv(ends[1], more, sizeof(more), MSG_WAITALL, WAIT),
		     sizeof(more), "exs_recv");
	}
	for (int i = 0; i < TIMES; i++) {
		api_send();
		api_recv();
	}
	for (int i = 0; i < TIMES; i++) {
		/* Both complete when they are posted: nothing is left to the
		 * service's thread, whose turns depend on time. */
		api_post_send();
		api_post_recv();
		api_dequeue_sent();
		api_dequeue_received();
	}
	return 0;
}
