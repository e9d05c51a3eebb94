/* SPDX-License-Identifier: BSD-2-Clause */
/* The threads of a victim. */
#include "tests/fault/victim.h"

#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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
	struct sockaddr_in at;
	int listener;
};

static void must(int result, const char *what)
{
	if (result >= 0)
		return;
	perror(what);
	exit(1);
}

static int make_socket(const struct show *show)
{
	int s = show->calls->socket(AF_INET, show->face->type | SOCK_CLOEXEC,
				    0);

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
			if (calls->connect(s, (struct sockaddr *)&show->at,
					   sizeof(show->at)) < 0)
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
	struct sockaddr *at = (struct sockaddr *)&show->at;
	socklen_t len = sizeof(show->at);

	show->listener = make_socket(show);
	must(calls->bind(show->listener, at, len), "bind");
	must(calls->listen(show->listener, 8), "listen");
	must(calls->getsockname(show->listener, at, &len), "getsockname");
}

static void tell(const struct show *show)
{
	struct victim_port told = { show->at.sin_port,
				    (uint16_t)show->face->type };

	must((int)write(STDOUT_FILENO, &told, sizeof(told)), "write");
}

int victim(int argc, char **argv, const struct victim_calls *calls,
	   const struct victim_face *faces, size_t n)
{
	struct show *shows = calloc(n, sizeof(*shows));
	pthread_t thread;
	uint16_t port;
	char byte;

	if (argc != 2 || !shows)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	port = (uint16_t)atoi(argv[1]);
	for (size_t i = 0; i < n; i++) {
		struct show *show = &shows[i];

		*show = (struct show){ calls, &faces[i], { 0 }, -1 };
		show->at.sin_family = AF_INET;
		show->at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		if (faces[i].connects) {
			if (!port)
				continue;
			show->at.sin_port = htons(port);
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
