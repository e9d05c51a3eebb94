/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection that meets once more, for another process has one of its ends
 * now (handed.h): at that end, and at the other, which had met the process
 * before. Neither knows when the other looks, so both look again at marks that
 * lie further and further apart. */
#ifndef EXI_CORE_MEET_AGAIN_H
#define EXI_CORE_MEET_AGAIN_H

#include <stdbool.h>
#include <stdint.h>

struct exi_sock;

/* Marks so many bytes from here, in each direction. Any lock of the socket may
 * be held. */
void exi_again_after(struct exi_sock *sk, uint64_t bytes);

/* Sets the next mark; false: there is none left. link_lock held. */
bool exi_again_later_locked(struct exi_sock *sk);

/* Lets go of the fabric that the connection had with the process that handed it
 * on. False: something of it is still in use, and it is tried again later.
 * link_lock held. */
bool exi_again_begin_locked(struct exi_sock *sk);

#endif
