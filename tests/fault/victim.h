/* SPDX-License-Identifier: BSD-2-Clause */
/* A victim of scribble.c: a program with a thread for each of its faces, which
 * serves one connection after the other.
 *
 *	VICTIM PORT
 *
 * A face that connects does so to PORT of the loopback interface; with 0 there
 * is none. Each other face listens; the program writes a struct victim_port for
 * each to standard output, in their order, and ends with its standard input.
 * With T_UNIX, its sockets are UNIX streams (tests/support/net.h). */
#ifndef TESTS_FAULT_VICTIM_H
#define TESTS_FAULT_VICTIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct victim_port {
	uint32_t port; /* or, of a UNIX socket, the number that its name is */
	uint32_t type;
};

/* One way to use a connection. */
struct victim_face {
	/* Sends back what the connection brings, until that ends. */
	void (*serve)(int s);
	int type; /* SOCK_STREAM, SOCK_SEQPACKET */
	bool connects;
};

/* The calls by which the program makes its connections, as the C library's. */
struct victim_calls {
	int (*socket)(int domain, int type, int protocol);
	int (*bind)(int s, const struct sockaddr *at, socklen_t len);
	int (*listen)(int s, int backlog);
	int (*getsockname)(int s, struct sockaddr *at, socklen_t *len);
	int (*accept)(int s);
	int (*connect)(int s, const struct sockaddr *to, socklen_t len);
	int (*close)(int s);
};

/* main(). */
int victim(int argc, char **argv, const struct victim_calls *calls,
	   const struct victim_face *faces, size_t n);

#endif
