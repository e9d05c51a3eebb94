/* SPDX-License-Identifier: BSD-2-Clause */
/* The stream beneath a connection where it is TCP: the kernel's counts, and
 * what forbids an upgrade; and what is common to all sockets. */
#include "core/sock/tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "core/base/proof.h"
#include "core/fabric/provider.h"
#include "core/sock/base.h"
#include "core/sock/table.h"
#include "core/sock/zerocopy.h"

static bool is_tcp(int domain, int type, int protocol)
{
	return (domain == AF_INET || domain == AF_INET6) &&
	       type == SOCK_STREAM &&
	       (protocol == 0 || protocol == IPPROTO_TCP);
}

bool exi_tcp_is_listening(int fd)
{
	int v = 0;
	socklen_t len = sizeof(v);

	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &v, &len) == 0 && v;
}

short exi_tcp_ended(struct exi_sock *sk)
{
	struct pollfd p = { .fd = atomic_load(&sk->fd), .events = POLLRDHUP };

	return p.fd >= 0 && poll(&p, 1, 0) > 0 ? p.revents : 0;
}

uint32_t exi_tcp_lowat(const struct exi_sock *sk)
{
	return atomic_load_explicit(&sk->sh->lowat, memory_order_relaxed);
}

void exi_ready_lowat(struct exi_sock *sk)
{
	int n = 0;
	socklen_t len = sizeof(n);

	if (getsockopt(sk->tcp->fd, SOL_SOCKET, SO_RCVLOWAT, &n, &len) == 0)
		atomic_store(&sk->sh->lowat, (uint32_t)n);
}

/* States of TCP, as tcp_info has them; <netinet/tcp.h> and <linux/tcp.h> do not
 * mix. */
enum {
	TCP_FIN_WAIT1 = 4,
	TCP_FIN_WAIT2 = 5,
	TCP_TIME_WAIT = 6,
	TCP_CLOSE = 7,
	TCP_CLOSE_WAIT = 8,
	TCP_LAST_ACK = 9,
	TCP_CLOSING = 11,
};

#define PROTOCOL_MPTCP 262 /* IPPROTO_MPTCP, which old headers lack */

/* How often to read counts that must be of one moment: with traffic both ways,
 * and slow calls, nine of ten reads are in vain. */
#define TRIES 1000

static int tcp_info(int fd, struct tcp_info *ret)
{
	socklen_t len = sizeof(*ret);

	memset(ret, 0, sizeof(*ret));
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, ret, &len) < 0)
		return -errno;
	/* Both counters came with Linux 4.1. */
	if (len < offsetof(struct tcp_info, tcpi_bytes_received) +
			  sizeof(ret->tcpi_bytes_received))
		return -EOPNOTSUPP;
	return 0;
}

static uint64_t bytes_begun(const struct tcp_info *i)
{
	return i->tcpi_bytes_sent - i->tcpi_bytes_retrans +
	       i->tcpi_notsent_bytes;
}

/* Two counts of the bytes ever written to TCP, at one moment: the acknowledged
 * and unacknowledged bytes (*ret_acked), and the bytes that were or will be
 * sent, which bytes_begun() computes from *ret. The end that connected counts
 * its SYN in the first. */
static int counts_written(int fd, uint64_t *ret_acked, struct tcp_info *ret)
{
	struct tcp_info before, after;
	int queued, tries, err;

	for (tries = 0; tries < TRIES; tries++) {
		err = tcp_info(fd, &before);
		if (err)
			return err;
		if (ioctl(fd, SIOCOUTQ, &queued) < 0)
			return -errno;
		err = tcp_info(fd, &after);
		if (err)
			return err;
		if (before.tcpi_bytes_acked == after.tcpi_bytes_acked &&
		    before.tcpi_state == after.tcpi_state &&
		    bytes_begun(&before) == bytes_begun(&after)) {
			*ret_acked = after.tcpi_bytes_acked + (uint64_t)queued;
			*ret = after;
			return 0;
		}
	}
	return -EAGAIN;
}

static int bytes_written(struct exi_sock *sk, uint64_t *ret)
{
	struct tcp_info i;
	uint64_t acked;
	int err = counts_written(sk->tcp->fd, &acked, &i);

	if (!err)
		*ret = acked - (sk->role == EXI_ROLE_CONNECT);
	return err;
}

/* The kernel counts a FIN as a byte received, and as one unread until the end
 * was reported. One that came ahead of its SWITCH must not count. */
static unsigned int fin_received(uint8_t state)
{
	return state == TCP_CLOSE_WAIT || state == TCP_LAST_ACK ||
	       state == TCP_CLOSING || state == TCP_TIME_WAIT;
}

/* The length of the queue comes from sock_diag: SIOCINQ stops at an urgent
 * mark, also when the urgent byte itself was read. */
static int unread_bytes(int fd, uint32_t *ret)
{
	struct exi_tuple t;
	int err = exi_tuple_of(fd, &t);

	return err ? err : exi_proof_unread(&t, ret);
}

/* Bytes ever read from TCP that was reset, to which the peer wrote `written`
 * bytes: what is unread stays, but sock_diag no longer knows the connection.
 * SIOCINQ leaves a FIN out; if it was counted, there is one byte too many. */
static int bytes_read_reset(int fd, uint64_t received, uint64_t written,
			    uint64_t *ret)
{
	int unread;

	if (ioctl(fd, SIOCINQ, &unread) < 0)
		return -errno;
	*ret = received - (received == written + 1) - (uint64_t)unread;
	return 0;
}

static int bytes_read(struct exi_sock *sk, uint64_t written, uint64_t *ret)
{
	int fd = sk->tcp->fd, tries, err, unknown;
	struct tcp_info before, after;
	uint32_t unread = 0;

	for (tries = 0; tries < TRIES; tries++) {
		err = tcp_info(fd, &before);
		if (err)
			return err;
		if (before.tcpi_state == TCP_CLOSE)
			return bytes_read_reset(fd, before.tcpi_bytes_received,
						written, ret);
		unknown = unread_bytes(fd, &unread);
		err = tcp_info(fd, &after);
		if (err)
			return err;
		if (after.tcpi_state == TCP_CLOSE)
			continue;
		if (unknown)
			return unknown;
		if (before.tcpi_bytes_received == after.tcpi_bytes_received) {
			*ret = after.tcpi_bytes_received - unread -
			       (unread == 0 && fin_received(after.tcpi_state));
			return 0;
		}
	}
	return -EAGAIN;
}

/* A FIN that was not sent yet, since it waits behind bytes or for the pace of
 * BBR, counts as a byte that was not sent. */
static unsigned int fin_waits(const struct tcp_info *i)
{
	return i->tcpi_notsent_bytes &&
	       (i->tcpi_state == TCP_FIN_WAIT1 ||
		i->tcpi_state == TCP_LAST_ACK || i->tcpi_state == TCP_CLOSING);
}

/* The counts of a TCP connection that is closed. Where its own FIN was
 * acknowledged, the peer's came, too, unless the peer reset the connection
 * after that. */
static int counts_closed(struct exi_sock *sk, uint64_t *ret_rx,
			 uint64_t *ret_tx)
{
	int fd = sk->tcp->fd, err, unread;
	struct tcp_info i;
	uint64_t acked;

	err = counts_written(fd, &acked, &i);
	if (err)
		return err;
	if (ioctl(fd, SIOCINQ, &unread) < 0)
		return -errno;
	*ret_tx = bytes_begun(&i);
	*ret_rx = i.tcpi_bytes_received - (uint64_t)unread -
		  (acked - (sk->role == EXI_ROLE_CONNECT) == *ret_tx + 1);
	return 0;
}

/* Bytes ever read, for a process that may not use sock_diag or a kernel without
 * it: too many while an urgent mark lies ahead. */
static int bytes_read_by_siocinq(int fd, uint64_t *ret)
{
	struct tcp_info i;
	int err, unread;

	if (ioctl(fd, SIOCINQ, &unread) < 0)
		return -errno;
	err = tcp_info(fd, &i);
	if (err)
		return err;
	*ret = i.tcpi_bytes_received - (uint64_t)unread -
	       fin_received(i.tcpi_state);
	return 0;
}

/* sock_diag may be denied. */
static int counts(struct exi_sock *sk, uint64_t *ret_rx, uint64_t *ret_tx)
{
	struct tcp_info i;
	uint64_t acked;
	int err = counts_written(sk->tcp->fd, &acked, &i);

	if (err)
		return err;
	*ret_tx = bytes_begun(&i) - fin_waits(&i);
	if (i.tcpi_state != TCP_CLOSE) {
		err = bytes_read(sk, 0, ret_rx);
		if (err && err != -EAGAIN)
			err = bytes_read_by_siocinq(sk->tcp->fd, ret_rx);
	}
	/* The connection may close meanwhile, and stays so: nothing more comes
	 * then. */
	if (!err)
		err = tcp_info(sk->tcp->fd, &i);
	return !err && i.tcpi_state == TCP_CLOSE
		       ? counts_closed(sk, ret_rx, ret_tx)
		       : err;
}

/* Whether this end has begun its FIN, which counts as written once it has. A
 * connection that is closed does not show that. */
static bool fin_begun(uint8_t state)
{
	return state == TCP_FIN_WAIT1 || state == TCP_FIN_WAIT2 ||
	       state == TCP_CLOSING || state == TCP_LAST_ACK ||
	       state == TCP_TIME_WAIT;
}

/* What was counted as written beside the bytes: the SYN, of the end that
 * connected alone, and this end's FIN. */
static int counted_more(int fd, struct tcp_info *ret)
{
	uint64_t acked;
	int err = counts_written(fd, &acked, ret);

	return err ? err : (int)(acked - (bytes_begun(ret) - fin_waits(ret)));
}

static enum exi_role role_of(int fd)
{
	struct tcp_info i;
	int more = counted_more(fd, &i);

	if (more < 0 || i.tcpi_state == TCP_CLOSE)
		return EXI_ROLE_NONE;
	more -= fin_begun(i.tcpi_state);
	return more == 1   ? EXI_ROLE_CONNECT
	       : more == 0 ? EXI_ROLE_ACCEPT
			   : EXI_ROLE_NONE;
}

static bool has_role(struct exi_sock *sk, int fd)
{
	struct tcp_info i;
	int more = counted_more(fd, &i);

	if (more < 0)
		return false;
	more -= sk->role == EXI_ROLE_CONNECT;
	return more == fin_begun(i.tcpi_state) ||
	       (more == 1 && i.tcpi_state == TCP_CLOSE);
}

static bool option_set(int fd, int level, int name)
{
	int v = 0;
	socklen_t len = sizeof(v);

	return getsockopt(fd, level, name, &v, &len) == 0 && v != 0;
}

static int forbidden(int fd)
{
	char ulp[16] = "";
	socklen_t len = sizeof(int);
	int v;

	/* First, for MPTCP is a ULP of its subflows, too. */
	if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &v, &len) == 0 &&
	    v != IPPROTO_TCP)
		return v == PROTOCOL_MPTCP ? EXS_X_REASON_MPTCP
					   : EXS_X_REASON_NOT_TCP;
	len = sizeof(ulp);
	if (getsockopt(fd, IPPROTO_TCP, TCP_ULP, ulp, &len) == 0 && len > 0 &&
	    ulp[0])
		return EXS_X_REASON_KERNEL_TLS;
	if (!exi_zerocopy_served && exi_zerocopy_on(fd))
		return EXS_X_REASON_ZEROCOPY;
	if (option_set(fd, SOL_SOCKET, SO_TIMESTAMPING) ||
	    option_set(fd, SOL_SOCKET, SO_TIMESTAMP) ||
	    option_set(fd, SOL_SOCKET, SO_TIMESTAMPNS))
		return EXS_X_REASON_TIMESTAMPS;
	if (option_set(fd, IPPROTO_TCP, TCP_REPAIR))
		return EXS_X_REASON_REPAIR;
	return exi_base_forbidden(fd);
}

/* Sends what Nagle, a cork or MSG_MORE holds back, and restores the options.
 * TCP_NODELAY flushes corked bytes, too (tcp(7)); and bytes that the window
 * holds back go out, corked or not, until something else is queued behind
 * them. */
static int push(int fd)
{
	int nodelay = 0, on = 1, off = 0, held = 0;
	socklen_t len = sizeof(int);

	if (ioctl(fd, SIOCOUTQNSD, &held) < 0)
		return -errno;
	if (!held)
		return 0;
	if (getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, &len) < 0)
		return -errno;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (!nodelay)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &off, sizeof(off));
	return 0;
}

bool exi_tcp_urgent_pending(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLPRI };

	return poll(&p, 1, 0) > 0 && (p.revents & POLLPRI);
}

static bool disconnect(int fd)
{
	struct sockaddr unspec = { .sa_family = AF_UNSPEC };

	return connect(fd, &unspec, sizeof(unspec)) == 0;
}

static int option_reason(int level, int name)
{
	return level != IPPROTO_TCP	      ? EXS_X_REASON_NONE
	       : name == TCP_ULP	      ? EXS_X_REASON_KERNEL_TLS
	       : name == TCP_REPAIR	      ? EXS_X_REASON_REPAIR
	       : name == TCP_ZEROCOPY_RECEIVE ? EXS_X_REASON_ZEROCOPY
					      : EXS_X_REASON_NONE;
}

/* No program looks at those options. */
static void keep_sign(int fd, int before)
{
}

static int sign_used(int fd)
{
	exi_proof_sign(fd);
	return 0;
}

const struct exi_base exi_base_tcp = {
	.is = is_tcp,
	.forbidden = forbidden,
	.role = role_of,
	.same = has_role,
	.written = bytes_written,
	.read = bytes_read,
	.counts = counts,
	.push = push,
	.disconnect = disconnect,
	.sign = exi_proof_sign,
	.sign_used = sign_used,
	.unsign = keep_sign,
	.options_inherited = true,
	.ports = true,
	.between_hosts = true,
	.tcp_flags = true,
	.lowat_polled = true,
	.option = option_reason,
};
