/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection's settings by the rules for ports. */
#include "core/meet/way.h"

#include <stddef.h>
#include <stdint.h>

#include "core/base/proof.h"
#include "core/fabric/registry.h"
#include "core/meet/remote.h"
#include "core/sock/table.h"

struct exi_config_way exi_way_of(const struct exi_sock *sk)
{
	struct exi_tuple t;
	uint16_t port = 0; /* no rule has it */

	if (exi_config()->n_ports && exi_tuple_of(sk->tcp->fd, &t) == 0)
		port = sk->role == EXI_ROLE_CONNECT  ? t.peer_port
		       : sk->role == EXI_ROLE_ACCEPT ? t.local_port
						     : 0;
	return exi_config_way(port);
}

bool exi_way_leads(const struct exi_config_way *w, bool between_hosts)
{
	return w->upgrade && (exi_registry_wire_ids_of(w) ||
			      (between_hosts && exi_remote_possible() &&
			       exi_registry_remote_signs(w)));
}
