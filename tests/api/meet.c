/* SPDX-License-Identifier: BSD-2-Clause */
/* A stranger at the meeting: names, packets, and what may come back. */
#include "tests/api/meet.h"

#include <stdio.h>
#include <string.h>
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

struct meet_name meet_link(const uint8_t *nonce)
{
	char text[100];
	int i, n = snprintf(text, sizeof(text), "libexs/1/link/");

	for (i = 0; i < 32; i++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "%02x",
			      nonce[i]);
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

bool meet_send(int s, const void *buf, size_t len, int fd)
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
	if (sendmsg(s, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
		return true;
	if (fd >= 0 && errno == EPERM)
		return false;
	T_MSG(errno == EPIPE || errno == ECONNRESET || errno == EAGAIN ||
		      errno == EMSGSIZE,
	      "sendmsg says %s", t_errname(errno));
	return true;
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

void meet_say(int s, int type, uint64_t a, uint64_t b, uint64_t c,
	      const void *blob)
{
	struct meet_msg m = {
		.magic = 0x50535845,
		.version = 2,
		.type = (uint16_t)type,
		.a = a,
		.b = b,
		.c = c,
	};

	if (blob)
		memcpy(m.blob, blob, 32);
	meet_send(s, &m, sizeof(m), -1);
}

bool meet_hear(int s, int type, struct meet_msg *ret)
{
	int fd;
	ssize_t n = meet_recv(s, ret, sizeof(*ret), &fd);

	T_EQ(fd, -1);
	if (n == 0)
		return false;
	T_EQ(n, sizeof(*ret));
	if (ret->type == MEET_NO)
		return false;
	T_EQ(ret->type, type);
	return true;
}

static void says_little(const struct meet_msg *m, ssize_t n)
{
	T_EQ(n, sizeof(*m));
	switch (m->type) {
	case MEET_HELLO:
		T_EQ(m->a, 0);
		T_EQ(m->b, 0);
		T_EQ(m->c, MEET_SHOW);
		break;
	case MEET_SHOWN:
		T_EQ(m->b, 0);
		T_EQ(m->c, 0);
		break;
	default:
		T_EQ(m->type, MEET_NO);
	}
}

void meet_is_refused(int s)
{
	struct meet_msg m;
	ssize_t n;
	int fd;

	while ((n = meet_recv(s, &m, sizeof(m), &fd)) > 0) {
		T_EQ(fd, -1);
		says_little(&m, n);
		/* Whatever comes next is wrong. */
		meet_say(s, MEET_PROVED, 1, 1, 0, NULL);
	}
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

void meet_said_little(int s)
{
	struct meet_msg m;
	ssize_t n;

	while ((n = recv(s, &m, sizeof(m), MSG_DONTWAIT)) > 0)
		says_little(&m, n);
	T_MSG(n == 0 || errno == EAGAIN || errno == ECONNRESET, "recv says %s",
	      t_errname(errno));
}
