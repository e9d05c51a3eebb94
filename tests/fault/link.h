/* SPDX-License-Identifier: BSD-2-Clause */
/* The hand on a pair link: a peer that is our own library, and says and writes
 * by itself what a stranger could. */
#ifndef TESTS_FAULT_LINK_H
#define TESTS_FAULT_LINK_H

#include <stddef.h>

#include "core/meet/pair.h"

/* The link of a connection of this process, another descriptor of it; -1 when
 * the library gave it up. */
int t_link_of(int s);

/* A packet, with a descriptor unless that is -1. A victim may have hung up. */
void t_link_put(int link, const void *m, size_t len, int fd);

/* A message of the protocol. */
void t_link_say(int link, enum exi_pair_type type, uint64_t a, uint64_t b,
		uint64_t c);

#endif
