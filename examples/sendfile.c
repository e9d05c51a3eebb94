/* SPDX-License-Identifier: BSD-2-Clause */
/* A web server of one file: each answer is one operation, with the header
 * from memory, the body from the file, and the end after the last byte.
 *	sendfile FILE PORT ANSWERS	port 0 picks one
 */
#include <err.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs.h>

struct client {
	int s;
	size_t heard;
	char said[4097];
	exs_xferfile_t answer[2];
};

static exs_qhandle_t q;
static int listener, file, left;
static char head[] = "HTTP/1.0 200 OK\r\n\r\n";

static void must(ssize_t ret, const char *what)
{
	if (ret)
		err(1, "%s", what);
}

static void hear(struct client *c)
{
	must(exs_recv(c->s, c->said + c->heard, 4096 - c->heard, 0, q, c, 0),
	     "");
}

static void next_client(void)
{
	must(exs_accept(listener, NULL, 0, q, NULL), "exs_accept");
}

/* The array is the library's until the event. */
static void answer(struct client *c)
{
	exs_iovec_t v = { head, strlen(head), EXS_MHANDLE_UNREGISTERED };

	c->answer[0] = (exs_xferfile_t){ EXS_IOVEC, { v } };
	c->answer[1].exs_xf_type = EXS_FDVEC; /* of the file, all */
	c->answer[1].exs_xf_un.exs_xf_fdvec.exs_fd_fildes = file;
	must(exs_sendfile(c->s, c->answer, 2, MSG_NOSIGNAL | EXS_SHUT_WR, q, c),
	     "exs_sendfile");
}

static void serve(const exs_event_t *e)
{
	struct client *c = e->exs_evt_ahandle;

	if (e->exs_evt_type == EXS_EVT_ACCEPT && !e->exs_errno) {
		c = calloc(1, sizeof(*c));
		c->s = e->exs_evt_un.exs_evt_accept.exs_evt_newfd;
		hear(c);
		next_client();
	} else if (e->exs_evt_type == EXS_EVT_RECV && !e->exs_errno &&
		   e->exs_evt_un.exs_evt_xfer.exs_evt_length) {
		c->heard += e->exs_evt_un.exs_evt_xfer.exs_evt_length;
		(strstr(c->said, "\r\n\r\n") ? answer : hear)(c);
	} else if (e->exs_evt_type == EXS_EVT_SENDFILE && !e->exs_errno) {
		c->heard = 0; /* until the client has it all, and ends */
		hear(c);
	} else if (e->exs_evt_type == EXS_EVT_CLOSE) {
		free(c);
		left--;
	} else if (c) {
		must(exs_close(c->s, q, c), "exs_close");
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6 };
	socklen_t len = sizeof(a);
	exs_event_t e;

	must(argc != 4, "sendfile FILE PORT ANSWERS");
	file = open(argv[1], O_RDONLY | O_CLOEXEC);
	must(file < 0, argv[1]);
	must(exs_init(EXS_VERSION), "exs_init");
	q = exs_qcreate(1024);
	listener = exs_socket(AF_INET6, SOCK_STREAM, 0);
	a.sin6_port = htons((uint16_t)atoi(argv[2]));
	must(exs_bind(listener, (struct sockaddr *)&a, len), argv[2]);
	must(exs_listen(listener, 100), argv[2]);
	must(exs_getsockname(listener, (struct sockaddr *)&a, &len), argv[2]);
	printf("listening on port %u\n", ntohs(a.sin6_port));
	fflush(stdout);
	next_client();
	for (left = atoi(argv[3]); left && exs_qdequeue(q, &e, 1, NULL) == 1;)
		serve(&e);
	return 0;
}
