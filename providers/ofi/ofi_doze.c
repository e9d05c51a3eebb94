/* SPDX-License-Identifier: BSD-2-Clause */
/* Providers without descriptors to wait on: the service polls them in turn.
 * When it finds nothing, it asks the other ends to send a wake-up for
 * everything that they post, over the rendezvous, which rdm keeps. This lasts
 * until wake-ups come so fast that polling is cheaper.
 *
 *	who dozes: DOZE ->	<- AGREED	sleeps, looks at each	<- RING
 *		   AWAKE ->	looks in turns
 *
 * No message is missed. The thread that posts reads `rings` afterwards by a
 * read-modify-write, and the thread that agrees sets it the same way before it
 * sends AGREED. If the poster's comes first, the request is there when AGREED
 * is read, and is found by the look after that, without which no service
 * sleeps. If it comes second, it finds the flag, and a wake-up is sent; that is
 * read after the request can be found. */
#include "providers/ofi/ofi_int.h"

#include <errno.h>
#include <sys/socket.h>

#include "core/base/util.h"
#include "core/rma/lock.h"

enum {
	DOZE = 'd',
	AGREED = 'a',
	RING = 'r',
	AWAKE = 'w'
};

/* RINGS rings in RINGS_NS are too many. */
#define RINGS	 16
#define RINGS_NS 1000000u

static void say(struct ofip_link *l, char what)
{
	send(l->sock, &what, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void ofip_doze_posted(struct ofip_link *l)
{
	/* A ring that finds no room is not needed: there are enough. */
	if (atomic_fetch_or(&l->rings, 0))
		say(l, RING);
}

static void wake_up(struct ofip_net *n)
{
	for (unsigned int i = 0; i < n->slots; i++) {
		struct ofip_link *l = n->slot[i].link;

		if (!l || l->doze != OFIP_DOZE_AGREED)
			continue;
		l->doze = OFIP_DOZE_NO;
		say(l, AWAKE);
	}
}

static void rung(struct ofip_net *n)
{
	uint64_t now = exi_now_ns();

	if (now - n->rung_since > RINGS_NS) {
		n->rung_since = now;
		n->rung = 0;
	}
	if (++n->rung > RINGS)
		wake_up(n);
}

static bool hear(struct ofip_link *l, char what)
{
	switch (what) {
	case DOZE:
		atomic_fetch_or(&l->rings, 1);
		say(l, AGREED);
		return true;
	case AWAKE:
		atomic_fetch_and(&l->rings, 0);
		return true;
	case AGREED:
		if (l->doze != OFIP_DOZE_ASKED)
			return false;
		l->doze = OFIP_DOZE_AGREED;
		return true;
	case RING:
		rung(ofip_net(l->rma.net));
		return true;
	default:
		return false;
	}
}

int ofip_doze_heard(struct ofip_link *l)
{
	char what[64];
	ssize_t n = recv(l->sock, what, sizeof(what), MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n <= 0)
		return -ENOTCONN;
	for (ssize_t i = 0; i < n; i++)
		if (!hear(l, what[i]))
			return -EPROTO;
	return 1;
}

/* Whether nothing of ours is under way for which the provider would have to be
 * polled. */
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

void ofip_doze_ask(struct ofip_net *n, bool quiet)
{
	for (unsigned int i = 0; i < n->slots && n->rdm; i++) {
		struct ofip_link *l = n->slot[i].link;

		if (!l)
			continue;
		if (!is_still(l)) {
			ofip_doze_posted(l);
		} else if (quiet && l->doze == OFIP_DOZE_NO) {
			l->doze = OFIP_DOZE_ASKED;
			say(l, DOZE);
		}
	}
}
