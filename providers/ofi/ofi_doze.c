/* SPDX-License-Identifier: BSD-2-Clause */
/* Providers without descriptors to wait on: the service looks at them in turns, and
 * when it finds nothing asks the other ends to ring when there is something; over
 * the rendezvous, which rdm keeps.
 *
 *	who dozes: DOZE ->	<- AGREED	sleeps		<- RING	looks
 *
 * No message is missed. Who posts swaps `rings` for false after it; who agrees swaps it for
 * true before he says so. If the first swap comes first, what was posted before it is
 * there when AGREED is read, and found by the look after that, without which nobody
 * sleeps. If it comes second, it finds true, and rings. */
#include "providers/ofi/ofi_int.h"

#include <errno.h>
#include <sys/socket.h>

enum {
	DOZE = 'd',
	AGREED = 'a',
	RING = 'r'
};

static void say(struct ofip_link *l, char what)
{
	send(l->sock, &what, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void ofip_doze_posted(struct ofip_link *l)
{
	if (atomic_exchange(&l->rings, false))
		say(l, RING);
}

int ofip_doze_heard(struct ofip_link *l)
{
	char what;
	ssize_t n = recv(l->sock, &what, 1, MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n <= 0)
		return -ENOTCONN;
	switch (what) {
	case DOZE:
		atomic_exchange(&l->rings, true);
		say(l, AGREED);
		return 1;
	case AGREED:
		l->doze = OFIP_DOZE_AGREED;
		return 1;
	case RING:
		l->doze = OFIP_DOZE_NO;
		return 1;
	default:
		return -EPROTO;
	}
}

/* Nothing of ours is under way, for which the provider would have to be asked. */
static bool is_still(struct ofip_link *l)
{
	bool ret;

	exi_rma_lock(&l->rma.post);
	ret = l->stage == OFIP_UP && l->sock >= 0 &&
	      atomic_load(&l->rma.done) == l->rma.posted;
	exi_rma_unlock(&l->rma.post);
	return ret;
}

bool ofip_doze_agreed(struct ofip_net *n)
{
	for (unsigned int i = 0; i < n->slots; i++) {
		struct ofip_link *l = n->slot[i].link;

		if (l && (l->doze != OFIP_DOZE_AGREED || !is_still(l)))
			return false;
	}
	return n->rdm;
}

void ofip_doze_ask(struct ofip_net *n)
{
	for (unsigned int i = 0; i < n->slots && n->rdm; i++) {
		struct ofip_link *l = n->slot[i].link;

		if (!l || l->doze != OFIP_DOZE_NO || !is_still(l))
			continue;
		l->doze = OFIP_DOZE_ASKED;
		say(l, DOZE);
	}
}
