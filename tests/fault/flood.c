/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers that write without end. On their links: the process takes a bounded
 * number of packets a millisecond, others are served meanwhile, and no doorbell
 * after that is lost. Into their rings: a call takes a bounded number of
 * records. A busy host only makes the counts smaller. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/lock.h"
#include "core/link/watch.h"
#include "core/meet/find.h"
#include "core/meet/pair.h"
#include "core/sock/table.h"
#include "core/transfer/progress.h"
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

static void both_here(int fd[2])
{
	t_init();
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], T_SHM);
}

#define AT_ONCE 4096 /* operations */

/* A ring full of records of one byte, for so many receives: one look of a
 * dequeuer takes some of them, and the next looks all others. */
static void receives_of_a_byte(void)
{
	static char room[EXS_QDEPTH_MAX];
	struct exi_sock *sk;
	struct exi_half *h;
	exs_qhandle_t q;
	uint32_t left;
	int fd[2], n;

	both_here(fd);
	sk = exi_sock_find(fd[0]);
	h = &sk->sh->half[EXI_RX];
	q = T_OK(exs_qcreate(EXS_QDEPTH_MAX));
	for (n = 0; n < EXS_QDEPTH_MAX; n++)
		T_OK(exs_recv(fd[0], &room[n], 1, 0, q, NULL,
			      EXS_MHANDLE_UNREGISTERED));
	exi_lock(&h->lock);
	for (n = 0; n < EXS_QDEPTH_MAX; n++)
		if (t_send(fd[1], "x", 1, MSG_DONTWAIT) < 0)
			break;
	left = atomic_load(&sk->n_ops[EXI_RX]);
	exi_flow_progress_polled_locked(sk, EXI_RX);
	left -= atomic_load(&sk->n_ops[EXI_RX]);
	exi_unlock(&h->lock);
	T(n > 2 * AT_ONCE);
	T_MSG(left <= AT_ONCE + 1, "%u at once", left);
	for (int got = 0; got < n; got++)
		T_EQ(t_event(q).exs_errno, 0);
	t_close(fd[0]);
	t_close(fd[1]);
	T_OK(exs_qdelete(q));
}

#define RING (64u << 10)
#define MUCH ((size_t)512 * RING)

static void *sends_much(void *arg)
{
	static const char bytes[2 * RING];

	for (size_t n = 0; n < MUCH; n += sizeof(bytes))
		t_send_all(*(int *)arg, bytes, sizeof(bytes), 0);
	return NULL;
}

/* A receive that does not wait returns what there is, although more comes as
 * fast as it receives. */
static void a_receive_of_more_than_a_ring(void)
{
	static char room[64 * RING];
	size_t most = 0, all = 0;
	pthread_t t;
	int fd[2];

	setenv("EXS_RING_KB", "64", 1);
	both_here(fd);
	t = t_thread(sends_much, &fd[1]);
	while (all < MUCH) {
		ssize_t n = t_recv(fd[0], room, sizeof(room), MSG_DONTWAIT);

		T(n > 0 || (n < 0 && errno == EAGAIN));
		all += n > 0 ? (size_t)n : 0;
		most = n > 0 && (size_t)n > most ? (size_t)n : most;
	}
	t_thread_join(t);
	T_MSG(most < 2 * RING, "%zu bytes", most);
	t_close(fd[0]);
	t_close(fd[1]);
}

static const struct t_row rows[] = {
	T_ROW(receives_of_a_byte),
	T_ROW(a_receive_of_more_than_a_ring),
	T_ROW(bells_without_end),
	T_ROW(messages_without_end),
};

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	setenv("EXS_PROVIDER", "shm,tcp", 1);
	return t_run("flood", rows, T_COUNT(rows), argc > 1 ? argv[1] : NULL);
}
