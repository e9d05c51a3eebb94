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

/* Moves connections to TCP that the messages send to another process. by: the
 * socket on which they are sent; -1: it is unknown whether they are sent. */
void shim_before_passing(int by, const struct mmsghdr *m, unsigned int n);
/* n messages were sent. Keeps errno. */
void shim_passed(const struct mmsghdr *m, int n);

/* A message, perhaps with connections, was received on `by'. forked:
 * exi_handed_forked_times() when the receiving call began. Keeps errno. */
void shim_came(int by, const struct msghdr *m, int flags, uint32_t forked);

/* Before exec: shim_handed_begin() begins the list of connections that the new
 * program gets; shim_handed_add() adds a connection that the library still
 * has. */
void shim_handed_begin(void);
void shim_handed_add(struct exi_sock *sk, int fd);
/* shim_handed_entry() returns the list as an entry of the new program's
 * environment, for a program in which the shim will be; null: the list is
 * empty. shim_handed_is(): whether an entry is such a list. */
const char *shim_handed_entry(void);
bool shim_handed_is(const char *entry);

/* What a spawn hands on. */
#define SHIM_SPAWN_MAX 16
struct shim_spawn {
	uint32_t forked; /* exi_handed_forked_times() before it */
	unsigned int n;
	struct {
		int fd;
		uint64_t cookie;
	} given[SHIM_SPAWN_MAX];
	char list[32 + SHIM_SPAWN_MAX * 40]; /* as shim_handed_entry() */
};

/* Before a spawn that exi_holders_spawns() was called for: shim_spawn_begin()
 * begins the list; shim_spawn_add() adds a connection that the library still
 * has, which the program gets by the same number. shim_spawn_over() is called
 * when the spawn is over and its end was counted; pid: of the program; 0: there
 * is none. Keeps errno. */
void shim_spawn_begin(struct shim_spawn *s);
void shim_spawn_add(struct shim_spawn *s, struct exi_sock *sk, int fd);
void shim_spawn_over(const struct shim_spawn *s, int pid);

/* At the start of the shim: takes the connections of the list if the library
 * works, and removes the list from the environment, so that programs that this
 * one starts do not see it. */
void shim_handed_start(bool works);

#endif
