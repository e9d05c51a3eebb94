/* SPDX-License-Identifier: BSD-2-Clause */
/* Queries by sock_diag. */
#include "core/base/diag.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <unistd.h>

#include "core/base/fds.h"
#include "core/base/lock.h"
#include "core/base/proof.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

uint64_t exi_netns_cookie(int fd)
{
	uint64_t ret = 0;
	socklen_t len = sizeof(ret);

	return getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &ret, &len) < 0
		       ? 0
		       : ret;
}

_Atomic uint64_t exi_diag_netns = EXI_DIAG_UNKNOWN;

void exi_diag_learn(void)
{
	uint64_t netns = 0;
	int fd;

	exi_fds_begin();
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0) {
		netns = exi_netns_cookie(fd);
		close(fd);
	}
	exi_fds_end();
	atomic_store_explicit(&exi_diag_netns, netns, memory_order_relaxed);
}

static int read_answer(int nl, size_t least, union exi_diag_answer *ret)
{
	ssize_t n = recv(nl, ret, sizeof(*ret), 0);

	if (n < 0)
		return -errno;
	if (!NLMSG_OK(&ret->head, (size_t)n))
		return -EPROTO;
	if (ret->head.nlmsg_type == NLMSG_ERROR)
		return ((struct nlmsgerr *)NLMSG_DATA(&ret->head))->error;
	if (ret->head.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
	    ret->head.nlmsg_len < NLMSG_LENGTH(least))
		return -EPROTO;
	return 0;
}

int exi_diag_open(void)
{
	struct timeval limit = { .tv_sec = 1 };
	int nl = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

	/* A socket that is not permitted is no answer, and EPERM would be
	 * one. */
	if (nl < 0)
		return errno == EMFILE || errno == ENFILE ? -errno : -EACCES;
	setsockopt(nl, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return nl;
}

int exi_diag_ask(int nl, const struct nlmsghdr *q, size_t least,
		 union exi_diag_answer *ret)
{
	return send(nl, q, q->nlmsg_len, 0) < 0 ? -errno
						: read_answer(nl, least, ret);
}

const void *exi_diag_attribute(const union exi_diag_answer *a, size_t own,
			       int type, size_t size)
{
	const struct rtattr *at =
		(const void *)((const char *)NLMSG_DATA(&a->head) +
			       NLMSG_ALIGN(own));
	size_t left = a->head.nlmsg_len - NLMSG_LENGTH(NLMSG_ALIGN(own));

	if (a->head.nlmsg_len < NLMSG_LENGTH(NLMSG_ALIGN(own)))
		return NULL;
	for (; RTA_OK(at, left); at = RTA_NEXT(at, left))
		if (at->rta_type == type && RTA_PAYLOAD(at) >= size)
			return RTA_DATA(at);
	return NULL;
}

/* The kept socket stays open, because making one takes four times as long as a
 * query. Whichever thread asks, its answers are about its own network
 * namespace, with the users' numbers in the user namespace in which it was
 * made. */
static struct {
	struct exi_lock lock;
	int fd;
	pid_t pid; /* another process would take answers from it */
	uint64_t cookie;
	uint64_t netns;
	bool threaded; /* at least since it was opened */
} kept = { .fd = -1 };

void exi_diag_forked(void)
{
	atomic_store(&kept.lock.word, 0);
	exi_fd_close(kept.fd);
	kept.fd = -1;
	kept.threaded = false;
}

static void keep_locked(void)
{
	EXI_LOCKED(&kept.lock);
	exi_fds_begin();
	kept.fd = exi_diag_open();
	if (kept.fd >= 0)
		kept.fd = exi_fd_keep(kept.fd);
	exi_fds_end();
	kept.pid = getpid();
	kept.cookie = kept.fd < 0 ? 0 : exi_sock_cookie(kept.fd);
	kept.netns = kept.fd < 0 ? 0 : exi_netns_cookie(kept.fd);
}

static void unkeep_locked(void)
{
	EXI_LOCKED(&kept.lock);
	exi_fd_close(kept.fd);
	kept.fd = -1;
}

static void look_after_locked(void)
{
	EXI_LOCKED(&kept.lock);
	/* The program closed it, and the number may be another file's. */
	if (kept.fd >= 0 && exi_sock_cookie(kept.fd) != kept.cookie)
		kept.fd = -1;
	if (kept.fd >= 0 && kept.pid != getpid())
		unkeep_locked();
	if (kept.fd < 0)
		keep_locked();
}

void exi_diag_threaded(bool is)
{
	exi_lock(&kept.lock);
	if (is && !kept.threaded)
		unkeep_locked();
	kept.threaded = is;
	exi_unlock(&kept.lock);
}

bool exi_diag_ask_kept(uint64_t netns, bool users, const struct nlmsghdr *q,
		       size_t least, union exi_diag_answer *ret, int *ret_err)
{
	bool asked;

	if (!netns)
		return false;
	exi_lock(&kept.lock);
	look_after_locked();
	asked = kept.fd >= 0 && kept.netns == netns &&
		(!users || kept.threaded);
	if (asked) {
		*ret_err = exi_diag_ask(kept.fd, q, least, ret);
		/* Otherwise a late answer would be taken for the next one. */
		if (*ret_err && *ret_err != -ENOENT)
			unkeep_locked();
	}
	exi_unlock(&kept.lock);
	return asked;
}
