/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a pair link, and of its peer. */
#ifndef EXI_CORE_LINK_ENDING_H
#define EXI_CORE_LINK_ENDING_H

#include <stdbool.h>

#include "core/base/util.h"

struct exi_link;
struct exi_pair_msg;
struct exi_sock;

/* Both directions are on TCP for good, and this process forgets the connection:
 * the link ends also where a forked process has it, which would not answer the
 * peer before it uses the connection. The link of that generation's socket, and of
 * no other. No lock held. */
EXI_SHIM void exi_link_over(struct exi_sock *sk, uint32_t generation);

void exi_ending_stir(struct exi_sock *sk);

void exi_ending_ring(struct exi_sock *sk);

void exi_ending_hung_up_locked(struct exi_sock *sk);

void exi_ending_ask_locked(struct exi_sock *sk);

void exi_ending_be_patient(struct exi_link *l);

int exi_ending_on_finseen(struct exi_sock *sk, const struct exi_pair_msg *m);

void exi_ending_ask_again_locked(struct exi_sock *sk);

bool exi_ending_fabric_left(struct exi_sock *sk);

bool exi_ending_may_be_dying(struct exi_sock *sk, short ended);

#endif
