/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the verbs fabric share. */
#ifndef EXI_PROVIDERS_VERBS_INT_H
#define EXI_PROVIDERS_VERBS_INT_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#include "core/module.h"

/* What the library gave the module; set before any other call. */
extern const struct exi_host *vrb_host;

#define VRB_WHY 256

/* A device that was opened, or why it was not. */
struct vrb_device {
	const char *name;
	struct ibv_context *ctx; /* null: err */
	int err;		 /* of opening, asking or trying: -errno */
	char why[VRB_WHY];	 /* in words; "" when it can be used */
	struct ibv_device_attr attr;
	/* The kernel imitates the device: its TCP is faster, so such a one is
	 * used only where EXS_VERBS_DEVICE names it. */
	bool software;
	bool iwarp;
};

/* Every device of the host, in the order of its names: opened, judged, told to
 * look(), closed. look() returns false to end. -ENOENT: there is none, or no
 * support for them; why says which. */
int vrb_each_device(bool (*look)(struct vrb_device *d, void *arg), void *arg,
		    char *why, size_t len);

/* By the index that EXS_VERBS_GID_INDEX names, or without it the one that
 * carries IP addresses and routes: RoCE v2 before v1. -ENOENT. */
int vrb_gid(struct vrb_device *d, unsigned int port, struct ibv_gid_entry *ret);

/* Reads all GIDs of the device; the caller frees them. How many, or -errno. */
int vrb_gids(struct vrb_device *d, struct ibv_gid_entry **ret);

#endif
