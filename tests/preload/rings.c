/* SPDX-License-Identifier: BSD-2-Clause */
/* Rings of io_uring, filled through the shared liburing, beside a connection: a
 * ring for files changes nothing, and a request on the connection finds it on
 * TCP, with all bytes in order. rings ROW; rings --list. Exits with 0 if right,
 * with 77 if it cannot run here. unseen.py knows where each row's connection
 * must be. */
#include <dlfcn.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "moved.h"

static struct __kernel_timespec limit = { .tv_sec = LIMIT / 1000 };

static void may(int ret, const char *what)
{
	if (ret == -ENOSYS || ret == -EPERM)
		exit(SKIP);
	if (ret < 0)
		errx(1, "%s: %s", what, strerror(-ret));
}

static void ring_of(struct io_uring *ring, unsigned int flags)
{
	may(io_uring_queue_init(8, ring, flags), "io_uring_queue_init");
}

static int completed(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;
	int ret = io_uring_wait_cqe_timeout(ring, &cqe, &limit);

	if (ret)
		errx(1, "no completion: %d", ret);
	ret = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return ret;
}

static int done(struct io_uring *ring)
{
	must(io_uring_submit(ring) == 1, "io_uring_submit");
	return completed(ring);
}

/* --- each call that hands requests over ---------------------------------- */

static int submits(struct io_uring *ring)
{
	return io_uring_submit(ring);
}

static int submits_and_waits(struct io_uring *ring)
{
	return io_uring_submit_and_wait(ring, 1);
}

static int submits_and_gets(struct io_uring *ring)
{
	return io_uring_submit_and_get_events(ring);
}

static int submits_and_waits_long(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;

	return io_uring_submit_and_wait_timeout(ring, &cqe, 1, &limit, NULL);
}

/* Of a newer liburing. */
static int waits_at_least(struct io_uring *ring)
{
	int (*f)(struct io_uring *, struct io_uring_cqe **, unsigned int,
		 struct __kernel_timespec *, unsigned int, sigset_t *);
	struct io_uring_cqe *cqe;

	*(void **)&f =
		dlsym(RTLD_DEFAULT, "io_uring_submit_and_wait_min_timeout");
	return f ? f(ring, &cqe, 1, &limit, 0, NULL) : -ENOSYS;
}

/* The shim has these calls, and says where liburing has them not. */
static const char *const newer[] = { "io_uring_submit_and_wait_reg",
				     "io_uring_wait_cqes_min_timeout" };

static int (*const calls[])(struct io_uring *) = {
	submits,	  submits_and_waits,
	submits_and_gets, submits_and_waits_long,
	waits_at_least,
};
#define CALLS (sizeof(calls) / sizeof(calls[0]))

/* By the call; false: it is not there. */
static bool reads_file(struct io_uring *ring, unsigned int call)
{
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), ret;
	char buf[4] = "";

	io_uring_prep_read(io_uring_get_sqe(ring), file, buf, 4, 0);
	ret = calls[call](ring);
	if (ret == -ENOSYS || ret == -EINVAL)
		must(submits(ring) == 1, "io_uring_submit");
	else
		must(ret >= 0, "the call");
	if (completed(ring) != 4 || memcmp(buf, "\177ELF", 4) != 0)
		errx(1, "another file");
	close(file);
	return ret >= 0;
}

/* --- rings for files ----------------------------------------------------- */

static int moves_beside(struct io_uring *ring)
{
	int fd = meet();
	time_t end = time(NULL) + LIMIT / 1000;

	for (unsigned int i = 0; !on_shm(fd); i++) {
		trip(fd);
		reads_file(ring, i % CALLS);
		if (time(NULL) > end)
			errx(1, "it does not move");
	}
	for (unsigned int i = 0; i < CALLS; i++) {
		trip(fd);
		reads_file(ring, i);
	}
	return fd;
}

static int beside(struct io_uring *ring, unsigned int flags)
{
	ring_of(ring, flags);
	return moves_beside(ring);
}

static int file_before(void)
{
	struct io_uring ring;
	int fd = beside(&ring, 0);

	tell(SEND);
	return finish(fd);
}

/* Bytes lie there for longer than it takes until a wait is searched for, and
 * the thread sleeps in the ring. */
static int file_after(void)
{
	struct __kernel_timespec t = { .tv_sec = 1, .tv_nsec = 500000000 };
	struct io_uring ring;
	int fd = moved();

	ring_of(&ring, 0);
	reads_file(&ring, 0);
	tell(SEND);
	io_uring_prep_timeout(io_uring_get_sqe(&ring), &t, 0, 0);
	must(done(&ring) == -ETIME, "the time-out");
	return finish(fd);
}

static int file_by_parent(void)
{
	struct io_uring_params p = { 0 };
	struct io_uring ring;
	int status, fd;
	pid_t pid;

	may(io_uring_queue_init_params(8, &ring, &p), "the ring");
	pid = fork();
	if (pid) {
		must(waitpid(pid, &status, 0) == pid, "waitpid");
		return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
	}
	fd = moves_beside(&ring);
	tell(SEND);
	return finish(fd);
}

/* Registered, and no connection among them. */
static int file_registered(void)
{
	struct io_uring ring;
	int file[2] = { -1, open("/proc/self/exe", O_RDONLY | O_CLOEXEC) }, fd;

	ring_of(&ring, 0);
	must(io_uring_register_files(&ring, file, 2) == 0, "register");
	fd = moves_beside(&ring);
	tell(SEND);
	return finish(fd);
}

/* --- requests on the connection ------------------------------------------ */

static void receives(struct io_uring *ring, int fd, unsigned int flags)
{
	struct io_uring_sqe *s = io_uring_get_sqe(ring);
	char buf[5] = "";

	tell(SEND);
	io_uring_prep_recv(s, fd, buf, 5, MSG_WAITALL);
	s->flags |= (unsigned char)flags;
	if (done(ring) != 5 || memcmp(buf, "event", 5) != 0)
		errx(1, "other bytes came");
	told(SEND);
}

static int ring_receives(void)
{
	struct io_uring ring;
	int fd = beside(&ring, 0);

	receives(&ring, fd, 0);
	tell(SEND);
	return finish(fd);
}

/* What came before lies in shared memory, and nobody asks for it any more. */
static int ring_receives_rest(void)
{
	struct io_uring ring;
	int fd = beside(&ring, 0);
	char buf[5] = "";

	tell(SEND);
	told(SEND);
	io_uring_prep_recv(io_uring_get_sqe(&ring), fd, buf, 5, MSG_WAITALL);
	if (done(&ring) != 5 || memcmp(buf, "event", 5) != 0)
		errx(1, "other bytes came");
	tell(SEND);
	return finish(fd);
}

static void send_block(struct io_uring *ring, int fd, char i)
{
	char buf[BLOCK];

	memset(buf, i, sizeof(buf));
	if (!ring) {
		put(fd, buf, sizeof(buf));
		return;
	}
	io_uring_prep_send(io_uring_get_sqe(ring), fd, buf, sizeof(buf), 0);
	must(done(ring) == sizeof(buf), "a short send");
}

static int sends_between(unsigned int flags)
{
	struct io_uring ring;
	int fd = beside(&ring, flags);

	tell(CHECK);
	send_block(NULL, fd, 1);
	send_block(&ring, fd, 2);
	send_block(NULL, fd, 3);
	told(CHECK);
	tell(SEND);
	return finish(fd);
}

static int ring_sends(void)
{
	return sends_between(0);
}

static int ring_sends_by_thread(void)
{
	return sends_between(IORING_SETUP_SQPOLL);
}

/* The first block is unread when the ring sends. */
static int ring_sends_before_read(void)
{
	struct io_uring ring;
	int fd = beside(&ring, 0);

	send_block(NULL, fd, 1);
	send_block(&ring, fd, 2);
	send_block(NULL, fd, 3);
	tell(CHECK);
	told(CHECK);
	tell(SEND);
	return finish(fd);
}

static int by_call(unsigned int call)
{
	struct io_uring ring;
	int fd = beside(&ring, 0), ret;
	char buf[5] = "";

	io_uring_prep_recv(io_uring_get_sqe(&ring), fd, buf, 5, MSG_WAITALL);
	tell(SEND);
	ret = calls[call](&ring);
	if (ret == -ENOSYS || ret == -EINVAL)
		return SKIP;
	must(completed(&ring) == 5, "the bytes");
	told(SEND);
	tell(SEND);
	return finish(fd);
}

static int ring_by_wait_for_one(void)
{
	return by_call(1);
}

static int ring_by_get_events(void)
{
	return by_call(2);
}

static int ring_by_timeout(void)
{
	return by_call(3);
}

static int ring_by_least(void)
{
	return by_call(4);
}

/* Waits that may hand over. */
static int ring_by_wait(void)
{
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	int fd = beside(&ring, 0);
	char buf[5] = "";

	for (size_t i = 0; i < sizeof(newer) / sizeof(newer[0]); i++)
		must(dlsym(RTLD_DEFAULT, newer[i]), newer[i]);
	io_uring_prep_recv(io_uring_get_sqe(&ring), fd, buf, 5, MSG_WAITALL);
	tell(SEND);
	must(io_uring_wait_cqes(&ring, &cqe, 0, &limit, NULL) != -EINVAL,
	     "io_uring_wait_cqes");
	io_uring_submit(&ring);
	must(completed(&ring) == 5, "the bytes");
	told(SEND);
	tell(SEND);
	return finish(fd);
}

static int ring_from_first_byte(void)
{
	struct io_uring ring;
	int fd;

	ring_of(&ring, 0);
	fd = meet();
	for (int i = 0; i < 50; i++) {
		char buf[BLOCK] = { 0 };

		tell(ECHO);
		io_uring_prep_poll_add(io_uring_get_sqe(&ring), fd, POLLIN);
		io_uring_submit(&ring);
		send_block(NULL, fd, 7);
		must(completed(&ring) & POLLIN, "the poll");
		get(fd, buf, sizeof(buf));
		must(buf[0] == 7, "the byte");
		told(ECHO);
	}
	tell(SEND);
	return finish(fd);
}

static int of_registered(int (*add)(struct io_uring *ring, int fd))
{
	struct io_uring ring;
	int fd = beside(&ring, 0);

	must(add(&ring, fd) >= 0, "the registration");
	receives(&ring, 0, IOSQE_FIXED_FILE);
	tell(SEND);
	return finish(fd);
}

static int add_at_once(struct io_uring *ring, int fd)
{
	return io_uring_register_files(ring, &fd, 1);
}

static int add_with_tag(struct io_uring *ring, int fd)
{
	__u64 tag = 0;

	return io_uring_register_files_tags(ring, &fd, &tag, 1);
}

static int add_later(struct io_uring *ring, int fd)
{
	io_uring_register_files_sparse(ring, 1);
	return io_uring_register_files_update(ring, 0, &fd, 1);
}

static int add_later_with_tag(struct io_uring *ring, int fd)
{
	__u64 tag = 0;

	io_uring_register_files_sparse(ring, 1);
	return io_uring_register_files_update_tag(ring, 0, &fd, &tag, 1);
}

static int add_by_request(struct io_uring *ring, int fd)
{
	io_uring_register_files_sparse(ring, 1);
	io_uring_prep_files_update(io_uring_get_sqe(ring), &fd, 1, 0);
	return done(ring);
}

static int ring_registered(void)
{
	return of_registered(add_at_once);
}

static int ring_registered_tags(void)
{
	return of_registered(add_with_tag);
}

static int ring_registered_later(void)
{
	return of_registered(add_later);
}

static int ring_registered_later_tag(void)
{
	return of_registered(add_later_with_tag);
}

static int ring_registered_by_request(void)
{
	return of_registered(add_by_request);
}

static int ring_splices(void)
{
	struct io_uring ring;
	int fd = beside(&ring, 0), p[2];
	char buf[5] = "";

	must(pipe(p) == 0, "pipe");
	tell(SEND);
	told(SEND);
	io_uring_prep_splice(io_uring_get_sqe(&ring), fd, -1, p[1], -1, 5, 0);
	must(done(&ring) == 5, "splice");
	must(read(p[0], buf, 5) == 5 && memcmp(buf, "event", 5) == 0, "bytes");
	tell(SEND);
	return finish(fd);
}

static int ring_adds_to_set(void)
{
	struct epoll_event e = { .events = EPOLLIN };
	struct io_uring ring;
	int fd = beside(&ring, 0), set = epoll_create1(0);

	io_uring_prep_epoll_ctl(io_uring_get_sqe(&ring), set, fd, EPOLL_CTL_ADD,
				&e);
	must(done(&ring) == 0, "epoll_ctl");
	tell(SEND);
	must(epoll_wait(set, &e, 1, LIMIT) == 1, "epoll_wait");
	return finish(fd);
}

/* A set that has the connection is polled by the ring: found by the search. */
static int ring_polls_set(void)
{
	struct epoll_event e = { .events = EPOLLIN };
	struct io_uring ring;
	int fd = beside(&ring, 0), set = epoll_create1(0);

	must(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0, "epoll_ctl");
	io_uring_prep_poll_add(io_uring_get_sqe(&ring), set, POLLIN);
	io_uring_submit(&ring);
	tell(SEND);
	must(completed(&ring) & POLLIN, "the poll");
	return finish(fd);
}

static int ring_closes(void)
{
	struct io_uring ring;
	int fd = beside(&ring, 0);

	tell(CHECK);
	for (char i = 1; i <= 3; i++)
		send_block(NULL, fd, i);
	io_uring_prep_close(io_uring_get_sqe(&ring), fd);
	must(done(&ring) == 0, "close");
	told(CHECK);
	tell(AT_END);
	told(AT_END);
	must(fcntl(fd, F_GETFD) < 0 && errno == EBADF, "it is closed");
	tell(LEAVE);
	wait(NULL);
	return 0;
}

static int passes_it_on(void)
{
	struct io_uring ring;
	int fd = beside(&ring, 0), pair[2], got;
	char byte = 'x', room[CMSG_SPACE(sizeof(int))] = "";
	struct iovec v = { &byte, 1 };
	struct msghdr m = { .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_control = room,
			    .msg_controllen = sizeof(room) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
	io_uring_prep_sendmsg(io_uring_get_sqe(&ring), pair[0], &m, 0);
	must(done(&ring) == 1, "sendmsg");
	m.msg_controllen = sizeof(room);
	must(recvmsg(pair[1], &m, 0) == 1, "recvmsg");
	memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(got));
	tell(SEND);
	return finish(got);
}

/* --- what the shim has not seen ------------------------------------------ */

static int stays(int fd)
{
	for (int i = 0; i < 100; i++)
		trip(fd);
	tell(SEND);
	return finish(fd);
}

static int ring_made_raw(void)
{
	struct io_uring_params p = { 0 };
	struct io_uring ring = { 0 };
	int fd = io_uring_setup(8, &p);

	may(fd, "io_uring_setup");
	must(io_uring_queue_mmap(fd, &p, &ring) == 0, "io_uring_queue_mmap");
	return stays(meet());
}

static int ring_fed_raw(void)
{
	struct io_uring ring;

	ring_of(&ring, 0);
	io_uring_enter((unsigned int)ring.ring_fd, 0, 0, 0, NULL);
	return stays(meet());
}

static int ring_fed_raw_too(void)
{
	struct io_uring ring;

	ring_of(&ring, 0);
	io_uring_enter2((unsigned int)ring.ring_fd, 0, 0, 0, NULL, 0);
	return stays(meet());
}

static int ring_registers_raw(void)
{
	struct io_uring ring;
	int none = -1;

	ring_of(&ring, 0);
	io_uring_register((unsigned int)ring.ring_fd, IORING_REGISTER_FILES,
			  &none, 1);
	return stays(meet());
}

/* The number is another ring's. */
static int ring_at_same_number(void)
{
	struct io_uring_params p = { 0 };
	struct io_uring ring;
	int number;

	ring_of(&ring, 0);
	number = ring.ring_fd;
	io_uring_queue_exit(&ring);
	must(io_uring_setup(8, &p) == number, "the number");
	return stays(meet());
}

/* A newer call. */
static int ring_in_own_memory(void)
{
	int (*f)(unsigned int, struct io_uring *, struct io_uring_params *,
		 void *, size_t);
	struct io_uring_params p = { .flags = 1u << 14 };
	static char mem[1 << 16] __attribute__((aligned(4096)));
	struct io_uring ring;
	int fd, ret;

	*(void **)&f = dlsym(RTLD_DEFAULT, "io_uring_queue_init_mem");
	ret = f(8, &ring, &p, mem, sizeof(mem));
	if (ret == -ENOSYS || ret == -EINVAL)
		return SKIP;
	must(ret >= 0, "io_uring_queue_init_mem");
	fd = moves_beside(&ring);
	receives(&ring, fd, 0);
	tell(SEND);
	return finish(fd);
}

/* --- the kernel's connections -------------------------------------------- */

static int native_accepts(void)
{
	struct sockaddr_in a;
	struct io_uring ring;
	int l, fd;

	ring_of(&ring, 0);
	must(pipe(orders) == 0 && pipe(answers) == 0, "pipe");
	l = listener(&a);
	if (fork() == 0) {
		close(orders[1]);
		close(answers[0]);
		fd = socket(AF_INET, SOCK_STREAM, 0);
		must(connect(fd, (void *)&a, sizeof(a)) == 0, "connect");
		serve(fd);
	}
	io_uring_prep_accept(io_uring_get_sqe(&ring), l, NULL, NULL, 0);
	fd = done(&ring);
	must(fd >= 0, "accept");
	for (int i = 0; i < 50; i++)
		trip(fd);
	receives(&ring, fd, 0);
	tell(SEND);
	return finish(fd);
}

/* It is connecting yet when the ring polls it. */
static int connects(void)
{
	struct sockaddr_in a;
	struct io_uring ring;
	char buf[BLOCK], got[BLOCK];
	int l = listener(&a), other,
	    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	ring_of(&ring, 0);
	must(connect(fd, (void *)&a, sizeof(a)) == 0 || errno == EINPROGRESS,
	     "connect");
	io_uring_prep_poll_add(io_uring_get_sqe(&ring), fd, POLLOUT);
	must(done(&ring) & POLLOUT, "the poll");
	other = accept(l, NULL, NULL);
	for (int i = 0; i < 100; i++) {
		memset(buf, i, sizeof(buf));
		put(fd, buf, sizeof(buf));
		get(other, got, sizeof(got));
		must(memcmp(buf, got, sizeof(buf)) == 0, "the bytes");
		io_uring_prep_recv(io_uring_get_sqe(&ring), fd, got,
				   sizeof(got), MSG_WAITALL);
		must(io_uring_submit(&ring) == 1, "io_uring_submit");
		put(other, buf, sizeof(buf));
		must(completed(&ring) == sizeof(got), "recv");
	}
	return 0;
}

static const struct row rows[] = {
	{ "file_before", file_before },
	{ "file_after", file_after },
	{ "file_by_parent", file_by_parent },
	{ "file_registered", file_registered },
	{ "ring_receives", ring_receives },
	{ "ring_receives_rest", ring_receives_rest },
	{ "ring_sends", ring_sends },
	{ "ring_sends_by_thread", ring_sends_by_thread },
	{ "ring_sends_before_read", ring_sends_before_read },
	{ "ring_by_wait", ring_by_wait },
	{ "ring_by_wait_for_one", ring_by_wait_for_one },
	{ "ring_by_get_events", ring_by_get_events },
	{ "ring_by_timeout", ring_by_timeout },
	{ "ring_by_least", ring_by_least },
	{ "ring_from_first_byte", ring_from_first_byte },
	{ "ring_registered", ring_registered },
	{ "ring_registered_tags", ring_registered_tags },
	{ "ring_registered_later", ring_registered_later },
	{ "ring_registered_later_tag", ring_registered_later_tag },
	{ "ring_registered_by_request", ring_registered_by_request },
	{ "ring_splices", ring_splices },
	{ "ring_adds_to_set", ring_adds_to_set },
	{ "ring_polls_set", ring_polls_set },
	{ "ring_closes", ring_closes },
	{ "passes_it_on", passes_it_on },
	{ "ring_made_raw", ring_made_raw },
	{ "ring_fed_raw", ring_fed_raw },
	{ "ring_fed_raw_too", ring_fed_raw_too },
	{ "ring_registers_raw", ring_registers_raw },
	{ "ring_at_same_number", ring_at_same_number },
	{ "ring_in_own_memory", ring_in_own_memory },
	{ "native_accepts", native_accepts },
	{ "connects", connects },
};

int main(int argc, char **argv)
{
	return run_row(rows, sizeof(rows) / sizeof(rows[0]), argc, argv);
}
