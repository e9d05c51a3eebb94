/* SPDX-License-Identifier: BSD-2-Clause */
/* A few, by the cookies of their sockets. */
#include "core/orphan.h"

#include <errno.h>
#include <string.h>

#include "core/lock.h"
#include "core/sock.h"

#define KEPT 64

struct name {
	struct sockaddr_storage addr;
	socklen_t len;
	int err;
};

struct orphan {
	uint64_t cookie;
	struct name name[2]; /* its own, the peer's */
};

static struct exi_lock lock; /* guards orphans */
static struct orphan orphans[KEPT];
static _Atomic unsigned int n_orphans; /* ever */

void exi_orphan_add(int tcp_fd, int pair_fd)
{
	struct orphan o = { .cookie = exi_sock_cookie(pair_fd) };

	for (int i = 0; i < 2; i++) {
		struct sockaddr *addr = (struct sockaddr *)&o.name[i].addr;

		o.name[i].len = sizeof(o.name[i].addr);
		if ((i ? getpeername(tcp_fd, addr, &o.name[i].len)
		       : getsockname(tcp_fd, addr, &o.name[i].len)) < 0)
			o.name[i].err = -errno;
	}
	exi_lock(&lock);
	orphans[atomic_load(&n_orphans) % KEPT] = o;
	atomic_fetch_add(&n_orphans, 1);
	exi_unlock(&lock);
}

static bool find(int fd, struct orphan *ret)
{
	uint64_t cookie = exi_sock_cookie(fd);
	bool found = false;

	exi_lock(&lock);
	for (int i = 0; cookie && !found && i < KEPT; i++) {
		found = orphans[i].cookie == cookie;
		if (found)
			*ret = orphans[i];
	}
	exi_unlock(&lock);
	return found;
}

int exi_orphan_name(int fd, bool peer, struct sockaddr *addr, socklen_t *len)
{
	struct orphan o;
	const struct name *n = &o.name[peer];

	if (exi_likely(
		    !atomic_load_explicit(&n_orphans, memory_order_relaxed)) ||
	    !addr || !len || !find(fd, &o))
		return 1;
	if (n->err)
		return n->err;
	if ((int)*len < 0)
		return -EINVAL;
	memcpy(addr, &n->addr, *len < n->len ? *len : n->len);
	*len = n->len;
	return 0;
}
