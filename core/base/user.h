/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel's word on users. */
#ifndef EXI_CORE_BASE_USER_H
#define EXI_CORE_BASE_USER_H

#include <stdbool.h>
#include <sys/types.h>

/* The user at the other end of a UNIX connection; (uid_t)-1: not told. */
uid_t exi_user_of(int link);

/* The number names one user here, and no others. */
bool exi_user_is_one(uid_t uid);

#endif
