/* SPDX-License-Identifier: BSD-2-Clause */
/* Connected pairs, whole transfers, and waiting for the fabric. */
#include "tests/support/net.h"

#include <arpa/inet.h>
#include <linux/netlink.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/wait.h"

ssize_t t_send(int s, const void *buf, size_t len, int flags)
{
	return exs_send(s, buf, len, flags, T_SYNC, EXS_MHANDLE_UNREGISTERED);
}

ssize_t t_recv(int s, void *buf, size_t len, int flags)
{
	return exs_recv(s, buf, len, flags, T_SYNC, EXS_MHANDLE_UNREGISTERED);
}

int t_shutdown(int s, int how)
{
	return exs_shutdown(s, how, T_SYNC);
}

void t_close(int s)
{
	T_OK(exs_close(s, T_SYNC));
}

int t_accept(int listener)
{
	return T_OK(exs_accept(listener, NULL, SOCK_CLOEXEC, T_SYNC));
}

void t_post_send(int s, const void *buf, size_t len, int flags, exs_qhandle_t q,
		 long a)
{
	ssize_t n = exs_send(s, buf, len, flags, q, (exs_ahandle_t)a,
			     EXS_MHANDLE_UNREGISTERED);

	T_MSG(n == 0, "exs_send of %zu bytes gave %zd (%s)", len, n,
	      t_errname(errno));
}

void t_post_recv(int s, void *buf, size_t len, int flags, exs_qhandle_t q,
		 long a)
{
	ssize_t n = exs_recv(s, buf, len, flags, q, (exs_ahandle_t)a,
			     EXS_MHANDLE_UNREGISTERED);

	T_MSG(n == 0, "exs_recv of %zu bytes gave %zd (%s)", len, n,
	      t_errname(errno));
}

exs_event_t t_event(exs_qhandle_t q)
{
	struct timeval tv = { .tv_sec = 20 * t_slow() };
	exs_event_t e;
	int n = exs_qdequeue(q, &e, 1, &tv);

	T_MSG(n == 1, "no event: exs_qdequeue gave %d (%s)", n,
	      n < 0 ? t_errname(errno) : "time is up");
	return e;
}

size_t t_event_is(exs_qhandle_t q, int type, long a)
{
	exs_event_t e = t_event(q);

	T_MSG(e.exs_errno == 0, "event %d of type %d has %s",
	      (int)(long)e.exs_evt_ahandle, e.exs_evt_type,
	      t_errname(e.exs_errno));
	T_EQ(e.exs_evt_type, type);
	T_EQ((long)e.exs_evt_ahandle, a);
	return e.exs_evt_un.exs_evt_xfer.exs_evt_length;
}

void t_no_event(exs_qhandle_t q)
{
	struct timeval none = { 0 };
	exs_event_t e;

	T_EQ(exs_qdequeue(q, &e, 1, &none), 0);
}

void t_init(void)
{
	T_OK(exs_init(EXS_VERSION));
}

static const char *address(const char *variable, const char *loopback)
{
	const char *v = getenv(variable);

	return v ? v : loopback;
}

/* Abstract names, by the five digits that the kernel gives one that is bound to
 * none. */
static struct t_addr unix_name(int port)
{
	struct t_addr at = { .domain = AF_UNIX,
			     .len = sizeof(at.ss.ss_family) };
	struct sockaddr_un *un = (void *)&at.ss;

	un->sun_family = AF_UNIX;
	if (port)
		at.len += 1 + (socklen_t)snprintf(un->sun_path + 1, 6, "%05x",
						  (unsigned int)port);
	return at;
}

bool t_is_unix(void)
{
	return getenv("T_UNIX");
}

struct t_addr t_loopback(enum t_family family, int port)
{
	char mapped[INET6_ADDRSTRLEN];
	const char *four = address("T_ADDRESS", "127.0.0.1");
	struct t_addr at = { .domain = AF_INET6 };
	struct sockaddr_in *in = (void *)&at.ss;
	struct sockaddr_in6 *in6 = (void *)&at.ss;

	if (t_is_unix())
		return unix_name(port);
	if (family == T_IPV4) {
		at.domain = AF_INET;
		at.len = sizeof(*in);
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		T_EQ(inet_pton(AF_INET, four, &in->sin_addr), 1);
		return at;
	}
	at.len = sizeof(*in6);
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(port);
	snprintf(mapped, sizeof(mapped), "::ffff:%s", four);
	T_EQ(inet_pton(AF_INET6,
		       family == T_IPV6 ? address("T_ADDRESS6", "::1") : mapped,
		       &in6->sin6_addr),
	     1);
	return at;
}

int t_port(const struct t_addr *at)
{
	if (at->ss.ss_family == AF_UNIX)
		return (int)strtol(
			((const struct sockaddr_un *)&at->ss)->sun_path + 1,
			NULL, 16);
	if (at->ss.ss_family == AF_INET)
		return ntohs(((const struct sockaddr_in *)&at->ss)->sin_port);
	return ntohs(((const struct sockaddr_in6 *)&at->ss)->sin6_port);
}

int t_port_of(int s)
{
	struct t_addr at = { .len = sizeof(at.ss) };

	T_OK(exs_getsockname(s, (struct sockaddr *)&at.ss, &at.len));
	return t_port(&at);
}

int t_type = SOCK_STREAM;

int t_listener(enum t_family family, struct t_addr *at)
{
	struct t_addr want = t_loopback(family, 0);
	int s = T_OK(exs_socket(want.domain, t_type | SOCK_CLOEXEC, 0));

	T_OK(exs_bind(s, (struct sockaddr *)&want.ss, want.len));
	T_OK(exs_listen(s, 64));
	*at = t_loopback(family, t_port_of(s));
	return s;
}

int t_connect(const struct t_addr *to)
{
	int s = T_OK(exs_socket(to->domain, t_type | SOCK_CLOEXEC, 0));

	T_OK(exs_connect(s, (const struct sockaddr *)&to->ss, to->len, 0,
			 T_SYNC));
	return s;
}

/* The listeners of pairs stay until the row ends: a server that stops
 * listening stops saying that it runs libexs, and has a test of its own. */
static struct kept {
	pid_t pid;
	int fd;
	struct t_addr at;
} kept[T_MAPPED + 1];

static struct kept *kept_listener(enum t_family family)
{
	struct kept *k = &kept[family];

	if (k->pid != getpid()) {
		k->fd = t_listener(family, &k->at);
		k->pid = getpid();
	}
	return k;
}

void t_unlisten(void)
{
	int i;

	for (i = 0; i <= T_MAPPED; i++) {
		if (kept[i].pid == getpid())
			t_close(kept[i].fd);
		kept[i].pid = 0;
	}
}

void t_pair(enum t_family family, int fd[2])
{
	struct kept *k = kept_listener(family);

	fd[0] = t_connect(&k->at);
	fd[1] = t_accept(k->fd);
}

struct fork_plan {
	enum t_end there;
	void (*f)(int s, int ctl);
};

static int end_that_accepts(int ctl)
{
	struct kept *k;

	t_init();
	k = kept_listener(T_IPV4);
	t_tell(ctl, t_port_of(k->fd));
	return t_accept(k->fd);
}

static int end_that_connects(int ctl)
{
	struct t_addr to = t_loopback(T_IPV4, t_ask(ctl));

	t_init();
	return t_connect(&to);
}

static void forked_end(int ctl, void *arg)
{
	struct fork_plan *plan = arg;

	if (plan->there == T_A)
		plan->f(end_that_connects(ctl), ctl);
	else
		plan->f(end_that_accepts(ctl), ctl);
}

int t_plain_listener(struct t_addr *at)
{
	int l;

	*at = t_loopback(T_IPV4, 0);
	l = T_OK(socket(at->domain, SOCK_STREAM | SOCK_CLOEXEC, 0));
	T_OK(bind(l, (struct sockaddr *)&at->ss, at->len));
	T_OK(listen(l, 4));
	at->len = sizeof(at->ss);
	T_OK(getsockname(l, (struct sockaddr *)&at->ss, &at->len));
	return l;
}

void t_plain_echo(int ctl, void *unused)
{
	struct t_addr at;
	int l = t_plain_listener(&at), s;
	char buf[10000];
	ssize_t n;

	t_tell(ctl, t_port(&at));
	s = T_OK(accept(l, NULL, NULL));
	while ((n = T_OK(recv(s, buf, sizeof(buf), 0))) > 0)
		T_EQ(send(s, buf, n, 0), n);
	close(s);
	close(l);
}

void t_plain_pair(int fd[2])
{
	struct t_addr at;
	int l = t_plain_listener(&at);

	fd[0] = T_OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	T_OK(connect(fd[0], (struct sockaddr *)&at.ss, at.len));
	fd[1] = T_OK(accept4(l, NULL, NULL, SOCK_CLOEXEC));
	close(l);
}

int t_pair_fork(struct t_peer *p, enum t_end here, void (*f)(int s, int ctl))
{
	struct fork_plan plan = { .there = here == T_A ? T_B : T_A, .f = f };

	t_peer_start(p, forked_end, &plan);
	return here == T_A ? end_that_connects(p->ctl)
			   : end_that_accepts(p->ctl);
}

void t_send_all(int s, const void *buf, size_t len, int flags)
{
	struct t_deadline d = t_deadline_ms(30000);
	size_t at = 0;

	while (at < len) {
		ssize_t n = t_send(s, (const char *)buf + at, len - at, flags);

		if (n > 0)
			at += n;
		else if (n < 0 && errno == EAGAIN)
			T_MSG(t_tick(&d), "EAGAIN for ever at byte %zu of %zu",
			      at, len);
		else
			t_fail(__FILE__, __LINE__,
			       "send of %zu bytes gave %zd (%s); %s", len - at,
			       n, t_errname(errno), t_where(s));
	}
}

void t_recv_all(int s, void *buf, size_t len)
{
	struct t_deadline d = t_deadline_ms(30000);
	size_t at = 0;

	while (at < len) {
		ssize_t n = t_recv(s, (char *)buf + at, len - at, 0);

		if (n > 0)
			at += n;
		else if (n < 0 && errno == EAGAIN)
			T_MSG(t_tick(&d), "EAGAIN for ever at byte %zu of %zu",
			      at, len);
		else
			t_fail(__FILE__, __LINE__,
			       "recv of %zu bytes gave %zd (%s); %s", len - at,
			       n, n ? t_errname(errno) : "the end", t_where(s));
	}
}

void t_send_stream(int s, uint64_t seed, uint64_t pos, uint64_t len,
		   size_t chunk)
{
	char *buf = malloc(chunk);
	uint64_t end = pos + len;

	T(buf != NULL);
	while (pos < end) {
		size_t n = end - pos < chunk ? end - pos : chunk;

		t_fill(buf, n, seed, pos);
		t_send_all(s, buf, n, 0);
		pos += n;
	}
	free(buf);
}

void t_recv_stream(int s, uint64_t seed, uint64_t pos, uint64_t len,
		   size_t chunk)
{
	char *buf = malloc(chunk);
	uint64_t end = pos + len;

	T(buf != NULL);
	while (pos < end) {
		size_t n = end - pos < chunk ? end - pos : chunk;

		t_recv_all(s, buf, n);
		t_check_bytes(buf, n, seed, pos);
		pos += n;
	}
	free(buf);
}

void t_recv_end(int s)
{
	char byte;

	T_EQ(T_OK(t_recv(s, &byte, 1, 0)), 0);
	T_EQ(T_OK(t_recv(s, &byte, 1, 0)), 0);
}

exs_x_sockinfo_t t_info(int s)
{
	exs_x_sockinfo_t info;

	T_OK(exs_x_sockinfo(s, &info));
	return info;
}

bool t_is(int s, struct t_want want)
{
	exs_x_sockinfo_t info = t_info(s);

	if (want.reason == T_ANY && info.exs_x_reason == EXS_X_REASON_NONE)
		return false;
	return (want.reason == T_ANY || info.exs_x_reason == want.reason) &&
	       !strcmp(info.exs_x_tx_fabric, want.fabric) &&
	       !strcmp(info.exs_x_rx_fabric, want.fabric);
}

const char *t_where(int s)
{
	static _Thread_local char rooms[4][160];
	static _Thread_local int next;
	char *room = rooms[next++ % 4];
	int saved = errno; /* is told beside it */
	exs_x_sockinfo_t i;

	if (exs_x_sockinfo(s, &i) < 0)
		snprintf(room, sizeof(rooms[0]), "no sockinfo of %d: %s", s,
			 t_errname(errno));
	else
		snprintf(room, sizeof(rooms[0]),
			 "tx %s rx %s reason %s paired %d up %d down %d "
			 "sent %llu received %llu",
			 i.exs_x_tx_fabric, i.exs_x_rx_fabric,
			 exs_x_reason_name(i.exs_x_reason), i.exs_x_paired,
			 (int)i.exs_x_upgrades, (int)i.exs_x_downgrades,
			 (unsigned long long)i.exs_x_tx_bytes,
			 (unsigned long long)i.exs_x_rx_bytes);
	errno = saved;
	return room;
}

#define SETTLE_BLOCK 2048
#define SETTLE_MS    20000

static void settle_failed(int s, struct t_want want)
{
	t_fail(__FILE__, __LINE__, "wanted %s (%s), is: %s", want.fabric,
	       want.reason == T_ANY ? "any reason"
				    : exs_x_reason_name(want.reason),
	       t_where(s));
}

void t_settle_ends(int a, struct t_want want_a, int b, struct t_want want_b)
{
	struct t_deadline d = t_deadline_ms(SETTLE_MS);
	char block[SETTLE_BLOCK];

	do {
		memset(block, 'a', sizeof(block));
		t_send_all(a, block, sizeof(block), 0);
		t_recv_all(b, block, sizeof(block));
		memset(block, 'b', sizeof(block));
		t_send_all(b, block, sizeof(block), 0);
		t_recv_all(a, block, sizeof(block));
		if (t_is(a, want_a) && t_is(b, want_b))
			return;
	} while (t_tick(&d));
	if (t_is(a, want_a))
		settle_failed(b, want_b);
	settle_failed(a, want_a);
}

void t_settle_pair(int a, int b, struct t_want want)
{
	t_settle_ends(a, want, b, want);
}

void t_settle(int s, struct t_want want)
{
	struct t_deadline d = t_deadline_ms(SETTLE_MS);
	char mine[SETTLE_BLOCK] = { 0 }, theirs[SETTLE_BLOCK];

	do {
		mine[0] = t_is(s, want);
		t_send_all(s, mine, sizeof(mine), 0);
		t_recv_all(s, theirs, sizeof(theirs));
		if (mine[0] && theirs[0])
			return;
	} while (t_tick(&d));
	settle_failed(s, want);
}

void t_settle_anywhere(int s, bool decides)
{
	struct t_deadline d = t_deadline_ms(SETTLE_MS);
	char block[SETTLE_BLOCK] = { 0 };

	do {
		if (decides &&
		    (t_info(s).exs_x_reason != EXS_X_REASON_UNDECIDED ||
		     !t_tick(&d)))
			block[0] = 1;
		if (decides)
			t_send_all(s, block, sizeof(block), 0);
		t_recv_all(s, block, sizeof(block));
		if (!decides)
			t_send_all(s, block, sizeof(block), 0);
	} while (!block[0]);
}

int t_names_of(int port)
{
	FILE *f = fopen("/proc/net/unix", "re");
	char line[512], a[32], b[32], c[32];
	int n = 0;

	T(f != NULL);
	snprintf(a, sizeof(a), "/port/%d\n", port);
	snprintf(b, sizeof(b), ":%d\n", port);
	snprintf(c, sizeof(c), ":%d/", port);
	while (fgets(line, sizeof(line), f)) {
		char *name = strstr(line, "@libexs");

		n += name &&
		     (strstr(name, a) || strstr(name, b) || strstr(name, c));
	}
	fclose(f);
	return n;
}

bool t_has_cookies(void)
{
	int s = T_OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	uint64_t cookie;
	socklen_t len = sizeof(cookie);
	bool ret = !getsockopt(s, SOL_SOCKET, SO_COOKIE, &cookie, &len);

	close(s);
	return ret;
}

bool t_has_sock_diag(void)
{
	int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

	if (s >= 0)
		close(s);
	return s >= 0;
}
