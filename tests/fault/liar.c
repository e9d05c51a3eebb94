/* SPDX-License-Identifier: BSD-2-Clause */
/* A peer that was met and then lies: it is our own library with its hand on
 * the pair link, saying whatever a link can carry, in the middle of a stream.
 * The victim may lose that connection, and nothing else: it never crashes or
 * hangs, keeps no descriptor, and its other connections go on. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fault/link.h"
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

#define LIVES 150 /* connections of a row */
#define LIES  60  /* of a connection, at most */

static uint64_t number(struct t_rng *r)
{
	static const uint64_t odd[] = {
		0,	    1,		2,	    15,
		16,	    4096,	65536,	    1ull << 31,
		1ull << 32, 1ull << 63, UINT64_MAX, UINT64_MAX - 15
	};

	return t_below(r, 3)   ? odd[t_below(r, T_COUNT(odd))]
	       : t_below(r, 2) ? t_chunk(r, 100000)
			       : t_rand(r);
}

static void lie(struct t_rng *r, int link)
{
	struct exi_pair_msg m[2] = { { .magic = EXI_PAIR_MAGIC,
				       .version = EXI_PAIR_VERSION } };
	int fd = t_below(r, 8) ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);
	size_t len = sizeof(m[0]);

	m[0].type = (uint16_t)t_below(r, EXI_PAIR_TYPE_MAX + 2);
	m[0].a = number(r);
	m[0].b = number(r);
	m[0].c = number(r);
	switch (t_below(r, 12)) {
	case 0:
		len = t_below(r, sizeof(m));
		break;
	case 1:
		m[0].magic = (uint32_t)number(r);
		break;
	case 2:
		m[0].version = (uint16_t)number(r);
		break;
	case 3:
		m[0].type = (uint16_t)number(r);
		break;
	}
	t_link_put(link, m, len, fd);
	if (fd >= 0)
		close(fd);
}

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
};

static void liar(int ctl, void *arg)
{
	const struct lives *lives = arg;
	struct t_rng r = { lives->seed };
	struct t_addr at;
	int i, k, l;

	t_init();
	l = t_listener(T_IPV4, &at);
	t_tell(ctl, (uint64_t)t_port_of(l));
	at = t_loopback(T_IPV4, (int)t_ask(ctl));
	for (i = 0; i < LIVES; i++) {
		int s = meet(lives->accepts, l, &at, ctl);
		int link = t_link_of(s);

		T(link >= 0);
		for (k = 1 + (int)t_below(&r, LIES); k; k--) {
			lie(&r, link);
			if (t_below(&r, 4) == 0)
				stir(&r, s);
		}
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

static void live(uint64_t seed, bool accepts)
{
	struct lives lives = { .seed = seed, .accepts = accepts };
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
	for (i = 0; i < LIVES; i++) {
		int s = meet(!accepts, l, &at, p.ctl);

		suffer(&r, s);
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
	live(1, false);
}

static void a_liar_that_accepts(void)
{
	live(2, true);
}

static void another_liar_that_connects(void)
{
	live(3, false);
}

static void another_liar_that_accepts(void)
{
	live(4, true);
}

static const struct t_row rows[] = {
	T_ROW_LONG(a_liar_that_connects, 120),
	T_ROW_LONG(a_liar_that_accepts, 120),
	T_ROW_LONG(another_liar_that_connects, 120),
	T_ROW_LONG(another_liar_that_accepts, 120),
};

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	setenv("EXS_PROVIDER", "shm,tcp", 1);
	/* Each lie is worth a warning: not here. */
	setenv("EXS_LOG", "off", 0);
	return t_run("liar", rows, T_COUNT(rows), argc > 1 ? argv[1] : NULL);
}
