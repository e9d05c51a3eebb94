/* SPDX-License-Identifier: BSD-2-Clause */
/* A user who owns neither end claims the meeting name before A does, hears who
 * looks there, lets go of the name, and waits until A binds it. Then he passes
 * on whatever each end says to the other; or he talks with each for himself,
 * and knows the protocol. The ends look in either order, as their settings have
 * it. Needs root to become another user; exits with 77 without. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include "core/base/hash.h"
#include "core/base/proof.h"
#include "tests/api/meet.h"
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

enum {
	CLAIMED = 1,
	OVER,	/* the relay has nothing to hope for */
	READY,	/* the names are claimed */
	ENOUGH, /* so the ends may end */
};

/* --- the stranger ------------------------------------------------------- */

/* A descriptor that gives something away: no path, and no socket. */
static bool of_use(int fd)
{
	return fd >= 0 && !(T_OK(fcntl(fd, F_GETFL)) & O_PATH);
}

/* The name by which A knows B's link is not to be had as long as B has it. */
static void claim_link(int to, const struct meet_msg *m)
{
	struct meet_name name = meet_link(m->blob);

	if (m->type == MEET_SHOWN && m->a == 0)
		T_ERR(bind(to, (struct sockaddr *)&name.un, name.len),
		      EADDRINUSE);
}

/* One packet from one end to the other, with its descriptor. False at the end
 * of the conversation. */
static bool pass(int from, int to, bool of_b)
{
	struct meet_msg m;
	int fd;
	ssize_t n = meet_recv(from, &m, sizeof(m), &fd);

	if (n == 0)
		return false;
	T_MSG(!of_use(fd), "a stranger is given a descriptor");
	if (of_b)
		claim_link(to, &m);
	meet_send(to, &m, (size_t)n, fd);
	if (fd >= 0)
		close(fd);
	return true;
}

static void converse(int a, int b)
{
	struct pollfd p[2] = { { a, POLLIN, 0 }, { b, POLLIN, 0 } };
	bool goes_on = true;

	while (goes_on) {
		if (poll(p, 2, 10000 * t_slow()) <= 0)
			return;
		if (p[1].revents)
			goes_on = pass(b, a, true);
		else if (p[0].revents)
			goes_on = pass(a, b, false);
	}
}

/* A's listener, when A has bound: -1 after a second, also in slow builds. */
static int reach_a(int port_a, int port_b)
{
	struct meet_name name = meet_meeting(port_a, port_b);
	struct t_deadline d = t_deadline_ms(1000 / t_slow());
	int s = T_OK(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));

	while (connect(s, (struct sockaddr *)&name.un, name.len) < 0)
		if (!t_tick(&d)) {
			close(s);
			return -1;
		}
	return s;
}

/* --- a stranger who knows the protocol ------------------------------------ */

#define NONCE	32
#define SYMBOLS 12

/* docs/design/wire-shm.md, section 1. */
struct __attribute__((packed)) named {
	char label[16];
	uint8_t address_a[16];
	uint8_t address_b[16];
	uint16_t port_a;
	uint16_t port_b;
	uint8_t nonce_a[NONCE];
	uint8_t nonce_b[NONCE];
};

static const uint8_t loopback[16] = { [10] = 255, 255, 127, 0, 0, 1 };

/* With one end of the connection: his own nonce and the end's, and what the end
 * will want to see. */
struct session {
	int link; /* -1: there is none */
	bool with_a;
	uint8_t own[NONCE];
	struct named named;
	uint8_t digest[EXI_SHA256];
	unsigned int said; /* symbols that he said are shown */
};

static void promise(const uint8_t *nonce, uint8_t *ret)
{
	uint8_t in[16 + NONCE] = "libexs promise";

	memcpy(in + 16, nonce, NONCE);
	exi_sha256(in, sizeof(in), ret);
}

static void session_digest(struct session *s, const uint8_t *theirs)
{
	struct named *n = &s->named;

	memcpy(n->nonce_a, s->with_a ? theirs : s->own, NONCE);
	memcpy(n->nonce_b, s->with_a ? s->own : theirs, NONCE);
	exi_sha256(n, sizeof(*n), s->digest);
}

static void session_new(struct session *s, int link, bool with_a, int port_a,
			int port_b)
{
	*s = (struct session){ .link = link,
			       .with_a = with_a,
			       .named.label = "libexs link",
			       .named.port_a = (uint16_t)port_a,
			       .named.port_b = (uint16_t)port_b };
	memcpy(s->named.address_a, loopback, sizeof(loopback));
	memcpy(s->named.address_b, loopback, sizeof(loopback));
	T_EQ(getrandom(s->own, NONCE, 0), NONCE);
}

/* As B: promises, and hears A's nonce. */
static bool greet_a(struct session *s)
{
	struct meet_name name = meet_link(s->own);
	uint8_t promised[EXI_SHA256];
	struct meet_msg m;

	T_OK(bind(s->link, (struct sockaddr *)&name.un, name.len));
	promise(s->own, promised);
	meet_say(s->link, MEET_HELLO, 0, 0, MEET_SHOW, promised);
	if (!meet_hear(s->link, MEET_HELLO, &m))
		return false;
	session_digest(s, m.blob);
	return true;
}

/* As A, of whom B has promised: hears B's nonce, and that symbol 0 is there. */
static bool greet_b(struct session *s)
{
	struct meet_msg m;

	meet_say(s->link, MEET_HELLO, 0, 0, MEET_SHOW, s->own);
	if (!meet_hear(s->link, MEET_SHOWN, &m))
		return false;
	session_digest(s, m.blob);
	return true;
}

/* What is on an end's board; above 31: nothing. */
static unsigned int board(const struct session *s, bool of_a)
{
	struct exi_tuple t = {
		.local_port = of_a ? s->named.port_b : s->named.port_a,
		.peer_port = of_a ? s->named.port_a : s->named.port_b
	};
	struct inet_diag_sockopt o;

	memcpy(t.local, loopback, sizeof(loopback));
	memcpy(t.peer, loopback, sizeof(loopback));
	if (exi_proof_options(&t, &o))
		return 32;
	return (unsigned int)o.freebind | o.bind_address_no_port << 1 |
	       o.mc_loop << 2 | o.mc_all << 3 | o.recverr_rfc4884 << 4;
}

static unsigned int symbol(const struct session *s, bool of_a, unsigned int i)
{
	return s->digest[(of_a ? 0 : 16) + i] & 31u;
}

/* What the end wants to find at the other is there. */
static bool fits(const struct session *s)
{
	return board(s, !s->with_a) == symbol(s, !s->with_a, s->said);
}

/* Says that the symbol is there; false when the end does not find it. */
static bool claims(struct session *s)
{
	struct meet_msg m;

	T_MSG(s->said < SYMBOLS, "all symbols fit");
	meet_say(s->link, MEET_SHOWN, s->said, 0, 0,
		 s->said == 0 && s->with_a ? s->own : NULL);
	s->said++;
	return meet_hear(s->link, MEET_SHOWN, &m);
}

/* Lets an end look when what it wants is there, and comes again when it is not,
 * as long as A takes him. At last both look at what does not fit. */
static void be_clever(int a, int b, int port_a, int port_b)
{
	struct session sa, sb;
	int tries;

	session_new(&sb, b, false, port_a, port_b);
	T(greet_b(&sb));
	/* He computes what B does. */
	T_EQ(board(&sb, false), symbol(&sb, false, 0));
	for (tries = 0; tries < 100; tries++) {
		session_new(&sa, a, true, port_a, port_b);
		if (!greet_a(&sa))
			break;
		while ((fits(&sa) && claims(&sa)) || (fits(&sb) && claims(&sb)))
			;
		close(a);
		a = reach_a(port_a, port_b);
		if (a < 0)
			break;
	}
	T_MSG(tries < 100, "A takes a stranger for ever");
	if (a >= 0)
		meet_is_refused(a);
	while (claims(&sb))
		;
	close(a);
}

struct settings {
	const char *a;
	const char *b;
	bool adopt;  /* A is plain until then */
	size_t less; /* of A's first bytes */
	bool clever; /* the stranger */
};

static void relay(int ctl, void *arg)
{
	const struct settings *how = arg;
	int port_b = t_ask(ctl), port_a = t_ask(ctl), name, a, b = -1;

	t_become_nobody();
	name = T_OK(meet_claim_meeting(port_a, port_b));
	t_tell(ctl, CLAIMED);
	/* Where nobody comes he waits in vain: not longer in slow builds. */
	if (t_readable(name, 1000))
		b = T_OK(accept(name, NULL, NULL));
	/* A peer that only knocks is gone at once. */
	if (b >= 0 && t_readable(b, 1000 * t_slow()) &&
	    recv(b, &(char){ 0 }, 1, MSG_PEEK) > 0) {
		if (how->clever) /* the promise is of no use to him */
			T_OK(recv(b, &(struct meet_msg){ 0 },
				  sizeof(struct meet_msg), 0));
		close(name);
		a = reach_a(port_a, port_b);
		if (a >= 0 && how->clever)
			be_clever(a, b, port_a, port_b);
		else if (a >= 0)
			converse(a, b);
	}
	t_tell(ctl, OVER);
	t_expect(ctl, ENOUGH);
}

/* --- the ends ------------------------------------------------------------ */

static void set(const char *upgrade)
{
	if (upgrade)
		setenv("EXS_UPGRADE", upgrade, 1);
	t_init();
}

/* A's first bytes: past the default mark, and not past that of a late end. */
#define FIRST 3000

/* Then both ways, past every mark. */
static const size_t steps[] = { 70000, 200000, 300000, 1200000 };

static void exchange(int s, bool from_a, bool a, uint64_t *pos, size_t n)
{
	uint64_t seed = from_a ? 1 : 2;

	if (from_a == a)
		t_send_stream(s, seed, pos[from_a], n, n);
	else
		t_recv_stream(s, seed, pos[from_a], n, n);
	pos[from_a] += n;
}

/* A says when it is enough. */
static void talk(int s, bool a, int ctl)
{
	struct pollfd p = { ctl, POLLIN, 0 };
	uint64_t pos[2] = { 0 };
	char go_on = 1;
	int i;

	for (i = 0; i < T_COUNT(steps); i++) {
		exchange(s, false, a, pos, steps[i]);
		exchange(s, true, a, pos, steps[i]);
	}
	while (go_on) {
		exchange(s, true, a, pos, 2000);
		exchange(s, false, a, pos, 2000);
		if (a) {
			go_on = poll(&p, 1, 1) == 0;
			t_send_all(s, &go_on, 1, 0);
		} else {
			t_recv_all(s, &go_on, 1);
		}
	}
}

static void serve(int ctl, void *arg)
{
	const struct settings *how = arg;
	struct t_addr at;
	int l, s;

	set(how->b);
	l = t_listener(T_IPV4, &at);
	t_tell(ctl, t_port_of(l));
	s = t_accept(l);
	t_recv_stream(s, 3, 0, FIRST - how->less, FIRST);
	t_tell(ctl, READY);
	talk(s, false, ctl);
	t_recv_end(s);
	t_close(s);
	t_close(l);
}

/* A socket whose port is known before it connects. */
static int bound(bool plain)
{
	struct t_addr at = t_loopback(T_IPV4, 0);
	int s = plain ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)
		      : exs_socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	T_OK(s);
	T_OK(bind(s, (struct sockaddr *)&at.ss, at.len));
	return s;
}

static void ask(int ctl, void *arg)
{
	const struct settings *how = arg;
	struct t_addr to;
	int s;

	set(how->a);
	to = t_loopback(T_IPV4, t_ask(ctl));
	s = bound(how->adopt);
	t_tell(ctl, t_port_of(s));
	t_expect(ctl, READY);
	T_OK(how->adopt ? connect(s, (struct sockaddr *)&to.ss, to.len)
			: exs_connect(s, (struct sockaddr *)&to.ss, to.len, 0,
				      T_SYNC));
	t_send_stream(s, 3, 0, FIRST - how->less, FIRST);
	t_expect(ctl, READY);
	if (how->adopt)
		T_OK(exs_x_adopt(s));
	talk(s, true, ctl);
	t_expect(ctl, ENOUGH);
	T_OK(t_shutdown(s, SHUT_WR));
	t_close(s);
}

static void relayed(struct settings how)
{
	struct t_peer thief, a, b;
	int port_a, port_b;

	t_peer_start(&thief, relay, &how);
	t_peer_start(&b, serve, &how);
	t_peer_start(&a, ask, &how);
	port_b = t_ask(b.ctl);
	t_tell(a.ctl, port_b);
	port_a = t_ask(a.ctl);
	t_tell(thief.ctl, port_b);
	t_tell(thief.ctl, port_a);
	t_expect(thief.ctl, CLAIMED);
	t_tell(a.ctl, READY);
	/* B may have looked. */
	t_expect(b.ctl, READY);
	t_tell(a.ctl, READY);
	t_expect(thief.ctl, OVER);
	t_tell(a.ctl, ENOUGH);
	t_peer_join(&a);
	t_peer_join(&b);
	t_tell(thief.ctl, ENOUGH);
	t_peer_join(&thief);
}

#define DEFAULT NULL
#define LATE	"bytes:100000"

static void both_at_the_default_marks(void)
{
	relayed((struct settings){ DEFAULT, DEFAULT });
}

/* What B sends passes its mark before A has received any of it. */
static void the_first_bytes_are_those_of_b(void)
{
	relayed((struct settings){ DEFAULT, DEFAULT, .less = 2500 });
	relayed((struct settings){ DEFAULT, LATE, .less = 2500 });
}

static void a_late(void)
{
	relayed((struct settings){ LATE, DEFAULT });
	relayed((struct settings){ LATE, "bytes:2000" });
}

static void b_late(void)
{
	relayed((struct settings){ DEFAULT, LATE });
	relayed((struct settings){ "bytes:2000", LATE });
}

static void both_late(void)
{
	relayed((struct settings){ LATE, LATE });
}

static void b_looks_at_once(void)
{
	relayed((struct settings){ DEFAULT, "connect" });
	relayed((struct settings){ LATE, "connect" });
}

static void a_binds_at_once(void)
{
	relayed((struct settings){ "connect", DEFAULT });
	relayed((struct settings){ "connect", LATE });
	relayed((struct settings){ "connect", "connect" });
}

static void a_adopted_late(void)
{
	relayed((struct settings){ DEFAULT, DEFAULT, true });
	relayed((struct settings){ DEFAULT, LATE, true });
	relayed((struct settings){ LATE, DEFAULT, true });
	relayed((struct settings){ "connect", "connect", true });
}

static void a_stranger_who_knows_the_protocol(void)
{
	int i;

	for (i = 0; i < 1 + 4 / t_slow(); i++) {
		relayed((struct settings){ DEFAULT, DEFAULT, .less = 2500,
					   .clever = true });
		relayed((struct settings){ LATE, DEFAULT, .clever = true });
	}
}

static const struct t_row rows[] = {
	T_ROW(both_at_the_default_marks),
	T_ROW(the_first_bytes_are_those_of_b),
	T_ROW(a_late),
	T_ROW(b_late),
	T_ROW(both_late),
	T_ROW(b_looks_at_once),
	T_ROW(a_binds_at_once),
	T_ROW(a_adopted_late),
	T_ROW(a_stranger_who_knows_the_protocol),
};

int main(int argc, char **argv)
{
	if (geteuid() != 0) {
		printf("needs root, to become another user\n");
		return T_SKIP;
	}
	setenv("EXS_PROVIDER", "shm,tcp", 1);
	return t_run("relay", rows, T_COUNT(rows), argc > 1 ? argv[1] : NULL);
}
