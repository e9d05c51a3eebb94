/* SPDX-License-Identifier: BSD-2-Clause */
/* EXS_MEET_DIR: a directory in which processes of one host meet that are in
 * different network namespaces, where neither abstract names nor sock_diag
 * work: section 1 of docs/design/wire-shm.md.
 *
 * Names there are MACs under the key of exs-key(1): a process that has the
 * directory but not the key can claim none in advance. Each end proves that it
 * has the key by a MAC that names both processes at the ends of the link. The
 * kernel returns which process connected and which listened (SO_PEERPIDFD), by
 * a number that it never uses again (pidfs, Linux 6.9). So messages that a
 * process in between relays prove nothing. */
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

/* Reads the key, if a directory is set. Called once, before any other call. */
void exi_meetdir_init(void);

/* 0: processes can meet there. -ENOENT: the directory does not exist, or is not
 * set. -ENOKEY: there is no usable key. -EOPNOTSUPP: the kernel cannot name the
 * process at the other end of a link. */
int exi_meetdir_state(void);

/* Makes a name that only holders of the key can know, from a kind (one letter)
 * and these bytes. Returns its length; 0 if processes cannot meet. */
socklen_t exi_meetdir_name(char kind, const void *of, size_t len,
			   struct sockaddr_un *ret);

/* The name of a connection's meeting. connects: t is the connecting end's
 * view. A UNIX connection is named by the cookies of its network namespace and
 * of the socket that accepted, which no other namespace or socket gets. */
socklen_t exi_meetdir_meeting(const struct exi_tuple *t, bool connects,
			      struct sockaddr_un *ret);

/* Binds a name, to which every process with the directory may connect. A name
 * whose process has died is taken over. -EADDRINUSE: another process has it.
 * -errno. */
int exi_meetdir_bind(int fd, const struct sockaddr_un *name, socklen_t len);
void exi_meetdir_unbind(const struct sockaddr_un *name);

/* Connects to a name; follows no symbolic link there. -ECONNREFUSED: no process
 * has it. -errno. */
int exi_meetdir_connect(int fd, const struct sockaddr_un *name);

/* Removes names of processes that died. */
void exi_meetdir_sweep(void);

/* Whether a process listens on the port in some network namespace, and holds
 * the key. */
bool exi_meetdir_marked(uint16_t port);
socklen_t exi_meetdir_marker(uint16_t port, struct sockaddr_un *ret);

int exi_meetdir_nonce(uint8_t ret[EXI_MEETDIR_NONCE]);

/* The claim that an end proves. */
struct exi_meetdir_claim {
	bool connects;		   /* this end called connect */
	const struct exi_tuple *t; /* as this end has it */
	const uint8_t *own, *peer; /* nonces */
	uint64_t said[2];	   /* other contents of the message */
};

/* Makes the MAC by which one end, the one that connected (a) or the one that
 * accepted, proves to the other end of the link that it holds the key, and is
 * one of these two processes. Both ends make the same MAC. -EOPNOTSUPP,
 * -errno. */
int exi_meetdir_proof(const struct exi_meetdir_claim *c, int link, bool a,
		      uint8_t ret[EXI_SHA256]);
bool exi_meetdir_same(const uint8_t a[EXI_SHA256], const uint8_t b[EXI_SHA256]);

#endif
