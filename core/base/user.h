/* SPDX-License-Identifier: BSD-2-Clause */
/* Users, as the kernel names them. */
#ifndef EXI_CORE_BASE_USER_H
#define EXI_CORE_BASE_USER_H

#include <stdbool.h>
#include <sys/types.h>

/* A range of user numbers, both ends included. */
struct exi_uids {
	uid_t first;
	uid_t last;
};

/* The user at the other end of a UNIX connection; (uid_t)-1: unknown. */
uid_t exi_user_of(int link);

/* Whether the number means exactly one user here. */
bool exi_user_is_one(uid_t uid);

/* The range of numbers that belong to the same person as this one: a range of
 * subordinate numbers (subuid(5)) from the file at the path. For a number above
 * 65535 outside such ranges: the block of numbers that share its upper 16 bits,
 * because systemd and others give each container such a block. Else the number
 * alone. */
#define EXI_SUBUID "/etc/subuid"
struct exi_uids exi_user_uids(const char *path, uid_t uid);

#endif
