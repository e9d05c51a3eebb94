/* SPDX-License-Identifier: BSD-2-Clause */
/* Meeting a peer on another host. What passes between hosts is a fabric's; the
 * core gives it connections and gets a pair link for each, as if the peer were
 * here: docs/design/wire-verbs.md. */
#ifndef EXI_CORE_MEET_REMOTE_H
#define EXI_CORE_MEET_REMOTE_H

#include <stdbool.h>
#include <stdint.h>

struct exi_listening;
struct exi_provider;

/* Whether a fabric between hosts is configured, and its devices are here. One
 * look at the file system per process; no module is opened. */
bool exi_remote_possible(void);

/* The best one that is usable; opens its module. Null, and *ret_why the reason
 * why not. */
const struct exi_provider *exi_remote_provider(int *ret_why);

/* Whether there is, or was, one that is in use. */
bool exi_remote_used(void);

/* A program listens there: connections to it may be asked for from other hosts.
 * Best effort: a failure goes to the log. */
void exi_remote_listen(const struct exi_listening *at);
void exi_remote_unlisten(const struct exi_listening *at);

#endif
