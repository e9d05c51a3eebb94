/* SPDX-License-Identifier: BSD-2-Clause */
/* Why a connection meets no peer. */
#include "core/meet/why.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/exs_ext.h>

#include "core/base/ids.h"
#include "core/base/proof.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/meet/meet.h"
#include "core/meet/meetdir.h"
#include "core/meet/remote.h"
#include "core/sock/table.h"

/* After so long, and so many bytes in both directions, a peer that looks has
 * come: its program's thread looks where its service is late. */
#define COME_NS 300000000u

int exi_why_elsewhere(void)
{
	switch (exi_meetdir_state()) {
	case -ENOKEY:
		return EXS_X_REASON_NO_KEY;
	case -EOPNOTSUPP:
		return EXS_X_REASON_NO_PROOF;
	default:
		return EXS_X_REASON_REMOTE;
	}
}

int exi_why_nobody(const struct exi_tuple *t, int fd)
{
	return !exi_remote_possible() && exi_tuple_elsewhere(t)
		       ? exi_why_elsewhere()
	       : exi_remote_claimed(t)	     ? EXS_X_REASON_REFUSED
	       : exi_tuple_redirected(t, fd) ? EXS_X_REASON_REDIRECTED
	       : exi_tuple_hidden(t)	     ? EXS_X_REASON_NO_PROOF
					     : EXS_X_REASON_PLAIN_PEER;
}

/* The reason if nobody came, or was found: the peer's socket may show that its
 * process has the library. One that was accepted has the sign of its listener,
 * which a process without the library may have inherited. */
static int why_silent(const struct exi_tuple *t)
{
	return exi_proof_left(t) ? EXS_X_REASON_PEER_REQUEST
	       : exi_proof_signed(t) > 0 && exi_tuple_unaccepted(t)
		       ? EXS_X_REASON_TIMEOUT
		       : EXS_X_REASON_PLAIN_PEER;
}

int exi_why_nobody_of(int fd)
{
	struct exi_tuple t;
	int reason;

	if (exi_tuple_of(fd, &t))
		return EXS_X_REASON_PLAIN_PEER;
	reason = exi_why_nobody(&t, fd);
	return reason == EXS_X_REASON_PLAIN_PEER ? why_silent(&t) : reason;
}

int exi_why_nobody_came(const struct exi_link *l)
{
	struct exi_tuple t;

	if (l->state != EXI_LINK_LISTEN)
		return EXS_X_REASON_TIMEOUT;
	return l->kept	       ? l->kept
	       : l->starved    ? EXS_X_REASON_DESCRIPTORS
	       : l->unprovable ? EXS_X_REASON_NO_PROOF
	       : l->shunned    ? EXS_X_REASON_TIMEOUT
	       : l->proposed   ? EXS_X_REASON_REFUSED
	       : l->keyed && l->keyed->peer_cookie
		       ? EXS_X_REASON_REMOTE /* and has another key, or none */
	       : exi_tuple_of(l->sk->tcp->fd, &t) ? EXS_X_REASON_PLAIN_PEER
						  : why_silent(&t);
}

int exi_why_in_vain(const struct exi_link *l, uint64_t bytes, bool left)
{
	if ((left || bytes <= EXI_LINK_COME_BYTES ||
	     exi_now_ns() - l->since <= COME_NS) &&
	    !l->kept && !l->starved && !l->unprovable)
		return EXS_X_REASON_UNDECIDED;
	return exi_why_nobody_came(l);
}
