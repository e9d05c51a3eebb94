/* SPDX-License-Identifier: BSD-2-Clause */
/* The threads of a victim. */
#include "tests/fault/victim.h"

#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

/* Options of a sanitizer that is built in: the program ends while its threads
 * use the library, whose memory is no leak; and the shim comes before the
 * sanitizer's run-time. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0:verify_asan_link_order=0";
}

struct show {
	const struct victim_calls *calls;
	const struct victim_face *face;
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_un un;
	} at;
	socklen_t len;
	int listener;
};

static bool is_unix(void)
{
	return getenv("T_UNIX");
}

/* The address with this port; 0: one that the kernel chooses. */
static void make_address(struct show *show, uint32_t port)
{
	struct sockaddr_un *un = &show->at.un;

	if (!is_unix()) {
		show->at.in.sin_family = AF_INET;
		show->at.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		show->at.in.sin_port = htons((uint16_t)port);
		show->len = sizeof(show->at.in);
		return;
	}
	un->sun_family = AF_UNIX;
	show->len = sizeof(un->sun_family);
	if (port)
		show->len += 1 + (socklen_t)snprintf(un->sun_path + 1, 6,
						     "%05x", port);
}

static uint32_t port_of(const struct show *show)
{
	return is_unix() ? (uint32_t)strtoul(show->at.un.sun_path + 1, NULL, 16)
			 : ntohs(show->at.in.sin_port);
}

static int type_of(const struct show *show)
{
	return is_unix() ? SOCK_STREAM : show->face->type;
}

static void must(int result, const char *what)
{
	if (result >= 0)
		return;
	perror(what);
	exit(1);
}

static int make_socket(const struct show *show)
{
	int s = show->calls->socket(show->at.sa.sa_family,
				    type_of(show) | SOCK_CLOEXEC, 0);

	must(s, "socket");
	return s;
}

static void *run(void *arg)
{
	struct show *show = arg;
	const struct victim_calls *calls = show->calls;
	int s;

	for (;;) {
		if (show->face->connects) {
			s = make_socket(show);
			/* The other program has ended. */
			if (calls->connect(s, &show->at.sa, show->len) < 0)
				return NULL;
		} else {
			s = calls->accept(show->listener);
			must(s, "accept");
		}
		show->face->serve(s);
		calls->close(s);
	}
}

static void listen_at(struct show *show)
{
	const struct victim_calls *calls = show->calls;
	struct sockaddr *at = &show->at.sa;

	make_address(show, 0);
	show->listener = make_socket(show);
	must(calls->bind(show->listener, at, show->len), "bind");
	must(calls->listen(show->listener, 8), "listen");
	show->len = sizeof(show->at);
	must(calls->getsockname(show->listener, at, &show->len), "getsockname");
}

static void tell(const struct show *show)
{
	struct victim_port told = { port_of(show), (uint32_t)type_of(show) };

	must((int)write(STDOUT_FILENO, &told, sizeof(told)), "write");
}

int victim(int argc, char **argv, const struct victim_calls *calls,
	   const struct victim_face *faces, size_t n)
{
	struct show *shows = calloc(n, sizeof(*shows));
	pthread_t thread;
	uint32_t port;
	char byte;

	if (argc != 2 || !shows)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	port = (uint32_t)atoi(argv[1]);
	for (size_t i = 0; i < n; i++) {
		struct show *show = &shows[i];

		*show = (struct show){ calls, &faces[i], .listener = -1 };
		if (faces[i].connects) {
			if (!port)
				continue;
			make_address(show, port);
		} else {
			listen_at(show);
			tell(show);
		}
		if (pthread_create(&thread, NULL, run, show))
			return 1;
	}
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	return 0;
}
