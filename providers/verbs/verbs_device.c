/* SPDX-License-Identifier: BSD-2-Clause */
/* The RDMA devices of the host, and which of them may be used. */
#include "providers/verbs/verbs_int.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/rma/memory.h"

/* Finds the next in a list of names, as in EXS_VERBS_DEVICE. Returns its
 * length, or 0. */
static size_t next_name(const char **list)
{
	static const char between[] = ", \t";

	*list += strspn(*list, between);
	return strcspn(*list, between);
}

static bool listed(const char *list, const char *name)
{
	size_t len;

	for (; (len = next_name(&list)); list += len)
		if (strlen(name) == len && !strncmp(list, name, len))
			return true;
	return false;
}

static bool is_here(struct ibv_device **all, const char *name, size_t len)
{
	for (; *all; all++)
		if (strlen(ibv_get_device_name(*all)) == len &&
		    !strncmp(ibv_get_device_name(*all), name, len))
			return true;
	return false;
}

bool verbsp_misnamed(char *ret, size_t len)
{
	const char *names = exi_rma_host->config()->verbs_device;
	struct ibv_device **all = ibv_get_device_list(NULL);
	bool found = false;
	size_t n;

	if (!all)
		return false;
	for (; !found && (n = next_name(&names)); names += n) {
		found = !is_here(all, names, n);
		if (found)
			snprintf(ret, len, "%.*s", (int)n, names);
	}
	ibv_free_device_list(all);
	return found;
}

/* Whether the kernel emulates the device: no bus has it then. */
bool verbsp_software(const struct ibv_device *dev)
{
	char path[PATH_MAX];

	return realpath(dev->ibdev_path, path) &&
	       strstr(path, "/devices/virtual/");
}

int verbsp_forbidden(const struct ibv_device *dev, char *why, size_t len)
{
	const char *names = exi_rma_host->config()->verbs_device;
	bool named = listed(names, dev->name);

	if (named || (!names[0] && !verbsp_software(dev)))
		return 0;
	snprintf(why, len, "%s",
		 names[0] ? "EXS_VERBS_DEVICE names other devices"
			  : "software RDMA, slower than the kernel's TCP: used "
			    "only if EXS_VERBS_DEVICE names it");
	return -ENODEV;
}

static bool active(struct verbsp_device *d, unsigned int *ret)
{
	struct ibv_port_attr port;

	for (unsigned int i = 1; i <= d->attr.phys_port_cnt; i++) {
		if (!ibv_query_port(d->ctx, (uint8_t)i, &port) &&
		    port.state == IBV_PORT_ACTIVE) {
			*ret = i;
			return true;
		}
	}
	return false;
}

void verbsp_memory_why(int err, char *why, size_t len)
{
	struct rlimit limit;

	if (err == -ENOMEM && !getrlimit(RLIMIT_MEMLOCK, &limit) &&
	    limit.rlim_cur != RLIM_INFINITY)
		snprintf(why, len,
			 "%llu KiB of memory may be locked, and a connection "
			 "needs %zu: raise the limit (ulimit -l, memlock in "
			 "limits.conf, LimitMEMLOCK= of a service)",
			 (unsigned long long)limit.rlim_cur / 1024,
			 exi_rma_footprint() / 1024);
	else
		snprintf(why, len, "it cannot register memory: %s",
			 strerror(-err));
}

/* Tries whether the device takes a connection's worth of memory. */
static int try_memory(struct verbsp_device *d)
{
	size_t len = exi_rma_footprint();
	struct ibv_pd *pd = ibv_alloc_pd(d->ctx);
	int err = pd ? 0 : -errno;
	struct ibv_mr *mr = NULL;
	void *ring = MAP_FAILED;

	if (pd)
		ring = mmap(NULL, len, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ring != MAP_FAILED)
		mr = ibv_reg_mr(pd, ring, len,
				IBV_ACCESS_LOCAL_WRITE |
					IBV_ACCESS_REMOTE_WRITE);
	if (!mr && !err)
		err = -errno;
	if (mr)
		ibv_dereg_mr(mr);
	if (ring != MAP_FAILED)
		munmap(ring, len);
	if (pd)
		ibv_dealloc_pd(pd);
	if (err)
		verbsp_memory_why(err, d->why, sizeof(d->why));
	return err;
}

/* Writes why the GID that EXS_VERBS_GID_INDEX names cannot be used. */
static void gid_why(int err, unsigned int port, char *why, size_t len)
{
	int wanted = exi_rma_host->config()->verbs_gid_index;

	if (err == -EAFNOSUPPORT)
		snprintf(why, len,
			 "GID %d of port %u is not an IP address "
			 "(EXS_VERBS_GID_INDEX)",
			 wanted, port);
	else if (wanted >= 0)
		snprintf(why, len,
			 "port %u has no GID %d (EXS_VERBS_GID_INDEX)", port,
			 wanted);
	else
		snprintf(why, len, "port %u has no GID", port);
}

static int judge(struct verbsp_device *d)
{
	struct ibv_gid_entry gid;
	unsigned int port;
	int err;

	err = verbsp_forbidden(d->ctx->device, d->why, sizeof(d->why));
	if (err)
		return err;
	if (!active(d, &port))
		return snprintf(d->why, sizeof(d->why), "no port is active"),
		       -ENETDOWN;
	err = verbsp_gid(d->ctx, port, &gid);
	if (err)
		return gid_why(err, port, d->why, sizeof(d->why)),
		       -EADDRNOTAVAIL;
	return try_memory(d);
}

/* libibverbs looks in several places, and reports the last. */
static int unopened(const char *path, int err)
{
	if (access(path, R_OK | W_OK))
		return -errno;
	return err ? -err : -EIO;
}

static void open_device(struct ibv_device *dev, struct verbsp_device *d)
{
	char path[PATH_MAX];

	d->name = ibv_get_device_name(dev);
	d->iwarp = dev->transport_type == IBV_TRANSPORT_IWARP;
	d->software = verbsp_software(dev);
	errno = 0;
	d->ctx = ibv_open_device(dev);
	if (!d->ctx) {
		snprintf(path, sizeof(path), "/dev/infiniband/%s",
			 dev->dev_name);
		d->err = unopened(path, errno);
		snprintf(d->why, sizeof(d->why), "%.64s cannot be opened: %s",
			 path, strerror(-d->err));
		return;
	}
	d->err = -ibv_query_device(d->ctx, &d->attr);
	if (d->err)
		snprintf(d->why, sizeof(d->why), "it does not answer: %s",
			 strerror(-d->err));
	else
		d->err = judge(d);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(ibv_get_device_name(*(struct ibv_device *const *)a),
		      ibv_get_device_name(*(struct ibv_device *const *)b));
}

int verbsp_each_device(bool (*look)(struct verbsp_device *d, void *arg),
		       void *arg, char *why, size_t len)
{
	struct ibv_device **list;
	bool more = true;
	int n = 0, err;

	errno = 0;
	list = ibv_get_device_list(&n);
	if (!list || n == 0) {
		err = list || errno == ENOSYS ? ENODEV : errno;
		snprintf(why, len, "%s",
			 err == ENODEV ? "this host has no RDMA device"
				       : strerror(err));
		if (list)
			ibv_free_device_list(list);
		return -err;
	}
	qsort(list, (size_t)n, sizeof(*list), by_name);
	for (int i = 0; i < n && more; i++) {
		struct verbsp_device d = { 0 };

		open_device(list[i], &d);
		more = look(&d, arg);
		if (d.ctx)
			ibv_close_device(d.ctx);
	}
	ibv_free_device_list(list);
	return 0;
}

int verbsp_gids(struct ibv_context *ctx, struct ibv_gid_entry **ret)
{
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	struct ibv_gid_entry *list;
	ssize_t got = -ibv_query_device(ctx, &attr);
	size_t n = 0;

	if (got)
		return (int)got;
	for (unsigned int i = 1; i <= attr.phys_port_cnt; i++)
		if (!ibv_query_port(ctx, (uint8_t)i, &port))
			n += (size_t)port.gid_tbl_len;
	list = calloc(n + 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	got = ibv_query_gid_table(ctx, list, n + 1, 0);
	if (got < 0) {
		free(list);
		return (int)got;
	}
	*ret = list;
	return (int)got;
}

static bool is_ipv4(const union ibv_gid *g)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(g->raw, mapped, sizeof(mapped));
}

/* Whether a GID has an IP address. InfiniBand's GID is a port's, iWARP's is a
 * card's; both have their IP addresses elsewhere. */
static bool is_address(const struct ibv_context *ctx,
		       const struct ibv_gid_entry *g)
{
	return ctx->device->transport_type != IBV_TRANSPORT_IWARP &&
	       g->gid_type != IBV_GID_TYPE_IB;
}

/* The rank of a GID: more is better; 0: never. */
static int rank(const struct ibv_context *ctx, const struct ibv_gid_entry *g)
{
	if (!is_address(ctx, g))
		return 1;
	return (g->gid_type == IBV_GID_TYPE_ROCE_V2 ? 4 : 2) + is_ipv4(&g->gid);
}

int verbsp_gid(struct ibv_context *ctx, unsigned int port,
	       struct ibv_gid_entry *ret)
{
	int wanted = exi_rma_host->config()->verbs_gid_index;
	int best = 0, n;
	struct ibv_gid_entry *list;

	n = verbsp_gids(ctx, &list);
	if (n < 0)
		return n;
	for (int i = 0; i < n; i++) {
		const struct ibv_gid_entry *g = &list[i];
		int r = rank(ctx, g);

		if (g->port_num != port ||
		    (wanted >= 0 && g->gid_index != (uint32_t)wanted) ||
		    r <= best)
			continue;
		best = r;
		*ret = *g;
	}
	free(list);
	if (!best)
		return -ENOENT;
	return wanted >= 0 && !is_address(ctx, ret) ? -EAFNOSUPPORT : 0;
}

int verbsp_gid_check(struct ibv_context *ctx, unsigned int port,
		     const struct sockaddr *at, char *why, size_t len)
{
	const struct sockaddr_in *four = (const struct sockaddr_in *)at;
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)at;
	bool ipv4 = at->sa_family == AF_INET;
	struct ibv_gid_entry gid;
	int err;

	if (exi_rma_host->config()->verbs_gid_index < 0)
		return 0;
	err = verbsp_gid(ctx, port, &gid);
	if (err) {
		gid_why(err, port, why, len);
		return err;
	}
	if (is_ipv4(&gid.gid) != ipv4) {
		snprintf(why, len,
			 "GID %u is an address of IPv%c, and the connection is "
			 "of IPv%c (EXS_VERBS_GID_INDEX)",
			 gid.gid_index, ipv4 ? '6' : '4', ipv4 ? '4' : '6');
		return -EAFNOSUPPORT;
	}
	if (ipv4 ? !memcmp(&four->sin_addr, gid.gid.raw + 12, 4)
		 : !memcmp(&six->sin6_addr, gid.gid.raw, 16))
		return 0;
	snprintf(why, len,
		 "GID %u is not the address of the connection "
		 "(EXS_VERBS_GID_INDEX)",
		 gid.gid_index);
	return -EADDRNOTAVAIL;
}
