/* SPDX-License-Identifier: BSD-2-Clause */
/* Users that are not met for a while: a process of theirs met this process, and
 * then kept a call waiting until its time was over, or passed a file where
 * memory belongs. For a minute none of that user's processes is met, and each
 * time again for twice as long, an hour at most. Otherwise a peer that comes
 * back for each connection makes each of them cost a second.
 *
 * The kernel names the user at the other end of a link (SO_PEERCRED), so nobody
 * makes another user be left out. A person may have many numbers
 * (exi_user_uids()): when four of them are left out, all become one user. Not
 * left out are root and the process's own user, who can do worse, and a number
 * that several users read as. */
#ifndef EXI_CORE_BASE_SHUN_H
#define EXI_CORE_BASE_SHUN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Shuns a user from now on; (uid_t)-1 is no user. */
void exi_shun(uid_t uid, uint64_t now_ns);
bool exi_shunned(uid_t uid, uint64_t now_ns);

/* The child after fork: frees the lock, which a thread of the parent may have
 * held. */
void exi_shun_forked(void);

#endif
