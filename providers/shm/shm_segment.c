/* SPDX-License-Identifier: BSD-2-Clause */
/* Making, sealing, passing and mapping the segments of a connection. */
#include "providers/shm/shm_int.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/config.h"
#include "core/log.h"

/* What a ring begins with: small messages stay where they are warm, and a
 * connection that sees no others takes no more memory. A stream that fills it
 * goes on with more, in the end with the whole ring, which is larger than the
 * caches of two cores together: what the sender wrote then comes to the
 * receiver from their common cache, not out of the sender's own. */
#define START_BYTES (16u << 10)

/* Bytes of segments that this process made, against EXS_MEMORY_LIMIT_MB. */
static _Atomic uint64_t made;

/* A ring counts as what of it is in use. */
static int charge(struct shmp_priv *p, uint64_t bytes, const char *otherwise)
{
	uint64_t limit = (uint64_t)exi_config()->memory_limit_mb << 20;
	uint64_t before = atomic_fetch_add(&made, bytes);

	if (before + bytes <= limit) {
		p->charged += bytes;
		return 0;
	}
	atomic_fetch_sub(&made, bytes);
	exi_info("rings would take %llu bytes, over EXS_MEMORY_LIMIT_MB %u; %s",
		 (unsigned long long)(before + bytes),
		 exi_config()->memory_limit_mb, otherwise);
	return -ENOMEM;
}

static void uncharge(struct shmp_priv *p)
{
	atomic_fetch_sub(&made, p->charged);
	p->charged = 0;
}

int shmp_segment_grow(struct shmp_priv *p, uint32_t bytes)
{
	/* Once: what a later switch makes small again stays counted. */
	if (p->charged >= SHMP_RING_OFFSET + bytes)
		return 0;
	return charge(p, SHMP_RING_OFFSET + bytes - p->charged,
		      "one stays small");
}

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Makes our half. The descriptor goes to the peer; our mapping stays. */
static int make(struct exi_conn *c, struct exi_blob *ret)
{
	struct shmp_priv *p = shmp_priv(c);
	uint32_t ring = exi_config()->ring_kb * 1024;
	uint32_t start = START_BYTES;
	size_t size = SHMP_RING_OFFSET + ring;
	struct shmp_blob blob = { .magic = SHMP_MAGIC,
				  .version = SHMP_VERSION,
				  .ring_bytes = ring,
				  .start_bytes = start };
	struct shmp_tx *tx = &shmp_shared(c)->tx;
	void *map;
	int err, fd;

	err = charge(p, SHMP_RING_OFFSET + start,
		     "the connection stays on TCP");
	if (err)
		return err;
	fd = memfd_create("libexs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0) {
		err = errno;
		goto uncharge;
	}
	if (ftruncate(fd, (off_t)size) < 0)
		goto close_fd;
	map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		goto close_fd;
	/* After our mapping: nobody can map it for writing from here on. */
	if (fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_FUTURE_WRITE) < 0)
		goto unmap;
	p->mine = map;
	p->mine->magic = SHMP_MAGIC;
	p->mine->version = SHMP_VERSION;
	p->mine->ring_offset = SHMP_RING_OFFSET;
	p->mine->ring_bytes = ring;
	p->mine->start_bytes = start;
	p->out = (unsigned char *)map + SHMP_RING_OFFSET;
	p->out_bytes = ring;
	p->out_start = start;
	tx->limit = tx->bytes = tx->before = tx->first = start;
	tx->full_at = SHMP_NEVER;
	memset(ret, 0, sizeof(*ret));
	memcpy(ret->bytes, &blob, sizeof(blob));
	ret->fd = fd;
	return 0;
unmap:
	err = errno;
	munmap(map, size);
	errno = err;
close_fd:
	err = errno;
	close(fd);
uncharge:
	uncharge(p);
	return -err;
}

void shmp_segment_unmap(struct shmp_priv *p)
{
	if (p->mine)
		munmap(p->mine, SHMP_RING_OFFSET + p->out_bytes);
	uncharge(p);
	if (p->theirs)
		munmap((void *)(uintptr_t)p->theirs,
		       SHMP_RING_OFFSET + p->in_bytes);
}

/* Maps the peer's half, trusting nothing it says. */
static int take(struct exi_conn *c, const struct exi_blob *blob)
{
	struct shmp_priv *p = shmp_priv(c);
	struct shmp_blob b;
	struct stat st;
	int seals;
	void *map;

	memcpy(&b, blob->bytes, sizeof(b));
	if (b.magic != SHMP_MAGIC || b.version != SHMP_VERSION ||
	    b.start_bytes < SHMP_RING_MIN || b.start_bytes > b.ring_bytes ||
	    b.ring_bytes > SHMP_RING_MAX ||
	    (b.ring_bytes & (b.ring_bytes - 1)) ||
	    (b.start_bytes & (b.start_bytes - 1)) || blob->fd < 0)
		return -EPROTO;
	seals = fcntl(blob->fd, F_GET_SEALS);
	if (seals < 0 || (seals & SEALS) != SEALS || fstat(blob->fd, &st) < 0 ||
	    st.st_size != (off_t)(SHMP_RING_OFFSET + b.ring_bytes))
		return -EPROTO;
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, blob->fd,
		   0);
	if (map == MAP_FAILED)
		return -errno;
	p->theirs = map;
	p->in = (const unsigned char *)map + SHMP_RING_OFFSET;
	p->in_bytes = b.ring_bytes;
	p->in_start = b.start_bytes;
	shmp_shared(c)->rx.bytes = b.start_bytes;
	/* Who waits may ask for it already. */
	__atomic_store_n(&shmp_shared(c)->rx.cpu, -1, __ATOMIC_RELAXED);
	return 0;
}

static int offer(struct exi_conn *c, struct exi_blob *ret)
{
	return make(c, ret);
}

static int answer(struct exi_conn *c, const struct exi_blob *blob,
		  struct exi_blob *ret)
{
	int err = take(c, blob);

	return err ? err : make(c, ret);
}

static int accepted(struct exi_conn *c, const struct exi_blob *blob)
{
	return take(c, blob);
}

const struct exi_meet_ops shmp_meet_ops = {
	.offer = offer,
	.answer = answer,
	.accepted = accepted,
};
