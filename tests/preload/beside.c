/* SPDX-License-Identifier: BSD-2-Clause */
/* Receives on pairs with a buffer for control data. */
#include "behave.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 40

static int ends[2];

/* Made, and moved. */
static void make(void)
{
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		die("make a pair");
	warm(ends[0], ends[1]);
}

static int file(const char *text)
{
	int fd = memfd_create("text", 0);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		die("make a file");
	return fd;
}

/* Sends n descriptors of files beside the bytes. */
static long send_files(int s, const char *bytes, int n)
{
	struct iovec v = { (char *)(uintptr_t)bytes, strlen(bytes) };
	union {
		struct cmsghdr h;
		char bytes[CMSG_SPACE(4 * sizeof(int))];
	} c = { 0 };
	struct msghdr m = { .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_control = &c,
			    .msg_controllen =
				    CMSG_SPACE((size_t)n * sizeof(int)) };
	int fds[4];
	long ret;

	c.h.cmsg_level = SOL_SOCKET;
	c.h.cmsg_type = SCM_RIGHTS;
	c.h.cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
	for (int i = 0; i < n; i++)
		fds[i] = file((char[]){ 'f', (char)('0' + i), '\0' });
	memcpy(CMSG_DATA(&c.h), fds, (size_t)n * sizeof(int));
	ret = sendmsg(s, &m, MSG_NOSIGNAL);
	for (int i = 0; i < n; i++)
		close(fds[i]);
	return ret;
}

static void put_files(const char *what, int s, const char *bytes, int n)
{
	is(what, send_files(s, bytes, n));
}

static void say_file(int fd)
{
	char text[8] = "";

	if (pread(fd, text, sizeof(text) - 1, 0) < 0)
		die("read a file");
	say("file %s %d", text, fcntl(fd, F_GETFD));
	close(fd);
}

/* Receives up to n bytes, in two pieces, with so much room: said. */
static long get(const char *what, int s, size_t n, size_t room, int flags)
{
	char b[256] = "";
	struct iovec v[2] = { { b, n / 2 }, { b + n / 2, n - n / 2 } };
	union {
		struct cmsghdr h;
		char bytes[256];
	} c;
	struct msghdr m = { .msg_iov = v,
			    .msg_iovlen = 2,
			    .msg_control = &c,
			    .msg_controllen = room };
	long ret = got(what, recvmsg(s, &m, flags), b);

	if (ret < 0)
		return ret;
	say("%x %zu", (unsigned int)m.msg_flags, m.msg_controllen);
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h))
		for (size_t i = 0;
		     CMSG_LEN((i + 1) * sizeof(int)) <= h->cmsg_len; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(h) + i * sizeof(int),
			       sizeof(int));
			say_file(fd);
		}
	return ret;
}

#define ROOM CMSG_SPACE(4 * sizeof(int))

ROW(pair_room_unused)
{
	make();
	get("nothing", ends[1], 8, ROOM, MSG_DONTWAIT);
	put_text(ends[0], "abcdef");
	get("part", ends[1], 4, ROOM, 0);
	get("look", ends[1], 4, ROOM, MSG_PEEK);
	get("rest", ends[1], 8, ROOM, MSG_CMSG_CLOEXEC);
	put_text(ends[0], "abcdef");
	get("no bytes", ends[1], 0, ROOM, 0);
	get("all", ends[1], 6, ROOM, MSG_WAITALL);
	shutdown(ends[0], SHUT_WR);
	get("end", ends[1], 8, ROOM, 0);
}

ROW(pair_room_used)
{
	make();
	put_text(ends[0], "abc");
	put_files("send", ends[0], "F", 1);
	put_text(ends[0], "xyz");
	get("with what came before", ends[1], 64, ROOM, 0);
	get("and behind", ends[1], 64, ROOM, MSG_DONTWAIT);
	put_files("send", ends[0], "GH", 3);
	get("part", ends[1], 1, ROOM, MSG_CMSG_CLOEXEC);
	get("part", ends[1], 1, ROOM, 0);
	put_files("back", ends[1], "I", 1);
	get("back", ends[0], 8, ROOM, 0);
}

ROW(pair_room_too_small)
{
	make();
	put_files("send", ends[0], "F", 3);
	put_files("send", ends[0], "G", 3);
	put_files("send", ends[0], "H", 1);
	put_text(ends[0], "abc");
	get("for one", ends[1], 64, CMSG_SPACE(sizeof(int)), 0);
	get("for a head", ends[1], 64, sizeof(struct cmsghdr), 0);
	get_now("none", ends[1], 64);
	get("rest", ends[1], 64, ROOM, MSG_DONTWAIT);
}

static void send_later(void)
{
	send_files(ends[0], "F", 2);
	put_text(ends[0], "end");
}

ROW(pair_room_of_a_sleeper)
{
	make();
	later(50, send_later);
	get("sleeper", ends[1], 1, ROOM, 0);
	later_end();
	settle(ends[1], POLLIN);
	get("rest", ends[1], 64, ROOM, 0);
}

/* A descriptor with each request, and one with each answer. */
ROW(pair_room_each_time)
{
	char b[8];
	int good = 0;
	pid_t pid;

	make();
	pid = fork();
	if (pid == 0) {
		close(ends[0]);
		for (int i = 0; i < ROUNDS; i++) {
			int fd = take_fd(ends[1]);

			if (fd < 0 || pread(fd, b, 2, 0) != 2)
				_exit(1);
			pass_fd(ends[1], fd);
			close(fd);
		}
		_exit(0);
	}
	close(ends[1]);
	for (int i = 0; i < ROUNDS; i++) {
		int fd = file((char[]){ 'r', (char)('A' + i), '\0' });

		pass_fd(ends[0], fd);
		close(fd);
		fd = take_fd(ends[0]);
		good += fd >= 0 && pread(fd, b, 2, 0) == 2 && b[1] == 'A' + i;
		close(fd);
	}
	child("child", pid); /* which may still print */
	is("good", good);
}

/* --- what was cut off, and ends ------------------------------------------ */

static void get_two(const char *what, int s, int flags)
{
	char b[2][4] = { "" };
	struct iovec v[2] = { { b[0], 3 }, { b[1], 3 } };
	struct mmsghdr m[2] = {
		{ .msg_hdr = { .msg_iov = &v[0], .msg_iovlen = 1 } },
		{ .msg_hdr = { .msg_iov = &v[1], .msg_iovlen = 1 } }
	};
	long n = is(what, recvmmsg(s, m, 2, flags, NULL));

	for (int i = 0; i < n; i++)
		say("%u %.3s %x", m[i].msg_len, b[i],
		    (unsigned int)m[i].msg_hdr.msg_flags);
}

ROW(pair_no_room)
{
	make();
	put_files("send", ends[0], "abcdefghi", 1);
	get_two("two", ends[1], MSG_DONTWAIT);
	get("rest", ends[1], 64, 0, 0);
	put_files("send", ends[0], "abcdefghi", 1);
	get("part", ends[1], 4, 0, 0);
	get_two("two of the rest", ends[1], MSG_DONTWAIT);
}

/* A receive that waits for more ends at a message with more than bytes. */
ROW(pair_no_room_for_all)
{
	char b[64];
	int low = 40;

	make();
	for (int i = 0; i < 2; i++) {
		put_files("send", ends[0], "abc", 1);
		put_text(ends[0], "defghijklmnopqrstuvwxyz");
		got("all", recv(ends[1], b, 20, i ? 0 : MSG_WAITALL), b);
		got("rest", recv(ends[1], b, sizeof(b), MSG_DONTWAIT), b);
		setsockopt(ends[1], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low));
	}
}

ROW(pair_no_bytes)
{
	char b[64];

	make();
	put_files("send", ends[0], "abc", 1);
	put_text(ends[0], "def");
	close(ends[0]);
	is("no bytes", recv(ends[1], b, 0, 0));
	got("all", recv(ends[1], b, sizeof(b), 0), b);
}

/* The peer closed with bytes unread: so says a call that only the kernel
 * makes. */
ROW(pair_cut_spliced)
{
	int p[2];

	make();
	if (pipe(p))
		die("make a pipe");
	put_text(ends[0], "abc");
	close(ends[1]);
	is("splice", splice(ends[0], NULL, p[1], NULL, 8, 0));
	is("splice", splice(ends[0], NULL, p[1], NULL, 8, 0));
}
