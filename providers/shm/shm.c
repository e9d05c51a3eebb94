/* SPDX-License-Identifier: BSD-2-Clause */
/* The shm provider: same host, two rings in sealed memory. */
#include "providers/shm/shm_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int probe(char *why, size_t len)
{
	int fd = memfd_create("libexs-probe", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int err = errno;

	if (fd < 0) {
		snprintf(why, len, "memfd_create: %s", strerror(err));
		return -err;
	}
	close(fd);
	return 0;
}

static int open_domain(struct exi_domain **ret)
{
	struct exi_domain *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->provider = &exi_provider_shm;
	*ret = d;
	return 0;
}

static void close_domain(struct exi_domain *d)
{
	free(d);
}

/* The domain has no work: the pair links wake, and the core progresses. */
static int progress(struct exi_domain *d)
{
	return 0;
}

static int event_fd(struct exi_domain *d)
{
	return -EOPNOTSUPP;
}

static int arm(struct exi_domain *d)
{
	return 0;
}

static void forked(struct exi_domain *d)
{
}

static const struct exi_domain_ops domain_ops = {
	.progress = progress,
	.event_fd = event_fd,
	.arm = arm,
	.forked = forked,
};

const struct exi_provider exi_provider_shm = {
	.abi = EXI_PROVIDER_ABI,
	.wire_id = 1 << 0,
	.name = "shm",
	.caps = EXI_CAP_LOCAL | EXI_CAP_SWITCH | EXI_CAP_LOAN,
	.probe = probe,
	.open = open_domain,
	.close = close_domain,
	.domain_ops = &domain_ops,
	.conn_ops = &shmp_conn_ops,
	.meet_ops = &shmp_meet_ops,
};
