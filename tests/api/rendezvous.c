/* SPDX-License-Identifier: BSD-2-Clause */
/* Strangers at the meeting: whatever a foreign process says, shows or keeps
 * back at its names, the connection works, the stranger is told nothing, and
 * where the real peer can still come it is met. Needs root to become another
 * user; exits with 77 without. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/api/meet.h"
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

#define TALK   (20 << 20)
#define NOBODY 65534

/* The row's process is the stranger, as user nobody; both ends are others. */
struct scene {
	struct t_peer a;
	struct t_peer b;
	int port_a;
	int port_b;
};

static struct t_want end_of_a, end_of_b;

static void talk(int s, uint64_t out, uint64_t in, bool first)
{
	if (first)
		t_send_stream(s, out, 0, TALK, 60000);
	t_recv_stream(s, in, 0, TALK, 60000);
	if (!first)
		t_send_stream(s, out, 0, TALK, 60000);
}

/* A connects, sends its first bytes when told, and once more. */
static void process_a(int ctl, void *arg)
{
	struct t_addr to = t_loopback(T_IPV4, t_ask(ctl));
	struct t_fds start;
	char byte;
	int s;

	t_fds_take(&start);
	t_init();
	s = t_connect(&to);
	t_tell(ctl, t_port_of(s));
	t_expect(ctl, 1);
	t_send_stream(s, 1, 0, 3000, 3000);
	t_tell(ctl, 2);
	t_expect(ctl, 3);
	t_settle(s, end_of_a);
	talk(s, 1, 2, true);
	T_MSG(t_is(s, end_of_a), "A is at last %s", t_where(s));
	/* Until B has looked. */
	t_recv_all(s, &byte, 1);
	t_close(s);
	t_fds_settled(&start);
}

/* B looks for the meeting only after a while, if late says so. */
static void process_b(int ctl, void *arg)
{
	const char *late = arg;
	struct t_fds start;
	struct t_addr at;
	int l, s;

	t_fds_take(&start);
	if (late)
		setenv("EXS_UPGRADE", late, 1);
	t_init();
	l = t_listener(T_IPV4, &at);
	t_tell(ctl, t_port_of(l));
	s = t_accept(l);
	t_recv_stream(s, 1, 0, 3000, 3000);
	t_tell(ctl, 4);
	t_settle(s, end_of_b);
	talk(s, 2, 1, false);
	T_MSG(t_is(s, end_of_b), "B is at last %s", t_where(s));
	t_send_all(s, "", 1, 0);
	t_recv_end(s);
	t_close(s);
	t_close(l);
	t_fds_settled(&start);
}

static void begin(struct scene *sc, struct t_want a, struct t_want b,
		  const char *late)
{
	end_of_a = a;
	end_of_b = b;
	t_peer_start(&sc->b, process_b, (void *)(uintptr_t)late);
	t_peer_start(&sc->a, process_a, NULL);
	sc->port_b = t_ask(sc->b.ctl);
	t_tell(sc->a.ctl, sc->port_b);
	sc->port_a = t_ask(sc->a.ctl);
	T_OK(seteuid(NOBODY));
}

/* A's first bytes are with B: from now on A waits to be met, if it will. */
static void first_bytes(struct scene *sc)
{
	t_tell(sc->a.ctl, 1);
	t_expect(sc->a.ctl, 2);
	t_expect(sc->b.ctl, 4);
}

static void finish(struct scene *sc)
{
	t_tell(sc->a.ctl, 3);
	t_peer_join(&sc->a);
	t_peer_join(&sc->b);
	T_OK(seteuid(0));
}

/* The first words of a real B: heard by claiming the name before A. */
static struct meet_msg overhear(void)
{
	struct meet_msg ret;
	struct scene sc;
	int l, s;

	begin(&sc, T_TCP(EXS_X_REASON_REFUSED), T_TCP(T_ANY), NULL);
	l = T_OK(meet_claim_meeting(sc.port_a, sc.port_b));
	first_bytes(&sc);
	T(t_readable(l, 10000 * t_slow()));
	s = T_OK(accept(l, NULL, NULL));
	T(meet_hear(s, MEET_HELLO, &ret));
	close(s);
	close(l);
	finish(&sc);
	return ret;
}

/* A late B: time for a stranger to come first. */
#define LATE "bytes:1000000"

static void a_stranger_who_hangs_up_is_forgotten(void)
{
	struct scene sc;
	int i;

	begin(&sc, T_SHM, T_SHM, LATE);
	first_bytes(&sc);
	for (i = 0; i < 100; i++)
		close(meet_connect(sc.port_a, sc.port_b));
	finish(&sc);
}

static void silent_strangers_do_not_keep_the_peer_away(void)
{
	struct scene sc;
	int s[40], i;

	begin(&sc, T_SHM, T_SHM, LATE);
	first_bytes(&sc);
	for (i = 0; i < T_COUNT(s); i++)
		s[i] = meet_connect(sc.port_a, sc.port_b);
	finish(&sc);
	for (i = 0; i < T_COUNT(s); i++) {
		meet_said_nothing(s[i]);
		close(s[i]);
	}
}

static void garbage(int s, struct t_rng *r)
{
	char buf[3000];
	size_t len = t_chunk(r, sizeof(buf));

	t_fill(buf, len, t_rand(r), 0);
	meet_send(s, buf, len, -1);
}

static void garbage_from_a_stranger_is_ignored(void)
{
	struct t_rng r = { 17 };
	struct scene sc;
	int s, i, j;

	begin(&sc, T_SHM, T_SHM, LATE);
	first_bytes(&sc);
	for (i = 0; i < 50; i++) {
		s = meet_connect(sc.port_a, sc.port_b);
		for (j = 0; j <= i % 5; j++)
			garbage(s, &r);
		meet_said_nothing(s);
		close(s);
	}
	finish(&sc);
}

static void garbage_with_descriptors_leaves_none(void)
{
	struct t_rng r = { 18 };
	struct scene sc;
	char buf[300];
	int s, i;

	begin(&sc, T_SHM, T_SHM, LATE);
	first_bytes(&sc);
	for (i = 0; i < 60; i++) {
		s = meet_connect(sc.port_a, sc.port_b);
		t_fill(buf, sizeof(buf), t_rand(&r), 0);
		meet_send(s, buf, t_chunk(&r, sizeof(buf)), 0);
		meet_said_nothing(s);
		close(s);
	}
	finish(&sc);
}

/* A real greeting, changed at one place each time. */
static void greetings_with_flipped_bits_are_told_nothing(void)
{
	struct meet_msg h = overhear(), bad;
	struct t_rng r = { 19 };
	struct scene sc;
	int s, i;

	begin(&sc, T_SHM, T_SHM, LATE);
	first_bytes(&sc);
	for (i = 0; i < 100; i++) {
		s = meet_connect(sc.port_a, sc.port_b);
		bad = h;
		((char *)&bad)[t_below(&r, sizeof(h))] ^= 1 << t_below(&r, 8);
		meet_send(s, &bad,
			  t_below(&r, 2) ? sizeof(h)
					 : t_below(&r, sizeof(h)) + 1,
			  -1);
		meet_said_little(s);
		close(s);
	}
	finish(&sc);
}

/* Greets as the real B does, with this descriptor. */
static void greet_with(int fd)
{
	struct meet_msg h = overhear();
	struct scene sc;
	int s;

	begin(&sc, T_SHM, T_SHM, LATE);
	first_bytes(&sc);
	s = meet_connect(sc.port_a, sc.port_b);
	if (meet_send(s, &h, sizeof(h), fd))
		meet_is_refused(s);
	close(s);
	if (fd >= 0)
		close(fd);
	finish(&sc);
}

static void a_greeting_of_a_stranger_is_refused(void)
{
	greet_with(-1);
}

/* He says that A's user is known to him, and that A's should be to A. */
static void a_greeting_that_asks_for_no_proof_is_refused(void)
{
	struct scene sc;
	int s;

	begin(&sc, T_SHM, T_SHM, LATE);
	first_bytes(&sc);
	s = meet_connect(sc.port_a, sc.port_b);
	meet_say(s, MEET_HELLO, 1, 1, 0, NULL);
	meet_is_refused(s);
	s = meet_connect(sc.port_a, sc.port_b);
	meet_say(s, MEET_PROVED, 1, 1, 0, NULL);
	meet_is_refused(s);
	finish(&sc);
}

/* An established TCP connection of the stranger's own. */
static int own_connection(void)
{
	int fd[2];

	t_plain_pair(fd);
	close(fd[1]);
	return fd[0];
}

static void a_greeting_with_a_descriptor_is_refused(void)
{
	greet_with(own_connection());
	greet_with(T_OK(memfd_create("x", MFD_CLOEXEC)));
}

/* What a listener does who claims a meeting name before A: A never binds
 * again, B gives up, TCP carries everything. b: what B says. */
typedef void squat(int s);

static void squatted(squat *f, struct t_want b)
{
	struct scene sc;
	int l, s;

	begin(&sc, T_TCP(EXS_X_REASON_REFUSED), b, NULL);
	l = T_OK(meet_claim_meeting(sc.port_a, sc.port_b));
	first_bytes(&sc);
	T(t_readable(l, 10000 * t_slow()));
	s = T_OK(accept(l, NULL, NULL));
	f(s);
	close(l);
	finish(&sc);
	close(s);
}

static void say_nothing(int s)
{
}

static void a_silent_squatter_gets_nowhere(void)
{
	squatted(say_nothing, T_TCP(T_ANY));
}

static void hang_up(int s)
{
	shutdown(s, SHUT_RDWR);
}

static void a_squatter_who_hangs_up_gets_nowhere(void)
{
	squatted(hang_up, T_TCP(EXS_X_REASON_REFUSED));
}

static void babble(int s)
{
	struct t_rng r = { 20 };
	int i;

	for (i = 0; i < 20; i++)
		garbage(s, &r);
}

static void a_babbling_squatter_gets_nowhere(void)
{
	squatted(babble, T_TCP(T_ANY));
}

/* Sends back to B whatever it says: each symbol that it looks for on A's board
 * would have to be there by chance. */
static void mirror(int s)
{
	struct meet_msg m;
	ssize_t n;
	int fd;

	while ((n = meet_recv(s, &m, sizeof(m), &fd)) > 0) {
		T_EQ(fd, -1);
		T(m.type == MEET_HELLO || m.type == MEET_SHOWN);
		meet_send(s, &m, (size_t)n, -1);
	}
}

static void a_mirror_gets_nowhere(void)
{
	squatted(mirror, T_TCP(T_ANY));
}

/* Nobody listens any more at a name that was claimed before A. */
static void a_name_that_was_claimed_is_never_bound_again(void)
{
	struct meet_name name;
	struct scene sc;
	int l, s;

	begin(&sc, T_TCP(EXS_X_REASON_REFUSED), T_TCP(T_ANY), NULL);
	l = T_OK(meet_claim_meeting(sc.port_a, sc.port_b));
	first_bytes(&sc);
	close(l);
	name = meet_meeting(sc.port_a, sc.port_b);
	s = T_OK(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
	T_ERR(connect(s, (struct sockaddr *)&name.un, name.len), ECONNREFUSED);
	finish(&sc);
	T_ERR(connect(s, (struct sockaddr *)&name.un, name.len), ECONNREFUSED);
	close(s);
}

#define LISTENS 0x10000 /* a flag in /proc/net/unix */

/* Whether somebody does, without a connection: one after the other would take
 * each place that is free in the queue, of which the peer needs one. */
static bool listens_at(const struct meet_name *name)
{
	FILE *f = fopen("/proc/net/unix", "re");
	const char *text = name->un.sun_path + 1, *at;
	char line[256];
	unsigned int flags;
	bool ret = false;

	T(f != NULL);
	while (!ret && fgets(line, sizeof(line), f))
		ret = sscanf(line, "%*s %*x %*x %x", &flags) == 1 &&
		      flags & LISTENS && (at = strchr(line, '@')) &&
		      !strncmp(at + 1, text, strlen(text)) &&
		      at[1 + strlen(text)] == '\n';
	fclose(f);
	return ret;
}

/* The name goes when the peer has proved itself. */
static void nobody_listens_at_the_name_after_the_meeting(void)
{
	struct meet_name name;
	struct scene sc;
	int s;

	begin(&sc, T_SHM, T_SHM, NULL);
	first_bytes(&sc);
	name = meet_meeting(sc.port_a, sc.port_b);
	T_UNTIL(!listens_at(&name));
	s = T_OK(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
	T_ERR(connect(s, (struct sockaddr *)&name.un, name.len), ECONNREFUSED);
	close(s);
	finish(&sc);
}

static bool is_awaited(int s)
{
	struct t_addr own, peer;
	struct meet_name name;
	int fd = T_OK(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)), ret;

	own.len = peer.len = sizeof(own.ss);
	T_OK(getsockname(s, (struct sockaddr *)&own.ss, &own.len));
	T_OK(getpeername(s, (struct sockaddr *)&peer.ss, &peer.len));
	name = meet_meeting(t_port(&own), t_port(&peer));
	ret = connect(fd, (struct sockaddr *)&name.un, name.len);
	if (ret < 0)
		T_EQ(errno, ECONNREFUSED);
	close(fd);
	return ret == 0;
}

/* A meeting costs more than a short download has. */
static void a_download_meets_when_it_has_lasted(void)
{
	struct t_deadline d = t_deadline_ms(20000);
	char buf[60000] = { 0 };
	int fd[2];

	t_init();
	t_pair(T_IPV4, fd);
	t_send_all(fd[1], buf, sizeof(buf), 0);
	T_EQ(t_recv(fd[0], buf, sizeof(buf), MSG_WAITALL),
	     (ssize_t)sizeof(buf));
	T(!is_awaited(fd[0]));
	do {
		t_send_all(fd[1], buf, sizeof(buf), 0);
		t_recv_all(fd[0], buf, sizeof(buf));
		T_MSG(t_tick(&d), "%s", t_where(fd[0]));
	} while (strcmp(t_info(fd[0]).exs_x_rx_fabric, "shm") != 0);
	t_close(fd[0]);
	t_close(fd[1]);
}

/* A marker that a stranger holds is as good as one's own. */
static void listens_under_a_claimed_marker(int ctl, void *arg)
{
	struct t_addr at = t_loopback(T_IPV4, 0);
	int l, s;

	t_init();
	l = T_OK(exs_socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	T_OK(exs_bind(l, (struct sockaddr *)&at.ss, at.len));
	t_tell(ctl, t_port_of(l));
	t_expect(ctl, 1);
	T_OK(exs_listen(l, 4));
	t_tell(ctl, 2);
	s = t_accept(l);
	t_settle(s, T_SHM);
	t_recv_end(s);
	t_close(s);
	t_close(l);
}

static void a_claimed_marker_does_not_prevent_the_meeting(void)
{
	struct t_addr to;
	struct t_peer p;
	int marker, s;

	t_peer_start(&p, listens_under_a_claimed_marker, NULL);
	to = t_loopback(T_IPV4, t_ask(p.ctl));
	marker = T_OK(meet_claim_marker(t_port(&to)));
	t_tell(p.ctl, 1);
	t_expect(p.ctl, 2);
	t_init();
	s = t_connect(&to);
	t_settle(s, T_SHM);
	t_close(s);
	t_peer_join(&p);
	close(marker);
}

/* It says no when the kernel cannot be asked any more who it is. */
static void a_peer_that_declines_and_leaves_is_not_unknown(void)
{
	struct pollfd p = { .events = POLLRDHUP };
	struct meet_name name;
	struct t_addr at;
	int l, b, port, link, marker;

	setenv("EXS_UPGRADE", "connect", 1);
	l = t_plain_listener(&at);
	marker = T_OK(meet_claim_marker(t_port(&at)));
	t_init();
	p.fd = t_connect(&at);
	port = t_port_of(p.fd);
	name = meet_meeting(port, t_port(&at));
	b = T_OK(accept(l, NULL, NULL));
	link = T_OK(meet_connect(port, t_port(&at)));
	close(b);
	T_EQ(poll(&p, 1, 20000), 1);
	meet_say(link, MEET_NO, EXS_X_REASON_STDIO, 0, 0, NULL);
	meet_is_refused(link);
	T_UNTIL(!listens_at(&name));
	T_MSG(t_is(p.fd, T_TCP(EXS_X_REASON_UNDECIDED)), "%s", t_where(p.fd));
	t_close(p.fd);
	close(l);
	close(marker);
}

/* A plain server with a stranger's marker: A waits to be met by nobody. */
static void a_marker_without_a_peer_costs_only_time(void)
{
	struct t_deadline d = t_deadline_ms(30000);
	struct t_addr to;
	struct t_peer p;
	uint64_t pos = 0;
	int marker, s, port;

	t_peer_start(&p, t_plain_echo, NULL);
	port = t_ask(p.ctl);
	to = t_loopback(T_IPV4, port);
	marker = T_OK(meet_claim_marker(port));
	t_init();
	s = t_connect(&to);
	while (!t_is(s, T_TCP(EXS_X_REASON_TIMEOUT)) &&
	       !t_is(s, T_TCP(EXS_X_REASON_PLAIN_PEER))) {
		t_send_stream(s, 1, pos, 2000, 2000);
		t_recv_stream(s, 1, pos, 2000, 2000);
		pos += 2000;
		T_MSG(t_tick(&d), "still %s", t_where(s));
	}
	T_OK(t_shutdown(s, SHUT_WR));
	t_recv_end(s);
	t_close(s);
	t_peer_join(&p);
	close(marker);
}

/* Bound by anybody: of the port's listener, or of one before. */
static bool is_marked(int port)
{
	struct meet_name name = meet_marker(port);
	int s = T_OK(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	bool ret = connect(s, (struct sockaddr *)&name.un, name.len) == 0;

	close(s);
	return ret;
}

/* Says when its listener is closed, and how that was made: by the library, or
 * by another program that it has it from, with a connection that came before
 * the library knew of it. */
static void accepts_and_closes_its_listener(int ctl, void *arg)
{
	bool plain = arg;
	struct t_addr at;
	int l, s;

	if (!plain)
		t_init();
	l = plain ? t_plain_listener(&at) : t_listener(T_IPV4, &at);
	t_tell(ctl, t_port(&at));
	t_expect(ctl, 1);
	if (plain)
		t_init();
	s = t_accept(l);
	t_close(l);
	t_tell(ctl, 2);
	t_recv_stream(s, 1, 0, 5000, 5000);
	t_settle(s, T_SHM);
	t_recv_end(s);
	t_close(s);
}

static void is_met_without_its_listener(bool plain)
{
	struct t_addr to;
	struct t_peer p;
	int s, port;

	t_peer_start(&p, accepts_and_closes_its_listener,
		     plain ? (void *)1 : NULL);
	port = t_ask(p.ctl);
	to = t_loopback(T_IPV4, port);
	t_init();
	s = t_connect(&to);
	t_tell(p.ctl, 1);
	t_expect(p.ctl, 2);
	T(!is_marked(port));
	t_send_stream(s, 1, 0, 5000, 5000);
	t_settle(s, T_SHM);
	t_close(s);
	t_peer_join(&p);
}

static void what_was_accepted_is_met_when_its_listener_is_closed(void)
{
	is_met_without_its_listener(false);
}

static void so_is_what_came_before_the_library(void)
{
	is_met_without_its_listener(true);
}

/* The library starts here when the connection is there already. */
static void starts_late(int ctl, void *arg)
{
	struct t_addr at;
	int l = t_plain_listener(&at), s;

	t_tell(ctl, t_port(&at));
	t_expect(ctl, 1);
	t_init();
	s = t_accept(l);
	t_send_all(s, "x", 1, 0);
	t_settle(s, T_SHM);
	t_recv_end(s);
	t_close(s);
	close(l);
}

/* Where connections meet as they are made, too. */
static void a_library_that_starts_late_is_met_when_it_answers(void)
{
	struct t_addr to;
	struct t_peer p;
	char c;
	int s;

	setenv("EXS_UPGRADE", "connect", 1);
	t_peer_start(&p, starts_late, NULL);
	to = t_loopback(T_IPV4, t_ask(p.ctl));
	t_init();
	s = t_connect(&to);
	t_tell(p.ctl, 1);
	t_recv_all(s, &c, 1);
	t_settle(s, T_SHM);
	t_close(s);
	t_peer_join(&p);
}

/* A server that opens a listener for each transfer, and keeps one
 * connection. */
#define LISTENERS 200

static void a_marker_goes_with_its_listener(void)
{
	struct t_fds start;
	struct t_addr at;
	int l, a, b, port[LISTENERS], marked = 0;

	t_init();
	l = t_listener(T_IPV4, &at);
	a = t_connect(&at);
	b = t_accept(l);
	t_close(l);
	t_fds_take(&start);
	for (int i = 0; i < LISTENERS; i++) {
		int c, s;

		l = t_listener(T_IPV4, &at);
		port[i] = t_port_of(l);
		T(is_marked(port[i]));
		c = t_connect(&at);
		s = t_accept(l);
		t_close(l);
		t_close(c);
		t_close(s);
	}
	t_fds_settled(&start);
	/* A test beside this one may have got the port since. */
	for (int i = 0; i < LISTENERS; i++)
		marked += is_marked(port[i]);
	T_MSG(marked <= LISTENERS / 20, "%d ports are still marked", marked);
	t_close(a);
	t_close(b);
}

static int threads(void)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	int n = 0;

	T(d);
	while ((e = readdir(d)))
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

static void much_to_and_fro(int a, int b)
{
	uint64_t pos;

	for (pos = 0; pos < 300000; pos += 2000) {
		t_send_stream(a, 1, pos, 2000, 2000);
		t_recv_stream(b, 1, pos, 2000, 2000);
	}
}

/* A second thread makes each system call of the program dearer. */
static void a_process_whose_peers_are_plain_has_no_thread_of_ours(void)
{
	struct t_addr at;
	struct t_peer p;
	int before, l, s, plain;

	t_peer_start(&p, t_plain_echo, NULL);
	at = t_loopback(T_IPV4, t_ask(p.ctl));
	t_init();
	before = threads();
	s = t_connect(&at);
	much_to_and_fro(s, s);
	T(t_is(s, T_TCP(EXS_X_REASON_PLAIN_PEER)));
	T_EQ(threads(), before);
	T_OK(t_shutdown(s, SHUT_WR));
	t_recv_end(s);
	t_close(s);
	t_peer_join(&p);

	l = t_listener(T_IPV4, &at);
	plain = T_OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	T_OK(connect(plain, (struct sockaddr *)&at.ss, at.len));
	s = t_accept(l);
	much_to_and_fro(plain, s);
	much_to_and_fro(s, plain);
	T(t_is(s, T_TCP(T_ANY)));
	T_EQ(threads(), before);
	close(plain);
	t_close(s);
	t_close(l);
}

static const struct t_row rows[] = {
	T_ROW(a_stranger_who_hangs_up_is_forgotten),
	T_ROW(silent_strangers_do_not_keep_the_peer_away),
	T_ROW(garbage_from_a_stranger_is_ignored),
	T_ROW(garbage_with_descriptors_leaves_none),
	T_ROW(greetings_with_flipped_bits_are_told_nothing),
	T_ROW(a_greeting_of_a_stranger_is_refused),
	T_ROW(a_greeting_that_asks_for_no_proof_is_refused),
	T_ROW(a_greeting_with_a_descriptor_is_refused),
	T_ROW(a_silent_squatter_gets_nowhere),
	T_ROW(a_squatter_who_hangs_up_gets_nowhere),
	T_ROW(a_babbling_squatter_gets_nowhere),
	T_ROW(a_mirror_gets_nowhere),
	T_ROW(a_name_that_was_claimed_is_never_bound_again),
	T_ROW(nobody_listens_at_the_name_after_the_meeting),
	T_ROW(a_download_meets_when_it_has_lasted),
	T_ROW(a_claimed_marker_does_not_prevent_the_meeting),
	T_ROW(a_peer_that_declines_and_leaves_is_not_unknown),
	T_ROW(a_marker_without_a_peer_costs_only_time),
	T_ROW(what_was_accepted_is_met_when_its_listener_is_closed),
	T_ROW(so_is_what_came_before_the_library),
	T_ROW(a_library_that_starts_late_is_met_when_it_answers),
	T_ROW(a_marker_goes_with_its_listener),
	T_ROW(a_process_whose_peers_are_plain_has_no_thread_of_ours),
};

int main(int argc, char **argv)
{
	if (geteuid() != 0) {
		printf("needs root, to become another user\n");
		return T_SKIP;
	}
	setenv("EXS_PROVIDER", "shm,tcp", 1);
	return t_run("rendezvous", rows, T_COUNT(rows),
		     argc > 1 ? argv[1] : NULL);
}
