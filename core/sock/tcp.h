/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel's word on a TCP socket: its counts, its end, its options. */
#ifndef EXI_CORE_SOCK_TCP_H
#define EXI_CORE_SOCK_TCP_H

#include <stdbool.h>
#include <stdint.h>

#include "core/sock/table.h"

/* SO_RCVLOWAT may have changed. */
void exi_ready_lowat(struct exi_sock *sk);

/* Sends what Nagle, a cork or MSG_MORE holds back, leaving the options as they
 * were. What the peer's window holds back flows when the peer reads. */
int exi_switch_push(int fd);

/* Bytes ever read from TCP and written to it, as the kernel counts, to be
 * reported: of a connection that was reset after its FIN, one read too few.
 * sock_diag may be denied. 0, -errno. */
int exi_switch_counts(struct exi_sock *sk, uint64_t *ret_rx, uint64_t *ret_tx);

/* Which end of a connection that plain calls made this is. */
enum exi_role exi_switch_role(int fd);

/* Why this kind of socket is never upgraded, or EXS_X_REASON_NONE. */
int exi_switch_forbidden(int fd);

/* Whether the descriptor is a TCP socket. */
bool exi_tcp_is_tcp(int fd);

/* Whether the descriptor is a listening socket. */
bool exi_tcp_is_listening(int fd);

/* The peer's end of TCP as events of poll(2): POLLRDHUP, POLLHUP, POLLERR; 0:
 * none. */
short exi_tcp_ended(struct exi_sock *sk);

/* SO_RCVLOWAT: with fewer bytes unread a receive is not ready. */
uint32_t exi_tcp_lowat(const struct exi_sock *sk);

/* The bytes ever written to TCP. 0 or -errno. */
int exi_tcp_bytes_written(struct exi_sock *sk, uint64_t *ret);

/* The bytes ever read from TCP, of which so many were written by the peer. 0;
 * -EAGAIN: they change too fast; another error. */
int exi_tcp_bytes_read(struct exi_sock *sk, uint64_t written, uint64_t *ret);

/* Whether urgent data is pending: the kernel's counts are off then, so a
 * direction that has any is given back at once. */
bool exi_tcp_urgent_pending(int fd);

#endif
