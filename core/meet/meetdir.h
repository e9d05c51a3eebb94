/* SPDX-License-Identifier: BSD-2-Clause */
/* EXS_MEET_DIR: a directory in which processes of one host meet that are in
 * different network namespaces, where neither abstract names nor sock_diag
 * reach: section 1 of docs/design/wire-shm.md.
 *
 * Names there are MACs under the key of exs-key(1): a process that has the
 * directory and not the key can claim none in advance. Each end proves that it
 * has the key by a MAC that names both processes at the ends of the link: the
 * kernel says which process connected, and which listened (SO_PEERPIDFD), by a
 * number that it never gives again (pidfs, Linux 6.9). So what a process in
 * between passes on proves nothing. */
#ifndef EXI_CORE_MEET_MEETDIR_H
#define EXI_CORE_MEET_MEETDIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "core/base/hash.h"

struct exi_tuple;

#define EXI_MEETDIR_NONCE 32

/* Reads the key, if there is a directory. Once, before any other call. */
void exi_meetdir_init(void);

/* 0: processes can meet there. -ENOENT: there is no such directory, or no
 * setting. -ENOKEY: there is no usable key. -EOPNOTSUPP: the kernel does not
 * say who is at the other end of a link. */
int exi_meetdir_state(void);

/* A name that only holders of the key can know: of a kind, one letter, and
 * these bytes. Its length; 0 where processes cannot meet. */
socklen_t exi_meetdir_name(char kind, const void *of, size_t len,
			   struct sockaddr_un *ret);

/* The name of a connection's meeting. connects: t is the connecting end's
 * view. */
socklen_t exi_meetdir_meeting(const struct exi_tuple *t, bool connects,
			      struct sockaddr_un *ret);

/* Binds a name, which whoever has the directory may connect to. A name whose
 * process has died is taken over. -EADDRINUSE: another process has it.
 * -errno. */
int exi_meetdir_bind(int fd, const struct sockaddr_un *name, socklen_t len);
void exi_meetdir_unbind(const struct sockaddr_un *name);

/* Connects to a name, without following a symbolic link there. -ECONNREFUSED:
 * no process has it. -errno. */
int exi_meetdir_connect(int fd, const struct sockaddr_un *name);

/* Removes names of processes that died. */
void exi_meetdir_sweep(void);

/* Whether a process listens on the port in some network namespace, and holds
 * the key. */
bool exi_meetdir_marked(uint16_t port);
socklen_t exi_meetdir_marker(uint16_t port, struct sockaddr_un *ret);

int exi_meetdir_nonce(uint8_t ret[EXI_MEETDIR_NONCE]);

/* What an end proves. */
struct exi_meetdir_claim {
	bool connects;		   /* this end called connect */
	const struct exi_tuple *t; /* as this end has it */
	const uint8_t *own, *peer; /* nonces */
	uint64_t said[2];	   /* what else the message says */
};

/* The MAC by which the end that connected (a) or accepted proves to the other
 * end of the link that it holds the key, and is one of these two processes.
 * Both ends make the same. -EOPNOTSUPP, -errno. */
int exi_meetdir_proof(const struct exi_meetdir_claim *c, int link, bool a,
		      uint8_t ret[EXI_SHA256]);
bool exi_meetdir_same(const uint8_t a[EXI_SHA256], const uint8_t b[EXI_SHA256]);

#endif
