/* SPDX-License-Identifier: BSD-2-Clause */
/* Stands for the io_uring engine in a build without liburing. */
#include "providers/tcp/tcp_int.h"

#include <errno.h>
#include <stdio.h>

static int open_ring(void **ret, char *why, size_t len)
{
	snprintf(why, len, "this build has no io_uring");
	return -EOPNOTSUPP;
}

const struct tcpp_engine tcpp_uring = {
	.name = "io_uring",
	.open = open_ring,
};
