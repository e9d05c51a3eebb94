/* SPDX-License-Identifier: BSD-2-Clause */
/* The watch over directions that nobody who is seen waits for, and the search
 * for waits that are not seen. */
#include "core/unseen.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/flow.h"
#include "core/link.h"
#include "core/service.h"
#include "core/surroundings.h"
#include "core/switch.h"

/* Between two looks of the watch; how often in a row they find everybody
 * attended before it stops; and how many ticks pass at most between two searches
 * for one connection. */
#define TICK_NS	   100000000u
#define IDLE_TICKS 3
#define TICKS_MAX  8
/* A search takes no more than this part of the time, by the watch and by sends
 * that find no room. */
#define WATCH_PART 32
#define SEND_PART  256

#define SUSPECTS 64   /* connections that one search is for */
#define POLLED	 1024 /* descriptors of one poll that are looked at */

/* Linux 5.18 has it, older headers have not; the library's own rings do not use
 * it. */
#define IORING_ENTER_REGISTERED_RING (1u << 4)

static bool (*shim_knows)(int epfd);

/* True until the shim is there: nobody is to start it. */
_Atomic bool exi_unseen_watching = true;
static _Atomic uint64_t due = UINT64_MAX;
static int idle_ticks;		    /* of the service */
static uint64_t search_at;	    /* of the service */
static _Atomic uint64_t no_room_at; /* of sends: the next search */

/* --- searching ---------------------------------------------------------- */

/* A connection for which a wait is searched. */
struct suspect {
	struct exi_sock *sk;
	uint32_t generation;
	ino_t inode;
	int reason; /* of what was found; EXS_X_REASON_NONE */
};

struct search {
	struct suspect s[SUSPECTS];
	int n;
	bool known; /* also sets that the shim knows */
};

static bool suspect(struct search *s, struct exi_sock *sk, int fd)
{
	struct stat st;

	if (s->n == SUSPECTS || fstat(fd, &st) < 0)
		return false;
	s->s[s->n++] = (struct suspect){
		.sk = sk,
		.generation = atomic_load(&sk->generation),
		.inode = st.st_ino,
	};
	return true;
}

static void found_all(struct search *s, int reason)
{
	for (int i = 0; i < s->n; i++)
		s->s[i].reason = reason;
}

static void found_inode(struct search *s, ino_t inode)
{
	for (int i = 0; i < s->n; i++)
		if (s->s[i].inode == inode)
			s->s[i].reason = EXS_X_REASON_UNSEEN_WAIT;
}

static void found_number(struct search *s, int fd)
{
	for (int i = 0; i < s->n; i++)
		if (exi_sock_is(s->s[i].sk, fd))
			s->s[i].reason = EXS_X_REASON_UNSEEN_WAIT;
}

/* A line of an epoll set's fdinfo is a descriptor that is in it:
 * "tfd: 5 events: 19 data: 5 pos:0 ino:61af sdev:8". */
static void read_member(struct search *s, const char *line)
{
	const char *ino =
		strncmp(line, "tfd:", 4) ? NULL : strstr(line, " ino:");

	if (ino)
		found_inode(s, (ino_t)strtoull(ino + 5, NULL, 16));
}

/* Goes on to the rest of a line that is not whole yet: how many bytes. */
static size_t read_lines(struct search *s, char *text)
{
	char *end;

	while ((end = strchr(text, '\n'))) {
		*end = 0;
		read_member(s, text);
		text = end + 1;
	}
	return strlen(text);
}

/* -errno: it cannot be read. */
static int search_set(struct search *s, int epfd)
{
	char text[4096], name[64];
	size_t left = 0;
	ssize_t n;
	int fd;

	snprintf(name, sizeof(name), "/proc/self/fdinfo/%d", epfd);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while ((n = read(fd, text + left, sizeof(text) - 1 - left)) > 0) {
		size_t len = left + (size_t)n;

		text[len] = 0;
		left = read_lines(s, text);
		if (left == sizeof(text) - 1)
			break; /* no line is so long */
		memmove(text, text + len - left, left);
	}
	close(fd);
	return 0;
}

static void search_descriptor(int fd, bool ring, void *arg)
{
	struct search *s = arg;

	if (ring)
		found_all(s, EXS_X_REASON_IO_URING);
	else if (s->known)
		search_set(s, fd);
	/* In a root without /proc: it may have any of them. */
	else if (!shim_knows(fd) && search_set(s, fd) == -ENOENT)
		found_all(s, EXS_X_REASON_UNSEEN_WAIT);
}

/* Copies what may not be there any more. */
static bool peek(void *to, uint64_t from, size_t n)
{
	struct iovec here = { to, n }, there = { NULL, n };

	there.iov_base = (void *)(uintptr_t)from;
	return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)n;
}

static void search_poll(struct search *s, uint64_t fds, uint64_t n)
{
	struct pollfd p;

	for (uint64_t i = 0; i < n && i < POLLED; i++)
		if (peek(&p, fds + i * sizeof(p), sizeof(p)) &&
		    (p.events & (POLLIN | POLLRDNORM | POLLRDHUP)))
			found_number(s, p.fd);
}

static void search_select(struct search *s, uint64_t n, uint64_t set)
{
	unsigned long bits;

	for (uint64_t i = 0; set && i < n && i < POLLED; i++)
		if (peek(&bits, set + i / NFDBITS * sizeof(bits),
			 sizeof(bits)) &&
		    (bits >> (i % NFDBITS) & 1))
			found_number(s, (int)i);
}

/* A thread sleeps in this call of the kernel. */
static void search_call(struct search *s, long nr, const uint64_t *a)
{
	switch (nr) {
	case SYS_read:
	case SYS_readv:
	case SYS_preadv2:
	case SYS_recvfrom:
	case SYS_recvmsg:
	case SYS_recvmmsg:
	case SYS_splice:
		found_number(s, (int)a[0]);
		break;
#ifdef SYS_poll
	case SYS_poll:
#endif
	case SYS_ppoll:
		search_poll(s, a[0], a[1]);
		break;
#ifdef SYS_select
	case SYS_select:
#endif
	case SYS_pselect6:
		search_select(s, a[0], a[1]);
		break;
	case SYS_io_uring_enter: /* of one that has no descriptor any more */
		if (a[3] & IORING_ENTER_REGISTERED_RING)
			found_all(s, EXS_X_REASON_IO_URING);
		break;
	default:
		break;
	}
}

/* "7 0x7ffd3c 0x1 0xffffffff 0x0 0x0 0x0 SP PC"; "running". */
static void search_thread(struct search *s, int task, const char *tid)
{
	char name[32], text[256], *at = text;
	uint64_t a[6];
	ssize_t n;
	long nr;
	int fd;

	snprintf(name, sizeof(name), "%.20s/syscall", tid);
	fd = openat(task, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0 || *text < '0' || *text > '9')
		return;
	text[n] = 0;
	nr = strtol(at, &at, 10);
	for (int i = 0; i < 6; i++)
		a[i] = strtoull(at, &at, 16);
	search_call(s, nr, a);
}

static void search_threads(struct search *s)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *e;

	if (!dir)
		return;
	while ((e = readdir(dir)))
		if (*e->d_name != '.' && atoi(e->d_name) != gettid())
			search_thread(s, dirfd(dir), e->d_name);
	closedir(dir);
}

bool exi_unseen_waits(int fd)
{
	struct search s = { .n = 0 };
	struct stat st;
	int sets[EXI_SETS], n;

	if (!shim_knows)
		return false;
	n = exi_surroundings_sets(sets);
	if (exi_likely(n == 0) || fstat(fd, &st) < 0)
		return false;
	s.s[0].inode = st.st_ino;
	s.n = 1;
	for (int i = 0; i < n && !s.s[0].reason; i++)
		if (!shim_knows(sets[i]))
			search_set(&s, sets[i]);
	return s.s[0].reason;
}

/* --- the watch ---------------------------------------------------------- */

void exi_unseen_watch(void)
{
	if (atomic_exchange(&exi_unseen_watching, true))
		return;
	atomic_store(&due, exi_now_ns() + TICK_NS);
	if (exi_service_start() == 0 && !exi_service_self())
		exi_service_look();
}

void exi_unseen_rung(struct exi_sock *sk)
{
	if (atomic_exchange_explicit(&sk->guarded, false, memory_order_relaxed))
		exi_unseen_stir();
}

/* How a direction is found. */
enum glance {
	ATTENDED, /* or nothing can come that its bell would not tell */
	IN_USE,
	NEGLECTED, /* bytes lie there since the last look */
};

static enum glance glance_locked(struct exi_sock *sk, struct exi_half *h)
{
	bool moved = sk->glanced != h->bytes;

	EXI_LOCKED(&h->lock);
	/* The kernel tells of a peer that is gone. */
	if (h->mode != EXI_MODE_RING || !sk->fab || h->ended || h->broken ||
	    atomic_load(&sk->sh->gone) || atomic_load(&sk->sh->rx_fin) ||
	    atomic_load(&sk->sh->hold_here))
		return ATTENDED;
	sk->glanced = h->bytes;
	if (moved)
		sk->neglected = 0;
	/* A thread that looks for a moment before it sleeps sees bytes come. */
	if (atomic_load(&sk->lookers[EXI_RX]) ||
	    atomic_load(&sk->n_ops[EXI_RX]))
		return moved ? IN_USE : ATTENDED;
	if (moved)
		return IN_USE;
	if (sk->fab->ops->ready(sk->fab, EXI_RX))
		return NEGLECTED;
	sk->neglected = 0;
	if (!atomic_load(&sk->guarded)) {
		/* Before it is asked for: it may be rung at once. */
		atomic_store(&sk->guarded, true);
		if (!exi_flow_ring_locked(sk, EXI_RX))
			return IN_USE;
	}
	return ATTENDED;
}

struct round {
	struct search s;
	bool searches;
	bool active;
};

/* A search for it is due: after a whole tick, then ever later. */
static bool search_due(struct exi_sock *sk)
{
	uint32_t n = ++sk->neglected;

	return n < TICKS_MAX ? n > 1 && (n & (n - 1)) == 0 : n % TICKS_MAX == 0;
}

static void glance(struct exi_sock *sk, void *arg)
{
	struct exi_shared *sh = exi_sock_shared(sk);
	struct exi_half *h = &sh->half[EXI_RX];
	int fd = atomic_load(&sk->fd);
	struct round *r = arg;
	enum glance g = IN_USE;

	if (!exi_sock_met(sk) || !sk->adopted || !exi_sock_used_here(sk))
		return;
	/* A thread that has the lock moves bytes. */
	if (exi_trylock(&h->lock)) {
		if (exi_sock_is(sk, fd) && exi_sock_shared(sk) == sh)
			g = glance_locked(sk, h);
		exi_half_unlock(h);
	}
	r->active = r->active || g != ATTENDED;
	if (g == NEGLECTED && r->searches && search_due(sk) &&
	    !suspect(&r->s, sk, fd))
		sk->neglected--; /* in the next one */
}

static void search(struct search *s)
{
	uint64_t now = exi_now_ns();

	exi_surroundings_each(search_descriptor, s);
	search_threads(s);
	for (int i = 0; i < s->n; i++)
		if (s->s[i].reason &&
		    s->s[i].generation == atomic_load(&s->s[i].sk->generation))
			exi_switch_leave(s->s[i].sk, s->s[i].reason);
	search_at = exi_now_ns() + (exi_now_ns() - now) * WATCH_PART;
}

uint64_t exi_unseen_due(void)
{
	return atomic_load(&due);
}

void exi_unseen_tick(void)
{
	struct round r = { .s.known = true,
			   .searches = exi_now_ns() >= search_at };

	/* Before the last look, so that whoever comes after it starts anew. */
	if (idle_ticks == IDLE_TICKS - 1) {
		atomic_store(&due, UINT64_MAX);
		atomic_store(&exi_unseen_watching, false);
	}
	exi_sock_each(glance, &r);
	if (r.s.n)
		search(&r.s);
	idle_ticks = r.active ? 0 : idle_ticks + 1;
	if (idle_ticks == IDLE_TICKS) {
		idle_ticks = 0;
		return;
	}
	atomic_store(&exi_unseen_watching, true);
	atomic_store(&due, exi_now_ns() + TICK_NS);
}

/* --- sends -------------------------------------------------------------- */

/* exi_flow_no_room: where a wait is found that is not seen, the connection goes to
 * TCP first, so that the kernel says -EAGAIN, and tells of room. */
static bool no_room(struct exi_sock *sk, int fd)
{
	struct exi_half *h = &exi_sock_shared(sk)->half[EXI_TX];
	struct search s = { .known = true };
	uint64_t now;
	int err;

	if (h->mode != EXI_MODE_RING || !sk->adopted ||
	    atomic_load(&sk->lookers[EXI_TX]))
		return false;
	now = exi_now_ns();
	if (now < atomic_load(&no_room_at) || !suspect(&s, sk, fd))
		return false;
	atomic_store(&no_room_at, UINT64_MAX);
	exi_surroundings_each(search_descriptor, &s);
	atomic_store(&no_room_at,
		     s.s[0].reason ? 0
				   : exi_now_ns() + TICK_NS +
					     (exi_now_ns() - now) * SEND_PART);
	if (!s.s[0].reason)
		return false;
	err = exi_switch_down(sk, fd, s.s[0].reason,
			      exi_switch_patience(sk, NULL));
	if (err == -ETIMEDOUT && !exi_link_part(sk))
		exi_link_unanswered(sk);
	return err == 0 || err == -ETIMEDOUT;
}

/* --- the process -------------------------------------------------------- */

void exi_unseen_begin(bool (*knows)(int epfd))
{
	shim_knows = knows;
	exi_flow_no_room = no_room;
	atomic_store(&exi_unseen_watching, false);
}

void exi_unseen_forked(void)
{
	exi_surroundings_forked();
	atomic_store(&due, UINT64_MAX);
	idle_ticks = 0;
	search_at = 0;
	atomic_store(&no_room_at, 0);
	if (shim_knows)
		atomic_store(&exi_unseen_watching, false);
}
