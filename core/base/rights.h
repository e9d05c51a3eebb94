/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors in messages (SCM_RIGHTS) on UNIX sockets that strangers or peers
 * can send to. A receive that drops the last reference to a file closes that
 * file, and the file's maker decides how long this takes: a TCP socket with
 * unsent bytes and SO_LINGER sleeps. So no receive may drop a descriptor:
 *
 * - a socket through which no descriptor is expected refuses them where the
 *   kernel can do that (Linux 6.16), and sendmsg(2) fails at the sender;
 * - elsewhere each packet is looked at (MSG_PEEK, which drops nothing) before
 *   it is received, and a packet with a descriptor stays in the queue. */
#ifndef EXI_CORE_BASE_RIGHTS_H
#define EXI_CORE_BASE_RIGHTS_H

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

/* Allows or refuses descriptors in messages. Called before a name is bound or
 * connected to: what is accepted from a listener inherits it, and nothing can
 * have come before. False: the kernel cannot refuse descriptors. */
static inline bool exi_rights_allow(int s, bool allow)
{
	int on = allow;

	return setsockopt(s, SOL_SOCKET, SO_PASSRIGHTS, &on, sizeof(on)) == 0;
}

/* The filter of a datagram socket, attached before its name is bound. A packet
 * that does not begin with the secret is dropped in the sender's call, with its
 * descriptors, and never enters the queue. Of other packets `len` bytes are
 * taken. */
#define EXI_RIGHTS_FILTER 6
static inline void exi_rights_filter(struct sock_filter code[EXI_RIGHTS_FILTER],
				     uint64_t secret, uint32_t len)
{
	uint32_t half[2]; /* as a BPF load returns them, after ntohl() */

	memcpy(half, &secret, sizeof(half));
	code[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
	code[1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
					       ntohl(half[0]), 0, 3);
	code[2] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
					       sizeof(half[0]));
	code[3] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
					       ntohl(half[1]), 0, 1);
	code[4] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, len);
	code[5] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
}

/* Receives a packet without room for control messages. Returns the packet's
 * length, even if it is more than len; 0 or -errno. *ret: whether the packet
 * has control messages. */
static inline ssize_t exi_rights_receive(int s, void *buf, size_t len,
					 int flags, bool *ret)
{
	struct iovec iov = { .iov_base = buf, .iov_len = len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	do {
		n = recvmsg(s, &m, flags | MSG_DONTWAIT | MSG_TRUNC);
		/* ECONNRESET once, when the peer left packets unread. */
	} while (n < 0 && (errno == EINTR || errno == ECONNRESET));
	*ret = n >= 0 && (m.msg_flags & MSG_CTRUNC);
	return n < 0 ? -errno : n;
}

/* Receives a packet on a socket through which no descriptor is expected.
 * Returns its length; 0 at the end; -EAGAIN; -EPROTO if the packet carries
 * descriptors: it stays in the queue then. */
static inline ssize_t exi_rights_none(int s, void *buf, size_t len)
{
	bool rights;
	ssize_t n = exi_rights_receive(s, buf, len, MSG_PEEK, &rights);

	if (rights)
		return -EPROTO;
	if (n <= 0)
		return n;
	return exi_rights_receive(s, buf, len, 0, &rights);
}

#endif
