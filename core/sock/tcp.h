/* SPDX-License-Identifier: BSD-2-Clause */
/* What the kernel reports about the stream beneath a connection, of any kind;
 * base.h has the questions that each kind answers for itself. */
#ifndef EXI_CORE_SOCK_TCP_H
#define EXI_CORE_SOCK_TCP_H

#include <stdbool.h>
#include <stdint.h>

#include "core/sock/table.h"

/* SO_RCVLOWAT may have changed. */
void exi_ready_lowat(struct exi_sock *sk);

/* Whether the descriptor is a listening socket. */
bool exi_tcp_is_listening(int fd);

/* The peer's end of TCP as events of poll(2): POLLRDHUP, POLLHUP, POLLERR; 0:
 * none. */
short exi_tcp_ended(struct exi_sock *sk);

/* SO_RCVLOWAT: with fewer bytes unread a receive is not ready. */
uint32_t exi_tcp_lowat(const struct exi_sock *sk);

/* Whether urgent data is pending: the kernel's counts are off then, so a
 * direction that has any is given back at once. */
bool exi_tcp_urgent_pending(int fd);

#endif
