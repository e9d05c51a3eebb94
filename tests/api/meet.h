/* SPDX-License-Identifier: BSD-2-Clause */
/* The names of the meeting as docs/design/wire-shm.md spells them, and what a
 * stranger can do with them: for tests that play one. */
#ifndef TESTS_API_MEET_H
#define TESTS_API_MEET_H

#include <stdbool.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

struct meet_name {
	struct sockaddr_un un;
	socklen_t len;
};

/* The marker of a listener's port. */
struct meet_name meet_marker(int port);

/* The meeting name of a connection over 127.0.0.1. */
struct meet_name meet_meeting(int port_a, int port_b);

/* The name of B's end of a link, by B's nonce of 32 bytes. */
struct meet_name meet_link(const uint8_t *nonce);

/* A socket of the kind that belongs there, bound; listening if it is a
 * meeting's. -1 with errno. */
int meet_claim_marker(int port);
int meet_claim_meeting(int port_a, int port_b);

/* A connection to the meeting name; waits until somebody listens there. */
int meet_connect(int port_a, int port_b);

/* Sends a packet, with a descriptor unless it is -1. False: the kernel refuses
 * descriptors there. */
bool meet_send(int s, const void *buf, size_t len, int fd);

/* A packet and the descriptor that came with it, or -1; 0 at the end. Waits
 * ten seconds. */
ssize_t meet_recv(int s, void *buf, size_t len, int *ret_fd);

/* The packet of docs/design/wire-shm.md, section 2. */
struct meet_msg {
	uint32_t magic;
	uint16_t version;
	uint16_t type;
	uint64_t a;
	uint64_t b;
	uint64_t c;
	uint8_t blob[64];
};

enum {
	MEET_HELLO = 1,
	MEET_PROVED = 2,
	MEET_OFFER = 3,
	MEET_ANSWER = 4,
	MEET_NO = 12,
	MEET_SHOWN = 15,
};

/* HELLO's c: show your board. */
#define MEET_SHOW 1

void meet_say(int s, int type, uint64_t a, uint64_t b, uint64_t c,
	      const void *blob);

/* The next message, which is of this type and comes without a descriptor;
 * false: the conversation is at its end, or this is a NO. */
bool meet_hear(int s, int type, struct meet_msg *ret);

/* The other side ends the conversation. Until then it says nothing that a
 * stranger may not know: a HELLO that names nothing of its process, NO, and
 * which symbol it shows. Tried from where nothing was heard of it. */
void meet_is_refused(int s);

/* Nothing was ever said there: it is silent or at its end. */
void meet_said_nothing(int s);
/* The same, or what meet_is_refused() lets pass. */
void meet_said_little(int s);

#endif
