/* SPDX-License-Identifier: BSD-2-Clause */
/* Plain connections: made by plain calls, or forced to TCP. */
#include "core/life/plain.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "core/base/proof.h"
#include "core/call/downgrade.h"
#include "core/fabric/provider.h"
#include "core/life/open.h"
#include "core/link/control.h"
#include "core/meet/begin.h"
#include "core/meet/find.h"
#include "core/meet/marker.h"
#include "core/sock/base.h"
#include "core/sock/table.h"
#include "core/sock/tcp.h"
#include "core/sock/zerocopy.h"
#include "core/transfer/switch.h"

int exi_adopt(int fd)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);
	struct exi_sock *sk;
	int ret;

	ret = exi_sock_get(fd, &sk);
	if (ret)
		return ret;
	if (!exi_base_of(fd) || exi_tcp_is_listening(fd))
		return -EOPNOTSUPP;
	if (getpeername(fd, (struct sockaddr *)&peer, &len) < 0)
		return -errno;
	ret = sk->base->forbidden(fd);
	/* Which end of a UNIX connection it is shows only as it begins. */
	if (!ret && sk->base == &exi_base_unix && sk->role == EXI_ROLE_NONE)
		ret = EXS_X_REASON_PLAIN_SOCKET;
	/* The kernel's earlier counts are unknown. */
	if (!ret && !sk->adopted && exi_zerocopy_on(fd))
		ret = EXS_X_REASON_ZEROCOPY;
	if (ret) {
		exi_sock_reason(sk, ret);
		return -EOPNOTSUPP;
	}
	exi_sock_inherit(sk);
	if (!sk->adopted || sk->role == EXI_ROLE_NONE) {
		sk->adopted = true;
		if (sk->role == EXI_ROLE_NONE)
			sk->role = sk->base->role(fd);
		if (sk->role == EXI_ROLE_ACCEPT && !sk->counted) {
			sk->counted = true;
			exi_marker_connection();
		}
		exi_sock_reason(sk, EXS_X_REASON_UNDECIDED);
		/* A former holder may have said that it does not meet. */
		if (sk->base == &exi_base_tcp)
			exi_proof_sign(fd);
		exi_link_expect(sk, true);
	} else {
		exi_link_ask(sk);
	}
	ret = exi_switch_allow(sk, fd);
	exi_link_go(sk);
	return ret;
}

int exi_downgrade(int fd)
{
	struct exi_sock *sk;
	int ret = exi_sock_use(fd, &sk);

	if (ret)
		return ret;
	if (atomic_load(&sk->n_ops[EXI_RX]) || atomic_load(&sk->n_ops[EXI_TX]))
		return -EBUSY;
	return exi_switch_down(sk, fd, EXS_X_REASON_REQUESTED, NULL);
}

int exi_go_plain(int fd, int reason, struct exi_patience *p)
{
	struct exi_sock *sk = exi_open_connection(fd);
	uint32_t generation;
	int ret;

	if (!sk)
		return 0;
	generation = atomic_load(&sk->generation);
	ret = exi_switch_down(sk, fd, reason, p);
	return ret == -EBADF || (ret == -ETIMEDOUT &&
				 exi_link_part(sk, generation))
		       ? 0
		       : ret;
}

static int option_reason(int level, int name)
{
	if (level != SOL_SOCKET)
		return EXS_X_REASON_NONE;
	switch (name) {
	case SO_ZEROCOPY:
		return exi_zerocopy_served ? EXS_X_REASON_NONE
					   : EXS_X_REASON_ZEROCOPY;
	case SO_PEEK_OFF:
		return EXS_X_REASON_PEEK_OFF;
	case SO_TIMESTAMP_OLD:
	case SO_TIMESTAMPNS_OLD:
	case SO_TIMESTAMPING_OLD:
	case SO_TIMESTAMP_NEW:
	case SO_TIMESTAMPNS_NEW:
	case SO_TIMESTAMPING_NEW:
		return EXS_X_REASON_TIMESTAMPS;
	case SO_ATTACH_FILTER:
	case SO_ATTACH_BPF:
		return EXS_X_REASON_BPF;
	default:
		return EXS_X_REASON_NONE;
	}
}

int exi_before_option(int fd, int level, int name)
{
	struct exi_sock *sk = exi_open_connection(fd);
	int reason = sk ? sk->base->option(level, name) : EXS_X_REASON_NONE;

	if (!reason)
		reason = option_reason(level, name);

	exi_before_reading(fd, level, name);
	return reason ? exi_open_go_plain_or_reset(fd, reason) : 0;
}

int exi_before_flags(int fd, int flags)
{
	return flags & O_ASYNC
		       ? exi_open_go_plain_or_reset(fd, EXS_X_REASON_O_ASYNC)
		       : 0;
}

int exi_basic_reason(int fd, int reason)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);
	int forbidden;

	if (!exi_base_of(fd)) {
		forbidden = exi_base_tcp.forbidden(fd);
		return forbidden == EXS_X_REASON_MPTCP ? forbidden
						       : EXS_X_REASON_NOT_TCP;
	}
	if (getpeername(fd, (struct sockaddr *)&peer, &len) < 0)
		return EXS_X_REASON_NOT_CONNECTED;
	return reason;
}
