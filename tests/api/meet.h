/* SPDX-License-Identifier: BSD-2-Clause */
/* The names of the meeting as docs/design/wire-shm.md spells them, and what a
 * stranger can do with them: for tests that play one. */
#ifndef TESTS_API_MEET_H
#define TESTS_API_MEET_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

struct meet_name {
	struct sockaddr_un un;
	socklen_t len;
};

/* Of a listener's port. */
struct meet_name meet_marker(int port);

/* Of a connection over 127.0.0.1. */
struct meet_name meet_meeting(int port_a, int port_b);

/* A socket of the kind that belongs there, bound; listening if it is a
 * meeting's. -1 with errno. */
int meet_claim_marker(int port);
int meet_claim_meeting(int port_a, int port_b);

/* A connection to the meeting name; waits until somebody listens there. */
int meet_connect(int port_a, int port_b);

/* Sends a packet, with a descriptor unless it is -1. */
void meet_send(int s, const void *buf, size_t len, int fd);

/* A packet and the descriptor that came with it, or -1; 0 at the end. Waits
 * ten seconds. */
ssize_t meet_recv(int s, void *buf, size_t len, int *ret_fd);

/* The other side ends the conversation: at once, or with a NO and nothing
 * else, and no descriptor ever. */
void meet_is_refused(int s);

/* Nothing was ever said there: it is silent or at its end. */
void meet_said_nothing(int s);

/* The descriptor gives its holder nothing. */
void meet_is_useless(int fd);

#endif
