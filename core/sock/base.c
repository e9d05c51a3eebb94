/* SPDX-License-Identifier: BSD-2-Clause */
/* The kinds of streams on which connections begin. */
#include "core/sock/base.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>

static const struct exi_base *const bases[] = { &exi_base_tcp, &exi_base_unix,
						&exi_base_packets };

const struct exi_base *exi_base_for(int domain, int type, int protocol)
{
	for (size_t i = 0; i < sizeof(bases) / sizeof(bases[0]); i++)
		if (bases[i]->is(domain, type, protocol))
			return bases[i];
	return NULL;
}

static bool ask(int fd, int option, int *ret)
{
	socklen_t len = sizeof(*ret);

	return getsockopt(fd, SOL_SOCKET, option, ret, &len) == 0;
}

const struct exi_base *exi_base_of(int fd)
{
	int domain, type, protocol;

	return ask(fd, SO_DOMAIN, &domain) && ask(fd, SO_TYPE, &type) &&
			       ask(fd, SO_PROTOCOL, &protocol)
		       ? exi_base_for(domain, type, protocol)
		       : NULL;
}

int exi_base_forbidden(int fd)
{
	socklen_t len = 0;
	int fl, v;

	if (ask(fd, SO_PEEK_OFF, &v) && v >= 0)
		return EXS_X_REASON_PEEK_OFF;
	/* A length query of the classic filter: its instructions. */
	if (getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, NULL, &len) == 0 &&
	    len > 0)
		return EXS_X_REASON_BPF;
	fl = fcntl(fd, F_GETFL);
	if (fl >= 0 && (fl & O_ASYNC))
		return EXS_X_REASON_O_ASYNC;
	return EXS_X_REASON_NONE;
}
