/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of sockets, which is never given back. */
#ifndef EXI_CORE_SOCK_MEMORY_H
#define EXI_CORE_SOCK_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/util.h"
#include "core/sock/table.h"

struct exi_conn;
struct exi_provider;

/* True if no descriptor can be closed behind the library's back: then no socket
 * needs to be looked at again. Set before the first socket. */
EXI_SHIM extern bool exi_closes_seen;

/* A provider's connection for the socket, and its end. */
struct exi_conn *exi_sock_conn_new(struct exi_sock *sk,
				   const struct exi_provider *p, int fd);
void exi_sock_conn_free(struct exi_conn *c);

/* The socket has no fabric any more, so `remote` ends with it: a reader without
 * a lock looks at that alone. */
void exi_memory_no_fabric(struct exi_sock *sk);

/* Frees a socket that failed before it was in the table. link_lock held. */
void exi_memory_abandon(struct exi_sock *sk);

/* Whether a thread looks at the socket's words without a lock. */
bool exi_memory_is_looked_at(const struct exi_sock *sk);

/* Frees the memory of a socket that no thread looks at. */
void exi_memory_free(struct exi_sock *sk);

/* Keeps a socket that a thread still looks at, until none does. A close cannot
 * wait for that: the thread may be the caller itself, interrupted by the signal
 * whose handler closes. */
void exi_memory_retire(struct exi_sock *sk);

/* Called in a child after fork, for each socket that it has and its parent made
 * meanwhile (keep), then once: from then on the child has the memory that both
 * share of the connections that it has, as long as it has them, and no other of
 * its parent's. */
void exi_memory_keep(const struct exi_shared *sh);
/* Called before exi_memory_forked() for a socket that the child needs not agree
 * on with its parent, such as a listener: gives the child a copy of its own. */
void exi_memory_own(struct exi_shared *sh);
void exi_memory_forked(void);
/* Called when this process has become another user's: from then on it shares
 * with other processes no memory but that of connections that it still has. */
EXI_SHIM void exi_memory_apart(void);

/* Takes memory for a socket and sets it up; it is not in the table yet. 0, and
 * link_lock is held; or -errno. */
int exi_memory_new(int fd, enum exi_role role, bool adopted,
		   struct exi_sock **ret);

#endif
