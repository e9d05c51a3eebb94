/* SPDX-License-Identifier: BSD-2-Clause */
/* The shm provider: same host, two rings in sealed memory. */
#include "providers/shm/shm_int.h"

#include <errno.h>
#include <stdio.h>
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

const struct exi_provider exi_provider_shm = {
	.abi = EXI_PROVIDER_ABI,
	.wire_id = 1 << 0,
	.name = "shm",
	.caps = EXI_CAP_LOCAL | EXI_CAP_LOCK_FREE | EXI_CAP_SWITCH |
		EXI_CAP_LOAN,
	.probe = probe,
	.conn_ops = &shmp_conn_ops,
	.meet_ops = &shmp_meet_ops,
};
