/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection's settings by the rules for ports. */
#ifndef EXI_CORE_MEET_WAY_H
#define EXI_CORE_MEET_WAY_H

#include <stdbool.h>

#include "core/base/config.h"

struct exi_sock;

/* The settings of a connection: those of the port that it was made to, the same
 * at both ends. Makes no system call if there are no rules for ports. */
struct exi_config_way exi_way_of(const struct exi_sock *sk);

/* Whether they leave any fabric: within a host, or between hosts. */
bool exi_way_leads(const struct exi_config_way *w, bool between_hosts);

#endif
