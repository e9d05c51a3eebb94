/* SPDX-License-Identifier: BSD-2-Clause */
/* Lines over the control connection. */
#include "tools/perf_ctl.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int perf_say(struct perf_ctl *c, const char *fmt, ...)
{
	char line[PERF_LINE];
	size_t len, sent = 0;
	va_list ap;
	ssize_t n;
	int m;

	va_start(ap, fmt);
	m = vsnprintf(line, sizeof(line) - 1, fmt, ap);
	va_end(ap);
	if (m < 0 || m >= (int)sizeof(line) - 1)
		return -EMSGSIZE;
	line[m] = '\n';
	len = m + 1;
	while (sent < len) {
		n = send(c->fd, line + sent, len - sent, MSG_NOSIGNAL);
		if (n < 0 && errno != EINTR)
			return -errno;
		sent += n > 0 ? n : 0;
	}
	return 0;
}

#define ON_ITS_WAY_MS 1000

/* ms: how long it waits for each piece; negative: for ever. */
static int hear(struct perf_ctl *c, char line[PERF_LINE], int ms)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN };
	char *end;
	size_t len;
	ssize_t n;

	while (!(end = memchr(c->ahead, '\n', c->have))) {
		if (c->have == sizeof(c->ahead))
			return -EPROTO;
		if (ms >= 0 && poll(&p, 1, ms) <= 0)
			return -EAGAIN;
		n = recv(c->fd, c->ahead + c->have, sizeof(c->ahead) - c->have,
			 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EPIPE;
		c->have += n;
	}
	len = end - c->ahead;
	memcpy(line, c->ahead, len);
	line[len] = '\0';
	c->have -= len + 1;
	memmove(c->ahead, end + 1, c->have);
	return 0;
}

int perf_hear(struct perf_ctl *c, char line[PERF_LINE])
{
	return hear(c, line, -1);
}

int perf_heard(struct perf_ctl *c, char line[PERF_LINE])
{
	return hear(c, line, ON_ITS_WAY_MS);
}
