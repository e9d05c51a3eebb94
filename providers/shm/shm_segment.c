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

/* Bytes of segments that this process made, against EXS_MEMORY_LIMIT_MB. */
static _Atomic uint64_t made;

static int charge(uint64_t bytes)
{
	uint64_t limit = (uint64_t)exi_config()->memory_limit_mb << 20;
	uint64_t before = atomic_fetch_add(&made, bytes);

	if (before + bytes <= limit)
		return 0;
	atomic_fetch_sub(&made, bytes);
	exi_info("rings would take %llu bytes, over EXS_MEMORY_LIMIT_MB %u; "
		 "the connection stays on TCP",
		 (unsigned long long)(before + bytes),
		 exi_config()->memory_limit_mb);
	return -ENOMEM;
}

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Makes our half. The descriptor goes to the peer; our mapping stays. */
static int make(struct exi_conn *c, struct exi_blob *ret)
{
	struct shmp_priv *p = shmp_priv(c);
	uint32_t ring = exi_config()->ring_kb * 1024;
	size_t size = SHMP_RING_OFFSET + ring;
	struct shmp_blob blob = { .magic = SHMP_MAGIC,
				  .version = SHMP_VERSION,
				  .ring_bytes = ring };
	void *map;
	int err, fd;

	err = charge(size);
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
	p->out = (unsigned char *)map + SHMP_RING_OFFSET;
	p->out_bytes = ring;
	shmp_shared(c)->tx.limit = ring;
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
	atomic_fetch_sub(&made, size);
	return -err;
}

void shmp_segment_unmap(struct shmp_priv *p)
{
	if (p->mine) {
		munmap(p->mine, SHMP_RING_OFFSET + p->out_bytes);
		atomic_fetch_sub(&made, SHMP_RING_OFFSET + p->out_bytes);
	}
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
	    b.ring_bytes < SHMP_RING_MIN || b.ring_bytes > SHMP_RING_MAX ||
	    (b.ring_bytes & (b.ring_bytes - 1)) || blob->fd < 0)
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
	shmp_shared(c)->rx.cpu = -1;
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
