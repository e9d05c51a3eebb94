/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel's word on users. */
#ifndef EXI_CORE_BASE_USER_H
#define EXI_CORE_BASE_USER_H

#include <stdbool.h>
#include <sys/types.h>

/* Numbers of users, the last one included. */
struct exi_uids {
	uid_t first;
	uid_t last;
};

/* The user at the other end of a UNIX connection; (uid_t)-1: not told. */
uid_t exi_user_of(int link);

/* The number names one user here, and no others. */
bool exi_user_is_one(uid_t uid);

/* The numbers that belong to one person together with this one: a range of
 * subordinate numbers (subuid(5)), as the file at the path tells. Of a number
 * above 65535 that is in no such range, those that differ from it in the lower
 * 16 bits: systemd and others give each container such a block. Else the number
 * alone. */
#define EXI_SUBUID "/etc/subuid"
struct exi_uids exi_user_uids(const char *path, uid_t uid);

#endif
