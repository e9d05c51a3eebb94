/* SPDX-License-Identifier: BSD-2-Clause */
/* Meets a peer on another host. A fabric sends the messages between hosts; the
 * core gives it connections, and gets a pair link for each, as if the peer were
 * here: docs/design/wire-verbs.md. */
#ifndef EXI_CORE_MEET_REMOTE_H
#define EXI_CORE_MEET_REMOTE_H

#include <stdbool.h>
#include <stdint.h>

struct exi_listening;
struct exi_provider;
struct exi_tuple;

/* Whether a fabric between hosts is configured, and its devices are here. Looks
 * at the file system once per process; opens no module. */
bool exi_remote_possible(void);

/* The best usable fabric between hosts; opens its module. Null: *ret_why is the
 * reason. */
const struct exi_provider *exi_remote_provider(int *ret_why);

/* Whether such a fabric is, or was, in use. */
bool exi_remote_used(void);

/* Whether exi_remote_stranger() was called for the connection not long ago. */
bool exi_remote_claimed(const struct exi_tuple *t);

/* Called when a program listens at this address: other hosts may ask for
 * connections to it. A failure is only logged. */
void exi_remote_listen(const struct exi_listening *at);
void exi_remote_unlisten(const struct exi_listening *at);

#endif
