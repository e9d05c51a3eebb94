/* SPDX-License-Identifier: BSD-2-Clause */
/* What the rules for ports say of a connection. */
#ifndef EXI_CORE_MEET_WAY_H
#define EXI_CORE_MEET_WAY_H

#include <stdbool.h>

#include "core/base/config.h"

struct exi_sock;

/* The way of a connection: that of the port which it was made to, at both of
 * its ends. Without rules for ports no system call is made. */
struct exi_config_way exi_way_of(const struct exi_sock *sk);

/* Whether any fabric is left for it: within a host, or between hosts. */
bool exi_way_leads(const struct exi_config_way *w, bool between_hosts);

#endif
