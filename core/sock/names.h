/* SPDX-License-Identifier: BSD-2-Clause */
/* Second names. When the library sees the application duplicate the descriptor
 * of a connection, the connection gets a descriptor of the library's own. The
 * core knows the connection by that descriptor from then on, and keeps it until
 * the last of the application's is closed. The application's descriptors are
 * the connection's names: each is in the table, and can be used wherever the
 * core takes a descriptor. The connection stays where it is.
 *
 * Pairing: a name is written before the socket's number changes, under both
 * halves' locks, so a thread that holds one finds the socket known by the
 * number it began with, at any time. */
#ifndef EXI_CORE_SOCK_NAMES_H
#define EXI_CORE_SOCK_NAMES_H

#include <pthread.h>
#include <stdbool.h>

#include "core/base/util.h"

struct exi_sock;

/* Forgets a name that is about to be closed. Returns how many others there are;
 * -ENOENT: fd is not a name, as for all sockets that were not duplicated. */
int exi_name_remove(struct exi_sock *sk, int fd);

/* The lowest number of the application's from fd on by which the socket is
 * known, or -1. */
EXI_SHIM int exi_name_next(struct exi_sock *sk, int fd);

/* Whether the socket has another name besides fd. */
EXI_SHIM bool exi_name_others(struct exi_sock *sk, int fd);

/* Forgets all second numbers of a socket that is forgotten. */
void exi_names_forget(struct exi_sock *sk, int number);

/* The child after fork: frees the lock, which a thread of the parent may have
 * held. */
void exi_names_forked(void);

/* Guards duplicated numbers: `names` of the table. */
extern pthread_mutex_t exi_names_lock;

/* Whether fd is a second number of sk. */
bool exi_names_has(const struct exi_sock *sk, int fd);

/* Makes fd the name with this number of sk. exi_names_lock held. */
void exi_names_add_locked(struct exi_sock *sk, int fd, int number);

#endif
