/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages with the descriptor of a file. */
#include "tests/fault/files.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/check.h"
#include "tests/support/net.h"

union room {
	struct cmsghdr h;
	char bytes[CMSG_SPACE(sizeof(int))];
};

void t_send_plain(int s, const char *buf, size_t n)
{
	for (size_t sent = 0; sent < n;)
		sent += (size_t)T_OK(
			send(s, buf + sent, n - sent, MSG_NOSIGNAL));
}

void t_send_file(int s, const char *buf, size_t n, uint64_t pos)
{
	union room c = { .h = { .cmsg_level = SOL_SOCKET,
				.cmsg_type = SCM_RIGHTS,
				.cmsg_len = CMSG_LEN(sizeof(int)) } };
	struct iovec v = { (char *)(uintptr_t)buf, n };
	struct msghdr m = { .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_control = &c,
			    .msg_controllen = sizeof(c) };
	int file = T_OK(memfd_create("position", MFD_CLOEXEC));
	ssize_t sent;

	T_EQ(write(file, &pos, sizeof(pos)), sizeof(pos));
	memcpy(CMSG_DATA(&c.h), &file, sizeof(file));
	sent = T_OK(sendmsg(s, &m, MSG_NOSIGNAL));
	close(file);
	t_send_plain(s, buf + sent, n - (size_t)sent);
}

ssize_t t_recv_file(int s, char *buf, size_t n, uint64_t *pos)
{
	union room c;
	struct iovec v = { buf, n };
	struct msghdr m = { .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_control = &c,
			    .msg_controllen = sizeof(c) };
	ssize_t ret = recvmsg(s, &m, MSG_CMSG_CLOEXEC);
	int file;

	if (ret < 0 || !m.msg_controllen)
		return ret;
	T_EQ(c.h.cmsg_type, SCM_RIGHTS);
	T_EQ(m.msg_flags & MSG_CTRUNC, 0);
	memcpy(&file, CMSG_DATA(&c.h), sizeof(file));
	T_EQ(pread(file, pos, sizeof(*pos), 0), sizeof(*pos));
	close(file);
	return ret;
}
