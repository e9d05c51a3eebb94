/* SPDX-License-Identifier: BSD-2-Clause */
/* A fabric between hosts fails in the middle of transfers, and the connections
 * go on over TCP: every byte tells its position, so one that is lost or
 * repeated ends the test. Needs the emulated machine, whose links and devices
 * it takes down; EXS_VERBS_DEVICE and T_ADDRESS name the one. */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "core/meet/pair.h"
#include "core/rma/wire.h"
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"
#include "tests/vm/cm.h"
#include "tests/vm/qp.h"

static const struct t_want on_verbs = { "verbs", EXS_X_REASON_NONE };

#define SEED_AB 11
#define SEED_BA 12

/* --- what fails --------------------------------------------------------- */

static void queue_pair(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	T_EQ(ibv_modify_qp(vm_last_qp(), &attr, IBV_QP_STATE), 0);
}

static bool on_siw(void)
{
	const char *device = getenv("EXS_VERBS_DEVICE");

	return device && !strcmp(device, "siw0");
}

static void command(const char *rxe, const char *siw)
{
	T_EQ(system(on_siw() ? siw : rxe), 0);
}

static void port(void)
{
	command("ip link set veth0 down", "ip link set veth2 down");
}

/* The device disappears when the last process has released it. */
static void device(void)
{
	command("rdma link delete rxe0 &", "rdma link delete siw0 &");
}

static void port_again(void)
{
	T_EQ(system("ip link set veth0 up; "
		    "until rdma link show rxe0/1 | grep -q 'state ACTIVE'; do "
		    "sleep 0.05; done"),
	     0);
}

static void repair(void)
{
	static const char again[] =
		"l=%s d=%s t=%s; ip link set $l up; "
		"while rdma link show $d/1 >/dev/null 2>&1; do "
		"timeout 20 rdma link delete $d 2>/dev/null; done; "
		"rdma link add $d type $t netdev $l && "
		"until rdma link show $d/1 | grep -q 'state ACTIVE'; do "
		"sleep 0.05; done";
	char text[sizeof(again) + 32];

	snprintf(text, sizeof(text), again, on_siw() ? "veth2" : "veth0",
		 on_siw() ? "siw0" : "rxe0", on_siw() ? "siw" : "rxe");
	T_EQ(system(text), 0);
}

/* --- transfers ---------------------------------------------------------- */

struct plan {
	void (*fails)(void);
	uint64_t len[2]; /* A to B, B to A */
	uint64_t at;	 /* byte that A reads last before it fails */
	bool there;	 /* fails at B */
	bool slow;	 /* B reads nothing before it failed */
	bool async;	 /* A works with events */
	bool half;	 /* fails when the shorter direction has ended */
	bool loaned;	 /* A looks at what comes next, before and after */
};

static struct plan plan;

static struct shared {
	_Atomic int failed;
	_Atomic int ended;
	_Atomic int repaired;
} * shared;

/* No process ends while its port is down: the kernel would say so for it, and
 * soft RoCE fails then. A repairs. */
static void await_port(bool a)
{
	if (a)
		port_again();
	if (a)
		shared->repaired = 1;
	T_UNTIL(shared->repaired);
}

struct stream {
	int s;
	uint64_t seed;
	uint64_t len;
};

static void *send_it(void *arg)
{
	struct stream *st = arg;

	t_send_stream(st->s, st->seed, 0, st->len, 50000);
	T_OK(t_shutdown(st->s, SHUT_WR));
	return NULL;
}

static void *send_events(void *arg)
{
	struct stream *st = arg;
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	static char buf[4][40000];
	uint64_t pos = 0, done = 0;
	int i = 0;

	while (done < st->len) {
		while (pos < st->len && i < 4) {
			size_t n = st->len - pos < sizeof(buf[0])
					   ? st->len - pos
					   : sizeof(buf[0]);
			int at = (int)(pos / sizeof(buf[0]) % 4);

			t_fill(buf[at], n, st->seed, pos);
			t_post_send(st->s, buf[at], n, 0, q, 1);
			pos += n;
			i++;
		}
		done += t_event_is(q, EXS_EVT_SEND, 1);
		i--;
	}
	T_OK(exs_qdelete(q));
	T_OK(t_shutdown(st->s, SHUT_WR));
	return NULL;
}

/* The fabric fails once, when A has read so much, and before it reads more. */
static void fail_now(int s, int ctl)
{
	if (plan.there) {
		t_tell(ctl, 7);
		T_UNTIL(shared->failed);
	} else {
		plan.fails();
	}
	if (plan.fails != queue_pair) /* a device tells */
		T_UNTIL(t_info(s).exs_x_reason == EXS_X_REASON_FABRIC_LOST);
	shared->failed = 1;
}

static void receive_events(int s, uint64_t seed, uint64_t pos, uint64_t len)
{
	exs_qhandle_t q = T_OK(exs_qcreate(1));
	static char buf[30000];
	uint64_t end = pos + len;

	while (pos < end) {
		size_t n = end - pos < sizeof(buf) ? end - pos : sizeof(buf);

		t_post_recv(s, buf, n, 0, q, 1);
		n = t_event_is(q, EXS_EVT_RECV, 1);
		T(n > 0);
		t_check_bytes(buf, (ssize_t)n, seed, pos);
		pos += n;
	}
	T_OK(exs_qdelete(q));
}

static void receive(int s, uint64_t seed, uint64_t pos, uint64_t len)
{
	if (plan.async)
		receive_events(s, seed, pos, len);
	else
		t_recv_stream(s, seed, pos, len, 50000);
}

/* On TCP now, and said why. */
static void gone_on(int s)
{
	exs_x_sockinfo_t i = t_info(s);

	T_MSG(!strcmp(i.exs_x_tx_fabric, "tcp") &&
		      !strcmp(i.exs_x_rx_fabric, "tcp") &&
		      i.exs_x_reason == EXS_X_REASON_FABRIC_LOST,
	      "%s", t_where(s));
}

static void *fail_when_told(void *arg)
{
	t_expect(*(int *)arg, 7);
	plan.fails();
	shared->failed = 1;
	return NULL;
}

static void end_b(int s, int ctl)
{
	struct stream out = { s, SEED_BA, plan.len[1] };
	pthread_t sender, failing = 0;

	t_settle(s, on_verbs);
	if (plan.there)
		failing = t_thread(fail_when_told, &ctl);
	sender = t_thread(send_it, &out);
	if (plan.slow)
		T_UNTIL(shared->failed);
	t_recv_stream(s, SEED_AB, 0, plan.len[0], 30000);
	t_recv_end(s);
	shared->ended = 1;
	t_thread_join(sender);
	if (plan.there)
		t_thread_join(failing);
	gone_on(s);
	t_close(s);
	if (plan.fails == port)
		await_port(false);
}

/* The loan is repaid in part; how many bytes. */
static size_t fail_on_loan(int s, int ctl)
{
	const void *at;
	size_t n = (size_t)T_OK(exs_x_recv_loan(s, &at, 0));

	t_check_bytes(at, n, SEED_BA, plan.at);
	fail_now(s, ctl);
	t_check_bytes(at, n, SEED_BA, plan.at);
	T_OK(exs_x_recv_return(s, n / 2 + 1));
	return n / 2 + 1;
}

static void transfer(const struct plan *p)
{
	struct stream out = { .seed = SEED_AB, .len = p->len[0] };
	struct t_peer peer;
	uint64_t at = p->at;
	pthread_t sender;

	plan = *p;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	T(shared != MAP_FAILED);
	out.s = t_pair_fork(&peer, T_A, end_b);
	t_settle(out.s, on_verbs);
	sender = t_thread(p->async ? send_events : send_it, &out);
	receive(out.s, SEED_BA, 0, p->at);
	if (p->half && p->len[0] < p->len[1])
		T_UNTIL(shared->ended);
	else if (p->half)
		t_recv_end(out.s);
	if (p->loaned)
		at += fail_on_loan(out.s, peer.ctl);
	else
		fail_now(out.s, peer.ctl);
	receive(out.s, SEED_BA, at, p->len[1] - at);
	t_recv_end(out.s);
	t_thread_join(sender);
	gone_on(out.s);
	t_close(out.s);
	if (plan.fails == port)
		await_port(true);
	t_peer_join(&peer);
}

/* In a process of its own: devices are let go with it. */
static void apart(const struct plan *p)
{
	pid_t pid = t_fork();

	if (pid == 0) {
		transfer(p);
		exit(0);
	}
	t_join(pid);
}

/* Each of a few moments; of more in a long run. */
static void at_moments(struct plan p)
{
	static const uint64_t moments[] = { 300000, 1,	   0,	   30000,
					    700000, 30001, 700001, 100000 };
	size_t n = getenv("T_LONG") ? T_COUNT(moments) : 2;

	for (size_t i = 0; i < n; i++) {
		p.at = moments[i];
		p.there = i % 2;
		t_note("moment %d", (int)i);
		apart(&p);
	}
}

#define LONG_ONE (UINT64_C(1) << 20)

static void a_queue_pair_fails_in_mid_transfer(void)
{
	at_moments((struct plan){ queue_pair, { LONG_ONE, LONG_ONE } });
}

static void a_queue_pair_fails_while_events_are_awaited(void)
{
	at_moments((struct plan){
		queue_pair, { LONG_ONE, LONG_ONE }, .async = true });
}

static void a_queue_pair_fails_while_its_ring_is_full(void)
{
	at_moments((struct plan){
		queue_pair, { LONG_ONE, LONG_ONE }, .slow = true });
}

static void a_queue_pair_fails_when_one_end_has_ended(void)
{
	for (int i = 0; i < 4; i++) {
		struct plan p = { queue_pair,
				  { LONG_ONE, LONG_ONE },
				  .half = true };

		p.len[i / 2] = p.at = 30000;
		p.there = i % 2;
		p.slow = i / 2; /* or it may have all before it fails */
		t_note("moment %d", i);
		apart(&p);
	}
}

static void a_queue_pair_fails_while_bytes_are_on_loan(void)
{
	at_moments((struct plan){
		queue_pair, { LONG_ONE, LONG_ONE }, .loaned = true });
}

/* The device is not the worse for it. */
static void serves_again(void)
{
	apart(&(struct plan){ queue_pair, { LONG_ONE, LONG_ONE }, .at = 1 });
}

static void a_port_goes_down_in_mid_transfer(void)
{
	apart(&(struct plan){ port, { LONG_ONE, LONG_ONE }, .at = 100000 });
	serves_again();
}

static void a_port_goes_down_while_bytes_are_on_loan(void)
{
	apart(&(struct plan){
		port, { LONG_ONE, LONG_ONE }, .at = 100000, .loaned = true });
	serves_again();
}

static void a_device_is_removed_in_mid_transfer(void)
{
	apart(&(struct plan){ device, { LONG_ONE, LONG_ONE }, .at = 100000 });
	repair();
}

/* --- transfers without a copy ------------------------------------------- */

#define SLOTS 4
#define ROOM  100000

/* A transfer that continues until the fabric has failed, and a little
 * longer. */
struct placed {
	void (*fails)(void);
	uint64_t at; /* byte that its end has read before it fails */
	bool there;  /* fails at B */
};

static struct placed placed;

struct memory {
	unsigned char *at;
	exs_mhandle_t m;
};

static struct memory memory_new(void)
{
	struct memory mem = { .at = malloc(SLOTS * ROOM) };

	mem.m = T_OK(exs_mregister(mem.at, SLOTS * ROOM, 0));
	return mem;
}

/* Nobody else has any of it. */
static void memory_free(struct memory *mem)
{
	T_OK(exs_mderegister(mem->m, 0));
	free(mem->at);
}

static void *send_placed(void *arg)
{
	struct stream *st = arg;
	exs_qhandle_t q = T_OK(exs_qcreate(SLOTS));
	struct memory mem = memory_new();
	long next = 0, over = 0, more = 10;

	while (more > 0) {
		unsigned char *at = mem.at + next % SLOTS * ROOM;

		if (next - over == SLOTS)
			T_EQ(t_event_is(q, EXS_EVT_SEND, over++), ROOM);
		t_fill(at, ROOM, st->seed, (uint64_t)next * ROOM);
		T_EQ(exs_send(st->s, at, ROOM, 0, q, (exs_ahandle_t)next,
			      mem.m),
		     0);
		next++;
		more -= shared->failed;
		if (next % 7 == 3 && more % 2) /* through the ring */
			T_EQ(t_event_is(q, EXS_EVT_SEND, over++), ROOM);
	}
	while (over < next)
		T_EQ(t_event_is(q, EXS_EVT_SEND, over++), ROOM);
	memory_free(&mem);
	T_OK(exs_qdelete(q));
	T_OK(t_shutdown(st->s, SHUT_WR));
	st->len = (uint64_t)next * ROOM;
	return NULL;
}

static bool direct_both_ways(int s)
{
	exs_x_sockinfo_t i = t_info(s);

	return i.exs_x_rx_direct_bytes && i.exs_x_tx_direct_bytes;
}

/* Until the end of the stream. One end lets it fail when bytes were placed. */
static void receive_placed(int s, uint64_t seed, bool fails)
{
	exs_qhandle_t q = T_OK(exs_qcreate(SLOTS));
	struct memory mem = memory_new();
	long next = 0, over = 0;
	bool ended = false;
	uint64_t pos = 0;

	for (;;) {
		unsigned char *at = mem.at + over % SLOTS * ROOM;
		size_t n;

		for (; !ended && next - over < SLOTS; next++)
			T_EQ(exs_recv(s, mem.at + next % SLOTS * ROOM, ROOM,
				      next % 3 ? MSG_WAITALL : 0, q,
				      (exs_ahandle_t)next, mem.m),
			     0);
		if (next == over)
			break;
		n = t_event_is(q, EXS_EVT_RECV, over++);
		T(!(ended && n));
		t_check_bytes(at, n, seed, pos);
		pos += n;
		ended = n == 0;
		if (!fails || shared->failed || pos < placed.at ||
		    !direct_both_ways(s))
			continue;
		placed.fails();
		T_UNTIL(t_info(s).exs_x_reason == EXS_X_REASON_FABRIC_LOST);
		shared->failed = 1;
	}
	T_MSG(pos >= 10 * ROOM, "%s", t_where(s));
	memory_free(&mem);
	T_OK(exs_qdelete(q));
}

static void placed_end(int s, bool a)
{
	struct stream out = { .s = s, .seed = a ? SEED_AB : SEED_BA };
	pthread_t sender;

	t_settle(s, on_verbs);
	sender = t_thread(send_placed, &out);
	receive_placed(s, a ? SEED_BA : SEED_AB, a != placed.there);
	t_thread_join(sender);
	gone_on(s);
	t_close(s);
	if (placed.fails == port)
		await_port(a);
}

static void placed_b(int s, int ctl)
{
	placed_end(s, false);
}

static void transfer_placed(const struct placed *p)
{
	struct t_peer peer;
	pid_t pid = t_fork();

	if (pid) {
		t_join(pid);
		return;
	}
	placed = *p;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	T(shared != MAP_FAILED);
	placed_end(t_pair_fork(&peer, T_A, placed_b), true);
	t_peer_join(&peer);
	exit(0);
}

/* Until the peer is gone: every operation ends, and its buffer is free. */
static void *send_until_lost(void *arg)
{
	struct stream *st = arg;
	exs_qhandle_t q = T_OK(exs_qcreate(SLOTS));
	struct memory mem = memory_new();
	long next = 0, over = 0;
	bool lost = false;

	while (!lost || over < next) {
		unsigned char *at = mem.at + next % SLOTS * ROOM;
		exs_event_t e;

		if (!lost && next - over < SLOTS) {
			t_fill(at, ROOM, st->seed, (uint64_t)next * ROOM);
			T_EQ(exs_send(st->s, at, ROOM, MSG_NOSIGNAL, q,
				      (exs_ahandle_t)next, mem.m),
			     0);
			next++;
			continue;
		}
		e = t_event(q);
		T_EQ((long)e.exs_evt_ahandle, over++);
		T_MSG(e.exs_errno == 0 || e.exs_errno == EPIPE ||
			      e.exs_errno == ECONNRESET,
		      "a send says %s", t_errname(e.exs_errno));
		lost = lost || e.exs_errno ||
		       e.exs_evt_un.exs_evt_xfer.exs_evt_length < ROOM;
	}
	memory_free(&mem);
	T_OK(exs_qdelete(q));
	return NULL;
}

static void receive_until_lost(int s, pid_t victim)
{
	exs_qhandle_t q = T_OK(exs_qcreate(SLOTS));
	struct memory mem = memory_new();
	bool killed = false, lost = false;
	long next = 0, over = 0;
	uint64_t pos = 0;

	while (!lost || over < next) {
		unsigned char *at = mem.at + over % SLOTS * ROOM;
		exs_event_t e;
		size_t n;

		for (; !lost && next - over < SLOTS; next++)
			T_EQ(exs_recv(s, mem.at + next % SLOTS * ROOM, ROOM,
				      next % 3 ? MSG_WAITALL : 0, q,
				      (exs_ahandle_t)next, mem.m),
			     0);
		e = t_event(q);
		n = e.exs_errno ? 0 : e.exs_evt_un.exs_evt_xfer.exs_evt_length;
		T_EQ((long)e.exs_evt_ahandle, over++);
		T_MSG(e.exs_errno == 0 || e.exs_errno == ECONNRESET,
		      "a receive says %s", t_errname(e.exs_errno));
		t_check_bytes(at, n, SEED_BA, pos);
		pos += n;
		lost = lost || n == 0;
		if (!killed && direct_both_ways(s)) {
			T_OK(kill(victim, SIGKILL));
			killed = true;
		}
	}
	T(killed);
	memory_free(&mem);
	T_OK(exs_qdelete(q));
}

static void a_peer_is_killed_while_bytes_are_placed(void)
{
	int n = getenv("T_LONG") ? 8 : 2;

	for (int i = 0; i < n; i++) {
		struct stream out = { .seed = SEED_AB };
		struct t_peer peer;
		pthread_t sender;
		pid_t pid = t_fork();

		if (pid) {
			t_join(pid);
			continue;
		}
		placed = (struct placed){ NULL, UINT64_MAX, true };
		shared = calloc(1, sizeof(*shared));
		out.s = t_pair_fork(&peer, i % 2 ? T_A : T_B, placed_b);
		t_settle(out.s, on_verbs);
		sender = t_thread(send_until_lost, &out);
		receive_until_lost(out.s, peer.pid);
		t_thread_join(sender);
		t_close(out.s);
		T_EQ(waitpid(peer.pid, NULL, 0), peer.pid);
		close(peer.ctl);
		free(shared);
		exit(0);
	}
}

static void a_queue_pair_fails_while_bytes_are_placed(void)
{
	int n = getenv("T_LONG") ? 8 : 2;

	for (int i = 0; i < n; i++) {
		t_note("moment %d", i);
		transfer_placed(&(struct placed){
			queue_pair, (uint64_t)i * 300000, .there = i % 2 });
	}
}

static void a_port_goes_down_while_bytes_are_placed(void)
{
	transfer_placed(&(struct placed){ port });
	serves_again();
}

static void a_device_is_removed_while_bytes_are_placed(void)
{
	transfer_placed(&(struct placed){ device });
	repair();
}

/* --- TCP ends before the ring ------------------------------------------- */

/* For as long as the test may take. */
static void await_word(int ctl)
{
	struct pollfd p = { .fd = ctl, .events = POLLIN };

	T_EQ(poll(&p, 1, -1), 1);
	t_expect(ctl, 1);
}

/* Sends, and leaves the end of TCP to the other process. */
static void end_is_said_elsewhere(int s, int ctl)
{
	t_settle(s, on_verbs);
	t_send_stream(s, SEED_BA, 0, 100000, 50000);
	t_tell_fd(ctl, s);
	await_word(ctl);
	t_send_stream(s, SEED_BA, 100000, 1000, 1000);
	T_OK(t_shutdown(s, SHUT_WR));
	t_close(s);
}

static void end_tcp_of(const struct t_peer *p)
{
	int its = t_ask_fd(p->ctl);

	T_OK(shutdown(its, SHUT_WR));
	T_OK(close(its));
}

static void stop(pid_t pid)
{
	int status;

	T_OK(kill(pid, SIGSTOP));
	T_EQ(waitpid(pid, &status, WUNTRACED), pid);
	T(WIFSTOPPED(status));
}

static void with_a_silent_one(int ctl, void *arg)
{
	struct t_peer peer;
	int s = t_pair_fork(&peer, T_A, end_is_said_elsewhere);
	char byte;

	t_settle(s, on_verbs);
	end_tcp_of(&peer);
	stop(peer.pid);
	t_recv_stream(s, SEED_BA, 0, 100000, 30000);
	T_ERR(t_recv(s, &byte, 1, 0), ECONNRESET);
	t_recv_end(s);
	T_MSG(t_info(s).exs_x_reason == EXS_X_REASON_PEER_LOST, "%s",
	      t_where(s));
	t_tell(ctl, 1);
	t_close(s);
	t_peer_kill(&peer);
}

static void with_one_that_lives(int ctl, void *arg)
{
	struct t_peer peer;
	int s = t_pair_fork(&peer, T_A, end_is_said_elsewhere);

	t_settle(s, on_verbs);
	end_tcp_of(&peer);
	t_tell(ctl, 1);
	await_word(ctl);
	T_MSG(t_is(s, on_verbs), "%s", t_where(s));
	t_tell(peer.ctl, 1);
	t_recv_stream(s, SEED_BA, 0, 101000, 30000);
	t_recv_end(s);
	t_close(s);
	t_peer_join(&peer);
}

/* TCP of two peers has ended. One is stopped and will never send the end of its
 * stream; when this end gives up on it, it still waits for the other. */
static void who_is_silent_after_tcp_has_ended_is_not_waited_for_for_ever(void)
{
	struct t_peer silent, living;

	t_peer_start(&living, with_one_that_lives, NULL);
	t_expect(living.ctl, 1);
	t_peer_start(&silent, with_a_silent_one, NULL);
	await_word(silent.ctl);
	t_tell(living.ctl, 1);
	t_peer_join(&living);
	t_peer_join(&silent);
}

/* What its library posts from SWITCH on, until it is let go. */
static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;
static struct held {
	struct ibv_send_wr wr;
	struct ibv_sge sge[2];
	char bytes[1024]; /* of those that are inline */
} held[64]; /* also what is asked once a second, where it takes long */
static int n_held;
static struct ibv_qp *holds; /* once there is one */

static bool tells_switch(const struct ibv_send_wr *wr)
{
	const struct exi_rma_msg *m;
	const struct exi_pair_msg *pair;

	if (wr->opcode != IBV_WR_SEND || wr->num_sge != 1 ||
	    wr->sg_list->length != sizeof(*m) + sizeof(*pair))
		return false;
	m = (void *)(uintptr_t)wr->sg_list->addr;
	pair = (const void *)(m + 1);
	return m->kind == EXI_RMA_TELL && pair->type == EXI_PAIR_SWITCH;
}

static void hold(const struct ibv_send_wr *wr)
{
	struct held *h = &held[n_held++];
	char *to = h->bytes;

	T(n_held < T_COUNT(held) && wr->num_sge <= T_COUNT(h->sge));
	h->wr = *wr;
	h->wr.next = NULL;
	h->wr.sg_list = h->sge;
	for (int i = 0; i < wr->num_sge; i++) {
		h->sge[i] = wr->sg_list[i];
		if (!(wr->send_flags & IBV_SEND_INLINE))
			continue;
		T(to + h->sge[i].length <= h->bytes + sizeof(h->bytes));
		memcpy(to, (void *)(uintptr_t)h->sge[i].addr, h->sge[i].length);
		h->sge[i].addr = (uintptr_t)to;
		to += h->sge[i].length;
	}
}

static int post_or_hold(struct ibv_qp *qp, struct ibv_send_wr *wr,
			struct ibv_send_wr **bad)
{
	int ret = 0;

	pthread_mutex_lock(&held_lock);
	if (!holds && tells_switch(wr))
		holds = qp;
	if (holds)
		for (; wr; wr = wr->next)
			hold(wr);
	else
		ret = vm_qp_post(qp, wr, bad);
	pthread_mutex_unlock(&held_lock);
	return ret;
}

static void stand_between(struct ibv_qp *qp)
{
	vm_qp_made = NULL;
	vm_qp_stand_between(qp, post_or_hold);
}

static void let_go(void)
{
	struct ibv_send_wr *bad;

	pthread_mutex_lock(&held_lock);
	holds->context->ops.post_send = vm_qp_post;
	for (int i = 0; i < n_held; i++)
		T_EQ(vm_qp_post(holds, &held[i].wr, &bad), 0);
	pthread_mutex_unlock(&held_lock);
}

#define PIECE 1000

/* By calls of the kernel's, of which its library knows nothing. */
static void end_and_reset(int s)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };

	T_OK(shutdown(s, SHUT_WR));
	T_OK(connect(s, &none, sizeof(none)));
}

static void switches_late(int s, int ctl)
{
	uint64_t pos = 0;

	vm_qp_made = stand_between;
	for (;; pos += PIECE) {
		t_send_stream(s, SEED_BA, pos, PIECE, PIECE);
		T_UNTIL(t_readable(ctl, 0) ||
			!strcmp(t_info(s).exs_x_tx_fabric, "verbs"));
		if (!t_readable(ctl, 0))
			break;
		t_expect(ctl, pos + PIECE);
	}
	t_send_stream(s, SEED_BA, pos + PIECE, PIECE, PIECE);
	end_and_reset(s);
	t_tell(ctl, pos + 2 * PIECE);
	while (t_ask(ctl) != 1)
		; /* of the last piece */
	let_go();
	t_close(s);
}

struct late_switch {
	int s;
	_Atomic pid_t tid;
	_Atomic uint64_t pos;
};

static void *receive_all(void *arg)
{
	struct late_switch *l = arg;
	char buf[PIECE];

	l->tid = gettid();
	for (;; l->pos += PIECE) {
		ssize_t n = t_recv(l->s, buf, PIECE, MSG_WAITALL);

		if (n <= 0) {
			T_MSG(n == 0 || errno == ECONNRESET, "%s",
			      t_errname(errno));
			return NULL;
		}
		T_EQ(n, PIECE);
		t_check_bytes(buf, PIECE, SEED_BA, l->pos);
	}
}

static void *receive_all_events(void *arg)
{
	struct late_switch *l = arg;
	exs_qhandle_t q = T_OK(exs_qcreate(1));
	char buf[PIECE];

	l->tid = gettid();
	for (;; l->pos += PIECE) {
		exs_event_t e;
		size_t n;

		t_post_recv(l->s, buf, PIECE, MSG_WAITALL, q, 1);
		e = t_event(q);
		n = e.exs_evt_un.exs_evt_xfer.exs_evt_length;
		T_MSG(!e.exs_errno || e.exs_errno == ECONNRESET, "%s",
		      t_errname(e.exs_errno));
		if (e.exs_errno || !n)
			break;
		T_EQ(n, PIECE);
		t_check_bytes(buf, PIECE, SEED_BA, l->pos);
	}
	T_OK(exs_qdelete(q));
	return NULL;
}

static bool tcp_has_error(int s)
{
	struct pollfd p = { .fd = s, .events = POLLIN };

	return poll(&p, 1, 0) == 1 && p.revents & POLLERR;
}

/* On TCP recv then returns the end, and poll an error, for ever. The receiver
 * sleeps until the fabric says more. The sender's library considers the
 * connection reset: what the sender sent last may be lost. */
static void comes_late(void *(*receives)(void *))
{
	struct late_switch l = { 0 };
	struct t_peer peer;
	uint64_t acked = 0, all;
	pthread_t t;

	l.s = t_pair_fork(&peer, T_B, switches_late);
	t = t_thread(receives, &l);
	for (;;) {
		T_UNTIL(l.pos > acked || t_readable(peer.ctl, 0));
		if (l.pos == acked)
			break;
		acked += PIECE;
		t_tell(peer.ctl, acked);
	}
	all = t_ask(peer.ctl);
	T_UNTIL(tcp_has_error(l.s));
	t_until_asleep(l.tid);
	t_until_served(getpid());
	T(l.pos < all);
	t_tell(peer.ctl, 1);
	t_thread_join(t);
	t_close(l.s);
	t_peer_join(&peer);
}

static void a_switch_that_comes_after_a_reset_is_slept_for(void)
{
	comes_late(receive_all);
}

static void a_switch_that_comes_after_a_reset_is_no_event(void)
{
	comes_late(receive_all_events);
}

/* --- before it begins --------------------------------------------------- */

/* The fabric's port of one of TCP. */
static uint16_t port_of_verbs(int tcp)
{
	const char *offset = getenv("EXS_VERBS_PORT_OFFSET");
	int port = tcp + (offset ? atoi(offset) : 21000);

	return (uint16_t)(port > 65535 ? port - 64512 : port);
}

static struct rdma_cm_id *listen_instead(int tcp)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_port = htons(port_of_verbs(tcp)) };
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;

	T(channel);
	T_OK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	T_OK(rdma_bind_addr(id, (struct sockaddr *)&at));
	T_OK(rdma_listen(id, 8));
	return id;
}

/* As the kernel does for a listener that has too many to answer. */
static void reject_one(struct rdma_cm_id *listener)
{
	struct rdma_cm_event *ev;
	struct rdma_cm_id *asker;

	T_OK(rdma_get_cm_event(listener->channel, &ev));
	T_EQ(ev->event, RDMA_CM_EVENT_CONNECT_REQUEST);
	asker = ev->id;
	T_OK(rdma_reject(asker, NULL, 0));
	rdma_ack_cm_event(ev);
	rdma_destroy_id(asker);
}

/* Fewer bytes than those for which it would be tried anew. */
static void is_rejected(int ctl, void *arg)
{
	struct t_deadline d = t_deadline_ms(20000);
	struct t_addr at;
	char some[2000] = { 0 };
	int s;

	t_init();
	at = t_loopback(T_IPV4, (int)t_ask(ctl));
	s = t_connect(&at);
	t_send_all(s, some, sizeof(some), 0);
	do {
		t_send_all(s, some, 1, 0);
		t_recv_all(s, some, 1);
	} while (!t_is(s, on_verbs) && t_tick(&d));
	T_MSG(t_is(s, on_verbs), "%s", t_where(s));
	t_close(s);
}

static void who_has_no_time_to_answer_is_asked_again(void)
{
	struct t_addr at = t_loopback(T_IPV4, 0);
	struct rdma_event_channel *channel;
	struct rdma_cm_id *other;
	char some[2000];
	struct t_peer p;
	int s, l;

	t_peer_start(&p, is_rejected, NULL);
	t_init();
	l = T_OK(exs_socket(at.domain, SOCK_STREAM | SOCK_CLOEXEC, 0));
	T_OK(exs_bind(l, (struct sockaddr *)&at.ss, at.len));
	other = listen_instead(t_port_of(l));
	channel = other->channel;
	T_OK(exs_listen(l, 8));
	t_tell(p.ctl, (uint64_t)t_port_of(l));
	reject_one(other);
	T_OK(rdma_destroy_id(other));
	rdma_destroy_event_channel(channel);
	s = t_accept(l);
	t_recv_all(s, some, sizeof(some));
	while (t_recv(s, some, 1, 0) == 1)
		t_send_all(s, some, 1, 0);
	t_peer_join(&p);
	t_close(s);
	t_close(l);
}

/* What fails at this call, of either end, which goes on then. */
static const char *step;
static void (*step_fails)(void);

static void steps(const char *call)
{
	void (*fails)(void) = step_fails;

	if (!fails || strcmp(step, call))
		return;
	step_fails = NULL;
	fails();
}

static void *of_rdmacm(const char *name)
{
	return dlsym(dlopen("librdmacm.so.1", RTLD_NOW), name);
}

int rdma_resolve_route(struct rdma_cm_id *id, int ms)
{
	int (*next)(struct rdma_cm_id *, int);

	*(void **)&next = of_rdmacm("rdma_resolve_route");
	steps("route");
	return next(id, ms);
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	int (*next)(struct rdma_cm_id *, struct rdma_conn_param *);

	*(void **)&next = of_rdmacm("rdma_connect");
	steps("connect");
	return next(id, p);
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	int (*next)(struct rdma_cm_id *, struct rdma_conn_param *);

	*(void **)&next = of_rdmacm("rdma_accept");
	steps("accept");
	return next(id, p);
}

/* The kernel has begun. */
static void device_now(void)
{
	device();
	command("while rdma link show rxe0/1 >/dev/null 2>&1; do "
		"sleep 0.01; done",
		"while rdma link show siw0/1 >/dev/null 2>&1; do "
		"sleep 0.01; done");
}

/* The connecting end is on TCP in the end. */
static void talk(int s, bool a)
{
	t_settle_anywhere(s, a);
	T_MSG(!a || t_is(s, T_TCP(T_ANY)), "%s", t_where(s));
	t_close(s);
}

static void talks(int s, int ctl)
{
	talk(s, false);
}

static void a_device_is_removed_while_ends_meet(void)
{
	static const char *const calls[] = { "route", "connect", "accept" };

	for (size_t i = 0; i < T_COUNT(calls); i++) {
		struct t_peer peer;
		pid_t pid = t_fork();

		t_note("at %s", calls[i]);
		if (pid) {
			t_join(pid);
			repair();
			continue;
		}
		step = calls[i];
		step_fails = device_now;
		talk(t_pair_fork(&peer, T_A, talks), true);
		t_peer_join(&peer);
		exit(0);
	}
}

static void reads_when_it_runs(int s, int ctl)
{
	t_settle(s, on_verbs);
	t_tell(ctl, 1);
	t_recv_stream(s, SEED_AB, 0, 1000, 1000);
	t_recv_end(s);
	t_close(s);
}

static _Atomic bool closed;

static void *close_it(void *arg)
{
	t_close(*(int *)arg);
	closed = true;
	return NULL;
}

/* There requests are over when TCP has them, which forgets them when something
 * comes for a connection that was closed. */
static void a_close_over_iwarp_waits_until_the_end_is_received(void)
{
	struct t_deadline d;
	struct t_peer peer;
	int s = t_pair_fork(&peer, T_A, reads_when_it_runs);
	pthread_t t;

	t_settle(s, on_verbs);
	t_expect(peer.ctl, 1);
	stop(peer.pid);
	t_send_stream(s, SEED_AB, 0, 1000, 1000);
	t = t_thread(close_it, &s);
	d = t_deadline_ms(300);
	while (on_siw() && !closed && t_tick(&d))
		;
	T(!on_siw() || !closed);
	T_OK(kill(peer.pid, SIGCONT));
	t_thread_join(t);
	t_peer_join(&peer);
}

static void reads_all_and_closes(int s, int ctl)
{
	uint64_t pos = 0, all = UINT64_MAX;
	char buf[4096];

	while (pos < all) {
		struct pollfd p = { .fd = ctl, .events = POLLIN };
		ssize_t n =
			exs_recv(s, buf, sizeof(buf), MSG_DONTWAIT, T_SYNC, 0);

		if (n > 0) {
			t_check_bytes(buf, (size_t)n, SEED_AB, pos);
			pos += (uint64_t)n;
		} else if (all == UINT64_MAX && poll(&p, 1, 1) == 1) {
			all = t_ask(ctl);
		}
	}
	t_close(s);
}

/* A peer that has read everything, sent nothing, and closes must not be
 * mistaken for one whose device failed: it would answer what is sent to it then
 * with a reset. TCP carries a FIN and nothing else. */
static void a_peer_that_read_everything_and_closed_leaves_no_reset(void)
{
	struct t_peer peer;
	uint64_t pos = 0;
	int s = t_pair_fork(&peer, T_A, reads_all_and_closes), i;

	for (i = 0; i < 100; i += t_is(s, on_verbs)) {
		t_send_stream(s, SEED_AB, pos, 1000, 1000);
		pos += 1000;
	}
	t_tell(peer.ctl, pos);
	t_peer_join(&peer);
	T_UNTIL(t_info(s).exs_x_reason != EXS_X_REASON_NONE);
	T_OK(t_shutdown(s, SHUT_WR));
	t_recv_end(s);
	t_close(s);
}

static void sends_and_closes(int s, int ctl)
{
	t_settle(s, on_verbs);
	t_send_stream(s, SEED_BA, 0, 1000, 1000);
	t_close(s);
}

/* Its kernel calls that a rejection. */
static void a_peer_that_closes_before_it_was_confirmed_has_closed(void)
{
	struct t_peer peer;
	int s;

	vm_cm_unconfirmed = true;
	s = t_pair_fork(&peer, T_A, sends_and_closes);
	t_settle(s, on_verbs);
	t_peer_join(&peer);
	T_UNTIL(t_info(s).exs_x_reason != EXS_X_REASON_NONE);
	t_recv_stream(s, SEED_BA, 0, 1000, 1000);
	t_recv_end(s);
	t_close(s);
}

/* --- the next queue pair ------------------------------------------------- */

static int line; /* to who sends late */
static struct ibv_wc late;
static struct ibv_cq *of_late;

static int (*look)(struct ibv_cq *cq, int n, struct ibv_wc *wc);

static int see_nothing(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	return 0;
}

/* And what else came: who is given fewer than it asks for need not ask
 * again. */
static int see_late(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	if (cq != of_late)
		return look(cq, n, wc);
	cq->context->ops.poll_cq = look;
	*wc = late;
	return 1 + look(cq, n - 1, wc + 1);
}

/* Something more comes for it, and is not seen before the next is there. */
static void goes(struct ibv_qp *qp)
{
	vm_qp_leaves = NULL;
	t_tell(line, 1);
	of_late = qp->recv_cq;
	T_UNTIL(ibv_poll_cq(of_late, 1, &late) == 1);
	look = qp->context->ops.poll_cq;
	qp->context->ops.poll_cq = see_nothing;
}

static void is_next(struct ibv_qp *qp)
{
	vm_qp_made = NULL;
	qp->context->ops.poll_cq = see_late;
}

static void send_late(struct ibv_qp *qp)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;

	T(vm_qp_hold(qp));
	T_EQ(ibv_post_send(qp, &wr, &bad), 0);
	vm_qp_let_go();
}

static void sends_late(int ctl, void *arg)
{
	struct ibv_qp *first;
	struct t_addr at;
	int l, s[2];

	t_init();
	l = t_listener(T_IPV4, &at);
	t_tell(ctl, (uint64_t)t_port_of(l));
	s[0] = t_accept(l);
	t_settle(s[0], on_verbs);
	first = vm_last_qp();
	t_expect(ctl, 1);
	send_late(first);
	send_late(first);
	s[1] = t_accept(l);
	t_settle(s[1], on_verbs);
	t_close(s[0]);
	t_close(s[1]);
	t_close(l);
}

/* Soft iWARP numbers the next as it did the last. */
static void what_comes_for_the_last_queue_pair_is_not_taken_for_the_next(void)
{
	struct t_peer peer;
	struct t_addr at;
	int s;

	t_peer_start(&peer, sends_late, NULL);
	t_init();
	line = peer.ctl;
	at = t_loopback(T_IPV4, (int)t_ask(line));
	s = t_connect(&at);
	t_settle(s, on_verbs);
	vm_qp_leaves = goes;
	vm_qp_made = is_next;
	t_close(s);
	s = t_connect(&at);
	t_settle(s, on_verbs);
	t_close(s);
	t_peer_join(&peer);
}

static const struct t_row rows[] = {
	T_ROW_LONG(a_queue_pair_fails_in_mid_transfer, 200),
	T_ROW_LONG(a_queue_pair_fails_while_events_are_awaited, 200),
	T_ROW_LONG(a_queue_pair_fails_while_its_ring_is_full, 200),
	T_ROW_LONG(a_queue_pair_fails_when_one_end_has_ended, 100),
	T_ROW_LONG(a_queue_pair_fails_while_bytes_are_on_loan, 200),
	T_ROW_LONG(a_device_is_removed_in_mid_transfer, 100),
	T_ROW_LONG(a_queue_pair_fails_while_bytes_are_placed, 200),
	T_ROW_LONG(a_peer_is_killed_while_bytes_are_placed, 200),
	T_ROW_LONG(a_device_is_removed_while_bytes_are_placed, 100),
	T_ROW_LONG(who_has_no_time_to_answer_is_asked_again, 100),
	T_ROW_LONG(a_device_is_removed_while_ends_meet, 100),
	T_ROW_LONG(a_close_over_iwarp_waits_until_the_end_is_received, 60),
	T_ROW(a_switch_that_comes_after_a_reset_is_slept_for),
	T_ROW(a_switch_that_comes_after_a_reset_is_no_event),
	T_ROW(a_peer_that_read_everything_and_closed_leaves_no_reset),
	T_ROW(a_peer_that_closes_before_it_was_confirmed_has_closed),
	T_ROW_LONG(what_comes_for_the_last_queue_pair_is_not_taken_for_the_next,
		   60),
/* on siw0 in the long test only: it waits for 15 s */
#define PATIENT 1
	T_ROW_LONG(who_is_silent_after_tcp_has_ended_is_not_waited_for_for_ever,
		   100),
/* not on siw0 */
#define OF_PORTS 3
	T_ROW_LONG(a_port_goes_down_in_mid_transfer, 100),
	T_ROW_LONG(a_port_goes_down_while_bytes_are_on_loan, 100),
	T_ROW_LONG(a_port_goes_down_while_bytes_are_placed, 100),
};

/* When a link goes down soft iWARP walks its list of connections while their
 * other ends, of the same list, leave it (siw_netdev_down() of Linux 6.1): the
 * kernel falls over, and the device cannot be deleted any more. */
int main(int argc, char **argv)
{
	size_t n = T_COUNT(rows);

	if (on_siw())
		n -= OF_PORTS + (getenv("T_LONG") ? 0 : PATIENT);
	setenv("EXS_PROVIDER", "verbs,tcp", 1);
	/* Less than is sent: who is not read has not sent it all. */
	setenv("EXS_RING_KB", "256", 1);
	return t_run("severed", rows, n, argc > 1 ? argv[1] : NULL);
}
