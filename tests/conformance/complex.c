/* SPDX-License-Identifier: BSD-2-Clause */
/* Bad input of calls that take a structure: each call returns the right errno
 * and takes nothing, and valid operations from before still work. */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "tests/conformance/conf.h"

static exs_qhandle_t q;
static char buf[4096];

/* A settled pair and a queue. */
static void begin(int fd[2])
{
	t_init();
	q = T_OK(exs_qcreate(4));
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], conf_here());
}

/* Nothing was taken: all slots are free, and no byte is on its way. */
static void end(int fd[2])
{
	t_no_event(q);
	T_ERR(t_recv(fd[0], buf, 1, MSG_DONTWAIT), EAGAIN);
	T_ERR(t_recv(fd[1], buf, 1, MSG_DONTWAIT), EAGAIN);
	for (long i = 0; i < 4; i++)
		t_post_send(fd[0], "four", 4, 0, q, i);
	for (long i = 0; i < 4; i++)
		T_EQ(t_event_is(q, EXS_EVT_SEND, i), 4);
	t_recv_all(fd[1], buf, 16);
	T_OK(exs_qdelete(q));
	t_close(fd[0]);
	t_close(fd[1]);
}

/* Both calls, both forms. */
static void messages_say(int s, exs_msghdr_t *m, int err)
{
	T_ERR(exs_sendmsg(s, m, MSG_NOSIGNAL, T_SYNC), err);
	T_ERR(exs_sendmsg(s, m, MSG_NOSIGNAL, q, NULL), err);
	T_ERR(exs_recvmsg(s, m, MSG_DONTWAIT, T_SYNC), err);
	T_ERR(exs_recvmsg(s, m, MSG_DONTWAIT, q, NULL), err);
}

static exs_iovec_t two[] = { { buf, 10, 0 }, { buf + 10, 10, 0 } };

static exs_msghdr_t good(void)
{
	return (exs_msghdr_t){ .exs_msg_iov = two, .exs_msg_iovlen = 2 };
}

static void messages_need_a_connection(void)
{
	exs_msghdr_t m = good(), none = { 0 };
	int fd[2], p[2], hole;

	begin(fd);
	hole = T_OK(dup(0));
	close(hole);
	messages_say(hole, &m, EBADF);
	messages_say(-1, &m, EBADF);
	messages_say(INT_MAX, &m, EBADF);
	messages_say(INT_MIN, &none, EBADF);
	T_OK(pipe(p));
	messages_say(p[0], &m, ENOTSOCK);
	messages_say(p[1], &none, ENOTSOCK);
	close(p[0]);
	close(p[1]);
	end(fd);
}

static void absurd_messages_are_refused(void)
{
	exs_msghdr_t m;
	int fd[2];

	begin(fd);
	messages_say(fd[0], NULL, EFAULT);
	m = good();
	m.exs_msg_iov = NULL;
	messages_say(fd[0], &m, EFAULT);
	m = good();
	m.exs_msg_iovlen = -1;
	messages_say(fd[0], &m, EINVAL);
	m.exs_msg_iovlen = INT_MIN;
	messages_say(fd[0], &m, EINVAL);
	m.exs_msg_iovlen = IOV_MAX + 1;
	messages_say(fd[0], &m, EMSGSIZE);
	m.exs_msg_iovlen = INT_MAX;
	messages_say(fd[0], &m, EMSGSIZE);
	m = good();
	m.exs_msg_name = buf;
	messages_say(fd[0], &m, EOPNOTSUPP);
	m = good();
	m.exs_msg_namelen = 16;
	messages_say(fd[0], &m, EOPNOTSUPP);
	m = good();
	m.exs_msg_control = buf;
	messages_say(fd[0], &m, EOPNOTSUPP);
	m = good();
	m.exs_msg_controllen = 16;
	messages_say(fd[0], &m, EOPNOTSUPP);
	end(fd);
}

static void absurd_pieces_are_refused(void)
{
	exs_iovec_t v[8];
	exs_msghdr_t m = { .exs_msg_iov = v, .exs_msg_iovlen = 8 };
	exs_mhandle_t h;
	int fd[2];

	begin(fd);
	h = T_OK(exs_mregister(buf + 100, 1000, 0));
	/* Whichever piece it is, those before it are let go. */
	for (int bad = 0; bad < 8; bad++) {
		for (int i = 0; i < 8; i++)
			v[i] = (exs_iovec_t){ buf + 100 + i, 1, h };
		v[bad].exs_iov_base = NULL;
		messages_say(fd[0], &m, EFAULT);
		v[bad] = (exs_iovec_t){ buf, 1, h };
		messages_say(fd[0], &m, EINVAL);
		v[bad] = (exs_iovec_t){ buf + 1099, 2, h };
		messages_say(fd[0], &m, EINVAL);
		v[bad] = (exs_iovec_t){ buf + 100, 1, h + 1 };
		messages_say(fd[0], &m, EINVAL);
		v[bad] = (exs_iovec_t){ buf + 100, 1, -1 };
		messages_say(fd[0], &m, EINVAL);
		v[bad] = (exs_iovec_t){ buf, SIZE_MAX, 0 };
		messages_say(fd[0], &m, EINVAL);
		v[bad] = (exs_iovec_t){ buf, SSIZE_MAX, 0 };
		messages_say(fd[0], &m, EINVAL);
	}
	T_OK(exs_mderegister(h, 0));
	end(fd);
}

static void unknown_flags_of_messages_are_refused(void)
{
	static const int oob = MSG_OOB;
	exs_msghdr_t m = good();
	int fd[2];

	begin(fd);
	for (int bit = 0; bit < 31; bit++) {
		int f = 1 << bit;

		if (!(f & (MSG_DONTWAIT | MSG_MORE | MSG_NOSIGNAL | oob)))
			T_ERR(exs_sendmsg(fd[0], &m, f, T_SYNC), EINVAL);
		if (!(f & (MSG_DONTWAIT | MSG_MORE | MSG_NOSIGNAL)))
			T_ERR(exs_sendmsg(fd[0], &m, f, q, NULL), EINVAL);
		if (!(f & (MSG_DONTWAIT | MSG_PEEK | MSG_WAITALL | oob)))
			T_ERR(exs_recvmsg(fd[0], &m, f, T_SYNC), EINVAL);
		if (!(f & (MSG_DONTWAIT | MSG_WAITALL)))
			T_ERR(exs_recvmsg(fd[0], &m, f, q, NULL), EINVAL);
	}
	end(fd);
}

static void messages_want_a_queue_with_room(void)
{
	static const int wrong[] = { -2, 0, INT_MAX, INT_MIN, 0x12345678 };
	exs_msghdr_t m = good();
	int fd[2];

	begin(fd);
	for (size_t i = 0; i < T_COUNT(wrong); i++) {
		T_ERR(exs_sendmsg(fd[0], &m, 0, wrong[i], NULL), EINVAL);
		T_ERR(exs_recvmsg(fd[0], &m, 0, wrong[i], NULL), EINVAL);
	}
	for (long i = 0; i < 4; i++)
		T_EQ(exs_recvmsg(fd[0], &m, 0, q, NULL), 0);
	messages_say(fd[1], NULL, EFAULT);
	T_ERR(exs_sendmsg(fd[0], &m, 0, q, NULL), EAGAIN);
	T_ERR(exs_recvmsg(fd[0], &m, 0, q, NULL), EAGAIN);
	T_EQ(exs_cancel(fd[0], NULL, EXS_CAF_FILDES), 4);
	for (int i = 0; i < 4; i++)
		T_EQ(t_event(q).exs_errno, ECANCELED);
	end(fd);
}

static int events_of(exs_qhandle_t queue)
{
	int n = -1;
	size_t len = sizeof(n);

	T_OK(exs_qstatus(queue, EXS_QATTR_EVENTS, &n, &len));
	return n;
}

static void memory_of_messages_is_busy_until_the_event(void)
{
	exs_iovec_t v[7];
	exs_msghdr_t m = { .exs_msg_iov = v };
	exs_mhandle_t h[7];
	int fd[2];

	begin(fd);
	for (m.exs_msg_iovlen = 2; m.exs_msg_iovlen <= 7;
	     m.exs_msg_iovlen += 5) {
		int n = m.exs_msg_iovlen;

		for (int i = 0; i < n; i++) {
			h[i] = T_OK(exs_mregister(buf + 100 * i, 100, 0));
			v[i] = (exs_iovec_t){ buf + 100 * i, 100, h[i] };
		}
		T_EQ(exs_recvmsg(fd[0], &m, 0, q, NULL), 0);
		for (int i = 0; i < n; i++)
			T_ERR(exs_mderegister(h[i], 0), EBUSY);
		T_ERR(exs_qdelete(q), EBUSY);
		t_send_all(fd[1], "x", 1, 0);
		T_UNTIL(events_of(q) == 1);
		for (int i = 0; i < n; i++)
			T_ERR(exs_mderegister(h[i], 0), EBUSY);
		T_EQ(t_event(q).exs_errno, 0);
		for (int i = 0; i < n; i++)
			T_OK(exs_mderegister(h[i], 0));
	}
	end(fd);
}

static void a_child_has_its_memory_to_itself(void)
{
	exs_iovec_t v = { buf, 100,
			  T_OK((t_init(), exs_mregister(buf, 100, 0))) };
	exs_msghdr_t m = { .exs_msg_iov = &v, .exs_msg_iovlen = 1 };
	int fd[2];
	pid_t pid;

	begin(fd);
	T_EQ(exs_recvmsg(fd[0], &m, 0, q, NULL), 0);
	pid = t_fork();
	if (pid == 0) {
		T_OK(exs_mderegister(v.exs_iov_mhandle, 0));
		_exit(0);
	}
	t_join(pid);
	T_ERR(exs_mderegister(v.exs_iov_mhandle, 0), EBUSY);
	T_EQ(exs_cancel(fd[0], NULL, EXS_CAF_FILDES), 1);
	T_EQ(t_event(q).exs_errno, ECANCELED);
	T_OK(exs_mderegister(v.exs_iov_mhandle, 0));
	end(fd);
}

static void messages_without_bytes_are_fine(void)
{
	exs_iovec_t v[] = { { NULL, 0, 0 }, { buf, 0, 0 } };
	exs_msghdr_t m = { .exs_msg_iov = v };
	int fd[2];

	begin(fd);
	for (m.exs_msg_iovlen = 0; m.exs_msg_iovlen <= 2; m.exs_msg_iovlen++) {
		T_EQ(exs_sendmsg(fd[0], &m, 0, T_SYNC), 0);
		T_EQ(exs_sendmsg(fd[0], &m, 0, q, (exs_ahandle_t)1), 0);
		T_EQ(t_event(q).exs_errno, 0);
	}
	end(fd);
}

/* --- files -------------------------------------------------------------- */

static void files_say(int s, const exs_xferfile_t *xf, int n, int err)
{
	T_ERR(exs_sendfile(s, xf, n, MSG_NOSIGNAL, T_SYNC), err);
	T_ERR(exs_sendfile(s, xf, n, MSG_NOSIGNAL, q, NULL), err);
}

static exs_xferfile_t of_file(int fd, off_t at, size_t len)
{
	return (exs_xferfile_t){ EXS_FDVEC,
				 { .exs_xf_fdvec = { fd, at, len } } };
}

static exs_xferfile_t of_memory(void *base, size_t len, exs_mhandle_t h)
{
	return (exs_xferfile_t){ EXS_IOVEC,
				 { .exs_xf_iovec = { base, len, h } } };
}

static int file_of(off_t len)
{
	int fd = T_OK(memfd_create("file", MFD_CLOEXEC));

	T_OK(ftruncate(fd, len));
	return fd;
}

static void absurd_files_are_refused(void)
{
	int fd[2], p[2], file, out, path;
	exs_xferfile_t xf[2];
	exs_mhandle_t h;

	begin(fd);
	file = file_of(100);
	T_OK(pipe(p));
	out = T_OK(open("/proc/self/comm", O_WRONLY | O_CLOEXEC));
	path = T_OK(open("/proc/self/exe", O_PATH | O_CLOEXEC));
	h = T_OK(exs_mregister(buf, 100, 0));
	xf[0] = of_memory(buf, 1, h);
	xf[1] = of_file(file, 0, 10);
	files_say(fd[0], NULL, 1, EFAULT);
	files_say(fd[0], xf, -1, EINVAL);
	files_say(fd[0], xf, INT_MIN, EINVAL);
	files_say(fd[0], xf, IOV_MAX + 1, EMSGSIZE);
	files_say(fd[0], xf, INT_MAX, EMSGSIZE);
	files_say(-1, xf, 2, EBADF);
	files_say(p[0], xf, 2, ENOTSOCK);
	files_say(file, xf, 2, ENOTSOCK);
	xf[1] = of_file(-1, 0, 10);
	files_say(fd[0], xf, 2, EBADF);
	xf[1] = of_file(INT_MAX, 0, 10);
	files_say(fd[0], xf, 2, EBADF);
	xf[1] = of_file(out, 0, 0);
	files_say(fd[0], xf, 2, EBADF);
	xf[1] = of_file(path, 0, 0);
	files_say(fd[0], xf, 2, EBADF);
	xf[1] = of_file(p[0], 0, 0);
	files_say(fd[0], xf, 2, EINVAL);
	xf[1] = of_file(fd[1], 0, 0);
	files_say(fd[0], xf, 2, EINVAL);
	xf[1] = of_file(file, -1, 10);
	files_say(fd[0], xf, 2, EINVAL);
	xf[1] = of_file(file, 0, 101);
	files_say(fd[0], xf, 2, EINVAL);
	xf[1] = of_file(file, 95, 6);
	files_say(fd[0], xf, 2, EINVAL);
	xf[1] = of_file(file, 101, 0);
	files_say(fd[0], xf, 2, EINVAL);
	xf[1] = of_file(file, 50, SIZE_MAX - 20);
	files_say(fd[0], xf, 2, EINVAL);
	xf[1] = of_memory(NULL, 1, 0);
	files_say(fd[0], xf, 2, EFAULT);
	xf[1] = of_memory(buf + 50, 51, h);
	files_say(fd[0], xf, 2, EINVAL);
	xf[1] = of_file(file, 0, 10);
	for (int type = -1; type < 5; type++) {
		xf[1].exs_xf_type = type;
		if (type != EXS_FDVEC && type != EXS_IOVEC)
			files_say(fd[0], xf, 2, EINVAL);
	}
	/* Those before it were let go. */
	T_OK(exs_mderegister(h, 0));
	close(file);
	close(out);
	close(path);
	close(p[0]);
	close(p[1]);
	end(fd);
}

static void unknown_flags_of_files_are_refused(void)
{
	int fd[2], file;
	exs_xferfile_t xf;

	begin(fd);
	file = file_of(100);
	xf = of_file(file, 0, 0);
	for (int bit = 0; bit < 31; bit++) {
		int f = 1 << bit;

		if (f & (MSG_DONTWAIT | MSG_MORE | MSG_NOSIGNAL | EXS_SHUT_WR))
			continue;
		T_ERR(exs_sendfile(fd[0], &xf, 1, f, T_SYNC), EINVAL);
		T_ERR(exs_sendfile(fd[0], &xf, 1, f, q, NULL), EINVAL);
	}
	T_ERR(exs_sendfile(fd[0], &xf, 1, 0, -2, NULL), EINVAL);
	T_ERR(exs_sendfile(fd[0], &xf, 1, 0, q + 1, NULL), EINVAL);
	close(file);
	end(fd);
}

/* --- polls -------------------------------------------------------------- */

static void polls_say(exs_pollfd_t *p, int n, int flags, int err)
{
	T_ERR(exs_poll(p, n, flags, T_SYNC), err);
	T_ERR(exs_poll(p, n, flags, q, NULL), err);
}

static void absurd_polls_are_refused(void)
{
	exs_pollfd_t p[2];
	int fd[2];

	begin(fd);
	for (int i = 0; i < 2; i++)
		p[i] = (exs_pollfd_t){ .exs_fd = fd[i],
				       .exs_events = EXS_POLLIN };
	polls_say(NULL, 1, 0, EFAULT);
	polls_say(p, 0, 0, EINVAL);
	polls_say(p, -1, 0, EINVAL);
	polls_say(p, INT_MIN, 0, EINVAL);
	polls_say(p, EXS_POLL_MAX + 1, 0, EINVAL);
	polls_say(p, INT_MAX, 0, EINVAL);
	for (int bit = 0; bit < 31; bit++)
		if (1 << bit != MSG_DONTWAIT)
			polls_say(p, 2, 1 << bit, EINVAL);
	for (int bit = 0; bit < 16; bit++) {
		p[1].exs_events = (short)(1 << bit);
		if (!(p[1].exs_events & (EXS_POLLIN | EXS_POLLOUT)))
			polls_say(p, 2, 0, EINVAL);
	}
	p[1].exs_events = EXS_POLLIN;
	T_ERR(exs_poll(p, 2, 0, -2, NULL), EINVAL);
	T_ERR(exs_poll(p, 2, 0, q + 1, NULL), EINVAL);
	p[0].exs_fd = p[1].exs_fd = -1;
	polls_say(p, 2, 0, EINVAL);
	end(fd);
}

/* A number without a descriptor is an answer, as of poll(2). */
static void polls_of_no_descriptor_have_an_answer(void)
{
	exs_pollfd_t p = { .exs_events = EXS_POLLIN };
	int fd[2];

	begin(fd);
	p.exs_fd = T_OK(dup(0));
	close(p.exs_fd);
	T_EQ(T_OK(exs_poll(&p, 1, 0, T_SYNC)), 1);
	T_EQ(p.exs_revents, EXS_POLLNVAL);
	p.exs_fd = INT_MAX;
	p.exs_revents = 0;
	T_EQ(T_OK(exs_poll(&p, 1, 0, q, NULL)), 0);
	T_EQ(t_event(q).exs_evt_un.exs_evt_poll.exs_evt_ready, 1);
	T_EQ(p.exs_revents, EXS_POLLNVAL);
	end(fd);
}

static void polls_want_a_queue_with_room(void)
{
	exs_pollfd_t p[5];
	int fd[2];

	begin(fd);
	for (int i = 0; i < 5; i++) {
		p[i] = (exs_pollfd_t){ .exs_fd = fd[0],
				       .exs_events = EXS_POLLIN };
		if (i < 4)
			T_EQ(exs_poll(&p[i], 1, 0, q, NULL), 0);
	}
	T_ERR(exs_poll(&p[4], 1, 0, q, NULL), EAGAIN);
	T_EQ(exs_cancel(fd[0], NULL, EXS_CAF_FILDES), 4);
	for (int i = 0; i < 4; i++)
		T_EQ(t_event(q).exs_errno, ECANCELED);
	end(fd);
}

/* --- time-outs ---------------------------------------------------------- */

static void timeouts_say(int s, const exs_timeout_t *t, socklen_t len, int err)
{
	T_ERR(exs_setsockopt(s, SOL_SOCKET, SO_ASYNC_SEND_TIMEOUT, t, len),
	      err);
	T_ERR(exs_setsockopt(s, SOL_SOCKET, SO_ASYNC_RECV_TIMEOUT, t, len),
	      err);
}

static void absurd_timeouts_are_refused(void)
{
	exs_timeout_t t, ok = { .exs_to_time = { 1, 0 } };
	socklen_t len = sizeof(t);
	int fd[2], p[2];

	begin(fd);
	T_OK(pipe(p));
	ok.exs_to_queue = q;
	timeouts_say(fd[0], NULL, len, EFAULT);
	timeouts_say(fd[0], &ok, len - 1, EINVAL);
	timeouts_say(fd[0], &ok, len + 1, EINVAL);
	timeouts_say(fd[0], &ok, 0, EINVAL);
	timeouts_say(-1, &ok, len, EBADF);
	timeouts_say(p[0], &ok, len, ENOTSOCK);
	t = ok;
	t.exs_to_time.tv_sec = -1;
	timeouts_say(fd[0], &t, len, EINVAL);
	t.exs_to_time.tv_sec = INT64_MAX;
	timeouts_say(fd[0], &t, len, EINVAL);
	t = ok;
	t.exs_to_time.tv_usec = 1000000;
	timeouts_say(fd[0], &t, len, EINVAL);
	t.exs_to_time.tv_usec = -1;
	timeouts_say(fd[0], &t, len, EINVAL);
	for (int bit = 1; bit < 32; bit++) {
		t = ok;
		t.exs_to_flags = (int)(1u << bit);
		timeouts_say(fd[0], &t, len, EINVAL);
	}
	t = ok;
	t.exs_to_queue = EXS_QHANDLE_INVALID;
	timeouts_say(fd[0], &t, len, EINVAL);
	t.exs_to_queue = q + 1;
	timeouts_say(fd[0], &t, len, EINVAL);
	T_ERR(exs_getsockopt(fd[0], SOL_SOCKET, SO_ASYNC_SEND_TIMEOUT, NULL,
			     &len),
	      EFAULT);
	T_ERR(exs_getsockopt(fd[0], SOL_SOCKET, SO_ASYNC_SEND_TIMEOUT, &t,
			     NULL),
	      EFAULT);
	len--;
	T_ERR(exs_getsockopt(fd[0], SOL_SOCKET, SO_ASYNC_SEND_TIMEOUT, &t,
			     &len),
	      EINVAL);
	len++;
	T_ERR(exs_getsockopt(p[0], SOL_SOCKET, SO_ASYNC_SEND_TIMEOUT, &t, &len),
	      ENOTSOCK);
	close(p[0]);
	close(p[1]);
	end(fd);
}

static void timeouts_want_a_slot(void)
{
	exs_timeout_t t = { .exs_to_time = { 1000, 0 }, .exs_to_queue = q };
	int fd[2];

	begin(fd);
	t.exs_to_queue = q;
	for (long i = 0; i < 4; i++)
		T_OK(exs_recv(fd[0], buf, 1, 0, q, NULL, 0));
	timeouts_say(fd[0], &t, sizeof(t), EAGAIN);
	T_EQ(exs_cancel(fd[0], NULL, EXS_CAF_FILDES), 4);
	for (int i = 0; i < 4; i++)
		T_EQ(t_event(q).exs_errno, ECANCELED);
	/* One for another takes no more. */
	for (int i = 0; i < 20; i++)
		T_OK(exs_setsockopt(fd[0], SOL_SOCKET, SO_ASYNC_SEND_TIMEOUT,
				    &t, sizeof(t)));
	T_ERR(exs_qdelete(q), EBUSY);
	t.exs_to_time.tv_sec = 0;
	T_OK(exs_setsockopt(fd[0], SOL_SOCKET, SO_ASYNC_SEND_TIMEOUT, &t,
			    sizeof(t)));
	T_OK(exs_setsockopt(fd[0], SOL_SOCKET, SO_ASYNC_SEND_TIMEOUT, &t,
			    sizeof(t)));
	end(fd);
}

/* Messages that have bounds are not moved piece by piece. */
static void only_streams_have_pieces(void)
{
	exs_msghdr_t m = good();
	int fd[2], udp, file, pair[2];
	exs_xferfile_t xf;

	begin(fd);
	file = file_of(100);
	xf = of_file(file, 0, 0);
	udp = T_OK(socket(AF_INET, SOCK_DGRAM, 0));
	T_OK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
	messages_say(udp, &m, EOPNOTSUPP);
	messages_say(pair[0], &m, EOPNOTSUPP);
	files_say(udp, &xf, 1, EOPNOTSUPP);
	files_say(pair[0], &xf, 1, EOPNOTSUPP);
	T_ERR(recv(pair[1], buf, 1, MSG_DONTWAIT), EAGAIN);
	t_close(udp);
	close(pair[0]);
	close(pair[1]);
	close(file);
	end(fd);
}

/* --- several ------------------------------------------------------------ */

static exs_x_op_t op_of(int type, int s, void *p, size_t len, int flags)
{
	return (exs_x_op_t){ .exs_x_type = type,
			     .exs_x_socket = s,
			     .exs_x_buffer = p,
			     .exs_x_length = len,
			     .exs_x_flags = flags };
}

static void absurd_batches_are_refused(void)
{
	exs_msghdr_t m = good(), absurd = { .exs_msg_iovlen = -1 };
	int fd[2], p[2];
	exs_x_op_t o;

	begin(fd);
	T_OK(pipe(p));
	o = op_of(EXS_EVT_SEND, fd[0], buf, 1, 0);
	T_EQ(exs_x_submit(q, &o, 0), 0);
	T_EQ(exs_x_submit(q, NULL, 0), 0);
	T_ERR(exs_x_submit(q, NULL, 1), EFAULT);
	T_ERR(exs_x_submit(q, &o, -1), EINVAL);
	T_ERR(exs_x_submit(q, &o, INT_MIN), EINVAL);
	T_ERR(exs_x_submit(EXS_QHANDLE_INVALID, &o, 1), EINVAL);
	T_ERR(exs_x_submit(q + 1, &o, 1), EINVAL);
	for (int type = -1; type < 16; type++) {
		/* Of a file without parts nothing is absurd. */
		if (type == EXS_EVT_SEND || type == EXS_EVT_RECV ||
		    type == EXS_EVT_SENDFILE)
			continue;
		o = op_of(type, fd[0], &absurd, 0, 0);
		T_ERR(exs_x_submit(q, &o, 1), EINVAL);
	}
	o = op_of(EXS_EVT_SENDFILE, fd[0], NULL, 1, 0);
	T_ERR(exs_x_submit(q, &o, 1), EFAULT);
	o = op_of(EXS_EVT_SENDFILE, fd[0], buf, SIZE_MAX, 0);
	T_ERR(exs_x_submit(q, &o, 1), EINVAL);
	o = op_of(EXS_EVT_CONNECT, fd[0], NULL, 16, 0);
	T_ERR(exs_x_submit(q, &o, 1), EFAULT);
	o = op_of(EXS_EVT_POLL, -1, NULL, 1, 0);
	T_ERR(exs_x_submit(q, &o, 1), EFAULT);
	o = op_of(EXS_EVT_SENDMSG, fd[0], &m, 1, 0);
	T_ERR(exs_x_submit(q, &o, 1), EINVAL);
	o = op_of(EXS_EVT_SENDMSG, fd[0], NULL, 0, 0);
	T_ERR(exs_x_submit(q, &o, 1), EFAULT);
	o = op_of(EXS_EVT_RECVMSG, fd[0], &m, 0, MSG_PEEK);
	T_ERR(exs_x_submit(q, &o, 1), EINVAL);
	o = op_of(EXS_EVT_RECVMSG, fd[0], &m, 0, 0);
	o.exs_x_mhandle = 1;
	T_ERR(exs_x_submit(q, &o, 1), EINVAL);
	o = op_of(EXS_EVT_SEND, fd[0], NULL, 1, 0);
	T_ERR(exs_x_submit(q, &o, 1), EFAULT);
	o = op_of(EXS_EVT_SEND, fd[0], buf, SIZE_MAX, 0);
	T_ERR(exs_x_submit(q, &o, 1), EINVAL);
	o = op_of(EXS_EVT_SEND, fd[0], buf, 1, MSG_WAITALL);
	T_ERR(exs_x_submit(q, &o, 1), EINVAL);
	o = op_of(EXS_EVT_RECV, fd[0], buf, 1, 0);
	o.exs_x_mhandle = 12345;
	T_ERR(exs_x_submit(q, &o, 1), EINVAL);
	o = op_of(EXS_EVT_RECV, -1, buf, 1, 0);
	T_ERR(exs_x_submit(q, &o, 1), EBADF);
	o = op_of(EXS_EVT_RECV, p[0], buf, 1, 0);
	T_ERR(exs_x_submit(q, &o, 1), ENOTSOCK);
	close(p[0]);
	close(p[1]);
	end(fd);
}

/* What comes before a bad one is taken, what comes after it is not. */
static void a_batch_ends_at_what_is_refused(void)
{
	exs_x_op_t o[6];
	int fd[2];

	begin(fd);
	for (int i = 0; i < 6; i++)
		o[i] = op_of(EXS_EVT_RECV, fd[0], buf + i, 1, 0);
	o[2].exs_x_flags = MSG_OOB;
	T_EQ(exs_x_submit(q, o, 6), 2);
	o[2].exs_x_flags = 0;
	o[3].exs_x_socket = -1;
	T_EQ(exs_x_submit(q, o + 2, 4), 1);
	T_ERR(exs_x_submit(q, o + 3, 3), EBADF);
	o[3].exs_x_socket = fd[0];
	/* There are four slots. */
	T_EQ(exs_x_submit(q, o + 3, 3), 1);
	T_ERR(exs_x_submit(q, o + 4, 2), EAGAIN);
	T_EQ(exs_cancel(fd[0], NULL, EXS_CAF_FILDES), 4);
	for (int i = 0; i < 4; i++)
		T_EQ(t_event(q).exs_errno, ECANCELED);
	end(fd);
}

static const struct t_row rows[] = {
	T_ROW(messages_need_a_connection),
	T_ROW(absurd_messages_are_refused),
	T_ROW(absurd_pieces_are_refused),
	T_ROW(unknown_flags_of_messages_are_refused),
	T_ROW(messages_want_a_queue_with_room),
	T_ROW(memory_of_messages_is_busy_until_the_event),
	T_ROW(a_child_has_its_memory_to_itself),
	T_ROW(messages_without_bytes_are_fine),
	T_ROW(absurd_files_are_refused),
	T_ROW(unknown_flags_of_files_are_refused),
	T_ROW(absurd_polls_are_refused),
	T_ROW(polls_of_no_descriptor_have_an_answer),
	T_ROW(polls_want_a_queue_with_room),
	T_ROW(absurd_timeouts_are_refused),
	T_ROW(timeouts_want_a_slot),
	T_ROW(only_streams_have_pieces),
	T_ROW(absurd_batches_are_refused),
	T_ROW(a_batch_ends_at_what_is_refused),
};

int main(int argc, char **argv)
{
	return conf_main(argc, argv, "complex", rows, T_COUNT(rows));
}
