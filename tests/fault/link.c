/* SPDX-License-Identifier: BSD-2-Clause */
/* A packet of any kind on the link that the library made. */
#include "tests/fault/link.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "tests/support/check.h"

#include "core/base/lock.h"
#include "core/meet/find.h"
#include "core/meet/meet.h"
#include "core/sock/table.h"

int t_link_of(int s)
{
	struct exi_sock *sk = exi_sock_find(s);
	int fd = -1;

	if (!sk)
		return -1;
	exi_lock(&sk->link_lock);
	if (sk->link && sk->link->fd >= 0)
		fd = T_OK(fcntl(sk->link->fd, F_DUPFD_CLOEXEC, 0));
	exi_unlock(&sk->link_lock);
	return fd;
}

void t_link_put(int link, const void *m, size_t len, int fd)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)m, .iov_len = len };
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (fd >= 0) {
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control.room);
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.head), &fd, sizeof(int));
	}
	/* A victim that hung up is one that noticed; a link that is up takes no
	 * descriptors where the kernel can refuse them. */
	if (sendmsg(link, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		T(t_one_of(errno, (int[]){ EPIPE, ECONNRESET, EAGAIN, ENOTCONN,
					   fd < 0 ? 0 : EPERM, 0 }));
}

void t_link_say(int link, enum exi_pair_type type, uint64_t a, uint64_t b,
		uint64_t c)
{
	struct exi_pair_msg m = { .magic = EXI_PAIR_MAGIC,
				  .version = EXI_PAIR_VERSION,
				  .type = (uint16_t)type,
				  .a = a,
				  .b = b,
				  .c = c };

	t_link_put(link, &m, sizeof(m), -1);
}
