/* SPDX-License-Identifier: BSD-2-Clause */
/* A fabric between hosts fails in the middle of transfers, and the connections
 * go on over TCP: every byte tells its position, so one that is lost or
 * repeated ends the test. Needs the emulated machine, whose links and devices
 * it takes down; EXS_VERBS_DEVICE and T_ADDRESS name the one. */
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"
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

/* It is gone when the last process has let go of it. */
static void device(void)
{
	command("rdma link delete rxe0 &", "rdma link delete siw0 &");
}

/* Made anew, also after a link that was down: what soft RoCE's connection
 * manager could not send then it never sends. */
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
};

static struct plan plan;

static struct shared {
	_Atomic int failed;
	_Atomic int ended;
} * shared;

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

/* The fabric fails once, when A has read so much. */
static void fail_now(int s, int ctl)
{
	if (!plan.there)
		plan.fails();
	else
		t_tell(ctl, 7);
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
	t_thread_join(sender);
	if (plan.there)
		t_thread_join(failing);
	gone_on(s);
	t_close(s);
}

static void transfer(const struct plan *p)
{
	struct stream out = { .seed = SEED_AB, .len = p->len[0] };
	struct t_peer peer;
	pthread_t sender;

	plan = *p;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	T(shared != MAP_FAILED);
	out.s = t_pair_fork(&peer, T_A, end_b);
	t_settle(out.s, on_verbs);
	sender = t_thread(p->async ? send_events : send_it, &out);
	receive(out.s, SEED_BA, 0, p->at);
	fail_now(out.s, peer.ctl);
	receive(out.s, SEED_BA, p->at, p->len[1] - p->at);
	t_recv_end(out.s);
	t_thread_join(sender);
	gone_on(out.s);
	t_close(out.s);
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

static void a_port_goes_down_in_mid_transfer(void)
{
	apart(&(struct plan){ port, { LONG_ONE, LONG_ONE }, .at = 100000 });
	repair();
}

static void a_device_is_removed_in_mid_transfer(void)
{
	apart(&(struct plan){ device, { LONG_ONE, LONG_ONE }, .at = 100000 });
	repair();
}

static const struct t_row rows[] = {
	T_ROW_LONG(a_queue_pair_fails_in_mid_transfer, 200),
	T_ROW_LONG(a_queue_pair_fails_while_events_are_awaited, 200),
	T_ROW_LONG(a_queue_pair_fails_while_its_ring_is_full, 200),
	T_ROW_LONG(a_port_goes_down_in_mid_transfer, 100),
	T_ROW_LONG(a_device_is_removed_in_mid_transfer, 100),
};

int main(int argc, char **argv)
{
	setenv("EXS_PROVIDER", "verbs,tcp", 1);
	return t_run("severed", rows, T_COUNT(rows), argc > 1 ? argv[1] : NULL);
}
