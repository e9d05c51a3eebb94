/* SPDX-License-Identifier: BSD-2-Clause */
/* Transfers and watches of the tcp provider, over each engine. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/wait.h"
#include "tests/unit/test_tcp_ends.h"

#include "core/base/futex.h"

#define MIB ((size_t)1 << 20)

static struct end e[2];

static void begin(void)
{
	dom_open();
	ends_pair(e);
}

static void finish(void)
{
	end_close(&e[0]);
	end_close(&e[1]);
	dom_close();
}

/* Plain calls. */

static void send_and_recv_move_bytes_at_once(void)
{
	char buf[16] = "";

	begin();
	T_EQ(ops->send(e[0].c, "hello", 5, 0), 5);
	T(t_readable(e[1].fd, 1000));
	T_EQ(ops->recv(e[1].c, buf, 3, MSG_PEEK), 3);
	T_EQ(ops->recv(e[1].c, buf, sizeof(buf), 0), 5);
	T(!memcmp(buf, "hello", 5));
	finish();
}

static void recv_on_an_idle_stream_says_eagain_and_keeps_errno(void)
{
	char buf[16];

	begin();
	errno = ENOTTY;
	T_EQ(ops->recv(e[1].c, buf, sizeof(buf), 0), -EAGAIN);
	T_EQ(errno, ENOTTY);
	finish();
}

static void send_without_room_says_eagain(void)
{
	static char buf[MIB];

	begin();
	T(fill_up(e[0].fd) > 0);
	errno = ENOTTY;
	T_UNTIL(ops->send(e[0].c, buf, sizeof(buf), 0) == -EAGAIN);
	T_EQ(errno, ENOTTY);
	finish();
}

static void send_to_a_gone_peer_raises_no_signal(void)
{
	int i;
	ssize_t n = 0;

	signal(SIGPIPE, SIG_DFL);
	begin();
	reset_on_close(e[1].fd);
	end_close(&e[1]);
	for (i = 0; i < 3; i++)
		n = ops->send(e[0].c, "x", 1, 0);
	T_EQ(n, -EPIPE);
	finish();
}

static void end_says_the_end_of_the_stream(void)
{
	char buf[16];

	begin();
	T_EQ(ops->send(e[0].c, "bye", 3, 0), 3);
	T_EQ(ops->end(e[0].c), 0);
	T(t_readable(e[1].fd, 1000));
	T_EQ(ops->recv(e[1].c, buf, sizeof(buf), 0), 3);
	T(t_readable(e[1].fd, 1000));
	T_EQ(ops->recv(e[1].c, buf, sizeof(buf), 0), 0);
	T_EQ(ops->recv(e[1].c, buf, sizeof(buf), 0), 0);
	finish();
}

/* Posted transfers. */

static void a_posted_receive_takes_what_is_there(void)
{
	struct transfer t = { 0 };
	char buf[100] = "";

	begin();
	recv_post(&t, &e[1], buf, sizeof(buf), 0);
	transfer_idle(&t);
	T_EQ(ops->send(e[0].c, "hello", 5, 0), 5);
	T_EQ(transfer_wait(&t), 5);
	T(!memcmp(buf, "hello", 5));
	T_EQ(ops->send(e[0].c, "again", 5, 0), 5);
	T(t_readable(e[1].fd, 1000));
	recv_post(&t, &e[1], buf, sizeof(buf), MSG_DONTWAIT);
	T_EQ(transfer_wait(&t), 5);
	T(!memcmp(buf, "again", 5));
	finish();
}

static void nothing_is_done_outside_progress(void)
{
	struct transfer s = { 0 }, r = { 0 };
	char buf[8];

	begin();
	send_post(&s, &e[0], "hello", 5, 0);
	T(ops->send(e[1].c, "back", 4, 0) == 4);
	T(t_readable(e[0].fd, 1000));
	recv_post(&r, &e[0], buf, sizeof(buf), 0);
	T_EQ(atomic_load(&s.dones), 0);
	T_EQ(atomic_load(&r.dones), 0);
	T_EQ(transfer_wait(&s), 5);
	T_EQ(transfer_wait(&r), 4);
	finish();
}

static void a_second_post_in_the_same_direction_is_refused(void)
{
	struct transfer a = { 0 }, b = { 0 };
	char buf[8];

	begin();
	recv_post(&a, &e[1], buf, sizeof(buf), 0);
	b.x = a.x;
	T_EQ(kops->post_recv(e[1].c, &b.x), -EBUSY);
	kops->cancel(e[1].c, &a.x);
	T_EQ(transfer_wait(&a), -ECANCELED);
	finish();
}

static void progress_keeps_errno(void)
{
	struct transfer t = { 0 };
	char buf[8];

	begin();
	errno = ENOTTY;
	recv_post(&t, &e[1], buf, sizeof(buf), 0);
	dom_progress();
	ops->send(e[0].c, "x", 1, 0);
	T_EQ(transfer_wait(&t), 1);
	recv_post(&t, &e[1], buf, sizeof(buf), 0);
	kops->cancel(e[1].c, &t.x);
	T_EQ(transfer_wait(&t), -ECANCELED);
	end_close(&e[1]);
	T_EQ(errno, ENOTTY);
	finish();
}

static void a_peeking_receive_leaves_the_bytes(void)
{
	struct transfer t = { 0 };
	char buf[8];

	begin();
	T_EQ(ops->send(e[0].c, "hello", 5, 0), 5);
	recv_post(&t, &e[1], buf, sizeof(buf), MSG_PEEK);
	T_EQ(transfer_wait(&t), 5);
	recv_post(&t, &e[1], buf, sizeof(buf), MSG_PEEK | MSG_WAITALL);
	T_EQ(transfer_wait(&t), 5);
	recv_post(&t, &e[1], buf, sizeof(buf), 0);
	T_EQ(transfer_wait(&t), 5);
	finish();
}

static void an_empty_send_is_done_with_0(void)
{
	struct transfer t = { 0 };

	begin();
	send_post(&t, &e[0], "", 0, 0);
	T_EQ(transfer_wait(&t), 0);
	finish();
}

/* A stream whose transfers have random lengths; done() posts the next. */
struct chain {
	struct t_rng rng;
	uint64_t pos;
	uint64_t len;
	uint8_t *buf;
	size_t max;
	size_t asked;
};

static void send_next(struct transfer *t)
{
	struct chain *c = t->arg;

	if (t->x.buf) {
		T_EQ(t->result, c->asked);
		c->pos += c->asked;
	}
	if (c->pos == c->len)
		return;
	c->asked = t_chunk(&c->rng, c->max);
	if (c->asked > c->len - c->pos)
		c->asked = c->len - c->pos;
	t_fill(c->buf, c->asked, 7, c->pos);
	send_post(t, t->end, c->buf, c->asked, 0);
}

static void recv_next(struct transfer *t)
{
	struct chain *c = t->arg;

	if (t->x.buf) {
		T(t->result > 0);
		t_check_bytes(c->buf, t->result, 7, c->pos);
		c->pos += t->result;
	}
	if (c->pos == c->len)
		return;
	c->asked = t_chunk(&c->rng, c->max);
	recv_post(t, t->end, c->buf, c->asked, 0);
}

static void stream(size_t len, size_t send_max, size_t recv_max)
{
	struct chain s = { .rng.state = 1, .len = len, .max = send_max };
	struct chain r = { .rng.state = 2, .len = len, .max = recv_max };
	struct transfer ts = { .then = send_next, .arg = &s, .end = &e[0] };
	struct transfer tr = { .then = recv_next, .arg = &r, .end = &e[1] };
	struct t_deadline d = t_deadline_ms(50000);

	s.buf = malloc(send_max);
	r.buf = malloc(recv_max);
	begin();
	send_next(&ts);
	recv_next(&tr);
	while (r.pos < len || s.pos < len) {
		T(!t_over(&d));
		dom_wait(1000);
	}
	finish();
	free(s.buf);
	free(r.buf);
}

static void small_transfers_keep_the_order(void)
{
	stream(256 * 1024, 200, 300);
}

static void large_transfers_keep_the_order(void)
{
	stream(32 * MIB, 3 * MIB, MIB);
}

static void one_send_takes_64_mib(void)
{
	uint8_t *all = malloc(64 * MIB);
	struct chain r = { .rng.state = 2, .len = 64 * MIB, .max = MIB };
	struct transfer s = { 0 };
	struct transfer tr = { .then = recv_next, .arg = &r, .end = &e[1] };

	r.buf = malloc(r.max);
	t_fill(all, 64 * MIB, 7, 0);
	begin();
	send_post(&s, &e[0], all, 64 * MIB, 0);
	recv_next(&tr);
	T_EQ(transfer_wait(&s), 64 * MIB);
	while (r.pos < r.len)
		dom_wait(1000);
	finish();
	free(r.buf);
	free(all);
}

static void a_waitall_receive_is_done_when_full(void)
{
	struct transfer t = { 0 };
	uint8_t buf[64], sent[64];
	size_t i;

	begin();
	t_fill(sent, sizeof(sent), 3, 0);
	recv_post(&t, &e[1], buf, sizeof(buf), MSG_WAITALL);
	for (i = 0; i < sizeof(buf); i += 16) {
		transfer_idle(&t);
		T_EQ(ops->send(e[0].c, sent + i, 16, 0), 16);
		if (i + 16 < sizeof(buf))
			moved_wait(&e[1], EXI_RX, i + 16);
	}
	T_EQ(transfer_wait(&t), sizeof(buf));
	t_check_bytes(buf, sizeof(buf), 3, 0);
	finish();
}

static void a_waitall_receive_takes_64_mib(void)
{
	uint8_t *all = malloc(64 * MIB);
	struct chain s = { .rng.state = 5, .len = 64 * MIB, .max = 2 * MIB };
	struct transfer r = { 0 };
	struct transfer ts = { .then = send_next, .arg = &s, .end = &e[0] };

	s.buf = malloc(s.max);
	begin();
	recv_post(&r, &e[1], all, 64 * MIB, MSG_WAITALL);
	send_next(&ts);
	T_EQ(transfer_wait(&r), 64 * MIB);
	t_check_bytes(all, 64 * MIB, 7, 0);
	finish();
	free(s.buf);
	free(all);
}

static void the_end_is_0_and_again(void)
{
	struct transfer t = { 0 };
	char buf[8];
	int i;

	begin();
	recv_post(&t, &e[1], buf, sizeof(buf), 0);
	T_EQ(ops->end(e[0].c), 0);
	T_EQ(transfer_wait(&t), 0);
	for (i = 0; i < 3; i++) {
		recv_post(&t, &e[1], buf, sizeof(buf), MSG_WAITALL);
		T_EQ(transfer_wait(&t), 0);
	}
	finish();
}

static void a_waitall_receive_ends_early_with_the_stream(void)
{
	struct transfer t = { 0 };
	char buf[8];

	begin();
	recv_post(&t, &e[1], buf, sizeof(buf), MSG_WAITALL);
	T_EQ(ops->send(e[0].c, "abc", 3, 0), 3);
	moved_wait(&e[1], EXI_RX, 3);
	T_EQ(ops->end(e[0].c), 0);
	T_EQ(transfer_wait(&t), 3);
	recv_post(&t, &e[1], buf, sizeof(buf), 0);
	T_EQ(transfer_wait(&t), 0);
	finish();
}

static void a_reset_is_reported_once(void)
{
	struct transfer t = { 0 };
	char buf[8];

	begin();
	recv_post(&t, &e[1], buf, sizeof(buf), 0);
	reset_on_close(e[0].fd);
	end_close(&e[0]);
	T_EQ(transfer_wait(&t), -ECONNRESET);
	recv_post(&t, &e[1], buf, sizeof(buf), 0);
	T_EQ(transfer_wait(&t), 0);
	send_post(&t, &e[1], "x", 1, 0);
	T_EQ(transfer_wait(&t), -EPIPE);
	finish();
}

static void part_then_reset(struct transfer *t, char *buf, size_t len)
{
	recv_post(t, &e[1], buf, len, MSG_WAITALL);
	T_EQ(ops->send(e[0].c, "abc", 3, 0), 3);
	moved_wait(&e[1], EXI_RX, 3);
	reset_on_close(e[0].fd);
	end_close(&e[0]);
	T_EQ(transfer_wait(t), 3);
}

static void an_error_after_some_bytes_comes_at_the_next_post(void)
{
	struct transfer t = { 0 };
	char buf[8];

	begin();
	part_then_reset(&t, buf, sizeof(buf));
	recv_post(&t, &e[1], buf, sizeof(buf), 0);
	T_EQ(atomic_load(&t.dones), 0);
	T_EQ(transfer_wait(&t), -ECONNRESET);
	recv_post(&t, &e[1], buf, sizeof(buf), 0);
	T_EQ(transfer_wait(&t), 0);
	finish();
}

static void an_error_after_some_bytes_comes_at_the_next_recv(void)
{
	struct transfer t = { 0 };
	char buf[8];

	begin();
	part_then_reset(&t, buf, sizeof(buf));
	T_EQ(ops->recv(e[1].c, buf, sizeof(buf), 0), -ECONNRESET);
	T_EQ(ops->recv(e[1].c, buf, sizeof(buf), 0), 0);
	finish();
}

static void a_kept_error_is_told_once_in_either_direction(void)
{
	struct transfer t = { 0 };
	char buf[8];

	begin();
	part_then_reset(&t, buf, sizeof(buf));
	T_EQ(ops->send(e[1].c, "x", 1, 0), -ECONNRESET);
	T_EQ(ops->send(e[1].c, "x", 1, 0), -EPIPE);
	T_EQ(ops->recv(e[1].c, buf, sizeof(buf), 0), 0);
	finish();
}

static void a_send_that_was_cut_off_says_how_much_it_sent(void)
{
	struct transfer t = { 0 };
	uint8_t *all = calloc(1, 64 * MIB);

	begin();
	send_post(&t, &e[0], all, 64 * MIB, 0);
	moved_wait(&e[0], EXI_TX, 1);
	reset_on_close(e[1].fd);
	end_close(&e[1]);
	T(transfer_wait(&t) > 0);
	T(t.result < 64 * MIB);
	send_post(&t, &e[0], "x", 1, 0);
	T_EQ(transfer_wait(&t), -ECONNRESET);
	send_post(&t, &e[0], "x", 1, 0);
	T_EQ(transfer_wait(&t), -EPIPE);
	finish();
	free(all);
}

static void a_posted_send_to_a_gone_peer_raises_no_signal(void)
{
	struct transfer t = { 0 };
	int i;

	signal(SIGPIPE, SIG_DFL);
	begin();
	reset_on_close(e[1].fd);
	end_close(&e[1]);
	for (i = 0; i < 3; i++) {
		send_post(&t, &e[0], "x", 1, 0);
		T(transfer_wait(&t) < 0);
	}
	T_EQ(t.result, -EPIPE);
	finish();
}

/* Cancelling. */

static void cancelling_an_idle_receive_loses_nothing(void)
{
	struct transfer t = { 0 };
	char buf[8];
	int i;

	begin();
	for (i = 0; i < 100; i++) {
		recv_post(&t, &e[1], buf, sizeof(buf), 0);
		if (i % 2)
			dom_progress();
		kops->cancel(e[1].c, &t.x);
		T_EQ(atomic_load(&t.dones), 0);
		T_EQ(transfer_wait(&t), -ECANCELED);
		T_EQ(ops->send(e[0].c, "hello", 5, 0), 5);
		recv_post(&t, &e[1], buf, sizeof(buf), 0);
		T_EQ(transfer_wait(&t), 5);
	}
	finish();
}

static void a_cancelled_receive_keeps_what_it_got(void)
{
	struct transfer t = { 0 };
	char buf[8];

	begin();
	recv_post(&t, &e[1], buf, sizeof(buf), MSG_WAITALL);
	T_EQ(ops->send(e[0].c, "abc", 3, 0), 3);
	moved_wait(&e[1], EXI_RX, 3);
	kops->cancel(e[1].c, &t.x);
	T_EQ(transfer_wait(&t), 3);
	T(!memcmp(buf, "abc", 3));
	finish();
}

static void a_cancelled_send_says_how_much_it_sent(void)
{
	struct transfer s = { 0 }, r = { 0 };
	uint8_t *all = malloc(64 * MIB), *got = malloc(64 * MIB);
	size_t sent;

	t_fill(all, 64 * MIB, 9, 0);
	begin();
	send_post(&s, &e[0], all, 64 * MIB, 0);
	moved_wait(&e[0], EXI_TX, 1);
	kops->cancel(e[0].c, &s.x);
	T(transfer_wait(&s) > 0);
	sent = s.result;
	send_post(&s, &e[0], all + sent, MIB, 0);
	recv_post(&r, &e[1], got, sent + MIB, MSG_WAITALL);
	T_EQ(transfer_wait(&r), sent + MIB);
	t_check_bytes(got, sent + MIB, 9, 0);
	T_EQ(transfer_wait(&s), MIB);
	finish();
	free(all);
	free(got);
}

static void cancelling_what_is_done_does_nothing(void)
{
	struct transfer t = { 0 }, other = { 0 };
	char buf[8];

	begin();
	send_post(&t, &e[0], "hello", 5, 0);
	T_EQ(transfer_wait(&t), 5);
	kops->cancel(e[0].c, &t.x);
	recv_post(&other, &e[0], buf, sizeof(buf), 0);
	kops->cancel(e[0].c, &t.x);
	transfer_idle(&other);
	T_EQ(atomic_load(&t.dones), 1);
	finish();
	T_EQ(other.result, -ECANCELED);
}

static void cancel_other(struct transfer *t)
{
	struct transfer *other = t->arg;

	kops->cancel(other->end->c, &other->x);
}

static void done_may_cancel(void)
{
	struct transfer r = { 0 };
	struct transfer s = { .then = cancel_other, .arg = &r };
	char buf[8];

	begin();
	recv_post(&r, &e[0], buf, sizeof(buf), 0);
	send_post(&s, &e[0], "x", 1, 0);
	T_EQ(transfer_wait(&s), 1);
	T_EQ(transfer_wait(&r), -ECANCELED);
	finish();
}

static void closing_cancels_and_stop_sees_it_done(void)
{
	struct transfer s = { 0 }, r = { 0 };
	uint8_t *all = calloc(1, 64 * MIB);
	char buf[8];

	begin();
	recv_post(&r, &e[0], buf, sizeof(buf), 0);
	send_post(&s, &e[0], all, 64 * MIB, 0);
	moved_wait(&e[0], EXI_TX, 1);
	ops->close(e[0].c);
	T_EQ(kops->post_recv(e[0].c, &r.x), -EBADF);
	T_EQ(wops->arm(e[0].c, EXI_RX, EXI_WAKE_BELL), -EBADF);
	end_close(&e[0]);
	T_EQ(atomic_load(&r.dones), 1);
	T_EQ(r.result, -ECANCELED);
	T_EQ(atomic_load(&s.dones), 1);
	T(s.result > 0);
	finish();
	free(all);
}

/* Readiness. */

static void a_watch_reports_data_once(void)
{
	char buf[8];

	begin();
	T_EQ(wops->arm(e[1].c, EXI_RX, EXI_WAKE_BELL), 0);
	T_EQ(wops->arm(e[1].c, EXI_RX, EXI_WAKE_BELL), 0);
	T_EQ(dom_progress(), 0);
	T_EQ(ops->send(e[0].c, "hello", 5, 0), 5);
	T_UNTIL(dom_progress() == 0 && atomic_load(&e[1].ready[EXI_RX]));
	T_EQ(wops->arm(e[1].c, EXI_RX, EXI_WAKE_BELL), -EBUSY);
	T_EQ(ops->recv(e[1].c, buf, sizeof(buf), 0), 5);
	T_EQ(dom_progress(), 0);
	T_EQ(atomic_load(&e[1].ready[EXI_RX]), 1);
	T_EQ(atomic_load(&e[1].ready[EXI_TX]), 0);
	finish();
}

static void a_watch_wakes_a_sleeper(void)
{
	int i;
	char buf[8];

	begin();
	for (i = 1; i <= 20; i++) {
		T_EQ(wops->arm(e[1].c, EXI_RX, EXI_WAKE_BELL), 0);
		T_EQ(ops->send(e[0].c, "x", 1, 0), 1);
		while (atomic_load(&e[1].ready[EXI_RX]) < i)
			T(dom_wait(20000));
		T_EQ(ops->recv(e[1].c, buf, sizeof(buf), 0), 1);
	}
	T_EQ(wops->arm(e[1].c, EXI_RX, EXI_WAKE_BELL), 0);
	T_EQ(ops->end(e[0].c), 0);
	while (atomic_load(&e[1].ready[EXI_RX]) < i)
		T(dom_wait(20000));
	finish();
}

static void a_watch_reports_room(void)
{
	static char buf[MIB];
	size_t full;

	begin();
	T_EQ(wops->arm(e[0].c, EXI_TX, EXI_WAKE_BELL), -EBUSY);
	full = fill_up(e[0].fd);
	T_EQ(wops->arm(e[0].c, EXI_TX, EXI_WAKE_BELL), 0);
	T_EQ(dom_progress(), 0);
	while (full > 0) {
		T(t_readable(e[1].fd, 20000));
		full -= ops->recv(e[1].c, buf, sizeof(buf), 0);
	}
	while (!atomic_load(&e[0].ready[EXI_TX]))
		T(dom_wait(20000));
	finish();
}

static void disarm_removes_a_watch(void)
{
	char buf[8];
	int i;

	begin();
	for (i = 0; i < 50; i++) {
		T_EQ(wops->arm(e[1].c, EXI_RX, EXI_WAKE_BELL), 0);
		wops->disarm(e[1].c, EXI_RX, EXI_WAKE_WORD);
		if (i % 2)
			dom_progress();
		T_EQ(ops->send(e[0].c, "x", 1, 0), 1);
		T(t_readable(e[1].fd, 1000));
		dom_progress();
		T_EQ(ops->recv(e[1].c, buf, sizeof(buf), 0), 1);
	}
	T_EQ(atomic_load(&e[1].ready[EXI_RX]), 0);
	wops->disarm(e[1].c, EXI_RX, EXI_WAKE_WORD);
	finish();
}

/* What the engine still knew of the first watch is not taken for the second. */
static void a_watch_made_again_reports_what_is_new(void)
{
	char buf[8];
	int i;

	begin();
	for (i = 1; i <= 50; i++) {
		T_EQ(wops->arm(e[1].c, EXI_RX, EXI_WAKE_BELL), 0);
		if (i % 2) {
			T_EQ(ops->send(e[0].c, "x", 1, 0), 1);
			T(t_readable(e[1].fd, 1000));
		}
		wops->disarm(e[1].c, EXI_RX, EXI_WAKE_WORD);
		if (i % 2)
			T_EQ(ops->recv(e[1].c, buf, sizeof(buf), 0), 1);
		T_EQ(wops->arm(e[1].c, EXI_RX, EXI_WAKE_BELL), 0);
		if (i % 3 == 0) {
			wops->disarm(e[1].c, EXI_RX, EXI_WAKE_WORD);
			T_EQ(wops->arm(e[1].c, EXI_RX, EXI_WAKE_BELL), 0);
		}
		while (dom_wait(0))
			;
		T_EQ(atomic_load(&e[1].ready[EXI_RX]), i - 1);
		T_EQ(ops->send(e[0].c, "x", 1, 0), 1);
		while (atomic_load(&e[1].ready[EXI_RX]) < i)
			T(dom_wait(20000));
		T_EQ(ops->recv(e[1].c, buf, sizeof(buf), 0), 1);
	}
	finish();
}

static void a_watch_and_a_transfer_live_side_by_side(void)
{
	struct transfer r = { 0 };
	char buf[8];

	begin();
	T_EQ(wops->arm(e[1].c, EXI_RX, EXI_WAKE_BELL), 0);
	recv_post(&r, &e[1], buf, 3, 0);
	T_EQ(ops->send(e[0].c, "hello", 5, 0), 5);
	T_EQ(transfer_wait(&r), 3);
	while (!atomic_load(&e[1].ready[EXI_RX]))
		T(dom_wait(20000));
	finish();
}

static void closing_drops_watches(void)
{
	begin();
	fill_up(e[1].fd);
	T_EQ(wops->arm(e[1].c, EXI_RX, EXI_WAKE_BELL), 0);
	T_EQ(wops->arm(e[1].c, EXI_TX, EXI_WAKE_BELL), 0);
	end_stop(&e[1]);
	T_EQ(ops->send(e[0].c, "x", 1, 0), 1);
	T_EQ(dom_progress(), 0);
	T_EQ(atomic_load(&e[1].ready[EXI_RX]), 0);
	T_EQ(atomic_load(&e[1].ready[EXI_TX]), 0);
	finish();
}

static void what_tcp_cannot_do_it_denies(void)
{
	struct exi_word w;

	begin();
	T_EQ(wops->arm(e[0].c, EXI_RX, EXI_WAKE_WORD), -EOPNOTSUPP);
	T_EQ(wops->word(e[0].c, EXI_RX, &w), -EOPNOTSUPP);
	T_EQ(wops->peer_cpu(e[0].c), -1);
	T(!exi_provider_tcp.conn_ops->switch_ops);
	T(!exi_provider_tcp.meet_ops);
	T_EQ(exi_provider_tcp.caps, 0);
	finish();
}

static const struct t_row rows[] = {
	T_ROW(send_and_recv_move_bytes_at_once),
	T_ROW(recv_on_an_idle_stream_says_eagain_and_keeps_errno),
	T_ROW(send_without_room_says_eagain),
	T_ROW(send_to_a_gone_peer_raises_no_signal),
	T_ROW(end_says_the_end_of_the_stream),
	T_ROW(a_posted_receive_takes_what_is_there),
	T_ROW(nothing_is_done_outside_progress),
	T_ROW(a_second_post_in_the_same_direction_is_refused),
	T_ROW(progress_keeps_errno),
	T_ROW(a_peeking_receive_leaves_the_bytes),
	T_ROW(an_empty_send_is_done_with_0),
	T_ROW(small_transfers_keep_the_order),
	T_ROW(large_transfers_keep_the_order),
	T_ROW(one_send_takes_64_mib),
	T_ROW(a_waitall_receive_is_done_when_full),
	T_ROW(a_waitall_receive_takes_64_mib),
	T_ROW(the_end_is_0_and_again),
	T_ROW(a_waitall_receive_ends_early_with_the_stream),
	T_ROW(a_reset_is_reported_once),
	T_ROW(an_error_after_some_bytes_comes_at_the_next_post),
	T_ROW(an_error_after_some_bytes_comes_at_the_next_recv),
	T_ROW(a_kept_error_is_told_once_in_either_direction),
	T_ROW(a_send_that_was_cut_off_says_how_much_it_sent),
	T_ROW(a_posted_send_to_a_gone_peer_raises_no_signal),
	T_ROW(cancelling_an_idle_receive_loses_nothing),
	T_ROW(a_cancelled_receive_keeps_what_it_got),
	T_ROW(a_cancelled_send_says_how_much_it_sent),
	T_ROW(cancelling_what_is_done_does_nothing),
	T_ROW(done_may_cancel),
	T_ROW(closing_cancels_and_stop_sees_it_done),
	T_ROW(a_watch_reports_data_once),
	T_ROW(a_watch_wakes_a_sleeper),
	T_ROW(a_watch_reports_room),
	T_ROW(disarm_removes_a_watch),
	T_ROW(a_watch_made_again_reports_what_is_new),
	T_ROW(a_watch_and_a_transfer_live_side_by_side),
	T_ROW(closing_drops_watches),
	T_ROW(what_tcp_cannot_do_it_denies),
};

int main(int argc, char **argv)
{
	return ends_main(argc, argv, "tcp", rows, T_COUNT(rows));
}
