/* SPDX-License-Identifier: BSD-2-Clause */
/* Searches for waits that the library does not see (core/call/unseen.h). */
#ifndef EXI_CORE_MEET_UNSEEN_SEARCH_H
#define EXI_CORE_MEET_UNSEEN_SEARCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct exi_sock;

/* Whether an epoll set that the shim does not know has the connection in it.
 * Looks for new sets at most once in a tenth of a second. No half is locked. */
bool exi_unseen_waits(int fd);

#define EXI_UNSEEN_SEARCH_SUSPECTS 64 /* connections that one search is for */

/* A connection for whose waits the search looks. */
struct exi_unseen_suspect {
	struct exi_sock *sk;
	uint32_t generation;
	ino_t inode;
	/* The reason found, or EXS_X_REASON_NONE. With EXI_UNTIL_SEEN: only
	 * sets that the shim knows, and for which no thread was seen to
	 * wait. */
	int reason;
};

struct exi_unseen_suspects {
	struct exi_unseen_suspect s[EXI_UNSEEN_SEARCH_SUSPECTS];
	int n;
};

/* Returns whether the shim knows what is in an epoll set; with awaited, also
 * whether a thread was seen to wait for it. */
extern bool (*exi_unseen_search_shim_knows)(int epfd, bool awaited);

/* Adds the socket of this generation to the search. Returns false if there is
 * no space, or fd is not open. */
bool exi_unseen_search_add(struct exi_unseen_suspects *s, struct exi_sock *sk,
			   uint32_t generation, int fd);

/* Searches one descriptor for waits on the suspects: an io_uring or an epoll
 * set. arg is a struct exi_unseen_suspects. For
 * exi_surroundings_each(). */
void exi_unseen_search_descriptor(int fd, bool ring, void *arg);

/* Searches the other threads of this process for system calls that wait for the
 * suspects. */
void exi_unseen_search_threads(struct exi_unseen_suspects *s);

#endif
