/* SPDX-License-Identifier: BSD-2-Clause */
/* The provider shm, with a peer that writes anything into its own segment, and
 * offers anything. The peer is the provider's other end, which also moves
 * honest bytes. By the settings or the kernel, rings grow or not, and memory
 * may be short. The bytes that the victim gets lie in the ring and are no more
 * than it asked for. */
#include "providers/shm/shm_int.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/base/futex.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "fuzz/fuzz.h"
#include "fuzz/segment.h"

#define BUF	 70000
#define RUNS	 4
#define RING_KB	 16   /* as it begins */
#define LARGE_KB 1024 /* grows twice */

static const struct exi_conn_ops *ops = &shmp_conn_ops;
static const struct exi_switch_ops *swops = &shmp_switch_ops;
static const struct exi_meet_ops *meet = &shmp_meet_ops;

/* In place of the core's, which rings the peer's library. */
uint32_t exi_conn_wake(struct exi_conn *c, uint64_t sleep)
{
	return 1;
}

/* What the kernel says of pages that the provider asks for: 0, EINVAL before
 * Linux 5.14, or that it has none. */
static int no_pages;

int madvise(void *at, size_t len, int how)
{
	if (no_pages) {
		errno = no_pages;
		return -1;
	}
	return (int)syscall(SYS_madvise, at, len, how);
}

_Atomic uint32_t exi_conn_wakes;
_Atomic uint64_t exi_conn_sent;

static char buf[BUF];

struct scene {
	struct exi_conn *victim, *peer;
	bool sends, receives; /* the victim, over the ring */
	bool drains;
	bool ended;
	bool old; /* the kernel */
};

/* --- meeting ------------------------------------------------------------ */

/* A segment of any size, with any seals, and words that anybody may say. */
static int odd_segment(struct fuzz_in *in, struct exi_blob *b)
{
	static const int seals[] = { 0, F_SEAL_SHRINK | F_SEAL_GROW,
				     F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
				     F_SEAL_SHRINK | F_SEAL_SEAL,
				     F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL |
					     F_SEAL_WRITE };
	int fd = memfd_create("odd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct shmp_segment seg;
	struct shmp_blob *blob = (struct shmp_blob *)b->bytes;

	FUZZ_TRUE(fd >= 0);
	FUZZ_TRUE(ftruncate(fd, (off_t)(fuzz_number(in) % (4 << 20))) == 0);
	fuzz_copy(in, &seg, sizeof(seg));
	if (fuzz_byte(in) & 1) {
		seg.magic = SHMP_MAGIC;
		seg.version = SHMP_VERSION;
		seg.ring_offset = SHMP_RING_OFFSET;
		seg.ring_bytes = blob->ring_bytes;
		seg.start_bytes = blob->start_bytes;
	}
	if (pwrite(fd, &seg, sizeof(seg), 0) < 0)
		abort();
	fcntl(fd, F_ADD_SEALS, seals[fuzz_byte(in) % 5]);
	return fd;
}

static void spoil(struct fuzz_in *in, struct exi_blob *b)
{
	struct shmp_blob *blob = (struct shmp_blob *)b->bytes;

	switch (fuzz_byte(in) % 8) {
	case 0:
		blob->magic = (uint32_t)fuzz_number(in);
		break;
	case 1:
		blob->version = (uint32_t)fuzz_number(in);
		break;
	case 2:
		blob->ring_bytes = (uint32_t)fuzz_number(in);
		break;
	case 3:
		blob->start_bytes = (uint32_t)fuzz_number(in);
		break;
	case 4:
		blob->takes_bytes = (uint32_t)fuzz_number(in);
		break;
	case 5:
		fuzz_copy(in, blob, sizeof(*blob));
		break;
	case 6:
		close(b->fd);
		b->fd = fuzz_byte(in) & 1
				? -1
				: open("/dev/null", O_RDONLY | O_CLOEXEC);
		break;
	default:
		close(b->fd);
		b->fd = odd_segment(in, b);
	}
}

/* False: what the peer offers, or answers, is refused. */
static bool begin(struct scene *s, struct fuzz_in *in)
{
	struct exi_config *settings =
		(struct exi_config *)(uintptr_t)exi_config();
	uint8_t how = fuzz_byte(in);
	struct exi_blob offer, answer;
	int err;

	memset(s, 0, sizeof(*s));
	settings->ring_kb = how & 4 ? LARGE_KB : RING_KB;
	settings->memory_limit_mb = how & 8 ? how >> 4 & 1 : 1024;
	s->old = how & 32;
	no_pages = s->old ? EINVAL : 0;
	s->victim = fuzz_segment_new();
	s->peer = fuzz_segment_new();
	if (how & 1) { /* the victim answers */
		if (meet->offer(s->peer, &offer))
			return false;
		while (how & 2 && fuzz_byte(in) & 1)
			spoil(in, &offer);
		err = meet->answer(s->victim, &offer, &answer);
		close(offer.fd);
		if (err)
			return false;
		/* An honest end does not believe all. */
		err = meet->accepted(s->peer, &answer);
		FUZZ_TRUE(!err || how & 2 || err == -ENOMEM);
		close(answer.fd);
		return how & 2 || !err;
	}
	if (meet->offer(s->victim, &offer))
		return false;
	err = meet->answer(s->peer, &offer, &answer);
	close(offer.fd);
	if (err)
		return false;
	while (how & 2 && fuzz_byte(in) & 1)
		spoil(in, &answer);
	err = meet->accepted(s->victim, &answer);
	close(answer.fd);
	return !err;
}

static void end(struct scene *s)
{
	no_pages = 0;
	fuzz_segment_free(s->victim);
	fuzz_segment_free(s->peer);
}

/* --- the peer's hand ---------------------------------------------------- */

static struct shmp_record *awaited(struct scene *s)
{
	const struct shmp_rx *rx = &shmp_shared(s->victim)->rx;
	struct shmp_priv *p = shmp_priv(s->peer);

	return (struct shmp_record *)(p->out + (rx->pos & (p->out_bytes - 1) &
						(rx->bytes - 1)));
}

static void write_record(struct scene *s, struct fuzz_in *in)
{
	const struct shmp_rx *rx = &shmp_shared(s->victim)->rx;
	uint32_t kind = fuzz_byte(in) & 15, lap;
	uint32_t len = (uint32_t)fuzz_number(in) & SHMP_LEN_MASK;

	lap = kind & 8 ? SHMP_LAP : 0;
	lap ^= shmp_lap(rx->pos, rx->bytes);
	awaited(s)->made = (uint32_t)fuzz_number(in);
	atomic_store(&awaited(s)->word,
		     lap | (kind & 7) << SHMP_KIND_SHIFT | len);
}

static void write_field(struct scene *s, struct fuzz_in *in)
{
	struct shmp_segment *m = shmp_priv(s->peer)->mine;
	uint8_t which = fuzz_byte(in);
	uint64_t v = fuzz_number(in);

	/* Near what the victim counts, too. */
	if (which & 128)
		v += shmp_shared(s->victim)->tx.head;
	switch (which % 16) {
	case 0:
		atomic_store(&m->read, v);
		break;
	case 1:
		atomic_store(&m->space_wait, (uint32_t)v);
		break;
	case 2:
		atomic_store(&m->epoch, (uint32_t)v);
		break;
	case 3:
		atomic_store(&m->epoch_at, v);
		break;
	case 4:
		atomic_store(&m->epoch_before, (uint32_t)v);
		break;
	case 5:
		atomic_store(&m->kernel, v);
		break;
	case 6:
		atomic_store(&m->kernel_at, v);
		break;
	case 7:
		atomic_store(&m->kernel_before, v);
		break;
	case 8:
	case 9:
	case 10:
		atomic_store(&m->taken, v);
		atomic_fetch_add(&m->taken_seq, 1);
		break;
	case 11:
		atomic_store(&m->taken_seq, (uint32_t)v);
		break;
	case 12:
		atomic_store(&m->data_wait, (uint32_t)v);
		break;
	case 13:
		atomic_store(&m->sleep, v);
		break;
	case 14:
		atomic_store(&m->timed, (uint32_t)v);
		break;
	default:
		m->magic = m->version = m->ring_offset = (uint32_t)v;
		m->ring_bytes = m->start_bytes = (uint32_t)v;
	}
}

static void write_anywhere(struct scene *s, struct fuzz_in *in)
{
	struct shmp_priv *p = shmp_priv(s->peer);
	uint32_t at = (uint32_t)fuzz_number(in) & (p->out_bytes - 1) & ~3u;

	atomic_store((_Atomic uint32_t *)(p->out + at),
		     (uint32_t)fuzz_number(in));
}

static void peer_works(struct scene *s, struct fuzz_in *in)
{
	switch (fuzz_byte(in) % 3) {
	case 0:
		ops->send(s->peer, buf, 1 + fuzz_below(in, 9000), 0);
		break;
	case 1:
		ops->recv(s->peer, buf, 1 + fuzz_below(in, BUF), 0);
		break;
	default:
		shmp_ready_ops.full(s->peer);
	}
}

/* --- the victim --------------------------------------------------------- */

/* What the core goes on with after a call. */
static bool lives(ssize_t n)
{
	return n >= 0 || n == -EAGAIN || n == -ENOBUFS;
}

static bool receive(struct scene *s, struct fuzz_in *in)
{
	uint8_t how = fuzz_byte(in);
	size_t len = fuzz_below(in, BUF);
	char *to;
	ssize_t n;

	if (!s->receives)
		return true;
	to = malloc(len ? len : 1);
	FUZZ_TRUE(to);
	n = ops->recv(s->victim, to, len, how & 1 ? MSG_PEEK : 0);
	FUZZ_TRUE(n <= (ssize_t)len);
	free(to);
	return lives(n);
}

static bool send_some(struct scene *s, struct fuzz_in *in)
{
	size_t len = 1 + fuzz_below(in, BUF);
	char *from;
	ssize_t n;

	if (!s->sends || s->ended)
		return true;
	from = calloc(1, len);
	FUZZ_TRUE(from);
	n = ops->send(s->victim, from, len, 0);
	FUZZ_TRUE(n <= (ssize_t)len);
	free(from);
	return lives(n);
}

static bool lies_in(const void *at, size_t n, const unsigned char *ring,
		    size_t len)
{
	const unsigned char *p = at;

	return p >= ring && n <= len && (size_t)(p - ring) <= len - n;
}

static bool borrow(struct scene *s, struct fuzz_in *in)
{
	struct shmp_priv *p = shmp_priv(s->victim);
	const void *from;
	void *room;
	ssize_t n;

	if (fuzz_byte(in) & 1) {
		/* It is asked for when there is something. */
		if (!s->receives || ops->recv(s->victim, NULL, 0, 0) ||
		    shmp_ready_ops.over(s->victim))
			return true;
		n = (ssize_t)shmp_loan_look(s->victim, &from);
		if (n <= 0)
			return true;
		FUZZ_TRUE(lies_in(from, (size_t)n, p->in, p->in_bytes));
		memcpy(buf, from, (size_t)n < BUF ? (size_t)n : BUF);
		shmp_loan_took(s->victim, 1 + fuzz_below(in, BUF) % (size_t)n);
		return true;
	}
	if (!s->sends || s->ended)
		return true;
	n = shmp_loan_room(s->victim, 1 + fuzz_below(in, BUF), &room);
	if (n <= 0)
		return lives(n);
	FUZZ_TRUE(lies_in(room, (size_t)n, p->out, p->out_bytes));
	memset(room, 1, (size_t)n);
	shmp_loan_put(s->victim, 1 + fuzz_below(in, BUF) % (size_t)n);
	return true;
}

static void ask(struct scene *s, struct fuzz_in *in)
{
	struct exi_conn *c = s->victim;
	uint8_t what = fuzz_byte(in);
	enum exi_dir dir = what & 128 ? EXI_RX : EXI_TX;
	enum exi_wake how = what & 64 ? EXI_WAKE_WORD : EXI_WAKE_BELL;
	struct exi_nothing nothing;
	struct exi_first first;
	struct exi_word word;

	if (dir == EXI_RX ? !s->receives : !s->sends)
		return;
	switch (what % 8) {
	case 0:
		shmp_wait_ops.word(c, dir, &word);
		shmp_wait_ops.arm(c, dir, how);
		break;
	case 1:
		shmp_wait_ops.disarm(c, dir, how);
		break;
	case 2:
		if (dir == EXI_RX)
			shmp_wait_ops.arm(c, dir, EXI_WAKE_NEXT);
		break;
	case 3:
		shmp_wait_ops.peer_cpu(c);
		break;
	case 4:
		shmp_ready_ops.ready(c, dir);
		break;
	case 5:
		if (s->receives)
			shmp_ready_ops.unread(c);
		break;
	case 6:
		if (s->receives)
			shmp_ready_ops.full(c);
		break;
	default:
		if (!s->receives)
			break;
		shmp_ready_ops.want_times(c);
		shmp_ready_ops.tcp_sent(c, what);
		if (!shmp_ready_ops.nothing(c, &nothing))
			shmp_ready_ops.first(c, exi_ticks(), &first);
	}
}

static bool move_rx(struct scene *s, struct fuzz_in *in)
{
	uint64_t head, used;

	if (s->receives) {
		swops->cursor(s->victim, &head, &used);
		s->receives = false;
		return true;
	}
	if (fuzz_byte(in) & 1)
		head = fuzz_number(in);
	else if (swops->head(s->peer, &head))
		return true;
	s->receives = !swops->start(s->victim, head);
	return s->receives;
}

/* So many bytes at most at once, in pieces: all that is found is sent. */
static void drain_runs(struct scene *s, size_t most)
{
	struct shmp_priv *p = shmp_priv(s->victim);
	struct iovec v[RUNS];
	size_t n = swops->runs(s->victim, v, RUNS, most), all = 0;

	FUZZ_TRUE(n > 0 && n <= RUNS);
	for (size_t i = 0; i < n; i++) {
		FUZZ_TRUE(lies_in(v[i].iov_base, v[i].iov_len, p->out,
				  p->out_bytes));
		all += v[i].iov_len;
	}
	FUZZ_TRUE(all > 0 && all <= most);
	swops->drained(s->victim, all);
}

static bool drain(struct scene *s, struct fuzz_in *in)
{
	struct shmp_priv *p = shmp_priv(s->victim);
	const void *run;
	size_t n = swops->drain(s->victim, &run);

	if (!n) {
		s->drains = false;
		return true;
	}
	FUZZ_TRUE(lies_in(run, n, p->out, p->out_bytes));
	memcpy(buf, run, n < BUF ? n : BUF);
	drain_runs(s, 1 + fuzz_below(in, BUF) % n);
	return true;
}

static bool move_tx(struct scene *s, struct fuzz_in *in)
{
	uint64_t at, used;

	if (s->drains)
		return drain(s, in);
	if (!s->sends) {
		s->sends = !swops->head(s->victim, &at);
		return true;
	}
	if (s->ended)
		return true;
	if (fuzz_byte(in) & 1) {
		at = fuzz_number(in);
		used = fuzz_number(in);
	} else {
		swops->cursor(s->peer, &at, &used);
	}
	if (swops->takeback(s->victim, at, used))
		return false;
	s->sends = false;
	s->drains = true;
	return true;
}

/* The victim's end, and what happens around it. */
static void change(struct scene *s, uint8_t how)
{
	switch (how % 8) {
	case 0:
		ops->end(s->victim);
		s->ended = true;
		break;
	case 1:
		no_pages = how & 8 ? ENOMEM : s->old ? EINVAL : 0;
		break;
	case 2: /* it sends by the kernel, for another connection, and this */
		atomic_store(&exi_conn_sent, exi_ticks());
		shmp_ready_ops.tcp_sends(s->victim, how);
		break;
	default:
		break;
	}
}

/* False: the connection is over for the victim. */
static bool victim_works(struct scene *s, struct fuzz_in *in)
{
	switch (fuzz_byte(in) % 10) {
	case 0:
	case 1:
	case 2:
		return receive(s, in);
	case 3:
	case 4:
		return send_some(s, in);
	case 5:
		return borrow(s, in);
	case 6:
		return move_rx(s, in);
	case 7:
		return move_tx(s, in);
	case 8:
		if (s->sends && !s->ended)
			change(s, fuzz_byte(in));
		return true;
	default:
		ask(s, in);
		return true;
	}
}

/* What the victim does when the peer is gone, whatever that left. */
static void outlive(struct scene *s)
{
	struct exi_conn *c = s->victim;
	const void *run;
	size_t n, all = 0;

	if (s->receives) {
		shmp_ready_ops.over(c);
		shmp_ready_ops.left_unread(c);
		FUZZ_TRUE(shmp_ready_ops.unread(c) <= shmp_priv(c)->in_bytes);
	}
	while (s->drains && (n = swops->drain(c, &run))) {
		swops->drained(c, n);
		all += n;
		FUZZ_TRUE(all <= shmp_priv(c)->out_bytes);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = { data, size };
	bool lasts = true;
	struct scene s;

	if (!begin(&s, &in)) {
		end(&s);
		return 0;
	}
	s.sends = s.receives = true;
	while (in.left && lasts) {
		switch (fuzz_byte(&in) % 8) {
		case 0:
		case 1:
			write_record(&s, &in);
			break;
		case 2:
			write_field(&s, &in);
			break;
		case 3:
			write_anywhere(&s, &in);
			break;
		case 4:
			peer_works(&s, &in);
			break;
		default:
			lasts = victim_works(&s, &in);
		}
	}
	outlive(&s);
	end(&s);
	return 0;
}
