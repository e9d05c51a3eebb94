/* SPDX-License-Identifier: BSD-2-Clause */
/* A random walk of calls on connections, which depends on a seed only: it
 * prints the same natively and under exs run. Usage: wander [--steps N] [--only
 * STEPS] [--mixed 1] SEED; --only takes the steps of a comma-separated list,
 * each as it is in the whole walk. Connections are TCP's; or, mixed, UNIX
 * streams and pairs among them.
 *
 * Each step draws from its own numbers, so that leaving others out does not
 * change it. struct end notes what a step does to a connection; the next step
 * begins when the other end can have seen it. By these notes, steps are left
 * out whose result depends on timing, or differs on purpose (see
 * exs-run(1)). */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bits.h"

#define SLOTS 8
#define CONNS 64
#define ITEMS 64
/* What fits in any buffer or ring, with much room left. */
#define MOST_BYTES  6000
#define MOST_PIECES 40
#define PIECE	    2000
#define NO_FD	    900

/* One end of a connection: 2 * connection and the other. */
struct end {
	uint32_t sent, received, pieces;
	bool shut_rd, shut_wr, gone, reset, linger, urgent_sent;
	bool forked, is_unix;
	/* plain: the connection went to TCP for good; cold: it may move at any
	 * moment. */
	bool plain, cold;
};

struct slot {
	int fd, end;
};

struct item {
	int fd, end, id;
	uint32_t events;
	bool is_there;
};

/* What children do to connections concerns their parents. */
static struct shared {
	struct end ends[CONNS * 2];
} * shared;
#define ends (shared->ends)

static struct slot slots[SLOTS];
static struct item items[ITEMS];
static int n_items, n_conns, set = -1, wanted_steps = 40;
/* Names that the parent has of the ends, in a child; 0 in the parent. */
static int held[CONNS * 2];
static bool is_child, is_late, has_forked, is_mixed;
static uint64_t seed, state;
static char line[4096], data[65536], room[65536];
static int line_len;

#if defined(__SANITIZE_ADDRESS__)
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0:verify_asan_link_order=0";
}
#endif

/* --- chance ------------------------------------------------------------- */

static uint64_t draw(void)
{
	uint64_t z = (state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static void draw_from(uint64_t step)
{
	state = seed * 1000003 + step;
	draw();
	state ^= draw();
}

static int below(int n)
{
	return (int)(draw() % (uint64_t)n);
}

static bool one_in(int n)
{
	return below(n) == 0;
}

static int size(void)
{
	switch (below(6)) {
	case 0:
		return 1;
	case 1:
		return 1 + below(8);
	case 2:
	case 3:
		return 1 + below(200);
	default:
		return 1 + below(PIECE);
	}
}

/* --- saying ------------------------------------------------------------- */

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
	size_t left = sizeof(line) - (size_t)line_len;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(line + line_len, left, fmt, ap);
	va_end(ap);
	line_len += n < (int)left ? n : (int)left - 1;
}

static void end_line(void)
{
	line[line_len] = '\n';
	if (write(STDOUT_FILENO, line, (size_t)line_len + 1) < 0)
		_exit(3);
	line_len = 0;
}

static long is(long ret)
{
	int err = errno;

	if (ret < 0)
		say(" = %s", strerrorname_np(err));
	else
		say(" = %ld", ret);
	errno = err;
	return ret;
}

/* Which number is free is a matter of what the process does meanwhile. */
static int is_number(int fd, int wish)
{
	is(fd < 0 ? fd : wish < 0 || fd == wish ? 0 : 1);
	return fd;
}

static uint32_t hash(const void *buf, size_t n)
{
	const unsigned char *c = buf;
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < n; i++)
		h = (h ^ c[i]) * 16777619u;
	return h;
}

static void bytes(long n)
{
	if (is(n) > 0)
		say(" #%08x", hash(room, (size_t)n));
}

static void say_events(unsigned int ev)
{
	bool any = false;

	for (size_t i = 0; i < BIT_NAMES; i++)
		if (ev & bit_names[i].bit) {
			say("%s%s", any ? "|" : "", bit_names[i].name);
			any = true;
		}
	if (!any)
		say("0");
}

static void say_flags(int flags)
{
	static const struct {
		int bit;
		const char *name;
	} names[] = {
		{ MSG_PEEK, "PEEK" },	  { MSG_WAITALL, "ALL" },
		{ MSG_DONTWAIT, "DW" },	  { MSG_TRUNC, "TRUNC" },
		{ MSG_OOB, "OOB" },	  { MSG_MORE, "MORE" },
		{ MSG_CTRUNC, "CTRUNC" }, { MSG_EOR, "EOR" },
		{ MSG_ERRQUEUE, "ERRQ" }, { MSG_WAITFORONE, "FORONE" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (flags & names[i].bit)
			say(" %s", names[i].name);
}

static void die(const char *why)
{
	line_len = 0;
	say("CANNOT %s (%s)", why, strerrorname_np(errno));
	end_line();
	_exit(1);
}

/* --- what is known ------------------------------------------------------ */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
}

static struct end *of(int e)
{
	return &ends[e];
}

static struct end *peer_of(int e)
{
	return &ends[e ^ 1];
}

static int names_of(int e)
{
	int n = held[e];

	for (int i = 0; i < SLOTS; i++)
		n += slots[i].fd >= 0 && slots[i].end == e;
	return n;
}

static int fd_of(int e)
{
	for (int i = 0; i < SLOTS; i++)
		if (slots[i].fd >= 0 && slots[i].end == e)
			return slots[i].fd;
	return -1;
}

static uint32_t waits_at(int e)
{
	return peer_of(e)->sent - of(e)->received;
}

/* Whether what was done to its peer is seen at the end. */
static bool seen(int e, int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLRDHUP };
	struct end *x = of(e), *y = peer_of(e);
	int n = 0;

	if (x->reset || y->reset)
		return poll(&p, 1, 0) > 0 && (p.revents & POLLHUP);
	if (x->urgent_sent || y->urgent_sent)
		return false;
	if (ioctl(fd, FIONREAD, &n) == 0 && (uint32_t)n != waits_at(e))
		return false;
	return (!y->shut_wr && !y->gone) ||
	       (poll(&p, 1, 0) > 0 &&
		(p.revents & (POLLRDHUP | POLLHUP | POLLERR)));
}

/* Until everybody can have seen everything. What is noted may be wrong: then
 * a while will do. */
static void settle(void)
{
	int64_t end = now_ms() + 30;

	for (int e = 0; e < n_conns * 2; e++) {
		int fd = fd_of(e);

		while (fd >= 0 && !seen(e, fd) && now_ms() < end)
			poll(NULL, 0, 1);
	}
	poll(NULL, 0, 1);
}

static bool pairs(int e)
{
	const struct end *x = of(e), *y = peer_of(e);

	return (y->gone || (x->shut_rd && x->shut_wr) ||
		(y->shut_rd && y->shut_wr)) &&
	       waits_at(e);
}

/* Whether a connection may go to TCP here. The edges of one that moves may be
 * told twice: nobody asks. */
static bool goes_plain(int e)
{
	/* Unread bytes of a peer that is gone, or of who has shut both
	 * directions, go into a pair. */
	if (pairs(e) || pairs(e ^ 1))
		return false;
	for (int i = 0; i < n_items; i++) {
		struct item *it = &items[i];

		if (!it->is_there || it->end >> 1 != e >> 1 ||
		    !(it->events & (EPOLLET | EPOLLONESHOT)))
			continue;
		/* An item cannot be removed by a number that is closed. */
		if (is_child)
			return false;
		for (int k = 0; k < SLOTS; k++)
			if (slots[k].fd == it->fd && slots[k].end == it->end)
				goto named;
		return false;
named:
		epoll_ctl(set, EPOLL_CTL_DEL, it->fd, NULL);
		it->is_there = false;
	}
	/* Nor may those that are named by closed numbers be there. */
	for (int i = 0; i < n_items; i++) {
		bool has = false;

		if (!items[i].is_there || items[i].end >> 1 != e >> 1)
			continue;
		for (int k = 0; k < SLOTS; k++)
			has = has || (slots[k].fd == items[i].fd &&
				      slots[k].end == items[i].end);
		if (!has)
			return false;
	}
	of(e)->plain = peer_of(e)->plain = true;
	return true;
}

/* The last name of an end goes. */
static void is_gone(int e)
{
	struct end *x = of(e);

	if (names_of(e))
		return;
	x->gone = true;
	if (waits_at(e) || (x->linger && !x->is_unix))
		x->reset = true;
	for (int i = 0; i < n_items; i++)
		if (items[i].end == e)
			items[i].is_there = false;
}

/* A number in the set that is about to be closed, of a connection that has
 * another: what the set tells of it once it is on TCP differs on purpose. */
static void unlist(const struct slot *s)
{
	for (int i = 0; i < n_items; i++) {
		struct item *it = &items[i];

		if (is_child || !it->is_there || it->fd != s->fd ||
		    it->end != s->end || names_of(s->end) == 1)
			continue;
		epoll_ctl(set, EPOLL_CTL_DEL, s->fd, NULL);
		it->is_there = false;
	}
}

static void forget(struct slot *s)
{
	int e = s->end;

	s->fd = -1;
	if (e >= 0)
		is_gone(e);
}

/* --- connections -------------------------------------------------------- */

static union at {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_un un;
} at, unix_at;
static socklen_t unix_len = sizeof(sa_family_t);
static int l, unix_l;

enum kind {
	TCP,
	UNIX,
	PAIR,
	KINDS
};

static void prepare(int fd)
{
	struct timeval t = { .tv_usec = 20000 };

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
}

static void put_get(int x, int y)
{
	char out[1024], in[1024];

	memset(out, x, sizeof(out));
	if (send(x, out, sizeof(out), 0) != sizeof(out))
		die("send");
	for (size_t n = 0; n < sizeof(in);) {
		struct pollfd p = { .fd = y, .events = POLLIN };
		ssize_t r;

		poll(&p, 1, 1000);
		r = recv(y, in + n, sizeof(in) - n, 0);
		if (r <= 0)
			die("receive");
		n += (size_t)r;
	}
}

static void warm(int x, int y)
{
	for (int i = 0; i < 18; i++) {
		struct pollfd p[] = { { .fd = x, .events = POLLIN },
				      { .fd = y, .events = POLLIN } };

		put_get(x, y);
		put_get(y, x);
		if (i % 2 == 0)
			poll(p, 2, 1);
	}
}

static int listener(union at *name, socklen_t *len)
{
	int fd = socket(name->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, &name->sa, *len) || listen(fd, 8))
		die("listen");
	*len = sizeof(*name);
	if (getsockname(fd, &name->sa, len))
		die("listen");
	return fd;
}

static void connect_kind(enum kind kind, int fds[2])
{
	const bool is_unix = kind == UNIX;

	if (kind == PAIR) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds))
			die("make a pair");
		return;
	}
	fds[0] = socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC,
			0);
	if (fds[0] < 0 || connect(fds[0], is_unix ? &unix_at.sa : &at.sa,
				  is_unix ? unix_len : sizeof(at.in)))
		die("connect");
	fds[1] = accept4(is_unix ? unix_l : l, NULL, NULL, SOCK_CLOEXEC);
	if (fds[1] < 0)
		die("accept");
}

static void connection(int a, int b, bool is_cold)
{
	enum kind kind = is_mixed ? (enum kind)below(KINDS) : TCP;
	int e = n_conns * 2, fds[2];

	connect_kind(kind, fds);
	n_conns++;
	for (int i = 0; i < 2; i++)
		prepare(fds[i]);
	/* The second end of a UNIX stream looks later for the first. */
	for (int i = 0; !is_cold && i < (kind == TCP ? 1 : 3); i++)
		warm(fds[0], fds[1]);
	memset(of(e), 0, 2 * sizeof(*of(e)));
	for (int i = 0; i < 2; i++) {
		of(e + i)->cold = is_cold;
		of(e + i)->is_unix = kind != TCP;
		slots[i ? b : a] = (struct slot){ fds[i], e + i };
	}
}

/* --- steps -------------------------------------------------------------- */

/* Mostly one that is open. */
static int pick(void)
{
	int first = below(SLOTS);
	bool any = one_in(25);

	for (int i = 0; i < SLOTS && !any; i++) {
		int k = (first + i) % SLOTS;

		if (slots[k].fd >= 0)
			return k;
	}
	return first;
}

static int number(const struct slot *s)
{
	return s->fd >= 0 ? s->fd : NO_FD;
}

static void head(const char *what, int slot)
{
	say(" %s", what);
	if (slots[slot].fd < 0)
		say(" s%d(none)", slot);
	else
		say(" s%d(%d%c)", slot, slots[slot].end / 2,
		    slots[slot].end % 2 ? 'b' : 'a');
}

/* Whether bytes from the slot have a result that is certain. */
static bool may_send(const struct slot *s, int n)
{
	struct end *x, *y;

	if (s->fd < 0)
		return true;
	x = of(s->end);
	y = peer_of(s->end);
	/* What a peer that is gone makes of it differs on purpose. */
	if (y->gone && !y->reset && !x->is_unix)
		return false;
	return waits_at(s->end ^ 1) + (uint32_t)n <= MOST_BYTES &&
	       x->pieces < MOST_PIECES;
}

static void make_data(const struct slot *s, int n)
{
	uint32_t at_byte = s->fd >= 0 ? of(s->end)->sent : 0;

	for (int i = 0; i < n; i++) {
		uint32_t k = at_byte + (uint32_t)i;

		data[i] = (char)(k * 31 + (k >> 8) + (uint32_t)s->end * 7 + 1);
	}
}

static void was_sent(const struct slot *s, long n)
{
	if (n <= 0 || s->fd < 0)
		return;
	of(s->end)->sent += (uint32_t)n;
	of(s->end)->pieces++;
}

static void was_received(const struct slot *s, long n)
{
	if (n <= 0 || s->fd < 0)
		return;
	of(s->end)->received += (uint32_t)n;
	if (waits_at(s->end) == 0)
		peer_of(s->end)->pieces = 0;
}

static int split(struct iovec *iov, char *buf, int n)
{
	int count = 1 + below(5), done = 0;

	for (int i = 0; i < count; i++) {
		int part = i == count - 1 ? n - done : below(n - done + 1);

		if (one_in(5) && i < count - 1)
			part = 0;
		iov[i] = (struct iovec){ buf + done, (size_t)part };
		done += part;
	}
	return count;
}

static void do_send(void)
{
	int k = pick(), n = size(), how = below(8), parts = 1 + below(3);
	bool dontwait = one_in(3), more = one_in(8), eor = one_in(12);
	bool nothing = one_in(30);
	struct slot *s = &slots[k];
	int flags = (dontwait ? MSG_DONTWAIT : 0) | (eor ? MSG_EOR : 0);
	struct mmsghdr m[3];
	struct iovec iov[8];
	struct msghdr h = { .msg_iov = iov };
	long r = -1;
	int fd = number(s);

	head("send", k);
	if (nothing)
		n = 0;
	if (!may_send(s, n * 3)) {
		say(" left out");
		return;
	}
	make_data(s, n * 3);
	switch (how) {
	case 0:
		say(" write %d", n);
		r = is(write(fd, data, (size_t)n));
		break;
	case 1:
		h.msg_iovlen = (size_t)split(iov, data, n);
		say(" writev %zu %d", h.msg_iovlen, n);
		r = is(writev(fd, iov, (int)h.msg_iovlen));
		break;
	case 2:
		h.msg_iovlen = (size_t)split(iov, data, n);
		say(" sendmsg %zu %d", h.msg_iovlen, n);
		say_flags(flags);
		r = is(sendmsg(fd, &h, flags));
		break;
	case 3:
		/* Nobody reads: the first packet is lost, and ends the rest;
		 * several messages may be in one. */
		if (is_late || peer_of(s->end)->shut_rd ||
		    peer_of(s->end)->gone)
			parts = 1;
		memset(m, 0, sizeof(m));
		for (int i = 0; i < parts; i++) {
			iov[i] = (struct iovec){ data + i * n, (size_t)n };
			m[i].msg_hdr.msg_iov = &iov[i];
			m[i].msg_hdr.msg_iovlen = 1;
		}
		say(" sendmmsg %d of %d", parts, n);
		r = is(sendmmsg(fd, m, (unsigned)parts, flags));
		for (int i = 0; i < r; i++)
			say(" %u", m[i].msg_len);
		if (r > 0)
			r *= n;
		break;
	default:
		/* What is held back comes with the next. */
		if (more && n > 1 && !is_late) {
			int half = n / 2;

			say(" send %d MORE", half);
			r = is(send(fd, data, (size_t)half, flags | MSG_MORE));
			was_sent(s, r);
			if (r < 0)
				break;
			say(", send %d", n - half);
			r = is(send(fd, data + half, (size_t)(n - half),
				    flags));
			break;
		}
		say(" send %d", n);
		say_flags(flags);
		r = is(how < 6 ? send(fd, data, (size_t)n, flags)
			       : sendto(fd, data, (size_t)n, flags, NULL, 0));
	}
	was_sent(s, r);
}

static void do_urgent(void)
{
	int k = pick(), n = 1 + below(5);
	struct slot *s = &slots[k];

	head("urgent", k);
	if (!may_send(s, n) || (s->fd >= 0 && !goes_plain(s->end))) {
		say(" left out");
		return;
	}
	make_data(s, n);
	if (s->fd >= 0)
		of(s->end)->urgent_sent = true;
	say(" %d", n);
	was_sent(s, is(send(number(s), data, (size_t)n, MSG_OOB)));
}

/* The files that came with bytes. */
static void close_files(struct msghdr *m)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		int fd;

		for (size_t i = 0; i < n; i++) {
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
			is(lseek(fd, 0, SEEK_END));
			close(fd);
		}
	}
}

static void do_receive(void)
{
	int k = pick(), n = size(), how = below(10), parts = 1 + below(3);
	int flags = one_in(2) ? MSG_DONTWAIT : 0, extra = below(10);
	bool nothing = one_in(30), big = one_in(4);
	struct slot *s = &slots[k];
	struct sockaddr_storage from;
	char control[128];
	struct mmsghdr m[3];
	struct iovec iov[8];
	struct msghdr h = { .msg_iov = iov };
	struct timespec t = { .tv_nsec = 20000000 };
	socklen_t len = sizeof(from);
	int fd = number(s);
	long r;

	if (big)
		n = 3 * PIECE;
	if (extra < 2)
		flags |= MSG_PEEK;
	else if (extra < 4)
		flags |= MSG_WAITALL;
	else if (extra == 4)
		flags |= MSG_TRUNC;
	else if (extra == 5)
		flags |= MSG_PEEK | MSG_TRUNC;
	else if (extra == 6)
		flags |= MSG_PEEK | MSG_WAITALL;
	/* A call that asks for no bytes does not wait. */
	if (nothing) {
		n = 0;
		flags |= MSG_DONTWAIT;
		how = 9;
	}
	memset(room, 0, (size_t)n + 1);
	head("receive", k);
	switch (how) {
	case 0:
		say(" read %d", n);
		bytes(r = read(fd, room, (size_t)n));
		flags = 0;
		break;
	case 1:
		h.msg_iovlen = (size_t)split(iov, room, n);
		say(" readv %zu %d", h.msg_iovlen, n);
		bytes(r = readv(fd, iov, (int)h.msg_iovlen));
		flags = 0;
		break;
	case 2:
	case 3:
		h.msg_iovlen = (size_t)split(iov, room, n);
		h.msg_name = &from;
		h.msg_namelen = sizeof(from);
		h.msg_control = control;
		h.msg_controllen = sizeof(control);
		say(" recvmsg %zu %d", h.msg_iovlen, n);
		say_flags(flags);
		bytes(r = recvmsg(fd, &h, flags));
		if (r >= 0) {
			say(" name %u control %zu flags", h.msg_namelen,
			    h.msg_controllen);
			say_flags(h.msg_flags);
			close_files(&h);
		}
		break;
	case 4:
		memset(m, 0, sizeof(m));
		for (int i = 0; i < parts; i++) {
			iov[i] = (struct iovec){ room + i * n, (size_t)n };
			m[i].msg_hdr.msg_iov = &iov[i];
			m[i].msg_hdr.msg_iovlen = 1;
		}
		if (one_in(2))
			flags |= MSG_WAITFORONE;
		say(" recvmmsg %d of %d", parts, n);
		say_flags(flags);
		r = is(recvmmsg(fd, m, (unsigned)parts, flags, &t));
		for (int i = 0, all = (int)r, sum = 0; i < all; i++) {
			say(" %u", m[i].msg_len);
			say_flags(m[i].msg_hdr.msg_flags);
			r = sum += (int)m[i].msg_len;
		}
		break;
	case 5:
		say(" recvfrom %d", n);
		say_flags(flags);
		bytes(r = recvfrom(fd, room, (size_t)n, flags,
				   (struct sockaddr *)&from, &len));
		say(" name %u", len);
		break;
	default:
		say(" recv %d", n);
		say_flags(flags);
		bytes(r = recv(fd, room, (size_t)n, flags));
	}
	if (!(flags & MSG_PEEK))
		was_received(s, r);
}

static void do_receive_urgent(void)
{
	int k = pick();
	int what = below(4), inline_ = below(2), mark = -1, fd;
	struct slot *s = &slots[k];

	fd = number(s);
	room[0] = 0;
	head("get urgent", k);
	if (what == 0) {
		say(" SIOCATMARK");
		is(ioctl(fd, SIOCATMARK, &mark));
		say(" %d", mark);
	} else if (what == 1) {
		say(" OOBINLINE %d", inline_);
		if (s->fd >= 0 && !goes_plain(s->end)) {
			say(" left out");
			return;
		}
		if (s->fd >= 0)
			peer_of(s->end)->urgent_sent = true;
		is(setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &inline_,
			      sizeof(inline_)));
	} else if (what == 2) {
		say(" errqueue");
		bytes(recv(fd, room, 1, MSG_ERRQUEUE | MSG_DONTWAIT));
	} else {
		say(" OOB");
		bytes(recv(fd, room, 1, MSG_OOB | MSG_DONTWAIT));
	}
}

static short poll_bits(void)
{
	static const short bits[] = { POLLIN,	  POLLOUT,    POLLRDHUP,
				      POLLPRI,	  POLLRDNORM, POLLWRNORM,
				      POLLRDBAND, POLLWRBAND };
	short ev = 0;

	for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++)
		if (one_in(i < 3 ? 2 : 6))
			ev = (short)(ev | bits[i]);
	return ev;
}

static void do_poll(void)
{
	int n = 1 + below(SLOTS), ms = one_in(3) ? 15 : 0, which[SLOTS];
	bool p_poll = one_in(3);
	struct timespec t = { .tv_nsec = ms * 1000000 };
	struct pollfd p[SLOTS];

	if (is_late)
		ms = 0;
	say(" %s %d ms", p_poll ? "ppoll" : "poll", ms);
	for (int i = 0; i < n; i++) {
		int k = which[i] = below(SLOTS);
		short ev = poll_bits();

		p[i] = (struct pollfd){ .fd = one_in(3) ? number(&slots[k])
							: slots[k].fd,
					.events = ev };
	}
	is(p_poll ? ppoll(p, (nfds_t)n, &t, NULL) : poll(p, (nfds_t)n, ms));
	for (int i = 0; i < n; i++)
		if (p[i].revents) {
			say(" s%d:", which[i]);
			say_events((unsigned short)p[i].revents);
		}
}

static void do_select(void)
{
	bool p_select = one_in(3);
	int ms = one_in(3) ? 15 : 0, top = 0;
	struct timespec ts = { .tv_nsec = ms * 1000000 };
	struct timeval tv = { .tv_usec = ms * 1000 };
	fd_set sets[3];

	say(" %s %d ms", p_select ? "pselect" : "select", ms);
	for (int w = 0; w < 3; w++) {
		FD_ZERO(&sets[w]);
		for (int k = 0; k < SLOTS; k++) {
			bool in = one_in(2);

			if (!in || slots[k].fd < 0)
				continue;
			FD_SET(slots[k].fd, &sets[w]);
			if (slots[k].fd >= top)
				top = slots[k].fd + 1;
		}
	}
	is(p_select ? pselect(top, &sets[0], &sets[1], &sets[2], &ts, NULL)
		    : select(top, &sets[0], &sets[1], &sets[2], &tv));
	for (int w = 0; w < 3; w++) {
		say(" %c", "rwx"[w]);
		for (int k = 0; k < SLOTS; k++)
			if (slots[k].fd >= 0 && FD_ISSET(slots[k].fd, &sets[w]))
				say("%d", k);
	}
}

static uint32_t epoll_bits(void)
{
	static const uint32_t bits[] = { EPOLLIN, EPOLLOUT, EPOLLRDHUP,
					 EPOLLRDNORM, EPOLLWRNORM };
	uint32_t ev = 0;

	for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++)
		if (one_in(i < 3 ? 2 : 6))
			ev |= bits[i];
	switch (below(5)) {
	case 0:
		ev |= EPOLLET;
		break;
	case 1:
		ev |= EPOLLONESHOT;
		break;
	case 2:
		ev |= EPOLLET | EPOLLONESHOT;
		break;
	default:
		break;
	}
	return ev;
}

static void do_control(void)
{
	int k = pick(), op = 1 + below(3);
	struct slot *s = &slots[k];
	struct epoll_event ev = { .events = epoll_bits() };
	struct item *it = NULL;

	head(op == EPOLL_CTL_ADD   ? "add"
	     : op == EPOLL_CTL_DEL ? "del"
				   : "mod",
	     k);
	/* What a child does to the set is so for itself. */
	if (is_child || n_items == ITEMS) {
		say(" left out");
		return;
	}
	/* What moves may tell of its edges twice. */
	if (s->fd >= 0 && (of(s->end)->cold || of(s->end)->plain))
		ev.events &= ~(uint32_t)EPOLLET;
	for (int i = 0; i < n_items; i++)
		if (items[i].is_there && items[i].fd == s->fd &&
		    items[i].end == s->end)
			it = &items[i];
	say(" ");
	if (op != EPOLL_CTL_DEL)
		say_events(ev.events);
	ev.data.u32 = (uint32_t)(it ? it - items : n_items);
	if (is(epoll_ctl(set, op, number(s), &ev)) < 0)
		return;
	if (op == EPOLL_CTL_ADD && !it) {
		it = &items[n_items++];
		it->fd = s->fd;
		it->end = s->end;
	}
	if (it) {
		it->is_there = op != EPOLL_CTL_DEL;
		it->events = ev.events;
	}
}

static int by_data(const void *a, const void *b)
{
	const struct epoll_event *x = a, *y = b;

	return (int)x->data.u32 - (int)y->data.u32;
}

static void say_set(int from, int ms)
{
	struct epoll_event ev[ITEMS];
	long n;

	say(" epoll %d ms", ms);
	n = is(epoll_wait(from, ev, ITEMS, ms));
	if (n > 0)
		qsort(ev, (size_t)n, sizeof(ev[0]), by_data);
	for (int i = 0; i < n; i++) {
		say(" i%u:", ev[i].data.u32);
		say_events(ev[i].events);
	}
}

/* A UNIX connection that a message brought to the kernel is left out of one
 * wait in which the kernel reports others. */
static bool leaves_out(int e)
{
	return of(e)->is_unix && of(e)->plain;
}

static void do_wait(void)
{
	int ms = one_in(3) ? 15 : 0;
	bool certain = true;

	for (int i = 0; i < n_items; i++)
		certain = certain &&
			  !(items[i].is_there && leaves_out(items[i].end));
	if (is_child || !certain) {
		say(" left out");
		return;
	}
	say_set(set, ms);
}

/* A set of its own, for one step. */
static void do_own_set(void)
{
	int own = epoll_create1(EPOLL_CLOEXEC), n = 1 + below(4);
	bool certain = true;

	for (int i = 0; i < n; i++) {
		int k = below(SLOTS);
		struct epoll_event ev = { .events = epoll_bits(),
					  .data.u32 = (uint32_t)k };

		if (slots[k].fd < 0)
			continue;
		if (of(slots[k].end)->cold || of(slots[k].end)->plain)
			ev.events &= ~(uint32_t)EPOLLET;
		certain = certain && !leaves_out(slots[k].end);
		head("own", k);
		say(" ");
		say_events(ev.events);
		is(epoll_ctl(own, EPOLL_CTL_ADD, slots[k].fd, &ev));
	}
	say_set(own, 0);
	if (certain)
		say_set(own, 0);
	close(own);
}

static void do_shutdown(void)
{
	int k = pick(), how = below(3);
	struct slot *s = &slots[k];
	struct end *x = s->fd >= 0 ? of(s->end) : NULL;

	if (one_in(3))
		how = SHUT_WR;
	head("shutdown", k);
	say(" %s", how == SHUT_RD ? "RD" : how == SHUT_WR ? "WR" : "RDWR");
	/* The peer's sends must fail. */
	if (x && x->is_unix && how != SHUT_WR && !goes_plain(s->end)) {
		say(" left out");
		return;
	}
	if (is(shutdown(number(s), how)) < 0 || !x)
		return;
	x->shut_rd = x->shut_rd || how != SHUT_WR;
	x->shut_wr = x->shut_wr || how != SHUT_RD;
}

static void do_close(void)
{
	int k = pick(), how = below(4);
	struct slot *s = &slots[k];
	int fd = number(s);

	head("close", k);
	unlist(s);
	if (how == 0 && s->fd >= 0) {
		say(" range");
		is(close_range((unsigned)fd, (unsigned)fd, 0));
	} else {
		is(close(fd));
	}
	forget(s);
}

static void do_dup(void)
{
	int a = pick(), b = below(SLOTS), how = below(5), fd = -1;
	struct slot *s = &slots[a], *d = &slots[b];

	head("dup", a);
	head("to", b);
	if (d->fd >= 0 && a != b) {
		/* Not by what is refused. */
		if (s->fd >= 0)
			unlist(d);
		if (how < 3) {
			say(" dup2");
			fd = dup2(number(s), d->fd);
		} else {
			say(" dup3");
			fd = dup3(number(s), d->fd, O_CLOEXEC);
		}
		if (is_number(fd, d->fd) < 0)
			return;
		forget(d);
	} else if (d->fd >= 0) {
		is_number(dup2(s->fd, s->fd), s->fd);
		return;
	} else if (how < 2) {
		fd = is_number(dup(number(s)), -1);
	} else {
		say(" F_DUPFD");
		fd = is_number(fcntl(number(s),
				     how == 2 ? F_DUPFD : F_DUPFD_CLOEXEC,
				     below(60)),
			       -1);
	}
	if (fd >= 0)
		*d = (struct slot){ fd, s->end };
}

static void do_fcntl(void)
{
	int k = pick(), what = below(4), on = below(2), fl;
	struct slot *s = &slots[k];

	head("flags", k);
	if (what == 0) {
		say(" FIONBIO %d", on);
		is(ioctl(number(s), FIONBIO, &on));
		return;
	}
	fl = fcntl(number(s), F_GETFL);
	if (fl < 0) {
		is(fl);
		return;
	}
	say(" %#x", (unsigned)fl);
	if (what == 1)
		return;
	say(" %s", on ? "nonblock" : "block");
	is(fcntl(number(s), F_SETFL, on ? fl | O_NONBLOCK : fl & ~O_NONBLOCK));
}

static void do_option(void)
{
	int k = pick(), what = below(12), v = 0;
	struct slot *s = &slots[k];
	struct end *x = s->fd >= 0 ? of(s->end) : NULL;
	struct timeval t = { .tv_usec = (1 + below(4)) * 8000 };
	struct linger lg = { .l_onoff = below(2) };
	socklen_t len = sizeof(v);
	int fd = number(s);

	head("option", k);
	switch (what) {
	case 0:
	case 1:
		say(" %sTIMEO %ld", what ? "SND" : "RCV", (long)t.tv_usec);
		is(setsockopt(fd, SOL_SOCKET, what ? SO_SNDTIMEO : SO_RCVTIMEO,
			      &t, sizeof(t)));
		len = sizeof(t);
		is(getsockopt(fd, SOL_SOCKET, what ? SO_SNDTIMEO : SO_RCVTIMEO,
			      &t, &len));
		say(" %ld", (long)t.tv_usec);
		break;
	case 2:
	case 3:
		v = one_in(3) ? 1 : below(1500);
		say(" LOWAT %d", v);
		is(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &v, sizeof(v)));
		break;
	case 4:
		say(" LINGER %d", lg.l_onoff);
		if (is(setsockopt(fd, SOL_SOCKET, SO_LINGER, &lg,
				  sizeof(lg))) == 0 &&
		    x)
			x->linger = lg.l_onoff;
		break;
	case 5:
		v = one_in(3) ? -1 : one_in(2) ? 0 : below(300);
		say(" PEEK_OFF %d", v);
		if (x && !goes_plain(s->end)) {
			say(" left out");
			break;
		}
		is(setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &v, sizeof(v)));
		break;
	case 6:
		v = 1;
		say(" NODELAY");
		is(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &v, sizeof(v)));
		break;
	case 7:
		v = 65536 + below(65536);
		say(" %s %d", lg.l_onoff ? "RCVBUF" : "SNDBUF", v);
		is(setsockopt(fd, SOL_SOCKET,
			      lg.l_onoff ? SO_RCVBUF : SO_SNDBUF, &v,
			      sizeof(v)));
		v = 0;
		is(getsockopt(fd, SOL_SOCKET,
			      lg.l_onoff ? SO_RCVBUF : SO_SNDBUF, &v, &len));
		say(" %d", v);
		break;
	case 8:
		v = below(2);
		say(" KEEPALIVE %d", v);
		is(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &v, sizeof(v)));
		break;
	case 9:
		say(" PEEK_OFF?");
		is(getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &v, &len));
		say(" %d", v);
		break;
	default:
		say(" ERROR");
		if (is(getsockopt(fd, SOL_SOCKET, SO_ERROR, &v, &len)) == 0)
			say(" %s", v ? strerrorname_np(v) : "0");
	}
}

static void do_ask(void)
{
	int k = pick(), what = below(3), n = -1;
	struct slot *s = &slots[k];
	struct sockaddr_in a;
	socklen_t len = sizeof(a);

	head("ask", k);
	if (what == 0) {
		say(" peer");
		is(getpeername(number(s), (struct sockaddr *)&a, &len));
	} else if (what == 1) {
		say(" name");
		is(getsockname(number(s), (struct sockaddr *)&a, &len));
	} else {
		is(ioctl(number(s), FIONREAD, &n));
		say(" %d", n);
	}
}

static void do_pass(void)
{
	int k = pick(), b = below(SLOTS), sv[2], fd = -1;
	union {
		struct cmsghdr h;
		char space[CMSG_SPACE(sizeof(int))];
	} c = { 0 };
	struct iovec iov = { room, 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = &c,
			    .msg_controllen = sizeof(c) };
	struct slot *s = &slots[k], *d = &slots[b];

	head("pass", k);
	head("to", b);
	if (s->fd < 0 || d->fd >= 0 || !goes_plain(s->end)) {
		say(" left out");
		return;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv))
		die("make a pair");
	c.h.cmsg_level = SOL_SOCKET;
	c.h.cmsg_type = SCM_RIGHTS;
	c.h.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&c.h), &s->fd, sizeof(int));
	is(sendmsg(sv[0], &m, 0));
	memset(&c, 0, sizeof(c));
	m.msg_controllen = sizeof(c);
	is(recvmsg(sv[1], &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT));
	memcpy(&fd, CMSG_DATA(&c.h), sizeof(int));
	close(sv[0]);
	close(sv[1]);
	*d = (struct slot){ fd, s->end };
}

/* Bytes with the descriptor of a file. */
static void do_message(void)
{
	int k = pick(), n = size(), file;
	union {
		struct cmsghdr h;
		char space[CMSG_SPACE(sizeof(int))];
	} c = { .h = { .cmsg_level = SOL_SOCKET,
		       .cmsg_type = SCM_RIGHTS,
		       .cmsg_len = CMSG_LEN(sizeof(int)) } };
	struct iovec iov = { data, (size_t)n };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = &c,
			    .msg_controllen = sizeof(c) };
	struct slot *s = &slots[k];

	head("message", k);
	if (!may_send(s, n) ||
	    (s->fd >= 0 && (!of(s->end)->is_unix || !goes_plain(s->end)))) {
		say(" left out");
		return;
	}
	file = memfd_create("wander", MFD_CLOEXEC);
	memcpy(CMSG_DATA(&c.h), &file, sizeof(int));
	make_data(s, n);
	say(" %d", n);
	was_sent(s, is(sendmsg(number(s), &m, 0)));
	close(file);
}

static void do_sendfile(void)
{
	int k = pick(), n = size(), m = memfd_create("wander", MFD_CLOEXEC);
	struct slot *s = &slots[k];
	off_t from = below(5);
	long r;

	head("sendfile", k);
	if (!may_send(s, n)) {
		say(" left out");
		close(m);
		return;
	}
	make_data(s, n + 5);
	if (write(m, data, (size_t)n) != n)
		die("write a file");
	say(" %d of %d from %ld", n, n, (long)from);
	r = is(sendfile(number(s), m, &from, (size_t)n));
	say(" now %ld", (long)from);
	was_sent(s, r);
	close(m);
}

static void do_splice(void)
{
	int k = pick(), n = size(), p[2];
	struct slot *s = &slots[k];
	long r;

	head("splice", k);
	if (s->fd >= 0 && !goes_plain(s->end)) {
		say(" left out");
		return;
	}
	if (pipe2(p, O_CLOEXEC))
		die("make a pipe");
	say(" %d", n);
	r = is(splice(number(s), NULL, p[1], NULL, (size_t)n,
		      SPLICE_F_NONBLOCK));
	was_received(s, r);
	if (r > 0)
		bytes(read(p[0], room, (size_t)r));
	close(p[0]);
	close(p[1]);
}

static void do_new(void)
{
	int a = below(SLOTS), b = (a + 1 + below(SLOTS - 1)) % SLOTS;
	bool is_cold = one_in(4);

	say(" new s%d s%d%s", a, b, is_cold ? " cold" : "");
	if (n_conns == CONNS || is_child) {
		say(" left out");
		return;
	}
	for (int i = 0; i < 2; i++) {
		struct slot *s = &slots[i ? b : a];

		if (s->fd < 0)
			continue;
		unlist(s);
		is(close(s->fd));
		forget(s);
	}
	settle();
	connection(a, b, is_cold);
}

static void do_fork(void);
static void do_late(void);

static const struct {
	void (*f)(void);
	int weight;
	/* A child can. */
	bool nests;
	/* Only where UNIX sockets are among the connections. */
	bool mixed;
} kinds[] = {
	{ do_send, 26, true },	 { do_receive, 24, true },
	{ do_poll, 10, true },	 { do_select, 5, true },
	{ do_control, 9, true }, { do_wait, 9, true },
	{ do_own_set, 3, true }, { do_shutdown, 6, true },
	{ do_close, 6, true },	 { do_dup, 8, true },
	{ do_fcntl, 3, true },	 { do_option, 10, true },
	{ do_ask, 4, true },	 { do_sendfile, 3, true },
	{ do_urgent, 2, true },	 { do_receive_urgent, 2, true },
	{ do_pass, 2, true },	 { do_splice, 2, true },
	{ do_new, 5, false },	 { do_fork, 4, false },
	{ do_late, 6, false },	 { do_message, 5, true, true },
};

static bool can(size_t i, bool nested)
{
	return (!nested || kinds[i].nests) && (is_mixed || !kinds[i].mixed);
}

static void one_kind(bool nested)
{
	int all = 0, n;
	size_t i;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (can(i, nested))
			all += kinds[i].weight;
	n = below(all);
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (!can(i, nested))
			continue;
		n -= kinds[i].weight;
		if (n < 0)
			break;
	}
	kinds[i].f();
}

static int step_number;

/* A child does some steps, or the parent does while the child has everything
 * open. */
static void do_fork(void)
{
	int n = 1 + below(4), go[2], status, before[CONNS * 2];
	bool child_acts = !one_in(3);
	uint64_t after = draw();
	char c = 0;
	pid_t pid;

	say(" fork %d %s", n, child_acts ? "by the child" : "by the parent");
	end_line();
	for (int e = 0; e < CONNS * 2; e++)
		before[e] = names_of(e);
	has_forked = true;
	if (pipe2(go, O_CLOEXEC))
		die("make a pipe");
	pid = fork();
	if (pid < 0)
		die("fork");
	memcpy(held, before, sizeof(held));
	if (pid == 0) {
		is_child = true;
		close(go[1]);
		alarm(15);
	} else {
		close(go[0]);
	}
	if ((pid == 0) == child_acts) {
		is_child = true;
		for (int i = 0; i < n; i++) {
			state = after + (uint64_t)i * 77777;
			draw();
			say("%d.%d", step_number, i);
			one_kind(true);
			end_line();
			settle();
		}
		is_child = pid == 0;
	}
	if (pid == 0) {
		if (!child_acts && read(go[0], &c, 1) < 0)
			_exit(4);
		exit(0);
	}
	close(go[1]);
	if (waitpid(pid, &status, 0) != pid)
		die("wait for the child");
	memset(held, 0, sizeof(held));
	for (int e = 0; e < n_conns * 2; e++)
		if (before[e] && !of(e)->gone)
			is_gone(e);
	say("%d forked %x", step_number, (unsigned)status);
}

/* Something comes while a call waits for it. */
struct late {
	uint64_t state;
	int kind;
	int a;
};

static char late_line[sizeof(line)];

static void *be_late(void *arg)
{
	struct late *d = arg;
	struct slot *s = &slots[d->a];
	long r;

	poll(NULL, 0, 30);
	if (d->kind == 0) {
		r = send(s->fd, data, 700, MSG_NOSIGNAL);
		was_sent(s, r);
		snprintf(late_line, sizeof(late_line), " late send %ld", r);
	} else {
		r = shutdown(s->fd, d->kind == 1 ? SHUT_WR : SHUT_RDWR);
		snprintf(late_line, sizeof(late_line), " late shutdown %ld", r);
	}
	return NULL;
}

static void do_late(void)
{
	int k = pick(), how = below(5), kind = below(5), w;
	struct slot *s = &slots[k], *d;
	struct late late = { .kind = kind < 3 ? 0 : kind - 2, .a = k };
	struct timeval t = { .tv_usec = 300000 }, was;
	socklen_t len = sizeof(was);
	struct pollfd p = { .events = POLLIN | POLLRDHUP };
	int own, n = size();
	bool by_child = one_in(2), all = one_in(2);
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP };
	pthread_t thread;
	pid_t pid = 0;

	head("late", k);
	say(" %d %d %s", late.kind, how, by_child ? "child" : "thread");
	for (w = 0; s->fd >= 0 && w < SLOTS; w++)
		if (slots[w].fd >= 0 && slots[w].end == (s->end ^ 1))
			break;
	if (s->fd < 0 || w == SLOTS || !may_send(s, 700) ||
	    /* Its end of reading comes before its hang-up. */
	    (of(s->end)->is_unix && late.kind == 2)) {
		say(" left out");
		return;
	}
	d = &slots[w];
	make_data(s, 700);
	if (late.kind) {
		of(s->end)->shut_wr = true;
		of(s->end)->shut_rd = of(s->end)->shut_rd || late.kind == 2;
	}
	own = epoll_create1(EPOLL_CLOEXEC);
	if (how == 1)
		epoll_ctl(own, EPOLL_CTL_ADD, d->fd, &ev);
	getsockopt(d->fd, SOL_SOCKET, SO_RCVTIMEO, &was, &len);
	setsockopt(d->fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
	if (by_child) {
		has_forked = true;
		pid = fork();
		if (pid < 0)
			die("fork");
		if (pid == 0) {
			alarm(15);
			be_late(&late);
			exit(0);
		}
	} else if (pthread_create(&thread, NULL, be_late, &late)) {
		die("start a thread");
	}
	p.fd = d->fd;
	if (how == 0) {
		is(poll(&p, 1, 300));
		say(" ");
		say_events((unsigned short)p.revents);
	} else if (how == 1) {
		say_set(own, 300);
	} else {
		long r;

		memset(room, 0, sizeof(room));
		say(" recv %d%s", n, all ? " ALL" : "");
		r = recv(d->fd, room, (size_t)n, all ? MSG_WAITALL : 0);
		bytes(r);
		was_received(d, r);
	}
	if (by_child) {
		int status;

		waitpid(pid, &status, 0);
		say(" child %x", (unsigned)status);
	} else {
		pthread_join(thread, NULL);
		say("%s", late_line);
	}
	setsockopt(d->fd, SOL_SOCKET, SO_RCVTIMEO, &was, sizeof(was));
	close(own);
}

/* --- the walk ----------------------------------------------------------- */

static bool wanted(const char *only, int step)
{
	char *next;

	while (only && *only) {
		if (strtol(only, &next, 10) == step)
			return true;
		only = *next == ',' ? next + 1 : "";
	}
	return !only;
}

int main(int argc, char **argv)
{
	const char *only = NULL;
	socklen_t len = sizeof(at.in);

	for (argv++, argc--; argc > 1; argv += 2, argc -= 2) {
		if (strcmp(argv[0], "--only") == 0)
			only = argv[1];
		else if (strcmp(argv[0], "--steps") == 0)
			wanted_steps = atoi(argv[1]);
		else if (strcmp(argv[0], "--mixed") == 0)
			is_mixed = atoi(argv[1]);
		else
			return 2;
	}
	if (argc != 1)
		return 2;
	seed = strtoull(argv[0], NULL, 10);
	signal(SIGPIPE, SIG_IGN);
	alarm(18);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	set = epoll_create1(EPOLL_CLOEXEC);
	at.in.sin_family = AF_INET;
	at.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	unix_at.un.sun_family = AF_UNIX; /* the kernel chooses the name */
	l = listener(&at, &len);
	unix_l = is_mixed ? listener(&unix_at, &unix_len) : -1;
	if (shared == MAP_FAILED || set < 0)
		return 2;
	for (int i = 0; i < SLOTS; i++)
		slots[i] = (struct slot){ -1, -1 };
	draw_from(0);
	say("0");
	for (int i = 0, n = 1 + below(3); i < n; i++)
		connection(2 * i, 2 * i + 1, one_in(6));
	end_line();
	settle();
	for (int i = 1; i <= wanted_steps; i++) {
		draw_from((uint64_t)i);
		if (!wanted(only, i))
			continue;
		step_number = i;
		say("%d", i);
		one_kind(false);
		end_line();
		settle();
	}
	for (int i = 0; i < SLOTS; i++) {
		if (slots[i].fd < 0)
			continue;
		head("last", i);
		bytes(recv(slots[i].fd, room, sizeof(room), MSG_DONTWAIT));
		is(close(slots[i].fd));
		end_line();
		forget(&slots[i]);
		settle();
	}
	return 0;
}
