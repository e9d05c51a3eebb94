/* SPDX-License-Identifier: BSD-2-Clause */
/* The tcp provider: the kernel's TCP, where every connection begins and to
 * which it can always return. Plain on the wire. */
#include "providers/tcp/tcp_int.h"

static int probe(char *why, size_t len)
{
	return 0;
}

const struct exi_provider exi_provider_tcp = {
	.abi = EXI_PROVIDER_ABI,
	.name = "tcp",
	.probe = probe,
	.open = tcpp_domain_open,
	.close = tcpp_domain_close,
	.domain_ops = &tcpp_domain_ops,
	.conn_ops = &tcpp_conn_ops,
};
