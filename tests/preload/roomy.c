/* SPDX-License-Identifier: BSD-2-Clause */
/* A program whose threads have much thread-local memory: its connections move
 * like any others. Run under exs run --require shm. */
#include <err.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

static _Thread_local char much[256 << 10];

int main(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	int l = socket(AF_INET, SOCK_STREAM, 0), c, s;
	socklen_t len = sizeof(at);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(l, (struct sockaddr *)&at, len) || listen(l, 1) ||
	    getsockname(l, (struct sockaddr *)&at, &len))
		err(1, "listen");
	c = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(c, (struct sockaddr *)&at, len))
		err(1, "connect");
	s = accept(l, NULL, NULL);
	for (int i = 0; i < 100; i++) {
		memset(much, i, sizeof(much));
		if (send(c, much, 4096, 0) != 4096 ||
		    recv(s, much, 4096, MSG_WAITALL) != 4096 ||
		    send(s, much, 4096, 0) != 4096 ||
		    recv(c, much, 4096, MSG_WAITALL) != 4096)
			err(1, "round %d", i);
	}
	return much[0] != 99;
}
