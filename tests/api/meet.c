/* SPDX-License-Identifier: BSD-2-Clause */
/* A stranger at the meeting: names, packets, and what may come back. */
#include "tests/api/meet.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/support/check.h"
#include "tests/support/wait.h"

static struct meet_name abstract(const char *text)
{
	struct meet_name name = { .un.sun_family = AF_UNIX };

	memcpy(name.un.sun_path + 1, text, strlen(text));
	name.len = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(text);
	return name;
}

struct meet_name meet_marker(int port)
{
	char text[100];

	snprintf(text, sizeof(text), "libexs/1/port/%d", port);
	return abstract(text);
}

#define LOOPBACK "00000000000000000000ffff7f000001"

struct meet_name meet_meeting(int port_a, int port_b)
{
	char text[100];

	snprintf(text, sizeof(text),
		 "libexs/1/meet/" LOOPBACK ":%d/" LOOPBACK ":%d", port_a,
		 port_b);
	return abstract(text);
}

static int claim(struct meet_name name, int type)
{
	int s = T_OK(socket(AF_UNIX, type | SOCK_CLOEXEC, 0)), err;

	if (bind(s, (struct sockaddr *)&name.un, name.len) == 0 &&
	    (type != SOCK_SEQPACKET || listen(s, 8) == 0))
		return s;
	err = errno;
	close(s);
	errno = err;
	return -1;
}

int meet_claim_marker(int port)
{
	return claim(meet_marker(port), SOCK_DGRAM);
}

int meet_claim_meeting(int port_a, int port_b)
{
	return claim(meet_meeting(port_a, port_b), SOCK_SEQPACKET);
}

int meet_connect(int port_a, int port_b)
{
	struct meet_name name = meet_meeting(port_a, port_b);
	int s = T_OK(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
	struct t_deadline d = t_deadline_ms(8000);

	while (connect(s, (struct sockaddr *)&name.un, name.len) < 0) {
		T_EQ(errno, ECONNREFUSED);
		T_MSG(t_tick(&d), "nobody listens at the meeting name");
	}
	return s;
}

union fd_room {
	struct cmsghdr head;
	char bytes[CMSG_SPACE(sizeof(int) * 4)];
};

void meet_send(int s, const void *buf, size_t len, int fd)
{
	union fd_room room = { .bytes = { 0 } };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)buf,
			     .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c = &room.head;

	if (fd >= 0) {
		msg.msg_control = &room;
		msg.msg_controllen = CMSG_SPACE(sizeof(fd));
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(fd));
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	if (sendmsg(s, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		T_MSG(errno == EPIPE || errno == ECONNRESET ||
			      errno == EAGAIN || errno == EMSGSIZE,
		      "sendmsg says %s", t_errname(errno));
}

ssize_t meet_recv(int s, void *buf, size_t len, int *ret_fd)
{
	union fd_room room;
	struct iovec iov = { .iov_base = buf, .iov_len = len };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &room,
		.msg_controllen = sizeof(room.bytes),
	};
	struct cmsghdr *c;
	ssize_t n;

	T_MSG(t_readable(s, 10000 * t_slow()), "nothing is said");
	n = recvmsg(s, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (n < 0)
		T_EQ(errno, ECONNRESET);
	c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
	*ret_fd = -1;
	if (c && c->cmsg_type == SCM_RIGHTS)
		memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
	return n > 0 ? n : 0;
}

/* The type of a control message is the second 16 bits after the magic. */
#define TYPE_AT 6
#define TYPE_NO 12

void meet_is_refused(int s)
{
	unsigned char buf[1000];
	uint16_t type;
	int fd;
	ssize_t n = meet_recv(s, buf, sizeof(buf), &fd);

	T_EQ(fd, -1);
	if (n == 0)
		return;
	T(n > TYPE_AT + sizeof(type));
	memcpy(&type, buf + TYPE_AT, sizeof(type));
	T_EQ(type, TYPE_NO);
	T_EQ(meet_recv(s, buf, sizeof(buf), &fd), 0);
	T_EQ(fd, -1);
}

void meet_said_nothing(int s)
{
	char buf[1000];
	ssize_t n = recv(s, buf, sizeof(buf), MSG_DONTWAIT);

	T_MSG(n <= 0, "a stranger is told %zd bytes", n);
	T_MSG(n == 0 || errno == EAGAIN || errno == ECONNRESET, "recv says %s",
	      t_errname(errno));
}

void meet_is_useless(int fd)
{
	char path[64], byte = 0;
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	int val;

	T(T_OK(fcntl(fd, F_GETFL)) & O_PATH);
	T_ERR(read(fd, &byte, 1), EBADF);
	T_ERR(write(fd, &byte, 1), EBADF);
	T_ERR(recv(fd, &byte, 1, MSG_DONTWAIT), EBADF);
	T_ERR(send(fd, &byte, 1, MSG_DONTWAIT), EBADF);
	T_ERR(shutdown(fd, SHUT_RDWR), EBADF);
	T_ERR(getsockname(fd, (struct sockaddr *)&ss, &len), EBADF);
	len = sizeof(val);
	T_ERR(getsockopt(fd, SOL_SOCKET, SO_TYPE, &val, &len), EBADF);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	T(open(path, O_RDWR | O_CLOEXEC) < 0);
	T(open(path, O_RDONLY | O_CLOEXEC) < 0);
	T(open(path, O_WRONLY | O_CLOEXEC) < 0);
}
