/* SPDX-License-Identifier: BSD-2-Clause */
/* exs stat: what the kernel reports of TCP and UNIX sockets, through the
 * interface that ss(8) uses. */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <linux/unix_diag.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/util.h"
#include "tools/stat.h"

/* Values of the kernel's header; <netinet/tcp.h> has them, too, but has another
 * struct tcp_info. */
#define ESTABLISHED 1
#define CLOSED	    7
#define LISTENS	    10
static const char *const states[] = {
	NULL,	      "ESTAB",	    "SYN-SENT",	 "SYN-RECV",
	"FIN-WAIT-1", "FIN-WAIT-2", "TIME-WAIT", "UNCONN",
	"CLOSE-WAIT", "LAST-ACK",   "LISTEN",	 "CLOSING",
};

struct stat_tcps {
	struct stat_tcp *at; /* sorted by inode when sorted is set */
	size_t n, room;
	bool sorted;
	uint64_t *read; /* namespaces */
	size_t n_read;
};

struct stat_tcps *stat_tcps_new(void)
{
	return calloc(1, sizeof(struct stat_tcps));
}

void stat_tcps_free(struct stat_tcps *t)
{
	if (!t)
		return;
	free(t->at);
	free(t->read);
	free(t);
}

static int add(struct stat_tcps *t, const struct stat_tcp *one)
{
	size_t room = t->room ? 2 * t->room : 1024;

	if (t->n == t->room) {
		struct stat_tcp *more = realloc(t->at, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		t->at = more;
		t->room = room;
	}
	t->at[t->n++] = *one;
	t->sorted = false;
	return 0;
}

static int by_inode(const void *a, const void *b)
{
	const struct stat_tcp *x = a, *y = b;

	return x->inode < y->inode ? -1 : x->inode > y->inode;
}

static int by_word(const void *a, const void *b)
{
	const struct stat_tcp *x = a, *y = b;
	int ret = by_inode(a, b);

	return ret ? ret : x->hearsay - y->hearsay;
}

static void sort(struct stat_tcps *t)
{
	if (!t->sorted && t->n)
		qsort(t->at, t->n, sizeof(*t->at), by_word);
	t->sorted = true;
}

static void take_info(struct stat_tcp *s, const struct inet_diag_msg *m,
		      const struct rtattr *a)
{
	struct tcp_info info = { 0 };
	size_t len = RTA_PAYLOAD(a);

	memcpy(&info, RTA_DATA(a), len < sizeof(info) ? len : sizeof(info));
	if (len < offsetof(struct tcp_info, tcpi_bytes_received) +
			  sizeof(info.tcpi_bytes_received))
		return;
	s->counted = true;
	/* What the program wrote and read, queued bytes included. */
	s->sent = info.tcpi_bytes_acked + m->idiag_wqueue;
	s->received = info.tcpi_bytes_received - m->idiag_rqueue;
}

static int add_message(struct stat_tcps *t, const struct nlmsghdr *h,
		       uint64_t netns)
{
	const struct inet_diag_msg *m = NLMSG_DATA(h);
	int left = (int)(h->nlmsg_len - NLMSG_LENGTH(sizeof(*m)));
	struct stat_tcp s = { .inode = m->idiag_inode,
			      .netns = netns,
			      .family = m->idiag_family,
			      .state = m->idiag_state };

	if (left < 0 || !m->idiag_inode)
		return 0;
	s.port[0] = ntohs(m->id.idiag_sport);
	s.port[1] = ntohs(m->id.idiag_dport);
	memcpy(s.addr[0], m->id.idiag_src, sizeof(s.addr[0]));
	memcpy(s.addr[1], m->id.idiag_dst, sizeof(s.addr[1]));
	for (const struct rtattr *a = (const struct rtattr *)(m + 1);
	     RTA_OK(a, left); a = RTA_NEXT(a, left))
		if (a->rta_type == INET_DIAG_INFO && m->idiag_state != LISTENS)
			take_info(&s, m, a);
	return add(t, &s);
}

/* The name of a UNIX socket: a path, or "@" and an abstract name. The process
 * that bound it chose its bytes. */
static void take_name(char to[STAT_NAME], const char *name, size_t n)
{
	n = n < STAT_NAME - 1 ? n : STAT_NAME - 1;
	memcpy(to, name, n);
	to[n] = '\0';
	if (n && !to[0])
		to[0] = '@';
	for (; *to; to++)
		if (!isprint((unsigned char)*to))
			*to = '?';
}

static int add_unix_message(struct stat_tcps *t, const struct nlmsghdr *h,
			    uint64_t netns)
{
	const struct unix_diag_msg *m = NLMSG_DATA(h);
	int left = (int)(h->nlmsg_len - NLMSG_LENGTH(sizeof(*m)));
	struct stat_tcp s = { .inode = m->udiag_ino,
			      .netns = netns,
			      .family = AF_UNIX,
			      .state = m->udiag_state };

	if (left < 0 || m->udiag_type != SOCK_STREAM)
		return 0;
	memcpy(s.addr[0], &m->udiag_ino, sizeof(m->udiag_ino));
	for (const struct rtattr *a = (const struct rtattr *)(m + 1);
	     RTA_OK(a, left); a = RTA_NEXT(a, left)) {
		if (a->rta_type == UNIX_DIAG_PEER &&
		    RTA_PAYLOAD(a) == sizeof(m->udiag_ino))
			memcpy(s.addr[1], RTA_DATA(a), sizeof(m->udiag_ino));
		if (a->rta_type == UNIX_DIAG_NAME)
			take_name(s.name[0], RTA_DATA(a), RTA_PAYLOAD(a));
	}
	return add(t, &s);
}

/* A UNIX socket has only the name of its own end; its peer's name is found at
 * the peer's socket. */
static void name_peers(struct stat_tcps *t)
{
	sort(t); /* a search must not move the sockets */
	for (size_t i = 0; i < t->n; i++) {
		struct stat_tcp *s = &t->at[i];
		const struct stat_tcp *peer;
		uint32_t inode;

		memcpy(&inode, s->addr[1], sizeof(inode));
		if (s->family != AF_UNIX || !inode)
			continue;
		peer = stat_tcps_find(t, inode);
		if (peer && peer->family == AF_UNIX)
			memcpy(s->name[1], peer->name[0], sizeof(s->name[1]));
	}
}

static int ask_unix(int s)
{
	struct {
		struct nlmsghdr h;
		struct unix_diag_req r;
	} m = {
		.h = { .nlmsg_len = sizeof(m),
		       .nlmsg_type = SOCK_DIAG_BY_FAMILY,
		       .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		.r = { .sdiag_family = AF_UNIX,
		       .udiag_states = 0xffffffff,
		       .udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_PEER },
	};

	return send(s, &m, sizeof(m), 0) == sizeof(m) ? 0 : -errno;
}

/* with: the attributes to ask for, as idiag_ext. */
static int ask(int s, int family, uint8_t with)
{
	struct {
		struct nlmsghdr h;
		struct inet_diag_req_v2 r;
	} m = {
		.h = { .nlmsg_len = sizeof(m),
		       .nlmsg_type = SOCK_DIAG_BY_FAMILY,
		       .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		.r = { .sdiag_family = (uint8_t)family,
		       .sdiag_protocol = IPPROTO_TCP,
		       .idiag_ext = with,
		       .idiag_states = 0xffffffff },
	};

	return send(s, &m, sizeof(m), 0) == sizeof(m) ? 0 : -errno;
}

static int take_answers(struct stat_tcps *t, int s, uint64_t netns,
			int (*take)(struct stat_tcps *t,
				    const struct nlmsghdr *h, uint64_t netns))
{
	static _Alignas(struct nlmsghdr) char buf[65536];
	ssize_t n;

	for (;;) {
		n = recv(s, buf, sizeof(buf), 0);
		if (n <= 0)
			return n ? -errno : -EIO;
		for (struct nlmsghdr *h = (struct nlmsghdr *)buf;
		     NLMSG_OK(h, (size_t)n); h = NLMSG_NEXT(h, n)) {
			if (h->nlmsg_type == NLMSG_DONE)
				return 0;
			if (h->nlmsg_type == NLMSG_ERROR)
				return -EIO;
			if (h->nlmsg_type == SOCK_DIAG_BY_FAMILY &&
			    take(t, h, netns))
				return -ENOMEM;
		}
	}
}

static int open_diag(void)
{
	struct timeval patience = { .tv_sec = 5 };
	int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

	if (s < 0)
		return -errno;
	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return s;
}

static bool is_last(const char *buf, ssize_t n)
{
	for (const struct nlmsghdr *h = (const struct nlmsghdr *)buf;
	     NLMSG_OK(h, (size_t)n); h = NLMSG_NEXT(h, n))
		if (h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR)
			return true;
	return false;
}

/* Sends the messages with the counts of all TCP sockets, each as one packet to
 * `to', whose other end only the reader has: a send fails when the reader has
 * ended, or waits no longer. For a socket's counts the kernel waits for the
 * socket's lock, which a thread of any user holds while it sleeps in a page
 * fault of its send: then this process cannot be killed, and no process waits
 * for it. */
static _Noreturn void tell_counts(int family, int to)
{
	static _Alignas(struct nlmsghdr) char buf[65536];
	int s, null = open("/dev/null", O_RDWR | O_CLOEXEC);
	ssize_t n;

	for (int i = 0; null >= 0 && i < 3; i++)
		dup2(null, i); /* the reader of the command's output */
	s = open_diag();
	if (null < 0 || s < 0 || ask(s, family, 1 << (INET_DIAG_INFO - 1)))
		_exit(1);
	do
		n = recv(s, buf, sizeof(buf), 0);
	while (n > 0 && send(to, buf, (size_t)n, MSG_NOSIGNAL) == n &&
	       !is_last(buf, n));
	_exit(0);
}

/* As take_answers(): the counts come within a second, or not at all. */
static int take_counts(struct stat_tcps *t, int family, uint64_t netns)
{
	struct timeval patience = { .tv_sec = 1 };
	static bool late; /* one waiting process is enough */
	int pair[2], err;
	pid_t pid;

	if (late)
		return -ETIMEDOUT;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	pid = fork();
	if (!pid) {
		close(pair[0]);
		tell_counts(family, pair[1]);
	}
	close(pair[1]);
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &patience,
		   sizeof(patience));
	err = pid < 0 ? -errno : take_answers(t, pair[0], netns, add_message);
	close(pair[0]);
	late = err == -EAGAIN;
	if (pid > 0)
		waitpid(pid, NULL, late ? WNOHANG : 0);
	return err;
}

static int take_tcp(struct stat_tcps *t, int s, int family, uint64_t netns)
{
	size_t n = t->n;
	int err = take_counts(t, family, netns);

	if (!err)
		return 0;
	t->n = n;
	err = ask(s, family, 0);
	return err ? err : take_answers(t, s, netns, add_message);
}

/* Reads this namespace by sock_diag(7). */
static int read_here(struct stat_tcps *t, uint64_t netns)
{
	static const int families[] = { AF_INET, AF_INET6 };
	int s = open_diag();
	int err = s < 0 ? s : 0;

	for (size_t i = 0; !err && i < 2; i++)
		err = take_tcp(t, s, families[i], netns);
	if (!err && ask_unix(s) == 0 && /* a kernel may lack it */
	    take_answers(t, s, netns, add_unix_message) == 0)
		name_peers(t);
	if (s >= 0)
		close(s);
	return err;
}

/* An address in /proc/net/tcp: words in the host's byte order. */
static bool parse_addr(const char *hex, uint8_t to[16])
{
	size_t words = strcspn(hex, ":") / 8;

	if (words != 1 && words != 4)
		return false;
	for (size_t i = 0; i < words; i++) {
		char text[9] = "";
		uint32_t w;

		memcpy(text, hex + 8 * i, 8);
		w = (uint32_t)strtoul(text, NULL, 16);
		memcpy(to + 4 * i, &w, sizeof(w));
	}
	return true;
}

static int add_line(struct stat_tcps *t, const char *line, int family,
		    uint64_t netns)
{
	struct stat_tcp s = { .family = family, .netns = netns };
	char here[40], there[40];
	unsigned int port[2], state;
	unsigned long long inode;

	if (sscanf(line,
		   " %*u: %32[0-9A-F]:%x %32[0-9A-F]:%x %x %*x:%*x %*x:%*x "
		   "%*x %*u %*u %llu",
		   here, &port[0], there, &port[1], &state, &inode) != 6)
		return 0;
	strcat(here, ":");
	strcat(there, ":");
	if (!inode || !parse_addr(here, s.addr[0]) ||
	    !parse_addr(there, s.addr[1]))
		return 0;
	s.inode = inode;
	s.state = (int)state;
	s.port[0] = (uint16_t)port[0];
	s.port[1] = (uint16_t)port[1];
	return add(t, &s);
}

/* A line of /proc/net/unix, which does not name the peer. A name may contain a
 * newline, and the text after it may look like the line of any socket: a line
 * counts only if nothing else describes its socket. */
static int add_unix_line(struct stat_tcps *t, const char *line, uint64_t netns)
{
	struct stat_tcp s = { .family = AF_UNIX,
			      .netns = netns,
			      .hearsay = true };
	unsigned int flags, type, state, inode;
	int name = 0;

	if (sscanf(line, " %*x: %*x %*x %x %x %x %u %n", &flags, &type, &state,
		   &inode, &name) != 4 ||
	    type != SOCK_STREAM)
		return 0;
	s.inode = inode;
	s.state = flags & 0x10000 ? LISTENS : state == 3 ? ESTABLISHED : CLOSED;
	memcpy(s.addr[0], &inode, sizeof(inode));
	if (name)
		take_name(s.name[0], line + name, strcspn(line + name, "\n"));
	return add(t, &s);
}

/* Reads another network namespace, without entering it. */
static int read_there(struct stat_tcps *t, pid_t pid, uint64_t netns)
{
	static const struct {
		const char *name;
		int family;
	} files[] = { { "tcp", AF_INET },
		      { "tcp6", AF_INET6 },
		      { "unix", AF_UNIX } };
	char path[64], line[256];
	int err = 0;

	for (size_t i = 0; !err && i < 3; i++) {
		int family = files[i].family;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%d/net/%s", (int)pid,
			 files[i].name);
		f = fopen(path, "re");
		if (!f) /* no IPv6, or the process is gone */
			continue;
		while (!err && fgets(line, sizeof(line), f))
			err = family == AF_UNIX
				      ? add_unix_line(t, line, netns)
				      : add_line(t, line, family, netns);
		fclose(f);
	}
	return err;
}

static bool is_here(uint64_t netns)
{
	struct stat st;

	return stat("/proc/self/ns/net", &st) == 0 && st.st_ino == netns;
}

int stat_tcps_read(struct stat_tcps *t, pid_t pid, uint64_t netns)
{
	uint64_t *more;

	for (size_t i = 0; i < t->n_read; i++)
		if (t->read[i] == netns)
			return 0;
	more = realloc(t->read, (t->n_read + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	t->read = more;
	t->read[t->n_read++] = netns;
	if (is_here(netns) && read_here(t, netns) == 0)
		return 0;
	return read_there(t, pid, netns);
}

const struct stat_tcp *stat_tcps_find(const struct stat_tcps *t, uint64_t inode)
{
	struct stat_tcp key = { .inode = inode };
	const struct stat_tcp *ret;

	sort((struct stat_tcps *)(uintptr_t)t);
	if (!t->n)
		return NULL;
	ret = bsearch(&key, t->at, t->n, sizeof(*t->at), by_inode);
	while (ret && ret > t->at && ret[-1].inode == inode)
		ret--;
	return ret;
}

const struct stat_tcp *stat_tcps_search(const struct stat_tcps *t,
					bool (*is)(const struct stat_tcp *s,
						   const void *arg),
					const void *arg)
{
	for (size_t i = 0; i < t->n; i++)
		if (is(&t->at[i], arg))
			return &t->at[i];
	return NULL;
}

const char *stat_addr(char buf[STAT_ADDR], const struct stat_tcp *t, int end)
{
	static const uint8_t v4[12] = { [10] = 0xff, [11] = 0xff };
	const uint8_t *addr = t->addr[end];
	bool mapped = t->family == AF_INET6 && !memcmp(addr, v4, sizeof(v4));
	int family = mapped ? AF_INET : t->family;
	char text[INET6_ADDRSTRLEN] = "?";
	uint32_t inode;

	if (family == AF_UNIX) {
		memcpy(&inode, addr, sizeof(inode));
		snprintf(buf, STAT_ADDR, "%s:%u",
			 t->name[end][0] ? t->name[end] : "*", inode);
		return buf;
	}
	inet_ntop(family, mapped ? addr + sizeof(v4) : addr, text,
		  sizeof(text));
	snprintf(buf, STAT_ADDR, family == AF_INET6 ? "[%s]:%u" : "%s:%u", text,
		 t->port[end]);
	return buf;
}

const char *stat_state(int state)
{
	return state > 0 && (size_t)state < sizeof(states) / sizeof(states[0])
		       ? states[state]
		       : "?";
}
