/* SPDX-License-Identifier: BSD-2-Clause */
/* Large transfers from and into registered memory: where the fabric's device
 * moves them without a copy, and where not, bytes come once and in order, and
 * memory is written only while an operation has it. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
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
	return !strcmp(conf_here().fabric, "verbs");
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
		CONF_ROWS(a_cancelled_receive_is_not_written_any_more),
		CONF_ROWS(memory_is_registered_while_a_receive_has_it),
		CONF_ROWS(a_downgrade_takes_receives_along),
		CONF_ROWS(the_end_gives_receives_back),
		CONF_ROWS(a_close_gives_receives_back),
	};

	setenv("EXS_ZCOPY_THRESHOLD", "4096", 1);
	return conf_main(argc, argv, "place", rows, T_COUNT(rows));
}
