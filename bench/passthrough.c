/* SPDX-License-Identifier: BSD-2-Clause */
/* System calls that do not concern connections of the library, one kind at a
 * time, for bench/passthrough. Reads "NAME COUNT" from standard input, a UNIX
 * socket, and writes the nanoseconds of all calls, or the list of names, to
 * it. */
#include <err.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONTROL	  0
#define SIZE	  64
#define FILE_SIZE (1 << 20)

static int file, ends[2], ep;
static int tcp, tcp_peer; /* a connection, and its end outside of the library */
static char buf[SIZE];

/* At the end of the file again from its beginning. */
static void wrap(off_t *at)
{
	*at += SIZE;
	if (*at < FILE_SIZE)
		return;
	*at = 0;
	lseek(file, 0, SEEK_SET);
}

static int read_file(void)
{
	static off_t at;
	ssize_t n = read(file, buf, SIZE);

	wrap(&at);
	return n == SIZE;
}

static int write_file(void)
{
	static off_t at;
	ssize_t n = write(file, buf, SIZE);

	wrap(&at);
	return n == SIZE;
}

static int through_pipe(void)
{
	return write(ends[1], buf, SIZE) == SIZE &&
	       read(ends[0], buf, SIZE) == SIZE;
}

static int write_read_tcp(void)
{
	return write(tcp, buf, SIZE) == SIZE &&
	       read(tcp_peer, buf, SIZE) == SIZE &&
	       write(tcp_peer, buf, SIZE) == SIZE &&
	       read(tcp, buf, SIZE) == SIZE;
}

static int send_recv_tcp(void)
{
	return send(tcp, buf, SIZE, MSG_NOSIGNAL) == SIZE &&
	       recv(tcp_peer, buf, SIZE, 0) == SIZE &&
	       send(tcp_peer, buf, SIZE, MSG_NOSIGNAL) == SIZE &&
	       recv(tcp, buf, SIZE, 0) == SIZE;
}

static int poll_plain(void)
{
	struct pollfd p[] = { { .fd = file, .events = POLLIN },
			      { .fd = ends[0], .events = POLLIN },
			      { .fd = tcp_peer, .events = POLLIN } };

	return poll(p, 3, -1) == 1;
}

static int poll_tcp(void)
{
	struct pollfd p[] = { { .fd = tcp, .events = POLLIN | POLLOUT },
			      { .fd = ends[0], .events = POLLIN } };

	return poll(p, 2, -1) == 1;
}

static int wait_epoll(void)
{
	struct epoll_event ev[4];

	return epoll_wait(ep, ev, 4, -1) == 1;
}

static int open_close(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	return fd >= 0 && close(fd) == 0;
}

static int dup_close(void)
{
	int fd = dup(file);

	return fd >= 0 && close(fd) == 0;
}

static int get_flags(void)
{
	return fcntl(file, F_GETFL) >= 0;
}

static const struct {
	const char *name;
	int (*once)(void);
} calls[] = {
	{ "read a file", read_file },
	{ "write a file", write_file },
	{ "write, read a pipe", through_pipe },
	{ "write, read TCP, both ways", write_read_tcp },
	{ "send, recv TCP, both ways", send_recv_tcp },
	{ "poll a file, a pipe, a socket", poll_plain },
	{ "poll TCP, a pipe", poll_tcp },
	{ "epoll_wait for TCP, a pipe", wait_epoll },
	{ "open, close", open_close },
	{ "dup, close", dup_close },
	{ "fcntl F_GETFL", get_flags },
};

#define N_CALLS (sizeof(calls) / sizeof(calls[0]))

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t measure(unsigned int which, unsigned long n)
{
	uint64_t start = now();

	for (unsigned long i = 0; i < n; i++)
		if (!calls[which].once())
			err(1, "%s", calls[which].name);
	return now() - start;
}

/* The other end of the connection comes from a program without the library. */
static int take_peer(void)
{
	char byte, room[CMSG_SPACE(sizeof(int))];
	struct iovec v = { &byte, 1 };
	struct msghdr m = { .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_control = room,
			    .msg_controllen = sizeof(room) };
	int fd;

	if (recvmsg(CONTROL, &m, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&m))
		err(1, "no peer came");
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

static void connect_to(uint16_t port)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int on = 1;

	tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (tcp < 0 || connect(tcp, (struct sockaddr *)&to, sizeof(to)))
		err(1, "cannot reach port %u", port);
	tcp_peer = take_peer();
	if (setsockopt(tcp, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) ||
	    setsockopt(tcp_peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)))
		err(1, "TCP_NODELAY");
}

static void set_up(const char *folder, uint16_t port)
{
	struct epoll_event ev = { .events = EPOLLIN };

	file = open(folder, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
	if (file < 0 || ftruncate(file, FILE_SIZE) || pipe2(ends, O_CLOEXEC))
		err(1, "cannot make a file and a pipe in %s", folder);
	connect_to(port);
	/* Enough for the library to have found out that it is alone. */
	for (int i = 0; i < 200; i++)
		if (!send_recv_tcp())
			err(1, "the connection does not work");
	ep = epoll_create1(EPOLL_CLOEXEC);
	if (ep < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, tcp, &ev) ||
	    epoll_ctl(ep, EPOLL_CTL_ADD, ends[0], &ev))
		err(1, "epoll");
	ev.events = EPOLLOUT;
	if (epoll_ctl(ep, EPOLL_CTL_ADD, ends[1], &ev))
		err(1, "epoll");
}

int main(int argc, char **argv)
{
	unsigned int which;
	unsigned long n;
	char line[64];

	if (argc != 3)
		errx(2, "usage: %s FOLDER PORT; run by bench/passthrough",
		     argv[0]);
	set_up(argv[1], (uint16_t)atoi(argv[2]));
	for (unsigned int i = 0; i < N_CALLS; i++)
		dprintf(CONTROL, "%s%c", calls[i].name,
			i + 1 < N_CALLS ? '|' : '\n');
	while (read(CONTROL, line, sizeof(line)) > 0) {
		if (sscanf(line, "%u %lu", &which, &n) != 2 || which >= N_CALLS)
			errx(1, "what is %s", line);
		dprintf(CONTROL, "%llu\n",
			(unsigned long long)measure(which, n));
	}
	return 0;
}
