/* SPDX-License-Identifier: BSD-2-Clause */
/* Large transfers from and into registered memory: with zero copy by the
 * fabric's device and without, bytes arrive once and in order, and memory is
 * written only while an operation has it. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tests/conformance/conf.h"
#include "tests/support/bytes.h"

#define SLOTS  8
#define ROOM   100000
#define POISON 0xa5

/* Cut into slots, with a gap behind each that nobody may write. */
struct memory {
	unsigned char *at;
	exs_mhandle_t m;
};

#define GAP	  64
#define BY_HANDLE (EXS_CAF_FILDES | EXS_CAF_AHANDLE)

static unsigned char *slot(const struct memory *mem, long i)
{
	return mem->at + i * (ROOM + GAP);
}

static struct memory memory_new(void)
{
	struct memory mem = { .at = malloc(SLOTS * (ROOM + GAP)) };

	memset(mem.at, POISON, SLOTS * (ROOM + GAP));
	mem.m = T_OK(exs_mregister(mem.at, SLOTS * (ROOM + GAP), 0));
	return mem;
}

static void memory_free(struct memory *mem)
{
	T_OK(exs_mderegister(mem->m, 0));
	free(mem->at);
}

static void check_poison(const unsigned char *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		T_MSG(p[i] == POISON, "byte %zu of %zu was written", i, len);
}

static void receive_into(int s, struct memory *mem, long i, size_t len,
			 int flags, exs_qhandle_t q)
{
	memset(slot(mem, i), POISON, ROOM);
	T_EQ(exs_recv(s, slot(mem, i), len, flags, q, (exs_ahandle_t)i, mem->m),
	     0);
}

static bool direct_expected(void)
{
	return conf_between();
}

/* --- a stream ----------------------------------------------------------- */

#define VOLUME ((uint64_t)(8 << 20) / t_slow())

/* Small and large, of memory that is registered and that is not, waiting for
 * each and not. */
static void stream_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(SLOTS));
	struct memory mem = memory_new();
	struct t_rng rng = { 5 };
	uint64_t pos = 0;
	long next = 0, over = 0;

	while (pos < VOLUME) {
		size_t len = t_below(&rng, 3) ? ROOM - t_below(&rng, 9)
					      : t_chunk(&rng, ROOM);
		bool registered = t_below(&rng, 4) > 0;

		if (next - over == SLOTS)
			T(t_event_is(q, EXS_EVT_SEND, over++ % SLOTS) > 0);
		t_fill(slot(&mem, next % SLOTS), len, 7, pos);
		T_EQ(exs_send(s, slot(&mem, next % SLOTS), len, 0, q,
			      (exs_ahandle_t)(next % SLOTS),
			      registered ? mem.m : EXS_MHANDLE_UNREGISTERED),
		     0);
		next++;
		pos += len;
		if (t_below(&rng, 5) == 0) {
			t_send_stream(s, 7, pos, 3000, 1000);
			pos += 3000;
		}
	}
	while (over < next)
		T(t_event_is(q, EXS_EVT_SEND, over++ % SLOTS) > 0);
	T_OK(t_shutdown(s, SHUT_WR));
	t_expect(ctl, 1);
	memory_free(&mem);
	T_OK(exs_qdelete(q));
	t_close(s);
}

static void stream_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(SLOTS));
	struct memory mem = memory_new();
	size_t asked[SLOTS];
	struct t_rng rng = { 6 };
	uint64_t pos = 0;
	bool ended = false;
	long next = 0, over = 0;

	for (;;) {
		long i = over % SLOTS;
		size_t n;

		/* Posted ahead, and sometimes not. */
		while (!ended && next - over < SLOTS &&
		       (next == over || t_below(&rng, 8))) {
			asked[next % SLOTS] =
				t_below(&rng, 3) ? ROOM : t_chunk(&rng, ROOM);
			receive_into(s, &mem, next % SLOTS, asked[next % SLOTS],
				     t_below(&rng, 2) ? MSG_WAITALL : 0, q);
			next++;
		}
		if (next == over)
			break;
		n = t_event_is(q, EXS_EVT_RECV, i);
		over++;
		T(n <= asked[i] && !(ended && n));
		t_check_bytes(slot(&mem, i), n, 7, pos);
		check_poison(slot(&mem, i) + n, ROOM + GAP - n);
		pos += n;
		ended = ended || n == 0;
	}
	T(pos >= VOLUME);
	memory_free(&mem);
	T_OK(exs_qdelete(q));
	t_tell(ctl, 1);
	t_close(s);
}

CONF_DUO(receives_are_filled_in_order, stream_a, stream_b)

/* A receive that the sender knows of is filled without a copy. */
static void ahead_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(1));
	struct memory mem = memory_new();
	uint64_t round;

	while ((round = t_ask(ctl))) {
		t_fill(slot(&mem, 0), ROOM, 12, round * ROOM);
		T_EQ(exs_send(s, slot(&mem, 0), ROOM, 0, q, NULL, mem.m), 0);
		T_EQ(t_event_is(q, EXS_EVT_SEND, 0), ROOM);
	}
	memory_free(&mem);
	T_OK(exs_qdelete(q));
	t_close(s);
}

static void ahead_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(1));
	struct memory mem = memory_new();
	uint64_t round = 0;

	/* The word may be faster than the advert. */
	do {
		receive_into(s, &mem, 0, ROOM, MSG_WAITALL, q);
		t_tell(ctl, ++round);
		T_EQ(t_event_is(q, EXS_EVT_RECV, 0), ROOM);
		t_check_bytes(slot(&mem, 0), ROOM, 12, round * ROOM);
	} while (direct_expected() && round < 300 &&
		 !t_info(s).exs_x_rx_direct_bytes);
	/* One that nobody waited for may still be on TCP. */
	if (direct_expected() && t_info(s).exs_x_rx_fabric_bytes > 10 * ROOM)
		T_MSG(t_info(s).exs_x_rx_direct_bytes > 0, "%s", t_where(s));
	t_tell(ctl, 0);
	memory_free(&mem);
	T_OK(exs_qdelete(q));
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(a_receive_that_is_known_is_filled_without_a_copy, ahead_a, ahead_b)

/* Nor does a synchronous call copy, and its buffer is its own again. */
static void at_once_a(int s, int ctl)
{
	struct memory mem = memory_new();
	uint64_t round;

	while ((round = t_ask(ctl))) {
		t_fill(slot(&mem, 0), ROOM, 12, round * ROOM);
		T_EQ(exs_send(s, slot(&mem, 0), ROOM, 0, T_SYNC,
			      round % 2 ? mem.m : EXS_MHANDLE_UNREGISTERED),
		     ROOM);
		memset(slot(&mem, 0), POISON, ROOM);
	}
	memory_free(&mem);
	t_close(s);
}

CONF_DUO(a_large_blocking_send_goes_without_a_copy, at_once_a, ahead_b)

static void nothing(int signo)
{
}

/* SIGUSR1 for this thread, every few milliseconds. */
static timer_t annoyed(void)
{
	struct sigaction act = { .sa_handler = nothing };
	struct sigevent ev = { .sigev_notify = SIGEV_THREAD_ID,
			       .sigev_signo = SIGUSR1 };
	struct itimerspec often = { .it_interval = { .tv_nsec = 3000000 },
				    .it_value = { .tv_nsec = 3000000 } };
	timer_t ret;

	ev._sigev_un._tid = gettid();
	T_OK(sigaction(SIGUSR1, &act, NULL));
	T_OK(timer_create(CLOCK_MONOTONIC, &ev, &ret));
	T_OK(timer_settime(ret, 0, &often, NULL));
	return ret;
}

/* What a send that was interrupted says went, went, and no more. */
static void interrupted_a(int s, int ctl)
{
	struct memory mem = memory_new();
	timer_t timer = annoyed();
	uint64_t pos = 0;
	ssize_t n;

	while (pos < VOLUME) {
		t_fill(mem.at, SLOTS * ROOM, 16, pos);
		n = exs_send(s, mem.at, SLOTS * ROOM, 0, T_SYNC, mem.m);
		T_MSG(n > 0 || (n < 0 && errno == EINTR), "%zd %d", n, errno);
		pos += n > 0 ? (uint64_t)n : 0;
	}
	T_OK(timer_delete(timer));
	T_OK(t_shutdown(s, SHUT_WR));
	t_tell(ctl, pos);
	t_expect(ctl, 1);
	memory_free(&mem);
	t_close(s);
}

static void interrupted_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(SLOTS));
	struct memory mem = memory_new();
	uint64_t pos = 0;
	size_t n = 1;

	for (long i = 0; i < SLOTS; i++)
		receive_into(s, &mem, i, ROOM, 0, q);
	for (long i = 0; n; i = (i + 1) % SLOTS) {
		n = t_event_is(q, EXS_EVT_RECV, i);
		t_check_bytes(slot(&mem, i), n, 16, pos);
		pos += n;
		if (n)
			receive_into(s, &mem, i, ROOM, 0, q);
	}
	T_EQ(t_ask(ctl), pos);
	/* The others ended, too. */
	for (long i = 1; i < SLOTS; i++)
		T_EQ(t_event(q).exs_evt_un.exs_evt_xfer.exs_evt_length, 0);
	memory_free(&mem);
	T_OK(exs_qdelete(q));
	t_tell(ctl, 1);
	t_close(s);
}

CONF_DUO(an_interrupted_send_says_what_went, interrupted_a, interrupted_b)

/* A sender that always has bytes finds places, too, once it has met one. */
#define BATCH	16
#define BATCHES 60

static void busy_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(SLOTS));
	struct memory mem = memory_new();
	uint64_t pos = 0;
	long next = 0, over = 0;

	/* Told of the last batch while it sends; one more ends the last. */
	while (t_ask(ctl)) {
		for (long n = 0; n < BATCH; n++) {
			if (next - over == SLOTS)
				T(t_event_is(q, EXS_EVT_SEND, over++ % SLOTS));
			t_fill(slot(&mem, next % SLOTS), ROOM, 14, pos);
			T_EQ(exs_send(s, slot(&mem, next % SLOTS), ROOM, 0, q,
				      (exs_ahandle_t)(next % SLOTS), mem.m),
			     0);
			next++;
			pos += ROOM;
		}
	}
	while (over < next)
		T(t_event_is(q, EXS_EVT_SEND, over++ % SLOTS));
	memory_free(&mem);
	T_OK(exs_qdelete(q));
	t_close(s);
}

static void busy_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(SLOTS));
	struct memory mem = memory_new();
	uint64_t pos = 0, direct = 0, fabric = 0;
	bool enough = false;

	t_tell(ctl, 1);
	/* Those before the switch do not count. */
	for (int batch = 0; !enough; batch += fabric > 0) {
		const exs_x_sockinfo_t before = t_info(s);

		t_tell(ctl, 1); /* the next, while this one comes */
		for (long i = 0; i < SLOTS / 2; i++)
			receive_into(s, &mem, i, ROOM, MSG_WAITALL, q);
		for (long n = 0; n < BATCH; n++) {
			long i = n % (SLOTS / 2);

			T_EQ(t_event_is(q, EXS_EVT_RECV, i), ROOM);
			t_check_bytes(slot(&mem, i), ROOM, 14, pos);
			pos += ROOM;
			if (n < BATCH - SLOTS / 2)
				receive_into(s, &mem, i, ROOM, MSG_WAITALL, q);
		}
		direct = t_info(s).exs_x_rx_direct_bytes -
			 before.exs_x_rx_direct_bytes;
		fabric = t_info(s).exs_x_rx_fabric_bytes -
			 before.exs_x_rx_fabric_bytes;
		enough = !direct_expected() || direct >= BATCH * ROOM / 2;
		T_MSG(enough || batch < BATCHES, "%llu of %llu are direct: %s",
		      (unsigned long long)direct, (unsigned long long)fabric,
		      t_where(s));
	}
	t_tell(ctl, 0);
	t_recv_stream(s, 14, pos, BATCH * ROOM, ROOM);
	memory_free(&mem);
	T_OK(exs_qdelete(q));
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(a_sender_that_is_ahead_goes_without_a_copy, busy_a, busy_b)

/* After a place there is none: the send goes on without, or is cancelled. */
static void vain_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(SLOTS));
	struct memory mem = memory_new();
	uint64_t pos = 0;

	for (int round = 0; round < 12; round++) {
		t_expect(ctl, 1);
		for (long i = 0; i < 2; i++) {
			t_fill(slot(&mem, i), ROOM, 15,
			       pos + (uint64_t)i * ROOM);
			T_EQ(exs_send(s, slot(&mem, i), ROOM, 0, q,
				      (exs_ahandle_t)i, mem.m),
			     0);
		}
		if (round % 3 == 2)
			exs_cancel(s, (exs_ahandle_t)1, BY_HANDLE);
		for (int n = 0; n < 2; n++) {
			exs_event_t e = t_event(q);

			T(!e.exs_errno || e.exs_errno == ECANCELED);
			pos += e.exs_evt_un.exs_evt_xfer.exs_evt_length;
		}
		t_tell(ctl, pos);
	}
	memory_free(&mem);
	T_OK(exs_qdelete(q));
	t_close(s);
}

static void vain_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(1));
	struct memory mem = memory_new();
	uint64_t pos = 0, end;

	for (int round = 0; round < 12; round++) {
		receive_into(s, &mem, 0, ROOM, MSG_WAITALL, q);
		t_tell(ctl, 1);
		T_EQ(t_event_is(q, EXS_EVT_RECV, 0), ROOM);
		t_check_bytes(slot(&mem, 0), ROOM, 15, pos);
		pos += ROOM;
		end = t_ask(ctl);
		t_recv_stream(s, 15, pos, end - pos, ROOM);
		pos = end;
	}
	memory_free(&mem);
	T_OK(exs_qdelete(q));
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(a_send_goes_on_without_a_place, vain_a, vain_b)

static void frozen_end(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(1));
	struct memory mem = memory_new();

	t_settle(s, conf_apart());
	for (uint64_t pos = 0; t_ask(ctl); pos += 2 * ROOM) {
		receive_into(s, &mem, 0, ROOM, MSG_WAITALL, q);
		t_tell(ctl, 1);
		T_EQ(t_event_is(q, EXS_EVT_RECV, 0), ROOM);
		t_check_bytes(slot(&mem, 0), ROOM, 16, pos);
		t_recv_stream(s, 16, pos + ROOM, ROOM, ROOM);
	}
	memory_free(&mem);
	T_OK(exs_qdelete(q));
	t_recv_end(s);
	t_close(s);
}

static void freeze(pid_t pid)
{
	T_OK(kill(pid, SIGSTOP));
	T_OK(waitpid(pid, NULL, WUNTRACED));
}

/* The first of two goes into the memory of a peer that is stopped, and cannot
 * say that it has it; the second waits for a place in vain, and takes the ring.
 * That ends its wait, and not the first. True: so it was; else the first found
 * no place. */
static bool send_to_frozen(int s, pid_t pid, struct memory *mem,
			   exs_qhandle_t q, uint64_t pos)
{
	const exs_x_sockinfo_t before = t_info(s);
	bool direct;

	freeze(pid);
	for (long i = 0; i < 2; i++) {
		t_fill(slot(mem, i), ROOM, 16, pos + (uint64_t)i * ROOM);
		T_EQ(exs_send(s, slot(mem, i), ROOM, 0, q, (exs_ahandle_t)i,
			      mem->m),
		     0);
	}
	T_UNTIL(t_info(s).exs_x_tx_fabric_bytes >=
		before.exs_x_tx_fabric_bytes + ROOM);
	direct = t_info(s).exs_x_tx_direct_bytes >=
		 before.exs_x_tx_direct_bytes + ROOM;
	if (direct)
		t_no_event(q);
	T_OK(kill(pid, SIGCONT));
	for (long i = 0; i < 2; i++)
		T_EQ(t_event_is(q, EXS_EVT_SEND, i), ROOM);
	return direct;
}

/* --- one at a time ------------------------------------------------------ */

static void silent_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(1));
	struct memory mem = memory_new();

	for (uint64_t round = 0; round < 8; round++) {
		t_expect(ctl, 1);
		t_fill(slot(&mem, 0), ROOM, 17, round * ROOM);
		T_EQ(exs_send(s, slot(&mem, 0), ROOM, 0, q, NULL, mem.m), 0);
		T_EQ(t_event_is(q, EXS_EVT_SEND, 0), ROOM);
		t_tell(ctl, 1);
	}
	memory_free(&mem);
	T_OK(exs_qdelete(q));
	t_close(s);
}

/* Its own thread takes what comes, and then calls nothing until the other end's
 * send is over. */
static void silent_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(1));
	struct memory mem = memory_new();
	const struct timeval none = { 0 };
	exs_event_t e;

	for (uint64_t round = 0; round < 8; round++) {
		receive_into(s, &mem, 0, ROOM, MSG_WAITALL, q);
		t_tell(ctl, 1);
		T_UNTIL(T_OK(exs_qdequeue(q, &e, 1, &none)) == 1);
		t_expect(ctl, 1);
		t_check_bytes(slot(&mem, 0), ROOM, 17, round * ROOM);
	}
	t_recv_end(s);
	memory_free(&mem);
	T_OK(exs_qdelete(q));
	t_close(s);
}

CONF_DUO(a_send_is_over_though_its_receiver_calls_nothing, silent_a, silent_b)

static void a_send_is_over_when_the_peer_has_it(void)
{
	struct t_peer p;
	int s = t_pair_fork(&p, T_A, frozen_end);
	exs_qhandle_t q = T_OK(exs_qcreate(2));
	struct memory mem = memory_new();
	uint64_t pos = 0;
	bool was_so = !direct_expected();

	t_settle(s, conf_apart());
	for (int round = 0; !was_so; round++, pos += 2 * ROOM) {
		T(round < 60);
		t_tell(p.ctl, 1);
		t_expect(p.ctl, 1);
		was_so = send_to_frozen(s, p.pid, &mem, q, pos);
	}
	t_tell(p.ctl, 0);
	memory_free(&mem);
	T_OK(exs_qdelete(q));
	t_close(s);
	t_peer_join(&p);
}

/* --- taking back -------------------------------------------------------- */

/* Two of four are cancelled; the others take what comes. */
static void cancel_a(int s, int ctl)
{
	for (long round = 0; round < 3; round++) {
		t_expect(ctl, 1);
		t_send_stream(s, 8, (uint64_t)round * 2 * ROOM, 2 * ROOM,
			      2 * ROOM);
	}
	t_expect(ctl, 2);
	t_close(s);
}

static void cancel_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(SLOTS));
	struct memory mem = memory_new();

	for (uint64_t round = 0; round < 3; round++) {
		bool cancelled[4] = { false };

		for (long i = 0; i < 4; i++)
			receive_into(s, &mem, i, ROOM, MSG_WAITALL, q);
		T_EQ(exs_cancel(s, (exs_ahandle_t)1, BY_HANDLE), 1);
		T_EQ(exs_cancel(s, (exs_ahandle_t)3, BY_HANDLE), 1);
		for (int n = 0; n < 2; n++) {
			exs_event_t e = t_event(q);

			T_EQ(e.exs_errno, ECANCELED);
			cancelled[(long)e.exs_evt_ahandle] = true;
		}
		T(cancelled[1] && cancelled[3]);
		t_tell(ctl, 1);
		T_EQ(t_event_is(q, EXS_EVT_RECV, 0), ROOM);
		T_EQ(t_event_is(q, EXS_EVT_RECV, 2), ROOM);
		t_check_bytes(slot(&mem, 0), ROOM, 8, round * 2 * ROOM);
		t_check_bytes(slot(&mem, 2), ROOM, 8, round * 2 * ROOM + ROOM);
		check_poison(slot(&mem, 1), ROOM);
		check_poison(slot(&mem, 3), ROOM);
	}
	memory_free(&mem);
	T_OK(exs_qdelete(q));
	t_tell(ctl, 2);
	t_close(s);
}

CONF_DUO(a_cancelled_receive_is_not_written_any_more, cancel_a, cancel_b)

static void deregister_a(int s, int ctl)
{
	t_expect(ctl, 1);
	t_send_stream(s, 9, 0, ROOM, ROOM);
	t_expect(ctl, 1);
	t_send_stream(s, 9, ROOM, ROOM, ROOM);
	t_expect(ctl, 1);
	t_close(s);
}

static void deregister_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(SLOTS));
	struct memory mem = memory_new();

	for (uint64_t round = 0; round < 2; round++) {
		receive_into(s, &mem, 0, ROOM, MSG_WAITALL, q);
		T_ERR(exs_mderegister(mem.m, 0), EBUSY);
		t_tell(ctl, 1);
		T_EQ(t_event_is(q, EXS_EVT_RECV, 0), ROOM);
		t_check_bytes(slot(&mem, 0), ROOM, 9, round * ROOM);
		/* The same addresses, another registration. */
		T_OK(exs_mderegister(mem.m, 0));
		mem.m = T_OK(exs_mregister(mem.at, SLOTS * (ROOM + GAP), 0));
	}
	memory_free(&mem);
	T_OK(exs_qdelete(q));
	t_tell(ctl, 1);
	t_close(s);
}

CONF_DUO(memory_is_registered_while_a_receive_has_it, deregister_a,
	 deregister_b)

/* --- moving ------------------------------------------------------------- */

/* The direction goes to TCP and comes back while receives are out. */
static void moved_a(int s, int ctl)
{
	for (uint64_t i = 0; i < 20; i++) {
		if (i == 3 || i == 9)
			T_OK(exs_x_downgrade(s));
		if (i == 6)
			T_OK(exs_x_adopt(s));
		t_send_stream(s, 10, i * ROOM, ROOM, ROOM);
	}
	t_expect(ctl, 1);
	t_close(s);
}

static void moved_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(SLOTS));
	struct memory mem = memory_new();
	uint64_t i;

	for (i = 0; i < SLOTS; i++)
		receive_into(s, &mem, (long)i, ROOM, MSG_WAITALL, q);
	for (i = 0; i < 20; i++) {
		T_EQ(t_event_is(q, EXS_EVT_RECV, (long)(i % SLOTS)), ROOM);
		t_check_bytes(slot(&mem, (long)(i % SLOTS)), ROOM, 10,
			      i * ROOM);
		if (i + SLOTS < 20)
			receive_into(s, &mem, (long)(i % SLOTS), ROOM,
				     MSG_WAITALL, q);
	}
	memory_free(&mem);
	T_OK(exs_qdelete(q));
	t_tell(ctl, 1);
	t_close(s);
}

CONF_DUO(a_downgrade_takes_receives_along, moved_a, moved_b)

/* --- the end ------------------------------------------------------------ */

static void end_a(int s, int ctl)
{
	t_expect(ctl, 1);
	t_send_stream(s, 11, 0, ROOM + 10, ROOM + 10);
	t_close(s);
}

static void end_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(SLOTS));
	struct memory mem = memory_new();

	for (long i = 0; i < 3; i++)
		receive_into(s, &mem, i, ROOM, MSG_WAITALL, q);
	t_tell(ctl, 1);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 0), ROOM);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 1), 10);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 2), 0);
	t_check_bytes(slot(&mem, 0), ROOM, 11, 0);
	t_check_bytes(slot(&mem, 1), 10, 11, ROOM);
	check_poison(slot(&mem, 1) + 10, ROOM - 10);
	check_poison(slot(&mem, 2), ROOM);
	memory_free(&mem);
	T_OK(exs_qdelete(q));
	t_close(s);
}

CONF_DUO(the_end_gives_receives_back, end_a, end_b)

static void close_a(int s, int ctl)
{
	t_recv_end(s);
	t_tell(ctl, 1);
	t_close(s);
}

static void close_b(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(SLOTS));
	struct memory mem = memory_new();

	for (long i = 0; i < SLOTS; i++)
		receive_into(s, &mem, i, ROOM, 0, q);
	T_OK(exs_close(s, T_SYNC));
	for (long i = 0; i < SLOTS; i++)
		T(t_event(q).exs_errno != 0);
	t_no_event(q);
	memory_free(&mem);
	T_OK(exs_qdelete(q));
	t_expect(ctl, 1);
}

CONF_DUO(a_close_gives_receives_back, close_a, close_b)

int main(int argc, char **argv)
{
	static const struct t_row rows[] = {
		CONF_ROWS_LONG(receives_are_filled_in_order, 120),
		CONF_ROWS(a_receive_that_is_known_is_filled_without_a_copy),
		CONF_ROWS(a_large_blocking_send_goes_without_a_copy),
		CONF_ROWS_LONG(an_interrupted_send_says_what_went, 120),
		CONF_ROWS(a_sender_that_is_ahead_goes_without_a_copy),
		CONF_ROWS(a_send_goes_on_without_a_place),
		CONF_ROWS(a_send_is_over_though_its_receiver_calls_nothing),
		T_ROW(a_send_is_over_when_the_peer_has_it),
		CONF_ROWS(a_cancelled_receive_is_not_written_any_more),
		CONF_ROWS(memory_is_registered_while_a_receive_has_it),
		CONF_ROWS(a_downgrade_takes_receives_along),
		CONF_ROWS(the_end_gives_receives_back),
		CONF_ROWS(a_close_gives_receives_back),
	};

	setenv("EXS_ZCOPY_THRESHOLD", "4096", 1);
	return conf_main(argc, argv, "place", rows, T_COUNT(rows));
}
