/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests and responses as messages: each is sent with one call and received
 * with one, so neither end has to find the limits of messages.
 *
 *	ask PORT			answers; port 0 picks one
 *	ask HOST PORT QUESTION...	asks each, and prints the answers
 */
#include <ctype.h>
#include <err.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/exs_ext.h>

#define WAIT EXS_QHANDLE_INVALID /* a call without a queue waits */

static int meet(const char *host, const char *port)
{
	struct addrinfo *a, want = { .ai_family = AF_INET };
	struct sockaddr_in me;
	socklen_t len = sizeof(me);
	int s = exs_socket(AF_INET, SOCK_SEQPACKET, 0);

	if (getaddrinfo(host ? host : "0.0.0.0", port, &want, &a))
		errx(1, "cannot find it");
	if (host && exs_connect(s, a->ai_addr, a->ai_addrlen, 0, WAIT, NULL))
		err(1, "cannot reach %s (is ask running there?)", host);
	if (!host &&
	    (exs_bind(s, a->ai_addr, a->ai_addrlen) || exs_listen(s, 8) ||
	     exs_getsockname(s, (struct sockaddr *)&me, &len)))
		err(1, "cannot listen on port %s", port);
	freeaddrinfo(a);
	if (!host)
		printf("listening on port %u\n", ntohs(me.sin_port));
	fflush(stdout);
	return s;
}

/* One message, which may be empty. False: there are no more. */
static int next(int s, char *to, size_t room, size_t *len)
{
	exs_iovec_t v = { to, room, EXS_MHANDLE_UNREGISTERED };
	exs_msghdr_t m = { .exs_msg_iov = &v, .exs_msg_iovlen = 1 };
	ssize_t n = exs_recvmsg(s, &m, 0, WAIT, NULL);

	if (n < 0)
		err(1, "the other end broke off");
	if (m.exs_msg_flags & MSG_TRUNC)
		warnx("only the first %zd bytes fit", n);
	*len = n;
	return m.exs_msg_flags & MSG_EOR;
}

static void tell(int s, const char *what, size_t len)
{
	if (exs_send(s, what, len, 0, WAIT, NULL, 0) < 0)
		err(1, "the other end does not listen");
}

static void answer(int s)
{
	static char buf[64 * 1024];
	size_t len;

	while (next(s, buf, sizeof(buf), &len)) {
		for (size_t i = 0; i < len; i++)
			buf[i] = (char)toupper((unsigned char)buf[i]);
		tell(s, buf, len);
	}
	exs_close(s, WAIT, NULL);
}

static void ask(int s, char **questions)
{
	static char buf[64 * 1024];
	exs_x_sockinfo_t info;
	size_t len;

	for (; *questions; questions++) {
		tell(s, *questions, strlen(*questions));
		if (!next(s, buf, sizeof(buf), &len))
			errx(1, "the other end has no answer");
		printf("%.*s\n", (int)len, buf);
	}
	exs_x_sockinfo(s, &info);
	printf("over %s\n", info.exs_x_tx_fabric);
	exs_close(s, WAIT, NULL);
}

int main(int argc, char **argv)
{
	int s;

	if (argc < 2 || exs_init(EXS_VERSION))
		errx(2, "usage: ask PORT, ask HOST PORT QUESTION...");
	s = meet(argc > 2 ? argv[1] : NULL, argv[argc > 2 ? 2 : 1]);
	argc > 2 ? ask(s, argv + 3)
		 : answer(exs_accept(s, NULL, 0, WAIT, NULL));
	return 0;
}
