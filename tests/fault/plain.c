/* SPDX-License-Identifier: BSD-2-Clause */
/* A victim that knows nothing of the library, for exs run: a face for each way
 * to wait by plain calls. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/fault/victim.h"
#include "tests/support/run.h"

#define BUF 20000

/* After such a result there may be more. */
static bool goes_on(ssize_t n)
{
	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static void block(int s)
{
	char buf[BUF];
	ssize_t n;

	while ((n = read(s, buf, sizeof(buf))) > 0)
		if (write(s, buf, (size_t)n) < 0)
			break;
}

static void time_out(int s)
{
	struct timeval tv = { .tv_usec = 1000 };
	char buf[BUF];
	ssize_t n, sent = 1;

	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	do {
		n = recv(s, buf, sizeof(buf), 0);
		if (n > 0)
			sent = send(s, buf, (size_t)n, MSG_NOSIGNAL);
	} while (goes_on(n) && goes_on(sent));
}

/* Looks first, then takes what it was told. */
static void poll_for(int s)
{
	char one[100], two[BUF];
	struct pollfd p = { .fd = s, .events = POLLIN };
	struct iovec v[2];
	int unread;
	ssize_t n;

	fcntl(s, F_SETFL, O_NONBLOCK);
	do {
		poll(&p, 1, 1000);
		ioctl(s, FIONREAD, &unread);
		n = recv(s, one, sizeof(one), MSG_PEEK);
		if (n <= 0)
			continue;
		v[0] = (struct iovec){ one, sizeof(one) };
		v[1] = (struct iovec){ two, sizeof(two) };
		n = readv(s, v, 2);
		if (n <= 0)
			continue;
		if (n < (ssize_t)sizeof(one))
			v[0].iov_len = (size_t)n;
		v[1].iov_len = (size_t)n - v[0].iov_len;
		writev(s, v, 2);
	} while (goes_on(n));
}

static void epoll_for(int s, uint32_t events)
{
	struct epoll_event e = { .events = events };
	int set = epoll_create1(EPOLL_CLOEXEC);
	char buf[BUF];
	ssize_t n;

	fcntl(s, F_SETFL, O_NONBLOCK);
	epoll_ctl(set, EPOLL_CTL_ADD, s, &e);
	do {
		epoll_wait(set, &e, 1, 1000);
		do {
			n = recv(s, buf, sizeof(buf), 0);
			if (n > 0)
				send(s, buf, (size_t)n, MSG_NOSIGNAL);
		} while (n > 0 && events & EPOLLET);
	} while (goes_on(n));
	close(set);
}

static void level(int s)
{
	epoll_for(s, EPOLLIN);
}

static void edge(int s)
{
	epoll_for(s, EPOLLIN | EPOLLOUT | EPOLLET);
}

static int accept_one(int s)
{
	return accept4(s, NULL, NULL, SOCK_CLOEXEC);
}

int main(int argc, char **argv)
{
	static const struct victim_calls calls = {
		socket, bind, listen, getsockname, accept_one, connect, close,
	};
	static const struct victim_face faces[] = {
		{ block, SOCK_STREAM, true },
		{ block, SOCK_STREAM, false },
		{ time_out, SOCK_STREAM, false },
		{ poll_for, SOCK_STREAM, false },
		{ edge, SOCK_STREAM, false },
		{ level, SOCK_STREAM, false },
		{ level, SOCK_STREAM, false },
	};

	return victim(argc, argv, &calls, faces, T_COUNT(faces));
}
