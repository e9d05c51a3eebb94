/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers that write to their links without end: the process takes a bounded
 * number of packets a millisecond, others are served meanwhile, and no doorbell
 * after that is lost. A busy host only makes the counts smaller. */
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/link/watch.h"
#include "core/meet/find.h"
#include "core/meet/pair.h"
#include "core/sock/table.h"
#include "tests/fault/link.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

#define FLOOD_MS 100
#define CALL	 16 /* packets that one call reads at most */

static const struct exi_pair_msg finseen = {
	.magic = EXI_PAIR_MAGIC,
	.version = EXI_PAIR_VERSION,
	.type = EXI_PAIR_FINSEEN,
	.a = EXI_FINSEEN_ANSWER,
};

/* Answers each byte until the end. */
static void echo(int s)
{
	char c;

	while (t_recv(s, &c, 1, 0) == 1)
		T_EQ(t_send(s, &c, 1, 0), 1);
	t_close(s);
}

static int comes(int ctl)
{
	struct t_addr to = t_loopback(T_IPV4, (int)t_ask(ctl));
	int s;

	t_init();
	s = t_connect(&to);
	t_settle(s, T_SHM);
	return s;
}

static void is_honest(int ctl, void *arg)
{
	echo(comes(ctl));
}

struct packet {
	const void *bytes;
	size_t len;
};

/* As many as there is room for until it is told to stop; is honest then. */
static void floods(int ctl, void *arg)
{
	struct pollfd p = { .fd = ctl, .events = POLLIN };
	const struct packet *packet = arg;
	int s = comes(ctl), link;

	t_expect(ctl, 1);
	link = t_link_of(s);
	T(link >= 0);
	t_tell(ctl, 2);
	while (poll(&p, 1, 0) == 0)
		for (int i = 0; i < 1000; i++)
			send(link, packet->bytes, packet->len,
			     MSG_DONTWAIT | MSG_NOSIGNAL);
	close(link);
	t_expect(ctl, 3);
	echo(s);
}

static int accept_from(int l, struct t_peer *p)
{
	int s;

	t_tell(p->ctl, (uint64_t)t_port_of(l));
	s = t_accept(l);
	t_settle(s, T_SHM);
	return s;
}

static uint64_t taken(int s)
{
	struct exi_sock *sk = exi_sock_find(s);

	return __atomic_load_n(&sk->sh->bells_received, __ATOMIC_SEQ_CST) +
	       atomic_load(&sk->said);
}

/* Each wait ends by a doorbell, or by what the service passes on. */
static void ask(int s, int other)
{
	exs_pollfd_t p[] = { { .exs_fd = s, .exs_events = POLLIN },
			     { .exs_fd = other, .exs_events = POLLIN } };
	char c = 'x';

	T_EQ(t_send(s, &c, 1, 0), 1);
	T_EQ(T_OK(exs_poll(p, 2, 0, T_SYNC)), 1);
	T_EQ(p[0].exs_revents, POLLIN);
	T_EQ(t_recv(s, &c, 1, 0), 1);
}

/* most: packets in a millisecond. */
static void flooded(const void *bytes, size_t len, uint64_t most)
{
	struct packet packet = { bytes, len };
	struct t_peer p, other;
	struct t_addr at;
	uint64_t before, all;
	int64_t began, ms;
	int l, s, honest;

	t_peer_start(&p, floods, &packet);
	t_peer_start(&other, is_honest, NULL);
	t_init();
	l = t_listener(T_IPV4, &at);
	s = accept_from(l, &p);
	honest = accept_from(l, &other);
	t_tell(p.ctl, 1);
	t_expect(p.ctl, 2);
	began = t_now_ns();
	before = taken(s);
	do {
		ask(honest, s);
		ms = (t_now_ns() - began) / 1000000;
	} while (ms < FLOOD_MS);
	all = taken(s) - before;
	T_MSG(all <= (uint64_t)(ms + 2) * most, "%llu packets in %lld ms",
	      (unsigned long long)all, (long long)ms);
	t_tell(p.ctl, 3);
	for (int i = 0; i < 100; i++)
		ask(i % 2 ? honest : s, i % 2 ? s : honest);
	t_close(s);
	t_close(honest);
	t_close(l);
	t_peer_join(&p);
	t_peer_join(&other);
}

/* A load, what one call adds to it beyond the limit, and what no load counts:
 * the first packet of a call. */
#define MOST(load) (EXI_WATCH_LOAD / (load) + CALL + 8)

static void bells_without_end(void)
{
	flooded("x", 1, MOST(1));
}

static void messages_without_end(void)
{
	flooded(&finseen, sizeof(finseen), MOST(EXI_WATCH_MESSAGE));
}

static const struct t_row rows[] = {
	T_ROW(bells_without_end),
	T_ROW(messages_without_end),
};

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	setenv("EXS_PROVIDER", "shm,tcp", 1);
	return t_run("flood", rows, T_COUNT(rows), argc > 1 ? argv[1] : NULL);
}
