/* SPDX-License-Identifier: BSD-2-Clause */
/* Bad input: each call returns the right errno and takes nothing, and valid
 * operations from before still work. */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/conformance/conf.h"
#include "tests/support/bytes.h"

static exs_qhandle_t q;
static char buf[4096];

/* A settled pair and a queue. */
static void begin(int fd[2])
{
	t_init();
	q = T_OK(exs_qcreate(16));
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], conf_here());
}

/* The pair is unharmed: bytes go both ways, by both kinds of call. */
static void end(int fd[2])
{
	t_no_event(q);
	t_settle_pair(fd[0], fd[1], conf_here());
	t_post_recv(fd[1], buf, 5, MSG_WAITALL, q, 1);
	t_send_all(fd[0], "right", 5, 0);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 1), 5);
	T(!memcmp(buf, "right", 5));
	t_post_send(fd[1], "wrong", 5, 0, q, 2);
	T_EQ(t_event_is(q, EXS_EVT_SEND, 2), 5);
	t_recv_all(fd[0], buf, 5);
	T(!memcmp(buf, "wrong", 5));
	t_no_event(q);
	T_OK(exs_qdelete(q));
	t_close(fd[0]);
	t_close(fd[1]);
}

static ssize_t asend(int s, const void *p, size_t len, int flags)
{
	return exs_send(s, p, len, flags, q, NULL, EXS_MHANDLE_UNREGISTERED);
}

static ssize_t arecv(int s, void *p, size_t len, int flags)
{
	return exs_recv(s, p, len, flags, q, NULL, EXS_MHANDLE_UNREGISTERED);
}

/* Every call that takes a descriptor says err for this one. */
static void all_calls_say(int s, int err)
{
	struct t_addr at = t_loopback(T_IPV4, 1);
	struct sockaddr *addr = (struct sockaddr *)&at.ss;
	exs_x_sockinfo_t info;
	socklen_t len = sizeof(int);
	int val = 0;

	T_ERR(t_send(s, "x", 1, MSG_NOSIGNAL), err);
	T_ERR(t_recv(s, buf, 1, 0), err);
	T_ERR(asend(s, "x", 1, MSG_NOSIGNAL), err);
	T_ERR(arecv(s, buf, 1, 0), err);
	T_ERR(exs_connect(s, addr, at.len, 0, T_SYNC), err);
	T_ERR(exs_connect(s, addr, at.len, 0, q, NULL), err);
	T_ERR(exs_accept(s, NULL, 0, T_SYNC), err);
	T_ERR(exs_accept(s, NULL, 0, q, NULL), err);
	T_ERR(exs_shutdown(s, SHUT_RDWR, T_SYNC), err);
	T_ERR(exs_shutdown(s, SHUT_RDWR, q, NULL), err);
	T_ERR(exs_cancel(s, NULL, EXS_CAF_FILDES), err);
	T_ERR(exs_bind(s, addr, at.len), err);
	T_ERR(exs_listen(s, 1), err);
	T_ERR(exs_getsockopt(s, SOL_SOCKET, SO_TYPE, &val, &len), err);
	T_ERR(exs_setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &val, len), err);
	T_ERR(exs_getsockname(s, addr, &at.len), err);
	T_ERR(exs_getpeername(s, addr, &at.len), err);
	T_ERR(exs_x_sockinfo(s, &info), err);
	T_ERR(exs_x_adopt(s), err);
	T_ERR(exs_x_downgrade(s), err);
	t_no_event(q);
}

static void a_number_that_is_no_descriptor_is_ebadf(void)
{
	int fd[2], hole;

	begin(fd);
	hole = T_OK(dup(0));
	close(hole);
	all_calls_say(hole, EBADF);
	all_calls_say(-1, EBADF);
	all_calls_say(-12345, EBADF);
	all_calls_say(INT_MAX, EBADF);
	all_calls_say(INT_MIN, EBADF);
	T_ERR(exs_close(hole, T_SYNC), EBADF);
	T_ERR(exs_close(-1, q, NULL), EBADF);
	T_ERR(exs_fcntl(hole, F_GETFL), EBADF);
	end(fd);
}

static void a_closed_connection_is_ebadf(void)
{
	int fd[2], more[2];

	begin(fd);
	t_pair(T_IPV4, more);
	t_settle_pair(more[0], more[1], conf_here());
	t_close(more[0]);
	all_calls_say(more[0], EBADF);
	T_ERR(exs_close(more[0], T_SYNC), EBADF);
	T_ERR(exs_close(more[0], q, NULL), EBADF);
	t_recv_end(more[1]);
	t_close(more[1]);
	end(fd);
}

static void pipes_and_files_are_not_sockets(void)
{
	int fd[2], p[2], f;

	begin(fd);
	T_OK(pipe(p));
	f = T_OK(open("/dev/null", O_RDWR | O_CLOEXEC));
	all_calls_say(p[0], ENOTSOCK);
	all_calls_say(p[1], ENOTSOCK);
	all_calls_say(f, ENOTSOCK);
	close(p[0]);
	close(p[1]);
	close(f);
	end(fd);
}

/* The error of an asynchronous call, told at once or by its event. */
static int error_of(ssize_t ret)
{
	if (ret < 0)
		return errno;
	return t_event(q).exs_errno;
}

static void udp_sockets_have_no_stream(void)
{
	exs_x_sockinfo_t info;
	int fd[2], u;

	begin(fd);
	T_ERR(exs_socket(AF_INET, SOCK_DGRAM, 0), ESOCKTNOSUPPORT);
	T_ERR(exs_socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_UDP),
	      ESOCKTNOSUPPORT);
	T_ERR(exs_socket(AF_UNIX, SOCK_DGRAM, 0), ESOCKTNOSUPPORT);
	u = T_OK(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	T_FAILS(t_send(u, "x", 1, 0), EDESTADDRREQ, EOPNOTSUPP, ENOTCONN);
	T_FAILS(t_recv(u, buf, 1, MSG_DONTWAIT), EAGAIN, EOPNOTSUPP);
	T_FAILS(exs_accept(u, NULL, 0, T_SYNC), EOPNOTSUPP);
	T(error_of(asend(u, "x", 1, 0)) != 0);
	T_ERR(exs_x_adopt(u), EOPNOTSUPP);
	T_OK(exs_x_sockinfo(u, &info));
	T_EQ(info.exs_x_reason, EXS_X_REASON_NOT_TCP);
	t_close(u);
	end(fd);
}

static void plain_unix_sockets_are_never_adopted(void)
{
	static const int types[] = { SOCK_STREAM, SOCK_SEQPACKET };
	static const int reasons[] = { EXS_X_REASON_PLAIN_SOCKET,
				       EXS_X_REASON_NOT_TCP };
	int fd[2], u[2];

	begin(fd);
	for (int i = 0; i < T_COUNT(types); i++) {
		T_OK(socketpair(AF_UNIX, types[i] | SOCK_CLOEXEC, 0, u));
		T_ERR(exs_x_adopt(u[0]), EOPNOTSUPP);
		T_EQ(t_info(u[0]).exs_x_reason, reasons[i]);
		t_close(u[0]);
		t_close(u[1]);
	}
	end(fd);
}

static void unconnected_sockets_say_so(void)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	int fd[2], s, err;

	begin(fd);
	s = T_OK(exs_socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	T_FAILS(t_send(s, "x", 1, MSG_NOSIGNAL), EPIPE, ENOTCONN);
	T_ERR(t_recv(s, buf, 1, 0), ENOTCONN);
	err = error_of(asend(s, "x", 1, MSG_NOSIGNAL));
	T_MSG(err == EPIPE || err == ENOTCONN, "send says %s", t_errname(err));
	T_EQ(error_of(arecv(s, buf, 1, 0)), ENOTCONN);
	T_ERR(t_shutdown(s, SHUT_WR), ENOTCONN);
	T_ERR(exs_getpeername(s, (struct sockaddr *)&ss, &len), ENOTCONN);
	T_ERR(exs_x_adopt(s), ENOTCONN);
	T_EQ(t_info(s).exs_x_reason, EXS_X_REASON_NOT_CONNECTED);
	T_ERR(exs_accept(s, NULL, 0, T_SYNC), EINVAL);
	T_EQ(error_of(exs_accept(s, NULL, 0, q, NULL)), EINVAL);
	T_OK(exs_listen(s, 1));
	T_ERR(t_recv(s, buf, 1, 0), ENOTCONN);
	t_close(s);
	end(fd);
}

static void connecting_twice_is_eisconn(void)
{
	struct t_addr to, at;
	int fd[2], l, s;

	begin(fd);
	l = t_listener(T_IPV4, &at);
	s = T_OK(exs_socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	T_OK(exs_connect(s, (struct sockaddr *)&at.ss, at.len, 0, q, NULL));
	T_EQ(t_event(q).exs_errno, 0);
	T_EQ(error_of(exs_connect(s, (struct sockaddr *)&at.ss, at.len, 0, q,
				  NULL)),
	     EISCONN);
	t_close(s);
	t_close(l);
	to = t_loopback(T_IPV4, t_port_of(fd[1]));
	T_ERR(exs_connect(fd[0], (struct sockaddr *)&to.ss, to.len, 0, T_SYNC),
	      EISCONN);
	T_EQ(error_of(exs_connect(fd[0], (struct sockaddr *)&to.ss, to.len, 0,
				  q, NULL)),
	     EISCONN);
	end(fd);
}

static void bad_addresses_are_refused(void)
{
	struct t_addr to = t_loopback(T_IPV4, 1);
	struct sockaddr *addr = (struct sockaddr *)&to.ss;
	int fd[2], s;

	begin(fd);
	s = T_OK(exs_socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	T_FAILS(exs_connect(s, NULL, to.len, 0, T_SYNC), EFAULT, EINVAL);
	T_FAILS(exs_connect(s, addr, 1, 0, T_SYNC), EINVAL);
	T_FAILS(exs_connect(s, addr, UINT_MAX, 0, T_SYNC), EINVAL);
	T_FAILS(exs_connect(s, NULL, to.len, 0, q, NULL), EFAULT, EINVAL);
	T_FAILS(exs_connect(s, addr, UINT_MAX, 0, q, NULL), EINVAL);
	T_ERR(exs_connect(s, addr, 0, 0, q, NULL), EINVAL);
	T_ERR(exs_connect(s, addr, 1, 0, q, NULL), EINVAL);
	T_ERR(exs_connect(s, addr, to.len - 1, 0, q, NULL), EINVAL);
	T_FAILS(exs_bind(s, NULL, to.len), EFAULT, EINVAL);
	T_FAILS(exs_connect(s, addr, to.len, 0x40000000, T_SYNC), EINVAL,
		EOPNOTSUPP);
	to.ss.ss_family = AF_UNIX;
	T_FAILS(exs_connect(s, addr, to.len, 0, T_SYNC), EAFNOSUPPORT, EINVAL);
	t_close(s);
	end(fd);
}

static void queue_calls_refuse(exs_qhandle_t bad, int s)
{
	struct timeval none = { 0 };
	exs_event_t e;
	int val = 4;
	size_t len = sizeof(val);

	if (bad != EXS_QHANDLE_INVALID) {
		T_ERR(exs_send(s, "x", 1, 0, bad, NULL, 0), EINVAL);
		T_ERR(exs_recv(s, buf, 1, 0, bad, NULL, 0), EINVAL);
		T_ERR(exs_accept(s, NULL, 0, bad, NULL), EINVAL);
		T_ERR(exs_shutdown(s, SHUT_WR, bad, NULL), EINVAL);
		T_ERR(exs_close(s, bad, NULL), EINVAL);
	}
	T_ERR(exs_qdelete(bad), EINVAL);
	T_ERR(exs_qdequeue(bad, &e, 1, &none), EINVAL);
	T_ERR(exs_qmodify(bad, EXS_QATTR_DEPTH, &val, len), EINVAL);
	T_ERR(exs_qstatus(bad, EXS_QATTR_DEPTH, &val, &len), EINVAL);
	T_ERR(exs_x_qfd(bad), EINVAL);
}

static void wrong_queue_handles_are_einval(void)
{
	static const int wrong[] = { -1, -2, 0, INT_MAX, INT_MIN, 0x12345678 };
	int fd[2], i;

	begin(fd);
	for (i = 0; i < T_COUNT(wrong); i++)
		queue_calls_refuse(wrong[i], fd[0]);
	queue_calls_refuse(q + 1, fd[0]);
	end(fd);
}

static void handles_of_deleted_queues_are_einval(void)
{
	exs_qhandle_t old[200];
	int fd[2], i;

	begin(fd);
	for (i = 0; i < T_COUNT(old); i++) {
		old[i] = T_OK(exs_qcreate(1));
		T(old[i] != q);
		T_OK(exs_qdelete(old[i]));
		queue_calls_refuse(old[i], fd[0]);
		queue_calls_refuse(old[i / 2], fd[0]);
	}
	end(fd);
}

static void memory_calls_refuse(exs_mhandle_t m, int fd[2], char *p, size_t n)
{
	T_ERR(exs_send(fd[0], p, n, 0, q, NULL, m), EINVAL);
	T_ERR(exs_recv(fd[0], p, n, 0, q, NULL, m), EINVAL);
	T_ERR(exs_send(fd[0], p, n, 0, T_SYNC, m), EINVAL);
	T_ERR(exs_recv(fd[0], p, n, MSG_DONTWAIT, T_SYNC, m), EINVAL);
}

static void wrong_memory_handles_are_einval(void)
{
	static const int wrong[] = { -1, -2, INT_MAX, INT_MIN, 0x12345678 };
	int fd[2], i;

	begin(fd);
	for (i = 0; i < T_COUNT(wrong); i++) {
		memory_calls_refuse(wrong[i], fd, buf, 1);
		T_ERR(exs_mderegister(wrong[i], 0), EINVAL);
	}
	T_ERR(exs_mderegister(EXS_MHANDLE_UNREGISTERED, 0), EINVAL);
	end(fd);
}

static void handles_of_deregistered_memory_are_einval(void)
{
	exs_mhandle_t m, again;
	int fd[2];

	begin(fd);
	m = T_OK(exs_mregister(buf, sizeof(buf), 0));
	T(m > 0);
	T_OK(exs_mderegister(m, 0));
	memory_calls_refuse(m, fd, buf, 1);
	T_ERR(exs_mderegister(m, 0), EINVAL);
	again = T_OK(exs_mregister(buf, sizeof(buf), 0));
	T(again != m);
	memory_calls_refuse(m, fd, buf, 1);
	T_OK(exs_mderegister(again, 0));
	end(fd);
}

static void buffers_outside_a_registration_are_einval(void)
{
	exs_mhandle_t m;
	int fd[2];

	begin(fd);
	m = T_OK(exs_mregister(buf + 100, 1000, 0));
	memory_calls_refuse(m, fd, buf, 10);
	memory_calls_refuse(m, fd, buf + 99, 1);
	memory_calls_refuse(m, fd, buf + 99, 2);
	memory_calls_refuse(m, fd, buf + 1100, 1);
	memory_calls_refuse(m, fd, buf + 1099, 2);
	memory_calls_refuse(m, fd, buf + 100, 1001);
	memory_calls_refuse(m, fd, buf + 100, SIZE_MAX);
	memory_calls_refuse(m, fd, buf + 200, SIZE_MAX - 50);
	T_EQ(exs_send(fd[0], buf + 100, 1000, 0, T_SYNC, m), 1000);
	T_EQ(exs_recv(fd[1], buf + 1099, 1, 0, T_SYNC, m), 1);
	t_recv_all(fd[1], buf, 999);
	T_OK(exs_mderegister(m, 0));
	end(fd);
}

static void absurd_registrations_are_refused(void)
{
	int fd[2];

	begin(fd);
	T_FAILS(exs_mregister(NULL, 10, 0), EINVAL, EFAULT);
	T_FAILS(exs_mregister(buf, 0, 0), EINVAL);
	T_FAILS(exs_mregister(buf, SIZE_MAX, 0), EINVAL, EFAULT, ENOMEM);
	T_FAILS(exs_mregister((void *)(UINTPTR_MAX - 9), 100, 0), EINVAL,
		EFAULT, ENOMEM);
	T_FAILS(exs_mregister(buf, 10, 0x80), EINVAL);
	T_FAILS(exs_mregister(buf, 10, -1), EINVAL);
	end(fd);
}

static void null_buffers_are_refused(void)
{
	int fd[2];

	begin(fd);
	T_FAILS(t_send(fd[0], NULL, 1, 0), EFAULT, EINVAL);
	T_FAILS(asend(fd[0], NULL, 1, 0), EFAULT, EINVAL);
	t_send_all(fd[1], "kept", 4, 0);
	T_FAILS(t_recv(fd[0], NULL, 1, 0), EFAULT, EINVAL);
	T_FAILS(arecv(fd[0], NULL, 1, 0), EFAULT, EINVAL);
	t_recv_all(fd[0], buf, 4);
	T(!memcmp(buf, "kept", 4));
	end(fd);
}

static void absurd_lengths_are_refused(void)
{
	int fd[2];

	begin(fd);
	T_FAILS(t_send(fd[0], buf, SIZE_MAX, 0), EINVAL, EFAULT, EMSGSIZE);
	T_FAILS(asend(fd[0], buf, SIZE_MAX, 0), EINVAL, EFAULT, EMSGSIZE);
	T_FAILS(asend(fd[0], buf, (size_t)SSIZE_MAX + 1, 0), EINVAL, EFAULT,
		EMSGSIZE);
	t_send_all(fd[1], "kept", 4, 0);
	T_FAILS(t_recv(fd[0], buf, SIZE_MAX, 0), EINVAL, EFAULT, EMSGSIZE);
	T_FAILS(arecv(fd[0], buf, SIZE_MAX, 0), EINVAL, EFAULT, EMSGSIZE);
	t_recv_all(fd[0], buf, 4);
	T(!memcmp(buf, "kept", 4));
	end(fd);
}

static void nothing_to_move_is_fine(void)
{
	int fd[2];

	begin(fd);
	T_EQ(t_send(fd[0], buf, 0, 0), 0);
	T_EQ(t_send(fd[0], NULL, 0, 0), 0);
	t_post_send(fd[0], buf, 0, 0, q, 3);
	T_EQ(t_event_is(q, EXS_EVT_SEND, 3), 0);
	T_ERR(t_recv(fd[1], buf, 1, MSG_DONTWAIT), EAGAIN);
	/* A receive of no bytes waits for some, as that of TCP. */
	T_ERR(t_recv(fd[1], buf, 0, MSG_DONTWAIT), EAGAIN);
	T_ERR(t_recv(fd[1], buf, 0, MSG_DONTWAIT | MSG_PEEK), EAGAIN);
	t_post_recv(fd[1], NULL, 0, 0, q, 4);
	t_no_event(q);
	t_send_all(fd[0], "x", 1, 0);
	T_EQ(t_event_is(q, EXS_EVT_RECV, 4), 0);
	T_EQ(t_recv(fd[1], buf, 0, 0), 0);
	T_EQ(t_recv(fd[1], buf, 0, MSG_PEEK), 0);
	t_recv_all(fd[1], buf, 1);
	end(fd);
}

static void unknown_flags_are_refused(void)
{
	static const unsigned int unknown = 0x08000000;
	int fd[2];

	begin(fd);
	T_FAILS(t_send(fd[0], "x", 1, unknown), EINVAL, EOPNOTSUPP);
	T_FAILS(asend(fd[0], "x", 1, unknown), EINVAL, EOPNOTSUPP);
	T_FAILS(t_recv(fd[0], buf, 1, unknown), EINVAL, EOPNOTSUPP);
	T_FAILS(arecv(fd[0], buf, 1, unknown), EINVAL, EOPNOTSUPP);
	T_FAILS(exs_shutdown(fd[0], 99, T_SYNC), EINVAL);
	T_FAILS(exs_shutdown(fd[0], 99, q, NULL), EINVAL);
	T_FAILS(exs_cancel(fd[0], NULL, 0), EINVAL);
	T_FAILS(exs_cancel(fd[0], NULL, 0x40), EINVAL);
	T_FAILS(exs_cancel(fd[0], NULL, EXS_CAF_FILDES | 0x40), EINVAL);
	end(fd);
}

static void unknown_flags_of_accept_and_memory_are_refused(void)
{
	struct t_addr at;
	exs_mhandle_t m;
	int fd[2], l;

	begin(fd);
	l = t_listener(T_IPV4, &at);
	T_FAILS(exs_accept(l, NULL, 0x1234567, T_SYNC), EINVAL);
	T_FAILS(exs_accept(l, NULL, 0x1234567, q, NULL), EINVAL);
	t_close(l);
	m = T_OK(exs_mregister(buf, sizeof(buf), EXS_MRF_SHARED));
	T_FAILS(exs_mderegister(m, 0x80), EINVAL);
	T_OK(exs_mderegister(m, 0));
	end(fd);
}

static void absurd_depths_are_refused(void)
{
	static const int wrong[] = { 0, -1, INT_MAX, INT_MIN,
				     EXS_QDEPTH_MAX + 1 };
	exs_qhandle_t other;
	int fd[2], i;

	begin(fd);
	for (i = 0; i < T_COUNT(wrong); i++) {
		T_ERR(exs_qcreate(wrong[i]), EINVAL);
		T_ERR(exs_qmodify(q, EXS_QATTR_DEPTH, &wrong[i], sizeof(int)),
		      EINVAL);
	}
	other = T_OK(exs_qcreate(EXS_QDEPTH_MAX));
	T_OK(exs_qdelete(other));
	other = T_OK(exs_qcreate(1));
	T_OK(exs_qdelete(other));
	end(fd);
}

static void absurd_dequeues_are_refused(void)
{
	struct timeval none = { 0 }, bad_usec = { .tv_usec = 1000000 };
	struct timeval negative = { .tv_sec = -1 };
	exs_event_t e;
	int fd[2];

	begin(fd);
	T_ERR(exs_qdequeue(q, &e, EXS_EVTVEC_MAX + 1, &none), EINVAL);
	T_ERR(exs_qdequeue(q, &e, INT_MAX, &none), EINVAL);
	T_ERR(exs_qdequeue(q, &e, INT_MIN, &none), EINVAL);
	T_ERR(exs_qdequeue(q, &e, -EXS_EVTVEC_MAX - 1, &none), EINVAL);
	T_ERR(exs_qdequeue(q, &e, -17, &none), EINVAL);
	T_FAILS(exs_qdequeue(q, NULL, 1, &none), EINVAL, EFAULT);
	T_ERR(exs_qdequeue(q, &e, 1, &bad_usec), EINVAL);
	T_ERR(exs_qdequeue(q, &e, 1, &negative), EINVAL);
	end(fd);
}

static void absurd_attributes_are_refused(void)
{
	exs_signal_t sig = { .exs_enable = EXS_SIG_ENABLE, .exs_signo = 4711 };
	int fd[2], val = 99;
	size_t len = sizeof(val), small = 1;

	begin(fd);
	T_ERR(exs_qmodify(q, 77, &val, len), EINVAL);
	T_ERR(exs_qmodify(q, EXS_QATTR_EVENTS, &val, len), EINVAL);
	T_ERR(exs_qmodify(q, EXS_QATTR_WAIT, &val, len), EINVAL);
	T_ERR(exs_qmodify(q, EXS_QATTR_WAIT, &val, 1), EINVAL);
	T_FAILS(exs_qmodify(q, EXS_QATTR_WAIT, NULL, len), EINVAL, EFAULT);
	T_ERR(exs_qmodify(q, EXS_QATTR_SIGNAL, &sig, sizeof(sig)), EINVAL);
	T_ERR(exs_qmodify(q, EXS_QATTR_SIGNAL, &sig, 1), EINVAL);
	T_ERR(exs_qstatus(q, 77, &val, &len), EINVAL);
	T_ERR(exs_qstatus(q, EXS_QATTR_DEPTH, &val, &small), EINVAL);
	T_FAILS(exs_qstatus(q, EXS_QATTR_DEPTH, NULL, &len), EINVAL, EFAULT);
	T_FAILS(exs_qstatus(q, EXS_QATTR_DEPTH, &val, NULL), EINVAL, EFAULT);
	T_FAILS(exs_x_sockinfo(fd[0], NULL), EINVAL, EFAULT);
	end(fd);
}

/* Sends may overlap; so may receives, whose content is then anybody's guess,
 * but whose events are not. */
static void overlapping_buffers_do_no_harm(void)
{
	static char out[3000], in[3000];
	size_t sum = 0;
	int fd[2], i;

	begin(fd);
	t_fill(out, sizeof(out), 1, 0);
	for (i = 0; i < 4; i++)
		t_post_send(fd[0], out, sizeof(out) - i * 500, 0, q, i);
	for (i = 0; i < 4; i++)
		T_EQ(t_event_is(q, EXS_EVT_SEND, i), sizeof(out) - i * 500);
	for (i = 0; i < 4; i++)
		t_recv_stream(fd[1], 1, 0, sizeof(out) - i * 500, 700);
	for (i = 0; i < 4; i++)
		t_post_recv(fd[1], in + i * 100, 1000, MSG_WAITALL, q, i);
	t_send_all(fd[0], out, 3000, 0);
	t_send_all(fd[0], out, 1000, 0);
	for (i = 0; i < 4; i++)
		sum += t_event_is(q, EXS_EVT_RECV, i);
	T_EQ(sum, 4000);
	T_EQ(exs_send(fd[0], in, 10, 0, T_SYNC, 0), 10);
	T_EQ(exs_recv(fd[1], in + 5, 10, 0, T_SYNC, 0), 10);
	end(fd);
}

static void spin(int64_t since, int64_t ns)
{
	while (t_now_ns() - since < ns)
		;
}

/* A number that plain calls closed and the kernel gave out again belongs to
 * the new socket, once it rested for a millisecond; also while the library,
 * which the old peer has told of the end, lets go of the old one. */
static void reuse_after(bool receives, int64_t ns)
{
	int old[2], fresh[2], number;

	t_pair(T_IPV4, old);
	t_settle_pair(old[0], old[1], conf_here());
	T_EQ(t_send(old[1], "old", 3, 0), 3);
	number = old[0];
	spin(t_now_ns(), 1000000);
	T_OK(close(number));
	spin(t_now_ns(), ns);
	T_OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fresh));
	T_EQ(fresh[0], number);
	if (receives) {
		T_EQ(send(fresh[1], "new", 3, 0), 3);
		T_EQ(t_recv(number, buf, 3, 0), 3);
	} else {
		T_EQ(t_send(number, "new", 3, 0), 3);
		T(t_readable(fresh[1], 5000));
		T_EQ(recv(fresh[1], buf, 3, 0), 3);
	}
	T_MSG(!memcmp(buf, "new", 3), "got \"%.3s\"", buf);
	T_EQ(t_info(number).exs_x_reason, EXS_X_REASON_PLAIN_SOCKET);
	t_close(old[1]);
	t_close(fresh[0]);
	t_close(fresh[1]);
}

/* As often as two seconds allow: the moments differ. */
static void reuse(bool receives)
{
	int64_t end_at = t_now_ns() + 2000000000;
	int fd[2], i = 0;

	if (!t_can(t_has_cookies(), "SO_COOKIE"))
		return;
	begin(fd);
	do
		reuse_after(receives, 2000 * (i++ % 100));
	while (t_now_ns() < end_at);
	end(fd);
}

static void a_reused_number_sends_to_the_new_socket(void)
{
	reuse(false);
}

static void a_reused_number_receives_from_the_new_socket(void)
{
	reuse(true);
}

/* That the old socket's end was said is not the new one's, though no peer of
 * the old one was ever met. */
static void a_reused_number_has_not_ended(void)
{
	int fd[2], old[2], fresh[2];
	int64_t used;

	if (!t_can(t_has_cookies(), "SO_COOKIE"))
		return;
	begin(fd);
	t_pair(T_IPV4, old);
	T_OK(t_shutdown(old[0], SHUT_WR));
	t_recv_end(old[1]);
	T_EQ(error_of(asend(old[0], "x", 1, MSG_NOSIGNAL)), EPIPE);
	used = t_now_ns();
	T_OK(close(old[0]));
	while (t_now_ns() - used < 1000000)
		;
	T_OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fresh));
	T_EQ(fresh[0], old[0]);
	t_post_send(fresh[0], "new", 3, 0, q, 7);
	T_EQ(t_event_is(q, EXS_EVT_SEND, 7), 3);
	T_EQ(recv(fresh[1], buf, 3, 0), 3);
	T_EQ(t_info(fresh[0]).exs_x_reason, EXS_X_REASON_PLAIN_SOCKET);
	t_close(old[1]);
	t_close(fresh[0]);
	t_close(fresh[1]);
	end(fd);
}

static void a_number_reused_by_another_connection_is_that_one(void)
{
	int fd[2], old[2], fresh[2];

	begin(fd);
	t_pair(T_IPV4, old);
	t_settle_pair(old[0], old[1], conf_here());
	T_OK(close(old[0]));
	T_OK(close(old[1]));
	t_pair(T_IPV4, fresh);
	T(fresh[0] == old[0] || fresh[1] == old[0]);
	t_settle_pair(fresh[0], fresh[1], conf_here());
	t_close(fresh[0]);
	t_recv_end(fresh[1]);
	t_close(fresh[1]);
	end(fd);
}

static const struct t_row rows[] = {
	T_ROW(a_number_that_is_no_descriptor_is_ebadf),
	T_ROW(a_closed_connection_is_ebadf),
	T_ROW(pipes_and_files_are_not_sockets),
	T_ROW(udp_sockets_have_no_stream),
	T_ROW(plain_unix_sockets_are_never_adopted),
	T_ROW(unconnected_sockets_say_so),
	T_ROW(connecting_twice_is_eisconn),
	T_ROW(bad_addresses_are_refused),
	T_ROW(wrong_queue_handles_are_einval),
	T_ROW(handles_of_deleted_queues_are_einval),
	T_ROW(wrong_memory_handles_are_einval),
	T_ROW(handles_of_deregistered_memory_are_einval),
	T_ROW(buffers_outside_a_registration_are_einval),
	T_ROW(absurd_registrations_are_refused),
	T_ROW(null_buffers_are_refused),
	T_ROW(absurd_lengths_are_refused),
	T_ROW(nothing_to_move_is_fine),
	T_ROW(unknown_flags_are_refused),
	T_ROW(unknown_flags_of_accept_and_memory_are_refused),
	T_ROW(absurd_depths_are_refused),
	T_ROW(absurd_dequeues_are_refused),
	T_ROW(absurd_attributes_are_refused),
	T_ROW(overlapping_buffers_do_no_harm),
	T_ROW(a_reused_number_sends_to_the_new_socket),
	T_ROW(a_reused_number_receives_from_the_new_socket),
	T_ROW(a_reused_number_has_not_ended),
	T_ROW(a_number_reused_by_another_connection_is_that_one),
};

int main(int argc, char **argv)
{
	return conf_main(argc, argv, "errors", rows, T_COUNT(rows));
}
