/* SPDX-License-Identifier: BSD-2-Clause */
/* Making, sealing, passing and mapping the segments of a connection. */
#include "providers/shm/shm_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/base/futex.h"
#include "core/base/log.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"

/* The size at which a ring begins: small messages stay where they are warm, and
 * a connection with no other messages takes no more memory. A stream that fills
 * it continues with more, in the end with the whole ring, which is larger than
 * the caches of two cores together: what the sender wrote then comes to the
 * receiver from their common cache, not out of the sender's own. */
#define START_BYTES (16u << 10)

/* The part of RLIMIT_AS that mappings may take: the program's own come
 * first. */
#define SPACE_PART 8
/* The part of vm.max_map_count that mappings may be: without one left malloc(3)
 * fails. */
#define MAPS_PART 2
#define MAPS_MAX  65530 /* what it is unless it was set */

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

/* Bytes of segments in use, against EXS_MEMORY_LIMIT_MB, bytes mapped, and
 * mappings. */
static _Atomic uint64_t used, mapped, maps;

/* Counts a ring of this many bytes in *counted. Once: a ring that a later
 * switch makes small again stays counted. */
static int charge(uint64_t *counted, uint32_t ring, const char *otherwise)
{
	uint64_t limit = (uint64_t)exi_config()->memory_limit_mb << 20;
	uint64_t bytes = SHMP_RING_OFFSET + ring, before;

	if (*counted >= bytes)
		return 0;
	bytes -= *counted;
	before = atomic_fetch_add(&used, bytes);
	if (before + bytes <= limit) {
		*counted += bytes;
		return 0;
	}
	atomic_fetch_sub(&used, bytes);
	exi_info("rings would use %llu bytes, over EXS_MEMORY_LIMIT_MB %u; %s",
		 (unsigned long long)(before + bytes),
		 exi_config()->memory_limit_mb, otherwise);
	return -ENOMEM;
}

static void uncharge(uint64_t *counted)
{
	atomic_fetch_sub(&used, *counted);
	*counted = 0;
}

int shmp_segment_grow(struct shmp_priv *p, uint32_t bytes)
{
	return charge(&p->charged, bytes, "a ring stays small");
}

int shmp_segment_borrow(struct shmp_priv *p, uint32_t bytes)
{
	return charge(&p->borrowed, bytes, "a connection goes to TCP")
		       ? -ENOBUFS
		       : 0;
}

/* Mappings that the rings may be: a peer decides how many there are. */
static uint64_t maps_limit(void)
{
	static _Atomic uint64_t known;
	uint64_t n = atomic_load_explicit(&known, memory_order_relaxed);
	char text[24] = "";
	int fd;

	if (exi_likely(n))
		return n;
	fd = open("/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		if (read(fd, text, sizeof(text) - 1) < 0)
			text[0] = '\0';
		close(fd);
	}
	n = strtoull(text, NULL, 10);
	n = (n ? n : MAPS_MAX) / MAPS_PART;
	atomic_store_explicit(&known, n, memory_order_relaxed);
	return n;
}

/* Maps a segment's beginning, within RLIMIT_AS and vm.max_map_count. */
static int map(int fd, size_t size, int prot, void **ret)
{
	struct rlimit space = { .rlim_cur = RLIM_INFINITY };
	uint64_t before = atomic_fetch_add(&mapped, size);
	uint64_t n = atomic_fetch_add(&maps, 1);
	void *at = MAP_FAILED;
	int err = ENOMEM;

	getrlimit(RLIMIT_AS, &space);
	if (n < maps_limit() &&
	    (space.rlim_cur == RLIM_INFINITY ||
	     before + size <= space.rlim_cur / SPACE_PART)) {
		at = mmap(NULL, size, prot, MAP_SHARED, fd, 0);
		err = errno;
	}
	if (at == MAP_FAILED) {
		atomic_fetch_sub(&mapped, size);
		atomic_fetch_sub(&maps, 1);
		return -err;
	}
	*ret = at;
	return 0;
}

static void unmap(const void *at, size_t size)
{
	if (!at)
		return;
	munmap((void *)(uintptr_t)at, size);
	atomic_fetch_sub(&mapped, size);
	atomic_fetch_sub(&maps, 1);
}

/* Makes the pages of the range, or finds them, without a signal. */
static int touch(const unsigned char *at, size_t len, int how)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = (uintptr_t)at & ~(page - 1), end = (uintptr_t)at + len;
	int err, saved = errno;

	err = madvise((void *)from, end - from, how) ? errno : 0;
	errno = saved;
	if (err != EINVAL) /* EFAULT: a SIGBUS that was none */
		return err == EFAULT ? -ENOMEM : -err;
	/* Linux before 5.14: a wake-up makes the kernel ask for the page, and
	 * that it may write where the mapping allows that. A thread that is
	 * woken looks, and sleeps again. */
	for (err = 0; from < end && err >= 0; from += page)
		err = exi_futex_wake((const uint32_t *)from, 1);
	return err < 0 ? err : 0;
}

/* Makes the pages of a ring that began at position from, of which those up to
 * *there were made, up to end. */
static int touch_ring(const unsigned char *ring, uint32_t bytes, uint64_t from,
		      uint64_t *there, uint64_t end, int how)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	while (*there < end) {
		uint32_t at = (uint32_t)*there & (bytes - 1);
		/* The range goes to the end of a page, and not past that of the
		 * ring. */
		size_t n = ((SHMP_RING_OFFSET + at + (size_t)(end - *there) +
			     page - 1) &
			    ~(page - 1)) -
			   (SHMP_RING_OFFSET + at);
		int err;

		n = n < bytes - at ? n : bytes - at;
		err = touch(ring + at, n, how);
		if (err) {
			exi_info("a page of a ring cannot be allocated: %s; a "
				 "connection goes to TCP",
				 strerrordesc_np(-err));
			return -ENOBUFS;
		}
		*there += n;
	}
	/* A lap on: all of it is. */
	if (*there - from >= bytes)
		*there = UINT64_MAX;
	return 0;
}

/* The note of rx's ring, or null, and a free note, or the oldest. */
static struct shmp_found *note_of(struct shmp_priv *p, const struct shmp_rx *rx,
				  struct shmp_found **ret_oldest)
{
	*ret_oldest = p->found;
	for (int i = 0; i < 3; i++) {
		struct shmp_found *f = &p->found[i];

		if (f->grown_at == rx->grown_at && f->bytes == rx->bytes)
			return f;
		if (!f->bytes || f->grown_at < (*ret_oldest)->grown_at)
			*ret_oldest = f;
	}
	return NULL;
}

void shmp_segment_note(struct shmp_priv *p, const struct shmp_rx *rx)
{
	struct shmp_found *oldest, *f = note_of(p, rx, &oldest);

	if (!f) {
		f = oldest;
		f->grown_at = rx->grown_at;
		f->bytes = rx->bytes;
	} else if (f->there >= rx->there) {
		return;
	}
	f->there = rx->there;
}

int shmp_segment_admit(struct shmp_priv *p, struct shmp_rx *rx, uint64_t end)
{
	struct shmp_found *oldest, *f = note_of(p, rx, &oldest);

	if (f && f->there > rx->there)
		rx->there = f->there;
	return touch_ring(p->in, rx->bytes, rx->grown_at, &rx->there, end,
			  MADV_POPULATE_READ);
}

int shmp_segment_make(const struct shmp_priv *p, struct shmp_tx *tx,
		      uint64_t end)
{
	return touch_ring(p->out, tx->bytes, tx->grown_at, &tx->there, end,
			  MADV_POPULATE_WRITE);
}

/* FUTURE_WRITE: no other process can write it, and no process can punch a
 * hole. */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_FUTURE_WRITE)

/* Makes our half. The descriptor goes to the peer; our mapping stays. */
static int make(struct exi_conn *c, struct exi_blob *ret)
{
	struct shmp_priv *p = shmp_priv(c);
	uint32_t ring = exi_config()->ring_kb * 1024;
	/* A ring of whole messages never grows: what is unread is what lies
	 * between two positions. */
	uint32_t start = !c->whole	  ? START_BYTES
			 : c->most < ring ? c->most
					  : ring;
	size_t size = SHMP_RING_OFFSET + ring;
	struct shmp_blob blob = { .magic = SHMP_MAGIC,
				  .version = SHMP_VERSION,
				  .ring_bytes = ring,
				  .start_bytes = start,
				  .takes_bytes = ring };
	struct shmp_tx *tx = &shmp_shared(c)->tx;
	void *at;
	int err, fd;

	err = charge(&p->charged, start, "the connection stays on TCP");
	if (err)
		return err;
	fd = memfd_create("libexs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0) {
		err = -errno;
		goto uncharge;
	}
	err = ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
	if (!err)
		err = map(fd, size, PROT_READ | PROT_WRITE, &at);
	if (err)
		goto close_fd;
	/* The seals come after our mapping: no process can map it for writing
	 * from here on. */
	if (fcntl(fd, F_ADD_SEALS, SEALS) < 0) {
		err = -errno;
		goto unmap;
	}
	p->out = (unsigned char *)at + SHMP_RING_OFFSET;
	tx->limit = tx->bytes = tx->before = tx->first = start;
	tx->full_at = SHMP_NEVER;
	/* The header is in the ring's first page, too. */
	err = shmp_segment_make(p, tx, SHMP_RESERVE);
	if (err)
		goto unmap;
	if (tx->limit > tx->there)
		tx->limit = tx->there;
	p->mine = at;
	p->out_map = size;
	p->mine->magic = SHMP_MAGIC;
	p->mine->version = SHMP_VERSION;
	p->mine->ring_offset = SHMP_RING_OFFSET;
	p->mine->ring_bytes = ring;
	p->mine->start_bytes = start;
	p->out_bytes = ring;
	if (c->most && c->most < ring)
		p->out_bytes = c->most > start ? c->most : start;
	p->out_start = start;
	memset(ret, 0, sizeof(*ret));
	memcpy(ret->bytes, &blob, sizeof(blob));
	ret->fd = fd;
	return 0;
unmap:
	unmap(at, size);
close_fd:
	close(fd);
uncharge:
	uncharge(&p->charged);
	return err;
}

void shmp_segment_unmap(struct shmp_priv *p)
{
	unmap(p->mine, p->out_map);
	uncharge(&p->charged);
	unmap(p->theirs, p->in_map);
	uncharge(&p->borrowed);
}

/* Whether the sizes fit: both are powers of two, and a ring has room for a
 * start. */
static bool sizes_fit(uint32_t start, uint32_t ring)
{
	return start >= SHMP_RING_MIN && start <= ring &&
	       ring <= SHMP_RING_MAX && !(ring & (ring - 1)) &&
	       !(start & (start - 1));
}

/* Maps the peer's half, without trust in its contents: of its ring no more than
 * ours has, which the peer knows, or is about to learn. */
static int take(struct exi_conn *c, const struct exi_blob *blob)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_blob b;
	uint32_t ring = exi_config()->ring_kb * 1024;
	struct stat st;
	int seals, err;
	void *at;

	memcpy(&b, blob->bytes, sizeof(b));
	if (b.magic != SHMP_MAGIC || b.version != SHMP_VERSION ||
	    blob->fd < 0 || !sizes_fit(b.start_bytes, b.ring_bytes) ||
	    !sizes_fit(START_BYTES, b.takes_bytes) || b.start_bytes > ring)
		return -EPROTO;
	ring = b.ring_bytes < ring ? b.ring_bytes : ring;
	seals = fcntl(blob->fd, F_GET_SEALS);
	if (seals < 0 || (seals & SEALS) != SEALS || fstat(blob->fd, &st) < 0 ||
	    st.st_size != (off_t)(SHMP_RING_OFFSET + b.ring_bytes))
		return -EPROTO;
	err = charge(&p->borrowed, b.start_bytes,
		     "the connection stays on TCP");
	if (!err)
		err = map(blob->fd, SHMP_RING_OFFSET + ring, PROT_READ, &at);
	if (err)
		return err;
	p->theirs = at;
	p->in_map = SHMP_RING_OFFSET + ring;
	p->in = (const unsigned char *)at + SHMP_RING_OFFSET;
	p->in_bytes = ring;
	p->in_start = b.start_bytes;
	p->takes = b.takes_bytes;
	shmp_shared(c)->rx.bytes = b.start_bytes;
	/* A thread that waits may ask for it already. */
	__atomic_store_n(&shmp_shared(c)->rx.cpu, -1, __ATOMIC_RELAXED);
	return touch(at, SHMP_RING_OFFSET, MADV_POPULATE_READ);
}

static void bound(struct shmp_priv *p)
{
	if (p->out_bytes > p->takes)
		p->out_bytes = p->takes;
}

static int offer(struct exi_conn *c, struct exi_blob *ret)
{
	return make(c, ret);
}

static int answer(struct exi_conn *c, const struct exi_blob *blob,
		  struct exi_blob *ret)
{
	int err = take(c, blob);

	if (!err)
		err = make(c, ret);
	if (!err)
		bound(shmp_priv(c));
	return err;
}

static int accepted(struct exi_conn *c, const struct exi_blob *blob)
{
	int err = take(c, blob);

	if (!err)
		bound(shmp_priv(c));
	return err;
}

const struct exi_meet_ops shmp_meet_ops = {
	.offer = offer,
	.answer = answer,
	.accepted = accepted,
};
