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

/* Set before the first socket where no descriptor can be closed behind the
 * library's back: then no socket needs to be looked at anew. */
EXI_SHIM extern bool exi_closes_seen;

/* A provider's connection for the socket, and its end. */
struct exi_conn *exi_sock_conn_new(struct exi_sock *sk,
				   const struct exi_provider *p, int fd);
void exi_sock_conn_free(struct exi_conn *c);

void exi_memory_no_fabric(struct exi_sock *sk);

void exi_memory_abandon(struct exi_sock *sk);

bool exi_memory_is_looked_at(const struct exi_sock *sk);

void exi_memory_bury(struct exi_sock *sk);

void exi_memory_retire(struct exi_sock *sk);

int exi_memory_begin(int fd, enum exi_role role, bool adopted,
		     struct exi_sock **ret);

#endif
