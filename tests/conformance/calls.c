/* SPDX-License-Identifier: BSD-2-Clause */
/* Each call by itself, synchronous and asynchronous: its results, its errors,
 * and that an error takes nothing. Then rules that hold for all calls. */
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "tests/conformance/conf.h"
#include "tests/support/bytes.h"

#define BYTES 8

static exs_qhandle_t q;
static int fd[2];    /* settled, on the fabric */
static int listener; /* at `to` */
static struct t_addr to;
static int file = -1;
static char out[BYTES + 1] = "eightchr", in[BYTES];

/* What the asynchronous forms are given; kept until the event. */
static exs_iovec_t out_piece = { out, BYTES, 0 }, in_piece = { in, BYTES, 0 };
static exs_msghdr_t out_msg = { .exs_msg_iov = &out_piece,
				.exs_msg_iovlen = 1 };
static exs_msghdr_t in_msg = { .exs_msg_iov = &in_piece, .exs_msg_iovlen = 1 };
static exs_xferfile_t part;
static exs_pollfd_t polled;
static struct sockaddr_storage from;
static exs_acceptaddr_t whence;

static void begin(void)
{
	conf_pair(fd);
	q = T_OK(exs_qcreate(4));
	listener = t_listener(T_IPV4, &to);
	file = T_OK(memfd_create("file", MFD_CLOEXEC));
	T_EQ(write(file, out, BYTES), BYTES);
	memset(in, 0, sizeof(in));
}

static void end(void)
{
	t_no_event(q);
	T_OK(exs_qdelete(q));
	if (fd[0] >= 0)
		t_close(fd[0]);
	t_close(fd[1]);
	t_close(listener);
	close(file);
}

/* --- the calls ---------------------------------------------------------- */

static ssize_t go_send(int s, exs_qhandle_t queue, exs_ahandle_t a)
{
	return exs_send(s, out, BYTES, MSG_NOSIGNAL, queue, a, 0);
}

static ssize_t go_recv(int s, exs_qhandle_t queue, exs_ahandle_t a)
{
	return exs_recv(s, in, BYTES, MSG_WAITALL, queue, a, 0);
}

static ssize_t go_sendmsg(int s, exs_qhandle_t queue, exs_ahandle_t a)
{
	return exs_sendmsg(s, &out_msg, MSG_NOSIGNAL, queue, a);
}

static ssize_t go_recvmsg(int s, exs_qhandle_t queue, exs_ahandle_t a)
{
	return exs_recvmsg(s, &in_msg, MSG_WAITALL, queue, a);
}

static ssize_t go_sendfile(int s, exs_qhandle_t queue, exs_ahandle_t a)
{
	part = (exs_xferfile_t){ EXS_FDVEC,
				 { .exs_xf_fdvec = { file, 0, BYTES } } };
	return exs_sendfile(s, &part, 1, MSG_NOSIGNAL, queue, a);
}

static ssize_t go_connect(int s, exs_qhandle_t queue, exs_ahandle_t a)
{
	return exs_connect(s, (struct sockaddr *)&to.ss, to.len, 0, queue, a);
}

static ssize_t go_accept(int s, exs_qhandle_t queue, exs_ahandle_t a)
{
	whence = (exs_acceptaddr_t){ (struct sockaddr *)&from, sizeof(from) };
	return exs_accept(s, &whence, SOCK_CLOEXEC, queue, a);
}

static ssize_t go_poll(int s, exs_qhandle_t queue, exs_ahandle_t a)
{
	polled = (exs_pollfd_t){ .exs_fd = s, .exs_events = EXS_POLLIN };
	return exs_poll(&polled, 1, 0, queue, a);
}

static ssize_t go_shutdown(int s, exs_qhandle_t queue, exs_ahandle_t a)
{
	return exs_shutdown(s, SHUT_WR, queue, a);
}

static ssize_t go_close(int s, exs_qhandle_t queue, exs_ahandle_t a)
{
	return exs_close(s, queue, a);
}

/* A descriptor of which it can be done at once. */
static int as_it_is(void)
{
	return fd[0];
}

static int with_bytes(void)
{
	t_send_all(fd[1], out, BYTES, 0);
	return fd[0];
}

static int client = -1;

static int with_a_client(void)
{
	client = t_connect(&to);
	return listener;
}

static int unconnected(void)
{
	return T_OK(exs_socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

/* What the event's arm says, besides what all of them say. */
static void one_buffer(const exs_event_t *e)
{
	const exs_evt_xfer_t *x = &e->exs_evt_un.exs_evt_xfer;

	T(x->exs_evt_buffer == (e->exs_evt_type == EXS_EVT_SEND ? out : in));
	T_EQ(x->exs_evt_length, BYTES);
	T_EQ(x->exs_evt_flags, 0);
}

static void one_message(const exs_event_t *e)
{
	const exs_evt_xfermsg_t *x = &e->exs_evt_un.exs_evt_xfermsg;

	T(x->exs_evt_msg ==
	  (e->exs_evt_type == EXS_EVT_SENDMSG ? &out_msg : &in_msg));
	T_EQ(x->exs_evt_length, BYTES);
	T_EQ(x->exs_evt_flags, 0);
}

static void one_file(const exs_event_t *e)
{
	T(e->exs_evt_un.exs_evt_xferfile.exs_evt_files == &part);
	T_EQ(e->exs_evt_un.exs_evt_xferfile.exs_evt_length, BYTES);
}

static void a_connection(const exs_event_t *e)
{
	T(e->exs_evt_un.exs_evt_accept.exs_evt_addr == &whence);
}

static void an_answer(const exs_event_t *e)
{
	T(e->exs_evt_un.exs_evt_poll.exs_evt_fds == &polled);
	T_EQ(e->exs_evt_un.exs_evt_poll.exs_evt_nfds, 1);
	T_EQ(e->exs_evt_un.exs_evt_poll.exs_evt_ready, 1);
}

static void no_arm(const exs_event_t *e)
{
}

/* What it did. */
static void bytes_came(int s, int result)
{
	char got[BYTES];

	t_recv_all(fd[1], got, BYTES);
	T(!memcmp(got, out, BYTES));
}

static void bytes_were_taken(int s, int result)
{
	T(!memcmp(in, out, BYTES));
	memset(in, 0, sizeof(in));
}

static void was_connected(int s, int result)
{
	int b = t_accept(listener);

	t_send_all(s, out, BYTES, 0);
	t_recv_all(b, in, BYTES);
	t_close(b);
	t_close(s);
}

static void was_accepted(int s, int result)
{
	struct sockaddr_in *peer = (struct sockaddr_in *)&from;

	T(result >= 0);
	T_EQ(whence.exs_addrlen, sizeof(*peer));
	T_EQ(ntohs(peer->sin_port), t_port_of(client));
	T_EQ(fcntl(result, F_GETFD), FD_CLOEXEC);
	t_send_all(client, out, BYTES, 0);
	t_recv_all(result, in, BYTES);
	t_close(result);
	t_close(client);
}

static void was_told(int s, int result)
{
	T_EQ(polled.exs_revents, EXS_POLLIN);
	t_recv_all(fd[0], in, BYTES);
}

static void was_shut(int s, int result)
{
	t_recv_end(fd[1]);
	t_send_all(fd[1], out, BYTES, 0);
	t_recv_all(s, in, BYTES);
}

static void was_closed(int s, int result)
{
	T_ERR(fcntl(s, F_GETFD), EBADF);
	t_recv_end(fd[1]);
	fd[0] = -1;
}

struct call {
	int type;
	int result; /* synchronous; -1: a descriptor */
	ssize_t (*go)(int s, exs_qhandle_t queue, exs_ahandle_t a);
	int (*ready)(void);
	void (*arm)(const exs_event_t *e);
	void (*after)(int s, int result);
};

static const struct call of_send = { EXS_EVT_SEND, BYTES,      go_send,
				     as_it_is,	   one_buffer, bytes_came };
static const struct call of_recv = {
	EXS_EVT_RECV, BYTES, go_recv, with_bytes, one_buffer, bytes_were_taken
};
static const struct call of_sendmsg = { EXS_EVT_SENDMSG, BYTES,
					go_sendmsg,	 as_it_is,
					one_message,	 bytes_came };
static const struct call of_recvmsg = { EXS_EVT_RECVMSG, BYTES,
					go_recvmsg,	 with_bytes,
					one_message,	 bytes_were_taken };
static const struct call of_sendfile = { EXS_EVT_SENDFILE, BYTES,
					 go_sendfile,	   as_it_is,
					 one_file,	   bytes_came };
static const struct call of_connect = {
	EXS_EVT_CONNECT, 0, go_connect, unconnected, no_arm, was_connected
};
static const struct call of_accept = { EXS_EVT_ACCEPT, -1,
				       go_accept,      with_a_client,
				       a_connection,   was_accepted };
static const struct call of_poll = { EXS_EVT_POLL, 1,	      go_poll,
				     with_bytes,   an_answer, was_told };
static const struct call of_shutdown = { EXS_EVT_SHUTDOWN, 0,	   go_shutdown,
					 as_it_is,	   no_arm, was_shut };
static const struct call of_close = { EXS_EVT_CLOSE, 0,	     go_close,
				      as_it_is,	     no_arm, was_closed };

static void asynchronous(const struct call *c, int s)
{
	int result = 0;
	exs_event_t e;

	T_EQ(c->go(s, q, (exs_ahandle_t)&file), 0);
	e = t_event(q);
	T_EQ(e.exs_evt_type, c->type);
	/* A poll is of many. */
	T_EQ(e.exs_evt_socket, c->type == EXS_EVT_POLL ? -1 : s);
	T(e.exs_evt_ahandle == (exs_ahandle_t)&file);
	T_EQ(e.exs_errno, 0);
	c->arm(&e);
	if (c->type == EXS_EVT_ACCEPT)
		result = e.exs_evt_un.exs_evt_accept.exs_evt_newfd;
	t_no_event(q);
	c->after(s, result);
}

static void yields_one_event(const struct call *c)
{
	begin();
	asynchronous(c, c->ready());
	end();
}

static void synchronous(const struct call *c)
{
	int s, ret;

	begin();
	s = c->ready();
	ret = (int)T_OK(c->go(s, T_SYNC));
	if (c->result >= 0)
		T_EQ(ret, c->result);
	c->after(s, ret);
	end();
}

/* Neither form takes it, and it is as if nobody had tried. */
static void both_refuse(const struct call *c, int s, int err)
{
	T_ERR(c->go(s, q, NULL), err);
	T_ERR(c->go(s, T_SYNC), err);
	t_no_event(q);
}

static void no_descriptor(const struct call *c)
{
	int hole;

	begin();
	hole = T_OK(dup(file));
	close(hole);
	both_refuse(c, hole, EBADF);
	both_refuse(c, -1, EBADF);
	asynchronous(c, c->ready());
	end();
}

static void no_socket(const struct call *c)
{
	int p[2];

	begin();
	T_OK(pipe(p));
	both_refuse(c, p[0], ENOTSOCK);
	both_refuse(c, p[1], ENOTSOCK);
	both_refuse(c, file, ENOTSOCK);
	close(p[0]);
	close(p[1]);
	asynchronous(c, c->ready());
	end();
}

static void wrong_queue(const struct call *c)
{
	int s;

	begin();
	s = c->ready();
	T_ERR(c->go(s, q + 1, NULL), EINVAL);
	T_ERR(c->go(s, 0, NULL), EINVAL);
	T_ERR(c->go(s, -2, NULL), EINVAL);
	asynchronous(c, s);
	end();
}

/* Nothing was taken: it can be done after, on a queue that has room. */
static void full_queue(const struct call *c)
{
	exs_qhandle_t full;
	int other[2], s;
	char byte;

	begin();
	full = T_OK(exs_qcreate(1));
	t_pair(T_IPV4, other);
	t_post_recv(other[0], &byte, 1, 0, full, 1);
	s = c->ready();
	T_ERR(c->go(s, full, NULL), EAGAIN);
	t_no_event(full);
	T_ERR(t_recv(fd[1], &byte, 1, MSG_DONTWAIT), EAGAIN);
	t_send_all(other[1], "x", 1, 0);
	T_UNTIL(({
		int n = 0;
		size_t len = sizeof(n);

		T_OK(exs_qstatus(full, EXS_QATTR_EVENTS, &n, &len));
		n == 1;
	}));
	/* Until the event is dequeued its slot is taken. */
	T_ERR(c->go(s, full, NULL), EAGAIN);
	T_EQ(t_event_is(full, EXS_EVT_RECV, 1), 1);
	asynchronous(c, s);
	T_OK(exs_qdelete(full));
	t_close(other[0]);
	t_close(other[1]);
	end();
}

/* Waiting for what does not come, it is asked back. */
static void cancelled(const struct call *c, int s)
{
	exs_event_t e;

	T_EQ(c->go(s, q, (exs_ahandle_t)5), 0);
	T_EQ(exs_cancel(s, (exs_ahandle_t)6, EXS_CAF_FILDES | EXS_CAF_AHANDLE),
	     0);
	T_EQ(exs_cancel(s, (exs_ahandle_t)5, EXS_CAF_FILDES | EXS_CAF_AHANDLE),
	     1);
	e = t_event(q);
	T_EQ(e.exs_evt_type, c->type);
	T_EQ(e.exs_errno, ECANCELED);
	T_EQ((long)e.exs_evt_ahandle, 5);
	t_no_event(q);
	T_EQ(exs_cancel(s, NULL, EXS_CAF_FILDES), 0);
}

static void can_be_cancelled(const struct call *c)
{
	begin();
	cancelled(c, c == &of_accept ? listener : fd[0]);
	asynchronous(c, c->ready());
	end();
}

#define ROW(c, what, body)                                                     \
	static void c##_##what(void)                                           \
	{                                                                      \
		body(&of_##c);                                                 \
	}

#define ALWAYS(c)                                                              \
	ROW(c, yields_one_event, yields_one_event)                             \
	ROW(c, without_a_queue_returns_its_result, synchronous)                \
	ROW(c, with_a_wrong_queue_is_einval, wrong_queue)                      \
	ROW(c, with_a_full_queue_is_eagain, full_queue)

#define OF_SOCKETS(c)                                                          \
	ALWAYS(c)                                                              \
	ROW(c, of_no_descriptor_is_ebadf, no_descriptor)                       \
	ROW(c, of_no_socket_is_enotsock, no_socket)

OF_SOCKETS(send)
OF_SOCKETS(recv)
OF_SOCKETS(sendmsg)
OF_SOCKETS(recvmsg)
OF_SOCKETS(sendfile)
OF_SOCKETS(connect)
OF_SOCKETS(accept)
OF_SOCKETS(shutdown)
ALWAYS(poll)
ALWAYS(close)
ROW(close, of_no_descriptor_is_ebadf, no_descriptor)
ROW(recv, can_be_cancelled, can_be_cancelled)
ROW(recvmsg, can_be_cancelled, can_be_cancelled)
ROW(accept, can_be_cancelled, can_be_cancelled)
ROW(poll, can_be_cancelled, can_be_cancelled)

/* --- errors of transfers come in the event ------------------------------ */

static int error_of_the_event(void)
{
	exs_event_t e = t_event(q);

	t_no_event(q);
	return e.exs_errno;
}

static void a_refused_connect_says_so_in_its_event(void)
{
	int s;

	begin();
	t_close(listener);
	s = unconnected();
	T_EQ(go_connect(s, q, NULL), 0);
	T_EQ(error_of_the_event(), ECONNREFUSED);
	/* The connect may be repeated, by either kind of call. */
	T_ERR(go_connect(s, T_SYNC), ECONNREFUSED);
	T_EQ(go_connect(s, q, NULL), 0);
	T_EQ(error_of_the_event(), ECONNREFUSED);
	T_EQ(go_connect(s, q, NULL), 0);
	T_EQ(error_of_the_event(), ECONNREFUSED);
	listener = t_listener(T_IPV4, &to);
	T_EQ(go_connect(s, q, NULL), 0);
	T_EQ(error_of_the_event(), 0);
	t_close(t_accept(listener));
	t_close(s);
	end();
}

static void a_send_after_the_end_of_sending_is_epipe(void)
{
	int err;

	begin();
	T_OK(t_shutdown(fd[0], SHUT_WR));
	err = go_send(fd[0], q, NULL) == 0 ? error_of_the_event() : errno;
	T_EQ(err, EPIPE);
	T_ERR(go_send(fd[0], T_SYNC), EPIPE);
	t_recv_end(fd[1]);
	end();
}

static void a_receive_of_a_reset_connection_says_so_once(void)
{
	begin();
	T_EQ(go_recv(fd[0], q, NULL), 0);
	t_send_all(fd[0], out, BYTES, 0);
	T(t_recv(fd[1], in, 1, 0) == 1);
	t_close(fd[1]); /* seven are unread */
	T_EQ(error_of_the_event(), ECONNRESET);
	T_EQ(go_recv(fd[0], q, NULL), 0);
	T_EQ(error_of_the_event(), 0);
	fd[1] = fd[0];
	fd[0] = -1;
	end();
}

static void transfers_need_a_connection(void)
{
	int s, err;

	begin();
	s = unconnected();
	err = go_recv(s, q, NULL) == 0 ? error_of_the_event() : errno;
	T_EQ(err, ENOTCONN);
	T_ERR(go_recv(s, T_SYNC), ENOTCONN);
	err = go_send(s, q, NULL) == 0 ? error_of_the_event() : errno;
	T(err == ENOTCONN || err == EPIPE);
	T_ERR(exs_shutdown(s, SHUT_WR, T_SYNC), ENOTCONN);
	t_close(s);
	end();
}

/* --- queues ------------------------------------------------------------- */

static void queues_run_out_with_emfile(void)
{
	static exs_qhandle_t many[70000];
	int n = 0;

	begin();
	while (n < (int)T_COUNT(many) &&
	       (many[n] = exs_qcreate(1)) != EXS_QHANDLE_INVALID)
		n++;
	T_EQ(errno, EMFILE);
	T(n > 100);
	while (n > 0)
		T_OK(exs_qdelete(many[--n]));
	T_OK(exs_qdelete(T_OK(exs_qcreate(1))));
	end();
}

/* Sends and receives of both ends. */
static void one_queue_serves_both_directions(void)
{
	char got[2][BYTES];
	int seen[4] = { 0 };

	begin();
	for (long i = 0; i < 2; i++) {
		t_post_recv(fd[i], got[i], BYTES, MSG_WAITALL, q, i);
		t_post_send(fd[i], out, BYTES, 0, q, 2 + i);
	}
	for (int i = 0; i < 4; i++) {
		exs_event_t e = t_event(q);
		long a = (long)e.exs_evt_ahandle;

		T_EQ(e.exs_errno, 0);
		T(a >= 0 && a < 4 && !seen[a]++);
		T_EQ(e.exs_evt_type, a < 2 ? EXS_EVT_RECV : EXS_EVT_SEND);
		T_EQ(e.exs_evt_socket, fd[a % 2]);
	}
	T(!memcmp(got[0], out, BYTES) && !memcmp(got[1], out, BYTES));
	end();
}

/* What was done first is told first. */
static void events_come_in_the_order_of_completion(void)
{
	int more[2];
	char late, soon;

	begin();
	t_pair(T_IPV4, more);
	t_settle_pair(more[0], more[1], conf_here());
	t_post_recv(fd[0], &late, 1, 0, q, 1);
	t_post_recv(more[0], &soon, 1, 0, q, 2);
	t_send_all(more[1], "2", 1, 0);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 2), 1);
	t_no_event(q);
	t_send_all(fd[1], "1", 1, 0);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 1), 1);
	t_close(more[0]);
	t_close(more[1]);
	end();
}

#define TAKERS 4
#define TAKEN  (2000 / t_slow())

static _Atomic int taken, sum;

static void *take(void *arg)
{
	exs_event_t e[3];

	for (;;) {
		struct timeval soon = { .tv_usec = 20000 };
		int n = T_OK(exs_qdequeue(q, e, T_COUNT(e), &soon));

		for (int i = 0; i < n; i++) {
			T_EQ(e[i].exs_errno, 0);
			sum += (int)(long)e[i].exs_evt_ahandle;
			taken++;
		}
		if (taken == TAKEN)
			return NULL;
	}
}

static void threads_take_each_event_once(void)
{
	pthread_t t[TAKERS];
	int posted = 0, want = 0;
	char buf[BYTES];

	begin();
	for (int i = 0; i < TAKERS; i++)
		t[i] = t_thread(take, NULL);
	while (posted < TAKEN) {
		if (exs_send(fd[0], out, 1, 0, q, (exs_ahandle_t)(long)posted,
			     0) == 0)
			want += posted++;
		else
			T_EQ(errno, EAGAIN);
		while (t_recv(fd[1], buf, sizeof(buf), MSG_DONTWAIT) > 0)
			;
	}
	for (int i = 0; i < TAKERS; i++)
		t_thread_join(t[i]);
	T_EQ(taken, TAKEN);
	T_EQ(sum, want);
	while (t_recv(fd[1], buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
	end();
}

static void a_handle_prints_as_a_number(void)
{
	exs_mhandle_t m;

	begin();
	m = T_OK(exs_mregister(in, sizeof(in), 0));
	T(q > 0 && m > 0);
	T(_Generic(q, int : true, default : false));
	T(_Generic(m, int : true, default : false));
	T(EXS_QHANDLE_INVALID == -1 && EXS_MHANDLE_INVALID == -1);
	T(m != EXS_MHANDLE_UNREGISTERED);
	T_OK(exs_mderegister(m, 0));
	end();
}

/* --- memory ------------------------------------------------------------- */

static void memory_registered_before_serves_a_later_socket(void)
{
	static char block[4096];
	exs_mhandle_t m;
	int later[2];

	begin();
	t_fill(block, 2048, 3, 0);
	m = T_OK(exs_mregister(block, sizeof(block), 0));
	t_pair(T_IPV4, later);
	t_settle_pair(later[0], later[1], conf_here());
	T_EQ(exs_recv(later[1], block + 2048, 2048, MSG_WAITALL, q, NULL, m),
	     0);
	T_EQ(exs_send(later[0], block, 2048, 0, q, NULL, m), 0);
	for (int i = 0; i < 2; i++)
		T_EQ(t_event(q).exs_errno, 0);
	t_check_bytes(block + 2048, 2048, 3, 0);
	T_OK(exs_mderegister(m, 0));
	t_close(later[0]);
	t_close(later[1]);
	end();
}

/* Registrations of one memory do not know of each other. */
static void memory_may_be_registered_twice(void)
{
	exs_mhandle_t m[2];

	begin();
	for (int i = 0; i < 2; i++)
		m[i] = T_OK(exs_mregister(in, sizeof(in), 0));
	T(m[0] != m[1]);
	T_EQ(exs_recv(fd[0], in, BYTES, MSG_WAITALL, q, NULL, m[0]), 0);
	T_OK(exs_mderegister(m[1], 0));
	T_ERR(exs_mderegister(m[0], 0), EBUSY);
	t_send_all(fd[1], out, BYTES, 0);
	T_EQ(t_event(q).exs_errno, 0);
	T(!memcmp(in, out, BYTES));
	T_OK(exs_mderegister(m[0], 0));
	end();
}

static void unregistered_memory_of_any_size_will_do(void)
{
	static const size_t sizes[] = { 1, 100, 5000, 70000, 1 << 20 };
	char *big = malloc(2 << 20);

	begin();
	T(big != NULL);
	for (int i = 0; i < (int)T_COUNT(sizes); i++) {
		size_t n = sizes[i];

		t_fill(big, n, 9, 0);
		memset(big + n, 0, n);
		T_EQ(exs_recv(fd[1], big + n, n, MSG_WAITALL, q, NULL,
			      EXS_MHANDLE_UNREGISTERED),
		     0);
		T_EQ(exs_send(fd[0], big, n, 0, q, NULL,
			      EXS_MHANDLE_UNREGISTERED),
		     0);
		for (int j = 0; j < 2; j++) {
			exs_event_t e = t_event(q);

			T_EQ(e.exs_errno, 0);
			T_EQ(e.exs_evt_un.exs_evt_xfer.exs_evt_length, n);
		}
		t_check_bytes(big + n, n, 9, 0);
	}
	free(big);
	end();
}

/* A buffer is the sender's again with its event, though nobody received. */
static void a_sent_buffer_may_be_used_again(void)
{
	char mine[BYTES], got[2 * BYTES];

	begin();
	memcpy(mine, "first123", BYTES);
	t_post_send(fd[0], mine, BYTES, 0, q, 1);
	T_EQ(t_event_is(q, EXS_EVT_SEND, 1), BYTES);
	memcpy(mine, "second45", BYTES);
	t_post_send(fd[0], mine, BYTES, 0, q, 2);
	T_EQ(t_event_is(q, EXS_EVT_SEND, 2), BYTES);
	memset(mine, 'x', BYTES);
	t_recv_all(fd[1], got, sizeof(got));
	T(!memcmp(got, "first123second45", sizeof(got)));
	end();
}

/* --- receives ----------------------------------------------------------- */

static void bytes_fill_receives_in_the_order_of_posting(void)
{
	char got[4][2];

	begin();
	for (long i = 0; i < 4; i++)
		t_post_recv(fd[0], got[i], 2, MSG_WAITALL, q, i);
	t_send_all(fd[1], out, BYTES, 0);
	for (long i = 0; i < 4; i++)
		T_EQ(t_event_is(q, EXS_EVT_RECV, i), 2);
	T(!memcmp(got, out, BYTES));
	end();
}

static void a_receive_at_the_end_of_the_stream_is_zero(void)
{
	begin();
	t_post_recv(fd[0], in, BYTES, 0, q, 1);
	T_OK(t_shutdown(fd[1], SHUT_WR));
	T_EQ(t_event_is(q, EXS_EVT_RECV, 1), 0);
	t_post_recv(fd[0], in, BYTES, MSG_WAITALL, q, 2);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 2), 0);
	T_EQ(t_recv(fd[0], in, BYTES, 0), 0);
	end();
}

/* Synchronous calls stand in line with the asynchronous ones. */
static void a_synchronous_receive_waits_its_turn(void)
{
	char first[2], second[2];

	begin();
	t_post_recv(fd[0], first, 2, MSG_WAITALL, q, 1);
	T_ERR(t_recv(fd[0], second, 2, MSG_DONTWAIT), EAGAIN);
	t_send_all(fd[1], "1122", 4, 0);
	T_EQ(t_recv(fd[0], second, 2, MSG_WAITALL), 2);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 1), 2);
	T(!memcmp(first, "11", 2) && !memcmp(second, "22", 2));
	end();
}

/* --- accept and close --------------------------------------------------- */

static void the_flags_of_accept_are_those_of_the_descriptor(void)
{
	static const int flags[] = { 0, SOCK_CLOEXEC, SOCK_NONBLOCK,
				     SOCK_CLOEXEC | SOCK_NONBLOCK };

	begin();
	for (int i = 0; i < 8; i++) {
		int want = flags[i / 2], c, s;

		if (i % 2) { /* posted before there is a client */
			T_EQ(exs_accept(listener, NULL, want, q, NULL), 0);
			t_no_event(q);
		}
		c = t_connect(&to);
		s = i % 2 ? t_event(q).exs_evt_un.exs_evt_accept.exs_evt_newfd
			  : exs_accept(listener, NULL, want, T_SYNC);
		T_OK(s);
		T_EQ(fcntl(s, F_GETFD), want & SOCK_CLOEXEC ? FD_CLOEXEC : 0);
		T_EQ(fcntl(s, F_GETFL) & O_NONBLOCK,
		     want & SOCK_NONBLOCK ? O_NONBLOCK : 0);
		t_close(s);
		t_close(c);
	}
	end();
}

/* The address is cut to its room, its length is told in full. */
static void accept_tells_the_true_length_of_an_address(void)
{
	exs_acceptaddr_t cut = { (struct sockaddr *)&from, 4 };
	int c, s;

	begin();
	memset(&from, 0x55, sizeof(from));
	T_EQ(exs_accept(listener, &cut, 0, q, NULL), 0);
	c = t_connect(&to);
	s = t_event(q).exs_evt_un.exs_evt_accept.exs_evt_newfd;
	T_OK(s);
	T_EQ(cut.exs_addrlen, sizeof(struct sockaddr_in));
	T_EQ(from.ss_family, AF_INET);
	T_EQ(((unsigned char *)&from)[4], 0x55);
	t_close(s);
	t_close(c);
	end();
}

static void close_comes_after_the_events_of_its_operations(void)
{
	exs_event_t e;
	char a, b;

	begin();
	t_post_recv(fd[0], &a, 1, 0, q, 1);
	t_post_recv(fd[0], &b, 1, 0, q, 2);
	T_EQ(exs_close(fd[0], q, (exs_ahandle_t)3), 0);
	for (int i = 0; i < 2; i++) {
		e = t_event(q);
		T_EQ(e.exs_evt_type, EXS_EVT_RECV);
		T_EQ(e.exs_errno, ECANCELED);
	}
	T_EQ(t_event(q).exs_evt_type, EXS_EVT_CLOSE);
	fd[0] = -1;
	end();
}

/* What was accepted is sent, though the descriptor is gone. */
static void a_close_does_not_take_back_what_was_sent(void)
{
	begin();
	t_post_send(fd[0], out, BYTES, 0, q, 1);
	T_EQ(t_event_is(q, EXS_EVT_SEND, 1), BYTES);
	T_EQ(exs_close(fd[0], q, NULL), 0);
	T_EQ(t_event(q).exs_errno, 0);
	fd[0] = -1;
	t_recv_all(fd[1], in, BYTES);
	T(!memcmp(in, out, BYTES));
	t_recv_end(fd[1]);
	end();
}

/* --- the names that are the kernel's ------------------------------------ */

static void plain_names_answer_as_the_kernel(void)
{
	struct sockaddr_storage a, b;
	socklen_t la = sizeof(a), lb = sizeof(b);

	begin();
	for (int i = 0; i < 2; i++) {
		la = lb = sizeof(a);
		T_OK(exs_getsockname(fd[i], (struct sockaddr *)&a, &la));
		T_OK(getsockname(fd[i], (struct sockaddr *)&b, &lb));
		T(la == lb && !memcmp(&a, &b, la));
		T_OK(exs_getpeername(fd[i], (struct sockaddr *)&a, &la));
		T_OK(getpeername(fd[i], (struct sockaddr *)&b, &lb));
		T(la == lb && !memcmp(&a, &b, la));
	}
	end();
}

static void plain_options_are_the_kernels(void)
{
	int on = 1, got = 0;
	socklen_t len = sizeof(got);

	begin();
	T_OK(exs_setsockopt(fd[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
	T_OK(getsockopt(fd[0], IPPROTO_TCP, TCP_NODELAY, &got, &len));
	T(got);
	got = 0;
	T_OK(exs_getsockopt(fd[0], IPPROTO_TCP, TCP_NODELAY, &got, &len));
	T(got);
	T_OK(exs_getsockopt(fd[0], SOL_SOCKET, SO_TYPE, &got, &len));
	T_EQ(got, SOCK_STREAM);
	T_ERR(exs_setsockopt(fd[0], SOL_SOCKET, 0x7fff, &on, sizeof(on)),
	      ENOPROTOOPT);
	end();
}

static void plain_flags_are_the_kernels(void)
{
	int flags;

	begin();
	flags = T_OK(exs_fcntl(fd[0], F_GETFL));
	T(!(flags & O_NONBLOCK));
	T_OK(exs_fcntl(fd[0], F_SETFL, flags | O_NONBLOCK));
	T(fcntl(fd[0], F_GETFL) & O_NONBLOCK);
	T_ERR(exs_recv(fd[0], in, 1, 0, T_SYNC, 0), EAGAIN);
	T_OK(exs_fcntl(fd[0], F_SETFD, FD_CLOEXEC));
	T_EQ(fcntl(fd[0], F_GETFD), FD_CLOEXEC);
	end();
}

/* socket, bind, listen: their results, and their errors. */
static void plain_beginnings_are_the_kernels(void)
{
	struct t_addr any = t_loopback(T_IPV4, 0);
	int s, c;

	begin();
	T_ERR(exs_socket(12345, SOCK_STREAM, 0), EAFNOSUPPORT);
	s = T_OK(exs_socket(AF_INET, SOCK_STREAM, 0));
	T_EQ(fcntl(s, F_GETFD), 0);
	T_OK(exs_bind(s, (struct sockaddr *)&any.ss, any.len));
	T_ERR(exs_bind(s, (struct sockaddr *)&any.ss, any.len), EINVAL);
	T_OK(exs_listen(s, 1));
	to = t_loopback(T_IPV4, t_port_of(s));
	c = t_connect(&to);
	t_close(T_OK(exs_accept(s, NULL, 0, T_SYNC)));
	t_close(c);
	t_close(s);
	end();
}

/* Around asynchronous calls the descriptor is the kernel's. */
static void a_plain_socket_takes_asynchronous_calls(void)
{
	char got[BYTES];
	int p[2];

	begin();
	t_plain_pair(p);
	t_post_send(p[0], out, BYTES, 0, q, 1);
	T_EQ(t_event_is(q, EXS_EVT_SEND, 1), BYTES);
	T_EQ(recv(p[1], got, BYTES, MSG_WAITALL), BYTES);
	T(!memcmp(got, out, BYTES));
	T_EQ(send(p[1], out, BYTES, 0), BYTES);
	T_EQ(recv(p[0], got, BYTES, MSG_WAITALL), BYTES);
	T_OK(shutdown(p[0], SHUT_WR));
	T_EQ(recv(p[1], got, BYTES, 0), 0);
	close(p[0]);
	close(p[1]);
	end();
}

#define T_ALWAYS(c)                                                            \
	T_ROW(c##_yields_one_event),                                           \
		T_ROW(c##_without_a_queue_returns_its_result),                 \
		T_ROW(c##_with_a_wrong_queue_is_einval),                       \
		T_ROW(c##_with_a_full_queue_is_eagain)

#define T_OF_SOCKETS(c)                                                        \
	T_ALWAYS(c), T_ROW(c##_of_no_descriptor_is_ebadf),                     \
		T_ROW(c##_of_no_socket_is_enotsock)

static const struct t_row rows[] = {
	T_OF_SOCKETS(send),
	T_OF_SOCKETS(recv),
	T_OF_SOCKETS(sendmsg),
	T_OF_SOCKETS(recvmsg),
	T_OF_SOCKETS(sendfile),
	T_OF_SOCKETS(connect),
	T_OF_SOCKETS(accept),
	T_OF_SOCKETS(shutdown),
	T_ALWAYS(poll),
	T_ALWAYS(close),
	T_ROW(close_of_no_descriptor_is_ebadf),
	T_ROW(recv_can_be_cancelled),
	T_ROW(recvmsg_can_be_cancelled),
	T_ROW(accept_can_be_cancelled),
	T_ROW(poll_can_be_cancelled),
	T_ROW(a_refused_connect_says_so_in_its_event),
	T_ROW(a_send_after_the_end_of_sending_is_epipe),
	T_ROW(a_receive_of_a_reset_connection_says_so_once),
	T_ROW(transfers_need_a_connection),
	T_ROW(queues_run_out_with_emfile),
	T_ROW(one_queue_serves_both_directions),
	T_ROW(events_come_in_the_order_of_completion),
	T_ROW(threads_take_each_event_once),
	T_ROW(a_handle_prints_as_a_number),
	T_ROW(memory_registered_before_serves_a_later_socket),
	T_ROW(memory_may_be_registered_twice),
	T_ROW(unregistered_memory_of_any_size_will_do),
	T_ROW(a_sent_buffer_may_be_used_again),
	T_ROW(bytes_fill_receives_in_the_order_of_posting),
	T_ROW(a_receive_at_the_end_of_the_stream_is_zero),
	T_ROW(a_synchronous_receive_waits_its_turn),
	T_ROW(the_flags_of_accept_are_those_of_the_descriptor),
	T_ROW(accept_tells_the_true_length_of_an_address),
	T_ROW(close_comes_after_the_events_of_its_operations),
	T_ROW(a_close_does_not_take_back_what_was_sent),
	T_ROW(plain_names_answer_as_the_kernel),
	T_ROW(plain_options_are_the_kernels),
	T_ROW(plain_flags_are_the_kernels),
	T_ROW(plain_beginnings_are_the_kernels),
	T_ROW(a_plain_socket_takes_asynchronous_calls),
};

int main(int argc, char **argv)
{
	return conf_main(argc, argv, "calls", rows, T_COUNT(rows));
}
