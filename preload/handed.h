/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections that leave for another process, with a message or by exec, and
 * those that come to this one: core/meet/handed.h. */
#ifndef EXI_PRELOAD_HANDED_H
#define EXI_PRELOAD_HANDED_H

#include <stdbool.h>
#include <stdint.h>

struct exi_sock;
struct mmsghdr;
struct msghdr;

/* Puts the connections on TCP that are sent to another process with the
 * messages, by the socket `by'; -1: it is not known whether they are. */
void shim_before_passing(int by, const struct mmsghdr *m, unsigned int n);
/* So many of them were sent. Keeps errno. */
void shim_passed(const struct mmsghdr *m, int n);

/* A message came on `by', perhaps with connections, by a call that began when
 * there were so many forks (exi_handed_forked_times()). Keeps errno. */
void shim_came(int by, const struct msghdr *m, int flags, uint32_t forked);

/* Before exec: begins the list of connections that the program gets; adds one,
 * which is still the library's. */
void shim_handed_begin(void);
void shim_handed_add(struct exi_sock *sk, int fd);
/* The list, for the environment of the program if the shim will be in it; null:
 * it is empty. And whether an entry is such a list. */
const char *shim_handed_entry(void);
bool shim_handed_is(const char *entry);

/* The start of the shim: takes what is in the list if the library works, and
 * takes the list out of the environment: programs that this one starts are not
 * meant. */
void shim_handed_start(bool works);

#endif
