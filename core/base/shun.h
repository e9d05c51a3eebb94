/* SPDX-License-Identifier: BSD-2-Clause */
/* Users that are shunned for a while: a process of theirs met this process, and
 * then kept a call waiting until its time was over, or passed a file instead of
 * memory. No process of that user is met for a minute, then each time twice as
 * long, at most an hour. Otherwise a peer that returns for each connection
 * would delay each one by a second.
 *
 * The kernel names the user at the other end of a link (SO_PEERCRED), so a user
 * cannot cause another user to be shunned. A person may have many numbers
 * (exi_user_uids()): when four of them are shunned, all count as one user.
 * Never shunned are root and the process's own user, which can do worse, and a
 * number that stands for several users. */
#ifndef EXI_CORE_BASE_SHUN_H
#define EXI_CORE_BASE_SHUN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Shuns a user from now on; (uid_t)-1 is no user. */
void exi_shun(uid_t uid, uint64_t now_ns);
bool exi_shunned(uid_t uid, uint64_t now_ns);

/* Called in the child after fork: frees the lock, which another thread of the
 * parent may have held. */
void exi_shun_forked(void);

#endif
