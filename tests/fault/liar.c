/* SPDX-License-Identifier: BSD-2-Clause */
/* A peer that was met and then lies: it is our own library with its hand on the
 * pair link, saying whatever a link can carry, in the middle of a stream, or on
 * its segment, writing whatever a segment can hold while the victim reads it.
 * The victim may lose that connection, and nothing else: it never crashes or
 * hangs, keeps no descriptor, and its other connections go on. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fault/hand.h"
#include "tests/fault/link.h"
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

#define LIVES 150 /* connections of a row */
#define LIES  60  /* of a connection, at most */

static char buf[20000];

/* What comes and goes while lies are about, whatever becomes of it. */
static bool stir(struct t_rng *r, int s)
{
	ssize_t n;

	if (t_below(r, 2) == 0) {
		n = t_send(s, buf, t_chunk(r, sizeof(buf)),
			   MSG_DONTWAIT | MSG_NOSIGNAL);
		return n > 0 || errno == EAGAIN;
	}
	n = t_recv(s, buf, t_chunk(r, sizeof(buf)), MSG_DONTWAIT);
	return n > 0 || (n < 0 && errno == EAGAIN);
}

static int meet(bool accepts, int l, const struct t_addr *to, int ctl)
{
	int s = accepts ? t_accept(l) : t_connect(to);

	t_settle(s, T_SHM);
	/* The other end too. */
	t_tell(ctl, 6);
	t_expect(ctl, 6);
	return s;
}

struct lives {
	uint64_t seed;
	bool accepts; /* the liar */
	void (*lie)(struct t_rng *r, int s, int link);
	int n;
};

static void tell_lies(struct t_rng *r, int s, int link)
{
	for (int k = 1 + (int)t_below(r, LIES); k; k--) {
		t_lie(r, link, 0);
		if (t_below(r, 4) == 0)
			stir(r, s);
	}
}

/* The victim has some time to look at what was written. */
static bool hangs_up(int link)
{
	struct pollfd p = { .fd = link };

	return T_OK(poll(&p, 1, 1)) == 1;
}

static void write_lies(struct t_rng *r, int s, int link)
{
	struct t_hand h;

	t_hand_lay(&h, s, link);
	for (int k = 1 + (int)t_below(r, LIES); k; k--) {
		t_hand_scribble(r, &h);
		if (t_below(r, 4) == 0)
			t_recv(s, buf, sizeof(buf), MSG_DONTWAIT);
		if (t_below(r, 4) == 0 && hangs_up(link))
			break;
	}
	t_hand_lift(&h);
}

/* What was taken, and what cannot have been, in turns: a sender that looks
 * twice sees both. One that looks once, when it is woken, sees what was stored
 * last: in every 32nd round that cannot be. */
static void count_wrong(struct t_rng *r, int s, int link)
{
	struct t_deadline d = t_deadline_ms(20000);
	struct t_hand h;
	int round = 0;

	t_hand_lay(&h, s, link);
	do {
		T_MSG(!t_over(&d), "the victim does not look");
		stir(r, s);
		for (int k = 0; k < 50000; k++)
			atomic_store(&h.seg->taken, k & 1 ? 0 : UINT64_MAX);
		if (++round % 32 == 0)
			atomic_store(&h.seg->taken, UINT64_MAX);
		t_hand_wake(&h);
	} while (!hangs_up(link));
	t_hand_lift(&h);
}

static void liar(int ctl, void *arg)
{
	const struct lives *lives = arg;
	struct t_rng r = { lives->seed };
	struct t_addr at;
	int i, l;

	t_init();
	l = t_listener(T_IPV4, &at);
	t_tell(ctl, (uint64_t)t_port_of(l));
	at = t_loopback(T_IPV4, (int)t_ask(ctl));
	for (i = 0; i < lives->n; i++) {
		int s = meet(lives->accepts, l, &at, ctl);
		int link = t_link_of(s);

		T(link >= 0);
		lives->lie(&r, s, link);
		close(link);
		t_close(s);
		t_expect(ctl, 7);
	}
	close(l);
}

/* Until the connection has ended, one way or the other. */
static void suffer(struct t_rng *r, int s)
{
	struct t_deadline d = t_deadline_ms(20000);

	while (stir(r, s) || t_recv(s, buf, 1, MSG_DONTWAIT | MSG_PEEK) > 0 ||
	       errno == EAGAIN)
		T_MSG(t_tick(&d), "neither goes on nor ends: %s", t_where(s));
}

/* The same, by operations that wait, and that are told by events. */
static void suffer_waiting(struct t_rng *r, int s)
{
	struct timeval tv = { .tv_usec = 1000 };
	struct t_deadline d = t_deadline_ms(20000);
	ssize_t n;

	T_OK(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	T_OK(setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)));
	do {
		T_MSG(t_tick(&d), "neither goes on nor ends: %s", t_where(s));
		if (t_below(r, 2) == 0)
			t_send(s, buf, t_chunk(r, sizeof(buf)), MSG_NOSIGNAL);
		n = t_recv(s, buf, t_chunk(r, sizeof(buf)), 0);
	} while (n > 0 || (n < 0 && errno == EAGAIN));
}

static void suffer_events(struct t_rng *r, int s)
{
	exs_qhandle_t q = exs_qcreate(4);
	exs_event_t e = { 0 };

	T(q >= 0);
	do {
		if (t_below(r, 2) == 0) {
			if (exs_send(s, buf, t_chunk(r, sizeof(buf)),
				     MSG_NOSIGNAL, q, NULL, 0))
				break;
			if (t_event(q).exs_errno)
				break;
		}
		if (exs_recv(s, buf, t_chunk(r, sizeof(buf)), 0, q, NULL, 0))
			break;
		e = t_event(q);
	} while (!e.exs_errno && e.exs_evt_un.exs_evt_xfer.exs_evt_length);
	T_OK(exs_qdelete(q));
}

static void live(uint64_t seed, bool accepts,
		 void (*how)(struct t_rng *r, int s, int link), int n)
{
	static void (*const ways[])(struct t_rng *, int) = { suffer,
							     suffer_waiting,
							     suffer_events };
	struct lives lives = { seed, accepts, how, n };
	struct t_rng r = { seed + 1 };
	struct t_fds start;
	struct t_peer p;
	struct t_addr at;
	int i, l, good[2];

	t_note("seed %llu", (unsigned long long)seed);
	t_fds_take(&start);
	t_peer_start(&p, liar, &lives);
	t_init();
	t_pair(T_IPV4, good);
	t_settle_pair(good[0], good[1], T_SHM);
	l = t_listener(T_IPV4, &at);
	at = t_loopback(T_IPV4, (int)t_ask(p.ctl));
	t_tell(p.ctl, (uint64_t)t_port_of(l));
	for (i = 0; i < lives.n; i++) {
		int s = meet(!accepts, l, &at, p.ctl);

		ways[i % T_COUNT(ways)](&r, s);
		t_close(s);
		t_send_stream(good[0], 3, 0, 1000, 1000);
		t_recv_stream(good[1], 3, 0, 1000, 1000);
		T(t_is(good[0], T_SHM));
		t_tell(p.ctl, 7);
	}
	t_peer_join(&p);
	t_close(good[0]);
	t_recv_end(good[1]);
	t_close(good[1]);
	t_close(l);
	t_unlisten();
	t_fds_settled(&start);
}

static void a_liar_that_connects(void)
{
	live(1, false, tell_lies, LIVES);
}

static void a_liar_that_accepts(void)
{
	live(2, true, tell_lies, LIVES);
}

static void another_liar_that_connects(void)
{
	live(3, false, tell_lies, LIVES);
}

static void another_liar_that_accepts(void)
{
	live(4, true, tell_lies, LIVES);
}

static void a_scribbler_that_connects(void)
{
	live(5, false, write_lies, LIVES);
}

static void a_scribbler_that_accepts(void)
{
	live(6, true, write_lies, LIVES);
}

static void who_connects_counts_wrong(void)
{
	live(7, false, count_wrong, LIVES / 10);
}

static void who_accepts_counts_wrong(void)
{
	live(8, true, count_wrong, LIVES / 10);
}

static const struct t_row rows[] = {
	T_ROW_LONG(a_liar_that_connects, 120),
	T_ROW_LONG(a_liar_that_accepts, 120),
	T_ROW_LONG(another_liar_that_connects, 120),
	T_ROW_LONG(another_liar_that_accepts, 120),
	T_ROW_LONG(a_scribbler_that_connects, 120),
	T_ROW_LONG(a_scribbler_that_accepts, 120),
	T_ROW_LONG(who_connects_counts_wrong, 120),
	T_ROW_LONG(who_accepts_counts_wrong, 120),
};

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	setenv("EXS_PROVIDER", "shm,tcp", 1);
	/* Each lie is worth a warning: not here. */
	setenv("EXS_LOG", "off", 0);
	return t_run("liar", rows, T_COUNT(rows), argc > 1 ? argv[1] : NULL);
}
