/* SPDX-License-Identifier: BSD-2-Clause */
/* The capture: its ring, the tables of captured connections, and how it begins
 * and ends. */
#include "core/sock/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/fds.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/pieces.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/capture_page.h"
#include "core/sock/service.h"
#include "core/sock/stats.h"
#include "core/sock/table.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_FUTURE_WRITE)

_Atomic bool exi_capture_on;

/* The state of a captured connection. Its index is that of its socket in the
 * pool, plus 1, which exi_conn.capture holds; guarded by the locks of its
 * socket. The table stays for the life of the process. */
struct way {
	uint32_t serial;
	bool begun;    /* it had a record */
	bool left_out; /* it has another port than was asked for */
	bool asked;    /* the kernel, for the addresses */
	uint32_t family;
	uint16_t port[2];
	uint8_t addr[2][16];
	struct {
		const struct exi_provider *on;
		uint32_t reason;
		bool begun;
	} last[2];  /* by enum exi_dir */
	void *room; /* of the loan that is being written */
};

/* Guarded by lock, except members that only the service changes: chosen, life.
 * The lock is innermost, and held for the copy of one packet. */
static struct exi_lock lock;
static struct {
	struct exi_capture_head *head; /* null: there is no capture */
	size_t bytes;		       /* of the mapping */
	unsigned char *ring;
	uint64_t mask;
	uint64_t number;
	uint32_t snap;
	int file;
} capture = { .file = -1 };

static struct {
	int fd;	       /* -1: all */
	uint32_t port; /* 0: all */
} chosen;

/* The pipe that the reader holds open. */
static struct {
	int in;
	int out; /* until the capture begins */
	uint64_t inode;
} life = { .in = -1, .out = -1 };

static struct {
	struct way *at;
	uint32_t n;
} ways;
static _Atomic uint32_t serials;

/* --- the ring ------------------------------------------------------------ */

static void copy_in_locked(uint64_t at, const void *from, size_t n)
{
	uint64_t offset = at & capture.mask;
	size_t first = capture.mask + 1 - offset;

	EXI_LOCKED(&lock);
	first = first < n ? first : n;
	memcpy(capture.ring + offset, from, first);
	memcpy(capture.ring, (const char *)from + first, n - first);
}

static void pieces_in_locked(uint64_t at, const struct exi_pieces *p, size_t n)
{
	struct exi_pieces rest = *p;
	void *from;

	EXI_LOCKED(&lock);
	while (n) {
		size_t len = exi_pieces_next(&rest, &from);

		len = len < n ? len : n;
		if (!len)
			return;
		copy_in_locked(at, from, len);
		exi_pieces_moved(&rest, len);
		at += len;
		n -= len;
	}
}

/* Gives up the oldest records, until n bytes have room. */
static void make_room_locked(uint64_t n)
{
	struct exi_capture_head *h = capture.head;
	uint64_t tail = EXI_STATS_GET(&h->tail);
	uint64_t head = EXI_STATS_GET(&h->head);

	EXI_LOCKED(&lock);
	/* Records are multiples of 8, so the first word is in one piece. */
	while (head + n - tail > capture.mask + 1)
		tail += *(uint32_t *)(void *)(capture.ring +
					      (tail & capture.mask));
	EXI_STATS_SET(&h->tail, tail);
	/* Before the first byte is overwritten: a reader that has read one
	 * finds this tail after it. */
	atomic_thread_fence(memory_order_release);
}

/* One packet. What is stored of it are bytes of the pieces; null: nothing. */
static void put(struct exi_capture_record *r, const struct exi_pieces *p)
{
	struct exi_capture_head *h;
	struct timespec now;
	uint64_t at;

	/* A signal handler of the thread that is just here: its record is lost,
	 * and the next one shows that. */
	if (exi_lock_held(&lock)) {
		capture.number++;
		return;
	}
	exi_lock(&lock);
	clock_gettime(CLOCK_REALTIME, &now); /* in their order */
	h = capture.head;
	if (h) {
		r->stored = p ? r->length : 0;
		if (r->stored > capture.snap)
			r->stored = capture.snap;
		r->bytes = (uint32_t)(sizeof(*r) + ((r->stored + 7) & ~7u));
		r->number = capture.number++;
		r->at = exi_timespec_ns(&now);
		make_room_locked(r->bytes);
		at = EXI_STATS_GET(&h->head);
		copy_in_locked(at, r, sizeof(*r));
		if (p)
			pieces_in_locked(at + sizeof(*r), p, r->stored);
		/* Release: a reader that finds the head finds the record. */
		atomic_store_explicit(&h->head, at + r->bytes,
				      memory_order_release);
	}
	exi_unlock(&lock);
}

/* --- a connection -------------------------------------------------------- */

static struct way *way_of(const struct exi_conn *c)
{
	return c->capture && c->capture <= ways.n ? &ways.at[c->capture - 1]
						  : NULL;
}

static uint32_t take_address(const struct sockaddr_storage *from,
			     uint8_t addr[16], uint16_t *port)
{
	const struct sockaddr_in *in = (const void *)from;
	const struct sockaddr_in6 *in6 = (const void *)from;

	if (from->ss_family == AF_INET) {
		memcpy(addr, &in->sin_addr, sizeof(in->sin_addr));
		*port = ntohs(in->sin_port);
	} else if (from->ss_family == AF_INET6 &&
		   IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
		memcpy(addr, in6->sin6_addr.s6_addr + 12, 4);
		*port = ntohs(in6->sin6_port);
		return AF_INET;
	} else if (from->ss_family == AF_INET6) {
		memcpy(addr, &in6->sin6_addr, 16);
		*port = ntohs(in6->sin6_port);
	}
	return from->ss_family;
}

/* Asks the kernel for the addresses, once: at the connection's first byte, when
 * it has them. */
static void find_addresses(struct way *w, int fd)
{
	struct sockaddr_storage here = { 0 }, there = { 0 };
	socklen_t len = sizeof(here), to = sizeof(there);

	w->asked = true;
	if (getsockname(fd, (struct sockaddr *)&here, &len) < 0 ||
	    getpeername(fd, (struct sockaddr *)&there, &to) < 0)
		return;
	w->family = take_address(&here, w->addr[0], &w->port[0]);
	take_address(&there, w->addr[1], &w->port[1]);
	w->left_out = chosen.port && chosen.port != w->port[0] &&
		      chosen.port != w->port[1];
}

static void describe(struct exi_capture_record *r, const struct way *w,
		     const struct exi_conn *c, enum exi_dir dir)
{
	const struct exi_shared *sh = c->sh;

	*r = (struct exi_capture_record){
		.position =
			__atomic_load_n(&sh->half[dir].bytes, __ATOMIC_RELAXED),
		.other = __atomic_load_n(&sh->half[!dir].bytes,
					 __ATOMIC_RELAXED),
		.dir = dir,
		.reason =
			atomic_load_explicit(&sh->reason, memory_order_relaxed),
		.fd = c->fd,
		.serial = w->serial,
		.family = w->family,
		.port = { w->port[0], w->port[1] },
		.role = (uint32_t)atomic_load(
			&exi_sock_by_index(c->capture - 1)->role),
	};
	strncpy(r->fabric, c->provider->name, sizeof(r->fabric) - 1);
	memcpy(r->addr, w->addr, sizeof(r->addr));
}

/* Whether the direction is where it was at its last record. */
static uint32_t news_of(struct way *w, const struct exi_conn *c,
			enum exi_dir dir, uint32_t reason)
{
	bool same = w->last[dir].begun && w->last[dir].on == c->provider &&
		    w->last[dir].reason == reason;

	w->last[dir].begun = true;
	w->last[dir].on = c->provider;
	w->last[dir].reason = reason;
	return same ? 0 : EXI_CAPTURE_NEWS;
}

void exi_capture_pieces(struct exi_conn *c, enum exi_dir dir,
			const struct exi_pieces *p, size_t n)
{
	struct exi_pieces rest = p ? *p : (struct exi_pieces){ 0 };
	struct way *w = way_of(c);
	struct exi_capture_record r;

	EXI_LOCKED(&c->sh->half[dir].lock);
	if (!w)
		return;
	if (!w->asked)
		find_addresses(w, c->fd);
	if (w->left_out)
		return;
	describe(&r, w, c, dir);
	r.flags = news_of(w, c, dir, r.reason);
	if (!w->begun && !r.position && !r.other)
		r.flags |= EXI_CAPTURE_FIRST;
	w->begun = true;
	while (n) {
		r.length =
			n < EXI_CAPTURE_PIECE ? (uint32_t)n : EXI_CAPTURE_PIECE;
		put(&r, p ? &rest : NULL);
		exi_pieces_moved(&rest, p ? r.length : 0);
		r.position += r.length;
		n -= r.length;
		r.flags = 0;
	}
}

void exi_capture_bytes(struct exi_conn *c, enum exi_dir dir, const void *buf,
		       size_t n)
{
	struct iovec v = { .iov_base = (void *)(uintptr_t)buf, .iov_len = n };
	struct exi_pieces p = { .v = &v, .n = 1, .left = n };

	EXI_LOCKED(&c->sh->half[dir].lock);
	exi_capture_pieces(c, dir, buf ? &p : NULL, n);
}

/* --- the tables ---------------------------------------------------------- */

static const struct exi_conn_ops *real(const struct exi_conn *c)
{
	return c->provider->conn_ops;
}

static ssize_t captured_send(struct exi_conn *c, const void *buf, size_t len,
			     int flags)
{
	ssize_t n = real(c)->send(c, buf, len, flags);

	exi_capture_tell_one(c, EXI_TX, buf, n, 0);
	return n;
}

static ssize_t captured_recv(struct exi_conn *c, void *buf, size_t len,
			     int flags)
{
	ssize_t n = real(c)->recv(c, buf, len, flags);

	if (!(flags & MSG_PEEK))
		exi_capture_tell_one(c, EXI_RX, buf, n, flags);
	return n;
}

static void captured_took(struct exi_conn *c, size_t n)
{
	const void *at;

	if (real(c)->loan_ops->look(c, &at) >= n)
		exi_capture_tell_one(c, EXI_RX, at, (ssize_t)n, 0);
	real(c)->loan_ops->took(c, n);
}

static ssize_t captured_room(struct exi_conn *c, size_t len, void **ret)
{
	ssize_t n = real(c)->loan_ops->room(c, len, ret);
	struct way *w = way_of(c);

	if (w)
		w->room = n > 0 ? *ret : NULL;
	return n;
}

static void captured_put(struct exi_conn *c, size_t n)
{
	struct way *w = way_of(c);

	/* Borrowed before the capture began: where is not known here. */
	exi_capture_tell_one(c, EXI_TX, w ? w->room : NULL, (ssize_t)n, 0);
	real(c)->loan_ops->put(c, n);
}

/* The tables of each fabric, made at its first captured connection; guarded by
 * lock. */
#define FABRICS 8
static struct tables {
	const struct exi_provider *of;
	struct exi_conn_ops conn;
	struct exi_loan_ops loan;
} tables[FABRICS];

static void fill(struct tables *t, const struct exi_provider *p)
{
	t->conn = *p->conn_ops;
	t->conn.send = captured_send;
	t->conn.recv = captured_recv;
	if (!p->conn_ops->loan_ops)
		return;
	t->loan = *p->conn_ops->loan_ops;
	t->loan.took = captured_took;
	if (t->loan.room)
		t->loan.room = captured_room;
	if (t->loan.put)
		t->loan.put = captured_put;
	t->conn.loan_ops = &t->loan;
}

static const struct tables *tables_of(const struct exi_provider *p)
{
	const struct tables *ret = NULL;

	exi_lock(&lock);
	for (int i = 0; i < FABRICS && !ret; i++) {
		if (!tables[i].of) {
			fill(&tables[i], p);
			tables[i].of = p;
		}
		if (tables[i].of == p)
			ret = &tables[i];
	}
	exi_unlock(&lock);
	return ret;
}

/* The connection's bytes pass through the tables above, or not any more. The
 * kernel's are recorded by the code that counts them. Both halves are locked,
 * or there is one thread. */
static void set(struct exi_sock *sk, uint32_t name)
{
	const struct tables *t =
		name && sk->fab ? tables_of(sk->fab->provider) : NULL;

	sk->tcp->capture = name;
	if (!sk->fab)
		return;
	sk->fab->capture = t ? name : 0;
	sk->fab->ops = t ? &t->conn : sk->fab->provider->conn_ops;
	sk->fab->lops = sk->fab->ops->loan_ops;
}

static void lock_halves(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->link_lock);
	exi_lock(&sk->sh->half[EXI_RX].lock);
	exi_lock(&sk->sh->half[EXI_TX].lock);
}

static void unlock_halves(struct exi_sock *sk)
{
	exi_unlock(&sk->sh->half[EXI_TX].lock);
	exi_unlock(&sk->sh->half[EXI_RX].lock);
}

void exi_capture_add(struct exi_sock *sk)
{
	int fd = atomic_load(&sk->fd);

	EXI_LOCKED(&sk->link_lock);
	if (exi_likely(!atomic_load(&exi_capture_on)) ||
	    sk->role == EXI_ROLE_LISTEN || atomic_load(&sk->settled) ||
	    sk->index >= ways.n || (chosen.fd >= 0 && chosen.fd != fd))
		return;
	lock_halves(sk);
	if (!sk->tcp->capture)
		ways.at[sk->index] = (struct way){
			.serial = atomic_fetch_add(&serials, 1),
		};
	set(sk, sk->index + 1);
	unlock_halves(sk);
}

void exi_capture_end(struct exi_sock *sk)
{
	struct way *w = sk->tcp ? way_of(sk->tcp) : NULL;
	struct exi_half *rx = &sk->sh->half[EXI_RX];
	struct exi_capture_record r;

	EXI_LOCKED(&sk->link_lock);
	if (exi_likely(!w))
		return;
	if (w->begun && !w->left_out) {
		describe(&r, w, sk->tcp, EXI_TX);
		r.kind = EXI_CAPTURE_END;
		if (rx->ended || rx->fin)
			r.flags |= EXI_CAPTURE_ENDED;
		put(&r, NULL);
	}
	set(sk, 0);
}

/* --- begin and end ------------------------------------------------------- */

static void add_one(struct exi_sock *sk, void *arg)
{
	exi_lock(&sk->link_lock);
	if (atomic_load(&sk->fd) >= 0)
		exi_capture_add(sk);
	exi_unlock(&sk->link_lock);
}

static void remove_one(struct exi_sock *sk, void *arg)
{
	exi_lock(&sk->link_lock);
	if (atomic_load(&sk->fd) >= 0) {
		lock_halves(sk);
		set(sk, 0);
		unlock_halves(sk);
	}
	exi_unlock(&sk->link_lock);
}

static void close_life(void)
{
	if (life.in >= 0)
		exi_service_unwatch(life.in);
	exi_fd_close(life.in);
	exi_fd_close(life.out);
	life.in = life.out = -1;
}

static void stop(void)
{
	struct exi_capture_head *h;

	atomic_store(&exi_capture_on, false);
	exi_sock_each(remove_one, NULL);
	/* A thread that adds a socket at this very time writes nothing: there
	 * is no head. */
	exi_lock(&lock);
	h = capture.head;
	capture.head = NULL;
	exi_unlock(&lock);
	if (h)
		munmap(h, capture.bytes);
	exi_fd_close(capture.file);
	capture.file = -1;
	close_life();
}

int64_t exi_capture_offer(void)
{
	struct stat st;
	int ends[2], err;

	exi_capture_look();
	if (atomic_load(&exi_capture_on))
		return -EBUSY;
	close_life();
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	err = fstat(ends[0], &st) < 0 ? -errno : 0;
	life.in = exi_fd_spare(ends[0]);
	life.out = exi_fd_spare(ends[1]);
	if (!err && (life.in < 0 || life.out < 0))
		err = -EMFILE;
	if (err) {
		close_life();
		return err;
	}
	life.inode = st.st_ino;
	return (int64_t)st.st_ino;
}

/* Memory for what is known of connections, for good. */
static int make_ways(void)
{
	uint32_t n = exi_table.size;
	void *at;

	if (ways.n)
		return 0;
	at = mmap(NULL, n * sizeof(*ways.at), PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return -ENOMEM;
	ways.at = at;
	ways.n = n;
	return 0;
}

/* Maps the ring. All of its pages are made at once: a write to a page for which
 * there is no memory would raise a signal. */
static int map_ring(int fd, size_t bytes)
{
	struct exi_capture_head *h;

	if (fallocate(fd, 0, 0, (off_t)bytes) < 0)
		return -errno;
	h = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (h == MAP_FAILED)
		return -errno;
	madvise(h, bytes, MADV_DONTDUMP);
	if (fcntl(fd, F_ADD_SEALS, SEALS) < 0) {
		int err = errno;

		munmap(h, bytes);
		return -err;
	}
	h->magic = EXI_CAPTURE_MAGIC;
	h->version = EXI_CAPTURE_VERSION;
	h->pid = getpid();
	h->ring_bytes = bytes - EXI_CAPTURE_RING;
	exi_lock(&lock);
	capture.head = h;
	capture.bytes = bytes;
	capture.ring = (unsigned char *)h + EXI_CAPTURE_RING;
	capture.mask = h->ring_bytes - 1;
	capture.number = 0;
	exi_unlock(&lock);
	return 0;
}

static int make_ring(size_t bytes)
{
	int fd = exi_stats_file(EXI_CAPTURE_NAME, bytes), err;

	if (fd < 0)
		return fd;
	err = map_ring(fd, bytes);
	if (err) {
		close(fd);
		return err;
	}
	capture.file = exi_fd_spare(fd);
	return capture.file < 0 ? capture.file : 0;
}

static int64_t file_inode(void)
{
	struct stat st;

	return fstat(capture.file, &st) < 0 ? -errno : (int64_t)st.st_ino;
}

int64_t exi_capture_start(const struct exi_control_ask *ask)
{
	uint32_t ring = ask->ring;
	int err;

	if (life.in < 0 || ask->life != life.inode)
		return -ESTALE;
	if (atomic_load(&exi_capture_on))
		return file_inode();
	if (ring < EXI_CAPTURE_LEAST || ring > EXI_CAPTURE_MOST ||
	    (ring & (ring - 1)))
		return -EINVAL;
	exi_fd_close(life.out); /* from here on the reader alone holds it */
	life.out = -1;
	chosen.fd = ask->fd;
	chosen.port = (uint32_t)ask->value;
	capture.snap = ask->snap;
	err = make_ways();
	if (!err)
		err = make_ring(EXI_CAPTURE_RING + (size_t)ring);
	if (!err)
		err = exi_service_watch_capture(life.in);
	if (err) {
		stop();
		return err;
	}
	atomic_store(&exi_capture_on, true);
	exi_sock_each(add_one, NULL);
	exi_info("exs trace begins");
	return file_inode();
}

void exi_capture_look(void)
{
	struct pollfd p = { .fd = life.in };

	if (!atomic_load(&exi_capture_on) || poll(&p, 1, 0) <= 0)
		return;
	stop();
	exi_info("exs trace is over");
}

void exi_capture_forked(void)
{
	uint32_t n = atomic_load(&exi_table_n_socks);

	atomic_store(&lock.word, 0);
	atomic_store(&exi_capture_on, false);
	for (uint32_t i = 0; ways.n && i < n; i++) {
		struct exi_sock *sk = exi_sock_by_index(i);

		if (sk->tcp && sk->tcp->capture)
			set(sk, 0);
	}
	/* A fabric may be loaded anew. */
	memset(tables, 0, sizeof(tables));
	if (capture.head)
		munmap(capture.head, capture.bytes);
	capture.head = NULL;
	exi_fd_close(capture.file);
	capture.file = -1;
	exi_fd_close(life.in);
	exi_fd_close(life.out);
	life.in = life.out = -1;
}
