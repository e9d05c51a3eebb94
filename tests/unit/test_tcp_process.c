/* SPDX-License-Identifier: BSD-2-Clause */
/* The tcp provider among threads, processes and descriptors: what happens
 * around transfers in flight, over each engine. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/fabric/provider.h"
#include "core/fabric/registry.h"
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/proc.h"
#include "tests/support/wait.h"
#include "tests/unit/test_tcp_ends.h"

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

/* Waiting. */

static int event_fd(void)
{
	return T_OK(tcpp_domain_ops.event_fd(&dom->base));
}

static void the_event_descriptor_says_when_there_is_work(void)
{
	struct transfer r = { 0 };
	char buf[8];
	int i;

	begin();
	for (i = 0; i < 20; i++) {
		recv_post(&r, &e[1], buf, sizeof(buf), 0);
		T_EQ(dom_progress(), 0);
		T(!t_readable(event_fd(), 5));
		T_EQ(tcpp_domain_ops.arm(&dom->base), 0);
		T_EQ(ops->send(e[0].c, "x", 1, 0), 1);
		T(t_readable(event_fd(), 5000));
		T_EQ(transfer_wait(&r), 1);
		dom_progress();
		T(!t_readable(event_fd(), 5));
	}
	finish();
}

static void arm_refuses_while_work_waits(void)
{
	struct transfer r = { 0 };
	char buf[8];

	begin();
	recv_post(&r, &e[1], buf, sizeof(buf), 0);
	kops->cancel(e[1].c, &r.x);
	T_UNTIL(t_readable(event_fd(), 0));
	T_EQ(tcpp_domain_ops.arm(&dom->base), -EBUSY);
	T_EQ(transfer_wait(&r), -ECANCELED);
	while (dom_wait(0))
		;
	T_EQ(tcpp_domain_ops.arm(&dom->base), 0);
	finish();
}

static int64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void waiting_costs_no_cpu(void)
{
	static char large[MIB];
	struct transfer r = { 0 }, s = { 0 };
	int64_t end, before;
	char buf[8];
	int turns = 0;

	begin();
	fill_up(e[0].fd);
	recv_post(&r, &e[0], buf, sizeof(buf), 0);
	send_post(&s, &e[0], large, sizeof(large), 0);
	T_EQ(wops->arm(e[0].c, EXI_RX, EXI_WAKE_BELL), 0);
	while (dom_wait(0))
		;
	before = cpu_ns();
	end = t_now_ns() + 300 * INT64_C(1000000);
	while (t_now_ns() < end) {
		dom_wait((int)((end - t_now_ns()) / 1000000) + 1);
		turns++;
	}
	T(turns < 10);
	T(cpu_ns() - before < 30 * INT64_C(1000000) * t_slow());
	finish();
}

/* Threads. */

struct poster {
	struct transfer *t;
	void *buf;
	size_t len;
};

static void *post_and_leave(void *arg)
{
	struct poster *p = arg;

	recv_post(p->t, &e[1], p->buf, p->len, MSG_WAITALL);
	T_EQ(wops->arm(e[0].c, EXI_RX, EXI_WAKE_BELL), 0);
	return NULL;
}

static void a_receive_outlives_the_thread_that_posted_it(void)
{
	struct transfer r = { 0 };
	uint8_t buf[64], sent[64];
	struct poster p = { .t = &r, .buf = buf, .len = sizeof(buf) };
	int i;

	begin();
	t_fill(sent, sizeof(sent), 1, 0);
	for (i = 0; i < 20; i++) {
		t_thread_join(t_thread(post_and_leave, &p));
		if (i % 2)
			dom_progress();
		T_EQ(ops->send(e[0].c, sent, 40, 0), 40);
		T_EQ(ops->send(e[0].c, sent + 40, 24, 0), 24);
		T_EQ(transfer_wait(&r), sizeof(buf));
		t_check_bytes(buf, sizeof(buf), 1, 0);
	}
	T_EQ(atomic_load(&e[0].ready[EXI_RX]), 0);
	T_EQ(ops->send(e[1].c, "x", 1, 0), 1);
	while (!atomic_load(&e[0].ready[EXI_RX]))
		T(dom_wait(20000));
	finish();
}

static void *post_large_and_leave(void *arg)
{
	struct poster *p = arg;

	send_post(p->t, &e[0], p->buf, p->len, 0);
	return NULL;
}

static void a_send_outlives_the_thread_that_posted_it(void)
{
	struct transfer s = { 0 }, r = { 0 };
	uint8_t *all = malloc(16 * MIB), *got = malloc(16 * MIB);
	struct poster p = { .t = &s, .buf = all, .len = 16 * MIB };

	t_fill(all, 16 * MIB, 1, 0);
	begin();
	t_thread_join(t_thread(post_large_and_leave, &p));
	recv_post(&r, &e[1], got, 16 * MIB, MSG_WAITALL);
	T_EQ(transfer_wait(&s), 16 * MIB);
	T_EQ(transfer_wait(&r), 16 * MIB);
	t_check_bytes(got, 16 * MIB, 1, 0);
	finish();
	free(all);
	free(got);
}

#define PAIRS  16
#define ROUNDS 400

/* A pair whose ends send numbers back and forth, posted from done(). An end
 * goes on when it has caught a number and its own is sent. */
struct ball {
	struct end e[2];
	struct transfer r[2];
	struct transfer s[2];
	uint64_t in[2];
	uint64_t out[2];
	_Atomic int pending[2];
	_Atomic int rounds;
};

static _Atomic bool playing, meddling;

/* The row may have closed the end by now. */
static void post_next(struct ball *b, int i)
{
	int ret = kops->post_recv(b->e[i].c, &b->r[i].x);

	if (ret == 0)
		ret = kops->post_send(b->e[i].c, &b->s[i].x);
	T(ret == 0 || ret == -EBADF);
}

static void half_done(struct transfer *t)
{
	struct ball *b = t->arg;
	int i = t->end == &b->e[1];

	/* Else the row has closed an end. */
	if (t->result != 8 || atomic_fetch_sub(&b->pending[i], 1) != 1)
		return;
	if (i == 0)
		T_EQ(b->in[i], 2 * atomic_fetch_add(&b->rounds, 1) + 1);
	b->out[i] = b->in[i] + 1;
	atomic_store(&b->pending[i], 2);
	post_next(b, i);
}

static void ball_start(struct ball *b)
{
	int i;

	ends_pair(b->e);
	for (i = 0; i < 2; i++) {
		b->r[i].then = b->s[i].then = half_done;
		b->r[i].arg = b->s[i].arg = b;
		atomic_store(&b->pending[i], 2 - i);
	}
	transfer_init(&b->s[1], &b->e[1], &b->out[1], 8, 0);
	for (i = 0; i < 2; i++)
		recv_post(&b->r[i], &b->e[i], &b->in[i], 8, MSG_WAITALL);
	send_post(&b->s[0], &b->e[0], &b->out[0], 8, 0);
}

static void *play(void *arg)
{
	while (atomic_load(&playing))
		dom_wait(10);
	return NULL;
}

static void *meddle(void *arg)
{
	struct ball *b = arg;
	struct transfer t = { 0 };
	struct end extra[2];
	char c;

	ends_pair(extra);
	while (atomic_load(&meddling)) {
		recv_post(&t, &extra[0], &c, 1, 0);
		T_EQ(wops->arm(extra[1].c, EXI_RX, EXI_WAKE_BELL), 0);
		kops->cancel(b->e[0].c, &t.x);
		wops->disarm(extra[1].c, EXI_RX, EXI_WAKE_WORD);
		kops->cancel(extra[0].c, &t.x);
		T_EQ(transfer_wait(&t), -ECANCELED);
	}
	end_close(&extra[0]);
	end_close(&extra[1]);
	return NULL;
}

static void many_threads_make_progress_at_once(void)
{
	static struct ball b[PAIRS];
	pthread_t t[4];
	int i;

	dom_open();
	atomic_store(&playing, true);
	atomic_store(&meddling, true);
	for (i = 0; i < PAIRS; i++)
		ball_start(&b[i]);
	for (i = 0; i < 4; i++)
		t[i] = t_thread(i < 3 ? play : meddle, &b[0]);
	for (i = 0; i < PAIRS; i++)
		T_UNTIL(atomic_load(&b[i].rounds) >= ROUNDS);
	atomic_store(&meddling, false);
	t_thread_join(t[3]);
	for (i = 0; i < PAIRS; i++) {
		end_close(&b[i].e[i % 2]);
		end_close(&b[i].e[!(i % 2)]);
	}
	atomic_store(&playing, false);
	for (i = 0; i < 3; i++)
		t_thread_join(t[i]);
	dom_close();
}

/* Processes. */

static void in_the_child(struct transfer *r, int parents_event_fd)
{
	struct transfer t = { 0 };
	struct end own[2];
	char buf[8];

	exi_provider_tcp.domain_ops->forked(&dom->base);
	T_EQ(fcntl(parents_event_fd, F_GETFD), -1);
	T_EQ(dom_progress(), 0);
	kops->cancel(e[1].c, &r->x);
	ends_pair(own);
	recv_post(&t, &own[1], buf, sizeof(buf), 0);
	T_EQ(ops->send(own[0].c, "child", 5, 0), 5);
	T_EQ(transfer_wait(&t), 5);
	/* The parent's end is the child's too. */
	send_post(&t, &e[0], "hello", 5, 0);
	T_EQ(transfer_wait(&t), 5);
	end_close(&own[0]);
	end_close(&own[1]);
	T_EQ(atomic_load(&r->dones), 0);
	finish();
	T_EQ(atomic_load(&r->dones), 0);
}

static void a_child_forgets_the_transfers_of_its_parent(void)
{
	struct transfer r = { 0 };
	char buf[8] = "";
	pid_t pid;

	begin();
	recv_post(&r, &e[1], buf, sizeof(buf), 0);
	T_EQ(wops->arm(e[0].c, EXI_RX, EXI_WAKE_BELL), 0);
	dom_progress();
	pid = t_fork();
	if (pid == 0) {
		in_the_child(&r, event_fd());
		_exit(0);
	}
	T_EQ(transfer_wait(&r), 5);
	T(!memcmp(buf, "hello", 5));
	t_join(pid);
	recv_post(&r, &e[1], buf, sizeof(buf), 0);
	T_EQ(ops->send(e[0].c, "still", 5, 0), 5);
	T_EQ(transfer_wait(&r), 5);
	finish();
}

static void a_child_may_be_made_while_threads_work(void)
{
	static struct ball b[PAIRS];
	pthread_t t[2];
	pid_t pid;
	int i, k;

	dom_open();
	atomic_store(&playing, true);
	for (i = 0; i < PAIRS; i++)
		ball_start(&b[i]);
	for (i = 0; i < 2; i++)
		t[i] = t_thread(play, NULL);
	for (k = 0; k < 10; k++) {
		pid = t_fork();
		if (pid == 0) {
			exi_provider_tcp.domain_ops->forked(&dom->base);
			for (i = 0; i < PAIRS; i++)
				end_close(&b[i].e[0]);
			dom_close();
			_exit(0);
		}
		t_join(pid);
	}
	for (i = 0; i < PAIRS; i++)
		T_UNTIL(atomic_load(&b[i].rounds) >= ROUNDS / 4);
	for (i = 0; i < PAIRS; i++) {
		end_close(&b[i].e[0]);
		end_close(&b[i].e[1]);
	}
	atomic_store(&playing, false);
	for (i = 0; i < 2; i++)
		t_thread_join(t[i]);
	dom_close();
}

static void receive_a_stream(int ctl, void *arg)
{
	struct transfer r = { 0 };
	uint8_t *buf = malloc(MIB);
	uint64_t pos = 0;

	dom_open();
	close(e[0].fd);
	end_make(&e[1], e[1].fd);
	do {
		recv_post(&r, &e[1], buf, MIB, 0);
		t_tell(ctl, 1);
		T(transfer_wait(&r) >= 0);
		t_check_bytes(buf, r.result, 4, pos);
		pos += r.result;
	} while (r.result > 0);
	t_tell(ctl, 2);
	t_tell(ctl, pos);
	end_close(&e[1]);
	dom_close();
	free(buf);
}

static uint64_t until_2(int ctl)
{
	while (t_ask(ctl) != 2)
		;
	return t_ask(ctl);
}

/* Sends while the receiver is stopped, lets it go on, and so again. */
static void send_with_stops(int fd, pid_t peer)
{
	struct t_rng rng = { .state = 3 };
	uint8_t *buf = malloc(MIB);
	uint64_t pos = 0;
	int status, i;

	for (i = 0; i < 20; i++) {
		size_t n = t_chunk(&rng, MIB), sent = 0;

		t_fill(buf, n, 4, pos);
		T_OK(kill(peer, SIGSTOP));
		T_EQ(waitpid(peer, &status, WUNTRACED), peer);
		T(WIFSTOPPED(status));
		sent = T_OK(send(fd, buf, n, MSG_DONTWAIT | MSG_NOSIGNAL));
		T_OK(kill(peer, SIGCONT));
		while (sent < n)
			sent += T_OK(send(fd, buf + sent, n - sent, 0));
		pos += n;
	}
	free(buf);
	T_OK(shutdown(fd, SHUT_WR));
}

static void a_stopped_process_loses_nothing(void)
{
	struct t_peer p;
	int fd[2];

	tcp_pair(fd);
	e[0].fd = fd[0];
	e[1].fd = fd[1];
	t_peer_start(&p, receive_a_stream, NULL);
	close(fd[1]);
	t_expect(p.ctl, 1);
	send_with_stops(fd[0], p.pid);
	T(until_2(p.ctl) > 0);
	t_peer_join(&p);
	close(fd[0]);
}

/* Many. */

#define MANY 1000

struct lot {
	struct end e[2];
	struct transfer r[2];
	struct transfer s[2];
	uint32_t in[2];
	uint32_t out[2];
};

static void raise_fd_limit(void)
{
	struct rlimit rl;

	T_OK(getrlimit(RLIMIT_NOFILE, &rl));
	rl.rlim_cur = rl.rlim_max;
	T_OK(setrlimit(RLIMIT_NOFILE, &rl));
	T(rl.rlim_cur > 2 * MANY + 100);
}

static void lot_check(struct lot *l, uint32_t i)
{
	int k;

	for (k = 0; k < 2; k++) {
		T_EQ(transfer_wait(&l->s[k]), 4);
		T_EQ(transfer_wait(&l->r[k]), 4);
		T_EQ(l->in[k], 2 * i + !k);
	}
}

/* All complete before the first progress(): more than an io_uring's queue of
 * completions can hold. */
static void a_thousand_connections_complete_at_once(void)
{
	struct lot *l = calloc(MANY, sizeof(*l));
	uint32_t i, k;

	raise_fd_limit();
	dom_open();
	for (i = 0; i < MANY; i++)
		ends_pair(l[i].e);
	for (i = 0; i < 2 * MANY; i++) {
		l[i / 2].out[i % 2] = i;
		send_post(&l[i / 2].s[i % 2], &l[i / 2].e[i % 2],
			  &l[i / 2].out[i % 2], 4, 0);
	}
	for (i = 0; i < 2 * MANY; i++)
		recv_post(&l[i / 2].r[i % 2], &l[i / 2].e[i % 2],
			  &l[i / 2].in[i % 2], 4, MSG_WAITALL);
	for (i = 0; i < MANY; i++)
		lot_check(&l[i], i);
	for (i = 0; i < MANY; i++)
		for (k = 0; k < 2; k++)
			end_close(&l[i].e[k]);
	dom_close();
	free(l);
}

static void post_all(struct transfer *t)
{
	struct lot *l = t->arg;
	int i;

	for (i = 0; i < MANY; i++)
		recv_post(&l[i].r[1], &l[i].e[1], &l[i].in[1], 4, MSG_WAITALL);
}

/* More than an io_uring's queue of requests can hold. */
static void done_may_post_a_thousand_transfers(void)
{
	struct lot *l = calloc(MANY, sizeof(*l));
	struct transfer s = { .then = post_all, .arg = l };
	uint32_t i, k;

	raise_fd_limit();
	begin();
	for (i = 0; i < MANY; i++)
		ends_pair(l[i].e);
	send_post(&s, &e[0], "x", 1, 0);
	T_EQ(transfer_wait(&s), 1);
	for (i = 0; i < MANY; i++)
		T_EQ(ops->send(l[i].e[0].c, &i, 4, 0), 4);
	for (i = 0; i < MANY; i++) {
		T_EQ(transfer_wait(&l[i].r[1]), 4);
		T_EQ(l[i].in[1], i);
	}
	for (i = 0; i < MANY; i++)
		for (k = 0; k < 2; k++)
			end_close(&l[i].e[k]);
	finish();
	free(l);
}

static void a_thousand_idle_receives_are_cancelled_by_closing(void)
{
	struct lot *l = calloc(MANY, sizeof(*l));
	uint32_t i, k;

	raise_fd_limit();
	dom_open();
	for (i = 0; i < MANY; i++) {
		ends_pair(l[i].e);
		for (k = 0; k < 2; k++)
			recv_post(&l[i].r[k], &l[i].e[k], &l[i].in[k], 4, 0);
	}
	for (i = 0; i < MANY; i++)
		for (k = 0; k < 2; k++)
			ops->close(l[i].e[k].c);
	for (i = 0; i < MANY; i++) {
		for (k = 0; k < 2; k++) {
			end_close(&l[i].e[k]);
			T_EQ(atomic_load(&l[i].r[k].dones), 1);
			T_EQ(l[i].r[k].result, -ECANCELED);
		}
	}
	dom_close();
	free(l);
}

/* Descriptors closed by somebody else. */

static void posting_on_a_closed_descriptor_says_ebadf(void)
{
	struct transfer t = { 0 };
	char buf[8];

	begin();
	close(e[1].fd);
	recv_post(&t, &e[1], buf, sizeof(buf), 0);
	T_EQ(transfer_wait(&t), -EBADF);
	send_post(&t, &e[1], "x", 1, 0);
	T_EQ(transfer_wait(&t), -EBADF);
	T_EQ(ops->send(e[1].c, "x", 1, 0), -EBADF);
	T_EQ(ops->recv(e[1].c, buf, 1, 0), -EBADF);
	T_EQ(ops->end(e[1].c), -EBADF);
	e[1].fd = -1;
	finish();
}

static void a_transfer_whose_descriptor_was_closed_can_be_cancelled(void)
{
	struct transfer t = { 0 };
	char buf[8];

	begin();
	recv_post(&t, &e[1], buf, sizeof(buf), 0);
	dom_progress();
	close(e[1].fd);
	e[1].fd = -1;
	kops->cancel(e[1].c, &t.x);
	T_EQ(transfer_wait(&t), -ECANCELED);
	finish();
}

/* A duplicate keeps the file in epoll's set, where nobody can remove it. */
static void events_of_what_is_gone_are_dropped(void)
{
	struct transfer t = { 0 };
	struct end more[2];
	char buf[8];
	int copy;

	begin();
	recv_post(&t, &e[1], buf, sizeof(buf), 0);
	dom_progress();
	copy = T_OK(dup(e[1].fd));
	close(e[1].fd);
	e[1].fd = -1;
	end_stop(&e[1]);
	T_EQ(atomic_load(&t.dones), 1);
	ends_pair(more);
	recv_post(&t, &more[1], buf, sizeof(buf), 0);
	T_EQ(ops->send(e[0].c, "x", 1, 0), 1);
	T(t_readable(copy, 5000));
	while (dom_wait(0))
		;
	T_EQ(atomic_load(&t.dones), 0);
	close(copy);
	end_close(&more[0]);
	T_EQ(transfer_wait(&t), 0);
	end_close(&more[1]);
	finish();
}

/* The file comes back to its number with what the engine knew of it. */
static void a_file_that_comes_back_works(void)
{
	struct transfer t = { 0 };
	char buf[8];
	int copy, fd;

	begin();
	recv_post(&t, &e[1], buf, sizeof(buf), 0);
	dom_progress();
	fd = e[1].fd;
	copy = T_OK(dup(fd));
	close(fd);
	end_stop(&e[1]);
	T_OK(dup3(copy, fd, O_CLOEXEC));
	close(copy);
	end_make(&e[1], fd);
	recv_post(&t, &e[1], buf, sizeof(buf), 0);
	T_EQ(ops->send(e[0].c, "x", 1, 0), 1);
	T_EQ(transfer_wait(&t), 1);
	finish();
}

/* Other files under the numbers of both ends. */
static void replace_files(void)
{
	int fd[2], i;

	tcp_pair(fd);
	for (i = 0; i < 2; i++) {
		T_OK(dup3(fd[i], e[i].fd, O_CLOEXEC));
		close(fd[i]);
	}
}

static void a_number_used_again_works(void)
{
	struct transfer t = { 0 };
	char buf[8];
	int i;

	begin();
	for (i = 0; i < 10; i++) {
		recv_post(&t, &e[1], buf, sizeof(buf), 0);
		T_EQ(write(e[0].fd, "new", 3), 3);
		T_EQ(transfer_wait(&t), 3);
		T_EQ(wops->arm(e[1].c, EXI_RX, EXI_WAKE_BELL), 0);
		T_EQ(write(e[0].fd, "x", 1), 1);
		while (atomic_load(&e[1].ready[EXI_RX]) <= i)
			T(dom_wait(20000));
		T_EQ(ops->recv(e[1].c, buf, sizeof(buf), 0), 1);
		if (i % 2)
			recv_post(&t, &e[1], buf, sizeof(buf), 0);
		dom_progress();
		replace_files();
		kops->cancel(e[1].c, &t.x);
		/* A request that held the file may have seen its end. */
		transfer_wait(&t);
	}
	finish();
}

static void without_descriptors_there_is_no_domain(void)
{
	struct rlimit rl = { .rlim_cur = 3, .rlim_max = 3 };
	struct exi_domain *d = NULL;
	pid_t pid = t_fork();
	int ret;

	if (pid == 0) {
		T_OK(setrlimit(RLIMIT_NOFILE, &rl));
		ret = exi_provider_tcp.open(&d);
		T_EQ(ret, -EMFILE);
		T(!d);
		_exit(0);
	}
	t_join(pid);
}

static void the_engine_survives_the_loss_of_its_descriptor(void)
{
	struct transfer r = { 0 }, t = { 0 };
	char buf[8];
	int ret;

	begin();
	recv_post(&r, &e[0], buf, sizeof(buf), 0);
	dom_progress();
	close(event_fd());
	t.x = (struct exi_xfer){ .buf = buf, .len = 1, .done = r.x.done };
	ret = kops->post_recv(e[1].c, &t.x);
	T(ret == 0 || ret == -EBADF);
	end_close(&e[1]);
	end_close(&e[0]);
	T_EQ(atomic_load(&r.dones), 1);
	T_EQ(atomic_load(&t.dones), ret == 0);
	dom_close();
}

static void epoll_serves_where_io_uring_is_refused(void)
{
	struct transfer t = { 0 };
	char buf[8];

	if (!t_can(t_has_filters(), "seccomp filter"))
		exit(T_SKIP);
	t_refuse(SYS_io_uring_setup);
	begin();
	T(dom->engine == &tcpp_epoll);
	recv_post(&t, &e[1], buf, sizeof(buf), 0);
	T_EQ(ops->send(e[0].c, "hello", 5, 0), 5);
	T_EQ(transfer_wait(&t), 5);
	finish();
}

static void a_child_that_may_not_use_io_uring_uses_epoll(void)
{
	struct transfer t = { 0 };
	char buf[8];
	pid_t pid;

	if (!t_can(t_has_filters(), "seccomp filter"))
		exit(T_SKIP);
	begin();
	pid = t_fork();
	if (pid == 0) {
		t_refuse(SYS_io_uring_setup);
		tcpp_domain_ops.forked(&dom->base);
		recv_post(&t, &e[1], buf, sizeof(buf), 0);
		T(dom->engine == &tcpp_epoll);
		T_EQ(ops->send(e[0].c, "hello", 5, 0), 5);
		T_EQ(transfer_wait(&t), 5);
		finish();
		_exit(0);
	}
	t_join(pid);
	finish();
}

static void a_filter_that_comes_later_hangs_nothing(void)
{
	struct transfer r = { 0 }, t = { 0 };
	char buf[8];
	int ret;

	if (!t_can(t_has_filters(), "seccomp filter"))
		exit(T_SKIP);
	begin();
	recv_post(&r, &e[0], buf, sizeof(buf), 0);
	T_EQ(wops->arm(e[1].c, EXI_RX, EXI_WAKE_BELL), 0);
	dom_progress();
	t_refuse(SYS_io_uring_enter);
	t.x = (struct exi_xfer){ .buf = buf, .len = 1, .done = r.x.done };
	ret = kops->post_recv(e[1].c, &t.x);
	T_EQ(ret, dom_is_uring() ? -EPERM : 0);
	end_close(&e[0]);
	T_EQ(atomic_load(&r.dones), 1);
	end_close(&e[1]);
	T_EQ(atomic_load(&t.dones), ret == 0);
	dom_close();
}

static void without_a_wish_it_is_epoll(void)
{
	struct transfer t = { 0 };
	char buf[8];

	unsetenv("EXS_TCP_ENGINE");
	begin();
	T_EQ(exi_config()->tcp_engine, EXI_TCP_ENGINE_AUTO);
	T(dom->engine == &tcpp_epoll);
	recv_post(&t, &e[1], buf, sizeof(buf), 0);
	T_EQ(ops->send(e[0].c, "hello", 5, 0), 5);
	T_EQ(transfer_wait(&t), 5);
	finish();
}

static void closing_leaves_no_descriptor(void)
{
	int before = t_fd_count();

	begin();
	T(t_fd_count() > before);
	finish();
	T_EQ(t_fd_count(), before);
	exi_provider_tcp.close(NULL);
}

static const struct t_row rows[] = {
	T_ROW(the_event_descriptor_says_when_there_is_work),
	T_ROW(arm_refuses_while_work_waits),
	T_ROW(waiting_costs_no_cpu),
	T_ROW(a_receive_outlives_the_thread_that_posted_it),
	T_ROW(a_send_outlives_the_thread_that_posted_it),
	T_ROW(many_threads_make_progress_at_once),
	T_ROW(a_child_forgets_the_transfers_of_its_parent),
	T_ROW(a_child_may_be_made_while_threads_work),
	T_ROW(a_stopped_process_loses_nothing),
	T_ROW(a_thousand_connections_complete_at_once),
	T_ROW(done_may_post_a_thousand_transfers),
	T_ROW(a_thousand_idle_receives_are_cancelled_by_closing),
	T_ROW(posting_on_a_closed_descriptor_says_ebadf),
	T_ROW(a_transfer_whose_descriptor_was_closed_can_be_cancelled),
	T_ROW(events_of_what_is_gone_are_dropped),
	T_ROW(a_file_that_comes_back_works),
	T_ROW(a_number_used_again_works),
	T_ROW(without_descriptors_there_is_no_domain),
	T_ROW(the_engine_survives_the_loss_of_its_descriptor),
	T_ROW(epoll_serves_where_io_uring_is_refused),
	T_ROW(a_child_that_may_not_use_io_uring_uses_epoll),
	T_ROW(a_filter_that_comes_later_hangs_nothing),
	T_ROW(without_a_wish_it_is_epoll),
	T_ROW(closing_leaves_no_descriptor),
};

int main(int argc, char **argv)
{
	return ends_main(argc, argv, "tcp_process", rows, T_COUNT(rows));
}
