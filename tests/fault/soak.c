/* SPDX-License-Identifier: BSD-2-Clause */
/* Everything at once: eight threads submit operations of all kinds on 64
 * sockets to one queue, cancel, time out, downgrade, reset and close them at
 * random, and dequeue. Each accepted operation yields exactly one event, with
 * its own handle, type and socket; a buffer is not written to after its event;
 * and the later rounds leave no more memory and no more descriptors behind than
 * the earlier ones.
 *
 * Usage: soak FABRIC [SECONDS [SEED]] */
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

#define THREADS 8
#define PAIRS	32
#define OPS	768
#define ROOM	32768
#define ROUNDS	6
#define GIVEN	0xa5 /* what a buffer has after its event */
#define MOST_KB 4096

enum {
	FREE,
	TAKEN,
	ACCEPTED
};

/* An operation; its handle points to it. */
struct op {
	_Atomic int state;
	int type;
	int socket;
	int slot;     /* of a close: the slot's end is empty after it */
	size_t given; /* bytes of the buffer that must still be GIVEN */
	char *buf;
	exs_iovec_t v[2];
	exs_msghdr_t msg;
	exs_xferfile_t xf[2];
	exs_pollfd_t fds[3];
	exs_acceptaddr_t addr;
	struct sockaddr_storage from;
};

/* A connection; fd[i] is -1 when that end was closed. The lock keeps a number
 * from being another socket's between the choice and the call. */
struct slot {
	pthread_rwlock_t lock;
	int fd[2];
};

static struct slot slots[PAIRS];
static struct op ops[OPS];
static exs_qhandle_t q;
static exs_mhandle_t memory;
static char *rooms;
static int listener, file;
static struct t_addr at;
static _Atomic bool stop;
static _Atomic uint64_t accepted, done, refused, cancelled, told, moved;
static _Atomic uint64_t switched; /* as sockets said when asked, and at last */
static _Atomic int in_use;
/* The handles of the timers. */
static char of_timers[PAIRS][2][2];

static bool of_timer(const void *handle)
{
	return (uintptr_t)handle - (uintptr_t)of_timers < sizeof(of_timers);
}

/* --- operations --------------------------------------------------------- */

static struct op *take_op(struct t_rng *r)
{
	int first = (int)t_below(r, OPS);

	for (int i = 0; i < OPS; i++) {
		struct op *o = &ops[(first + i) % OPS];
		int was = FREE;

		if (!atomic_compare_exchange_strong(&o->state, &was, TAKEN))
			continue;
		for (size_t j = 0; j < o->given; j++)
			T_MSG((unsigned char)o->buf[j] == GIVEN,
			      "byte %zu of a buffer of %d was written after "
			      "its event",
			      j, o->type);
		o->given = 0;
		return o;
	}
	return NULL;
}

static void give_op(struct op *o)
{
	atomic_store(&o->state, FREE);
}

static exs_mhandle_t some_handle(struct t_rng *r)
{
	return t_below(r, 2) ? memory : EXS_MHANDLE_UNREGISTERED;
}

static ssize_t submit_message(struct t_rng *r, struct op *o, bool tx)
{
	size_t a = t_chunk(r, ROOM / 2), b = t_chunk(r, ROOM / 2);

	o->v[0] = (exs_iovec_t){ o->buf, a, some_handle(r) };
	o->v[1] = (exs_iovec_t){ o->buf + a, b, some_handle(r) };
	o->msg = (exs_msghdr_t){ .exs_msg_iov = o->v, .exs_msg_iovlen = 2 };
	return tx ? exs_sendmsg(o->socket, &o->msg, MSG_NOSIGNAL, q, o)
		  : exs_recvmsg(o->socket, &o->msg,
				t_below(r, 4) ? 0 : MSG_WAITALL, q, o);
}

static ssize_t submit_files(struct t_rng *r, struct op *o)
{
	o->xf[0] = (exs_xferfile_t){
		EXS_IOVEC,
		{ .exs_xf_iovec = { o->buf, t_chunk(r, 1000), some_handle(r) } }
	};
	o->xf[1] = (exs_xferfile_t){ EXS_FDVEC,
				     { .exs_xf_fdvec = {
					       file, (off_t)t_below(r, 1000),
					       t_chunk(r, ROOM) } } };
	return exs_sendfile(o->socket, o->xf, 2,
			    MSG_NOSIGNAL | (t_below(r, 200) ? 0 : EXS_SHUT_WR),
			    q, o);
}

static ssize_t submit_poll(struct t_rng *r, struct op *o)
{
	for (int i = 0; i < 3; i++) {
		const struct slot *s = &slots[t_below(r, PAIRS)];

		o->fds[i] = (exs_pollfd_t){
			.exs_fd = i ? __atomic_load_n(&s->fd[t_below(r, 2)],
						      __ATOMIC_RELAXED)
				    : o->socket,
			.exs_events =
				(short)(t_below(r, 2)
						? EXS_POLLIN
						: EXS_POLLIN | EXS_POLLOUT)
		};
	}
	o->socket = -1;
	return exs_poll(o->fds, 3, 0, q, o);
}

/* One of some kind on o->socket; as the call says. */
static ssize_t submit(struct t_rng *r, struct op *o)
{
	switch (o->type) {
	case EXS_EVT_SEND:
		return exs_send(o->socket, o->buf, t_chunk(r, ROOM),
				MSG_NOSIGNAL, q, o, some_handle(r));
	case EXS_EVT_RECV:
		return exs_recv(o->socket, o->buf, t_chunk(r, ROOM),
				t_below(r, 4) ? 0 : MSG_WAITALL, q, o,
				some_handle(r));
	case EXS_EVT_SENDMSG:
		return submit_message(r, o, true);
	case EXS_EVT_RECVMSG:
		return submit_message(r, o, false);
	case EXS_EVT_SENDFILE:
		return submit_files(r, o);
	case EXS_EVT_POLL:
		return submit_poll(r, o);
	case EXS_EVT_ACCEPT:
		o->socket = listener;
		o->addr = (exs_acceptaddr_t){ (struct sockaddr *)&o->from,
					      sizeof(o->from) };
		return exs_accept(listener, &o->addr, SOCK_CLOEXEC, q, o);
	case EXS_EVT_SHUTDOWN:
		return exs_shutdown(o->socket, SHUT_WR, q, o);
	default:
		return exs_close(o->socket, q, o);
	}
}

/* Whether it was accepted. What it is about may be gone with its event before
 * the call returns. */
static bool try(struct t_rng *r, struct op *o, int type, int s)
{
	o->type = type;
	o->socket = s;
	atomic_fetch_add(&in_use, 1);
	atomic_store(&o->state, ACCEPTED);
	if (submit(r, o) == 0) {
		atomic_fetch_add(&accepted, 1);
		return true;
	}
	/* The queue is full, or the connection ended; a socket of which a close
	 * is under way is no descriptor any more. */
	T_MSG(errno == EAGAIN || errno == EPIPE || errno == ENOTCONN ||
		      errno == ECONNRESET || errno == EBADF,
	      "type %d: %s", type, t_errname(errno));
	atomic_fetch_add(&refused, 1);
	atomic_fetch_sub(&in_use, 1);
	T_EQ(atomic_exchange(&o->state, FREE), ACCEPTED);
	return false;
}

/* --- events ------------------------------------------------------------- */

static bool may_fail_so(int err)
{
	static const int known[] = { ECANCELED, EPIPE,	  ECONNRESET, ENOTCONN,
				     EBADF,	ENOTSOCK, 0 };

	return err == 0 || t_one_of(err, known);
}

static void check_transfer(const struct op *o, const exs_event_t *e)
{
	switch (e->exs_evt_type) {
	case EXS_EVT_SEND:
	case EXS_EVT_RECV:
		T(e->exs_evt_un.exs_evt_xfer.exs_evt_buffer == o->buf);
		T(e->exs_evt_un.exs_evt_xfer.exs_evt_length <= ROOM);
		moved += e->exs_evt_un.exs_evt_xfer.exs_evt_length;
		break;
	case EXS_EVT_SENDMSG:
	case EXS_EVT_RECVMSG:
		T(e->exs_evt_un.exs_evt_xfermsg.exs_evt_msg == &o->msg);
		T(e->exs_evt_un.exs_evt_xfermsg.exs_evt_length <= ROOM);
		moved += e->exs_evt_un.exs_evt_xfermsg.exs_evt_length;
		break;
	case EXS_EVT_SENDFILE:
		T(e->exs_evt_un.exs_evt_xferfile.exs_evt_files == o->xf);
		moved += e->exs_evt_un.exs_evt_xferfile.exs_evt_length;
		break;
	case EXS_EVT_POLL:
		T(e->exs_evt_un.exs_evt_poll.exs_evt_fds == o->fds);
		break;
	default:
		break;
	}
}

static void count_event(const exs_event_t *e)
{
	struct op *o = e->exs_evt_ahandle;

	if (of_timer(o)) {
		T(e->exs_evt_type == EXS_EVT_SENDTIMEOUT ||
		  e->exs_evt_type == EXS_EVT_RECVTIMEOUT);
		told++;
		return;
	}
	T_MSG(o >= ops && o < ops + OPS, "an event of nobody's: type %d",
	      e->exs_evt_type);
	T_MSG(atomic_load(&o->state) == ACCEPTED,
	      "an event of type %d for an operation in state %d, type %d",
	      e->exs_evt_type, atomic_load(&o->state), o->type);
	T_EQ(e->exs_evt_type, o->type);
	T_EQ(e->exs_evt_socket, o->socket);
	T_MSG(may_fail_so(e->exs_errno), "type %d failed: %s", o->type,
	      t_errname(e->exs_errno));
	check_transfer(o, e);
	if (o->type == EXS_EVT_ACCEPT && e->exs_errno == 0)
		T_OK(exs_close(e->exs_evt_un.exs_evt_accept.exs_evt_newfd,
			       T_SYNC));
	cancelled += e->exs_errno == ECANCELED;
	o->given = 0;
	if (o->type == EXS_EVT_RECV || o->type == EXS_EVT_RECVMSG) {
		memset(o->buf, GIVEN, 512);
		o->given = 512;
	}
	atomic_fetch_add(&done, 1);
	atomic_fetch_sub(&in_use, 1);
	give_op(o);
}

static int take_events(int count, int us)
{
	struct timeval tv = { .tv_usec = us };
	exs_event_t e[16];
	int n = T_OK(exs_qdequeue(q, e, count, &tv));

	for (int i = 0; i < n; i++)
		count_event(&e[i]);
	return n;
}

/* --- disturbance -------------------------------------------------------- */

static void arm_timer(struct t_rng *r, int slot, int end, int s)
{
	bool tx = t_below(r, 2);
	exs_timeout_t t = { .exs_to_time = { 0, 1000 * t_below(r, 20) },
			    .exs_to_flags =
				    t_below(r, 2) ? EXS_TIMEOUT_ONCE : 0,
			    .exs_to_queue = q,
			    .exs_to_ahandle = &of_timers[slot][end][tx] };

	if (exs_setsockopt(s, SOL_SOCKET,
			   tx ? SO_ASYNC_SEND_TIMEOUT : SO_ASYNC_RECV_TIMEOUT,
			   &t, sizeof(t)) < 0)
		T_MSG(errno == EAGAIN || errno == EBADF, "a timer: %s",
		      t_errname(errno));
}

static void cancel_some(struct t_rng *r, int s)
{
	struct op *o = &ops[t_below(r, OPS)];
	int how = 1 + (int)t_below(r, 3);

	if (exs_cancel(s, o, how) < 0)
		T_MSG(errno == EBADF, "a cancel: %s", t_errname(errno));
}

static void ask(int s)
{
	exs_x_sockinfo_t info;

	if (exs_x_sockinfo(s, &info) == 0)
		atomic_fetch_add(&switched, info.exs_x_upgrades);
}

/* Synchronous calls between the others, which wait for none. */
static void do_now(struct t_rng *r, int s)
{
	char buf[4096];
	exs_pollfd_t p = { .exs_fd = s, .exs_events = EXS_POLLIN };

	switch (t_below(r, 5)) {
	case 0:
		exs_send(s, buf, t_chunk(r, sizeof(buf)),
			 MSG_DONTWAIT | MSG_NOSIGNAL, T_SYNC, 0);
		return;
	case 1:
		exs_recv(s, buf, t_chunk(r, sizeof(buf)), MSG_DONTWAIT, T_SYNC,
			 0);
		return;
	case 2:
		ask(s);
		return;
	case 3:
		exs_poll(&p, 1, MSG_DONTWAIT, T_SYNC);
		return;
	default:
		/* Busy, mostly. */
		if (exs_x_downgrade(s) == 0)
			exs_x_adopt(s);
	}
}

static void connect_slot(struct slot *s)
{
	int c = t_connect(&at), b = -1;

	/* Another thread's accept may have it: then there is one end, and its
	 * peer is closed by who got it. */
	T_OK(exs_fcntl(listener, F_SETFL, O_NONBLOCK));
	b = exs_accept(listener, NULL, SOCK_CLOEXEC, T_SYNC);
	if (b < 0)
		T_MSG(errno == EAGAIN, "accept: %s", t_errname(errno));
	__atomic_store_n(&s->fd[0], c, __ATOMIC_RELAXED);
	__atomic_store_n(&s->fd[1], b, __ATOMIC_RELAXED);
}

static void close_end(struct t_rng *r, struct slot *s, int end)
{
	int fd = s->fd[end];
	struct linger hard = { .l_onoff = 1 };
	struct op *o;

	ask(fd);
	if (t_below(r, 4) == 0)
		exs_setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	o = t_below(r, 2) ? take_op(r) : NULL;
	if (o && !try(r, o, EXS_EVT_CLOSE, fd))
		o = NULL;
	if (!o)
		T_OK(exs_close(fd, T_SYNC));
	__atomic_store_n(&s->fd[end], -1, __ATOMIC_RELAXED);
}

/* Closes what is left of it, and makes it anew. */
static void renew(struct t_rng *r, struct slot *s, bool again)
{
	pthread_rwlock_wrlock(&s->lock);
	for (int end = 0; end < 2; end++)
		if (s->fd[end] >= 0)
			close_end(r, s, end);
	if (again)
		connect_slot(s);
	pthread_rwlock_unlock(&s->lock);
}

static void step(struct t_rng *r)
{
	static const int types[] = {
		EXS_EVT_SEND,	  EXS_EVT_SEND,	   EXS_EVT_SEND,
		EXS_EVT_RECV,	  EXS_EVT_RECV,	   EXS_EVT_RECV,
		EXS_EVT_SENDMSG,  EXS_EVT_SENDMSG, EXS_EVT_RECVMSG,
		EXS_EVT_RECVMSG,  EXS_EVT_RECVMSG, EXS_EVT_SENDFILE,
		EXS_EVT_SENDFILE, EXS_EVT_POLL,	   EXS_EVT_POLL,
		EXS_EVT_ACCEPT,
	};
	int i = (int)t_below(r, PAIRS), end = (int)t_below(r, 2), what, fd;
	struct slot *s = &slots[i];
	struct op *o;

	what = (int)t_below(r, 1000);
	if (what < 8) {
		renew(r, s, true);
		return;
	}
	pthread_rwlock_rdlock(&s->lock);
	fd = s->fd[end];
	if (fd < 0) {
		/* of a connection that lost one end */
	} else if (what < 50) {
		cancel_some(r, fd);
	} else if (what < 80) {
		arm_timer(r, i, end, fd);
	} else if (what < 200) {
		do_now(r, fd);
	} else if (what < 203) {
		o = take_op(r);
		if (o)
			try(r, o, EXS_EVT_SHUTDOWN, fd);
	} else {
		o = take_op(r);
		if (o)
			try(r, o, types[t_below(r, T_COUNT(types))], fd);
	}
	pthread_rwlock_unlock(&s->lock);
}

static uint64_t seed;

static void *work(void *arg)
{
	struct t_rng r = { .state = seed * 1000 + (uint64_t)(uintptr_t)arg };

	while (!stop) {
		for (int i = 0; i < 8; i++)
			step(&r);
		switch (t_below(&r, 4)) {
		case 0:
			take_events(-4, 2000);
			break;
		case 1:
			take_events(16, 1000);
			break;
		default:
			take_events(16, 0);
		}
	}
	return NULL;
}

/* --- rounds ------------------------------------------------------------- */

/* Without what was freed: the C library keeps pages of its heaps where a small
 * allocation is behind them, which is a matter of chance. */
static long resident_kb(void)
{
	long pages = 0, ignored;
	FILE *f;

	malloc_trim(0);
	f = fopen("/proc/self/statm", "re");
	T(f && fscanf(f, "%ld %ld", &ignored, &pages) == 2);
	fclose(f);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* After a round the other end of a connection may still have it. */
static void least_kb(long *kb)
{
	long now = resident_kb();

	if (now < *kb)
		*kb = now;
}

static void finish_round(struct t_rng *r)
{
	struct t_deadline d = t_deadline_ms(60000);

	for (int i = 0; i < PAIRS; i++)
		renew(r, &slots[i], false);
	T_OK(exs_cancel(listener, NULL, EXS_CAF_FILDES));
	while (atomic_load(&in_use) > 0 || take_events(16, 0) > 0) {
		take_events(16, 1000);
		T_MSG(!t_over(&d), "%d operations never end",
		      atomic_load(&in_use));
	}
	T_EQ(accepted, done);
	for (int i = 0; i < OPS; i++)
		T_EQ(atomic_load(&ops[i].state), FREE);
}

static void round_of(struct t_rng *r, int64_t ns)
{
	pthread_t t[THREADS];
	int64_t end = t_now_ns() + ns;

	stop = false;
	for (int i = 0; i < PAIRS; i++)
		connect_slot(&slots[i]);
	for (uintptr_t i = 0; i < THREADS; i++)
		t[i] = t_thread(work, (void *)(i + t_rand(r) % 100000 * 8));
	while (t_now_ns() < end)
		take_events(16, 100000);
	stop = true;
	for (int i = 0; i < THREADS; i++)
		t_thread_join(t[i]);
	finish_round(r);
}

static void prepare(void)
{
	static char text[ROOM + 1000];

	rooms = malloc((size_t)OPS * ROOM);
	T(rooms != NULL);
	t_fill(rooms, (size_t)OPS * ROOM, seed, 0);
	for (int i = 0; i < OPS; i++)
		ops[i].buf = rooms + (size_t)i * ROOM;
	for (int i = 0; i < PAIRS; i++)
		pthread_rwlock_init(&slots[i].lock, NULL);
	file = T_OK(memfd_create("file", MFD_CLOEXEC));
	T_EQ(write(file, text, sizeof(text)), sizeof(text));
	t_init();
	q = T_OK(exs_qcreate(OPS - 100));
	memory = T_OK(exs_mregister(rooms, (size_t)OPS * ROOM, 0));
	listener = t_listener(T_IPV4, &at);
	T_OK(listen(listener, 1024));
}

/* Such as that an end broke the protocol: both are ours. */
static void nothing_was_logged(int fd)
{
	char text[500];
	ssize_t n = T_OK(pread(fd, text, sizeof(text) - 1, 0));

	close(fd);
	text[n] = '\0';
	T_MSG(n == 0, "the library complained: %s", text);
}

int main(int argc, char **argv)
{
	int seconds = argc > 2 ? atoi(argv[2]) : 6;
	long kb = LONG_MAX, now_kb = LONG_MAX;
	struct t_rng r;
	char list[32], log[32];
	int fds = 0, log_fd;

	if (argc < 2) {
		fprintf(stderr, "usage: %s FABRIC [SECONDS [SEED]]\n", argv[0]);
		return 2;
	}
	seed = argc > 3 ? strtoull(argv[3], NULL, 0) : (uint64_t)t_now_ns();
	r.state = seed;
	t_note("%s --seed %llu", argv[1], (unsigned long long)seed);
	t_guard((unsigned int)seconds + 120);
	signal(SIGPIPE, SIG_IGN);
	snprintf(list, sizeof(list), "%s%s", argv[1],
		 strcmp(argv[1], "tcp") ? ",tcp" : "");
	setenv("EXS_PROVIDER", list, 1);
	log_fd = T_OK(memfd_create("log", MFD_CLOEXEC));
	snprintf(log, sizeof(log), "/proc/self/fd/%d", log_fd);
	setenv("EXS_LOG_FILE", log, 1);
	prepare();
	for (int i = 0; i < ROUNDS; i++) {
		round_of(&r, (int64_t)seconds * 1000000000 / ROUNDS);
		least_kb(i < ROUNDS / 2 ? &kb : &now_kb);
		if (i == ROUNDS / 2)
			fds = t_fd_count();
	}
	printf("%s: %llu operations, %llu cancelled, %llu refused, %llu timers "
	       "told, %llu bytes, %ld KiB, seed %llu\n",
	       argv[1], (unsigned long long)done, (unsigned long long)cancelled,
	       (unsigned long long)refused, (unsigned long long)told,
	       (unsigned long long)moved, now_kb, (unsigned long long)seed);
	nothing_was_logged(log_fd);
	T(done > 1000 && cancelled > 10 && moved > 100000);
	T((switched > 0) == (strcmp(argv[1], "tcp") != 0));
	/* Sanitizers keep what was freed. */
	T_MSG(now_kb - kb < (t_slow() > 1 ? 64 : 1) * MOST_KB,
	      "memory grew from %ld to %ld KiB", kb, now_kb);
	T_MSG(t_fd_count() <= fds + 20, "descriptors: %d, then %d", fds,
	      t_fd_count());
	T_OK(exs_mderegister(memory, 0));
	T_OK(exs_qdelete(q));
	t_close(listener);
	t_unlisten();
	close(file);
	free(rooms);
	return 0;
}
