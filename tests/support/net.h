/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections for tests: listeners on free ports, connected pairs in one
 * process and in two, whole transfers, and waiting for the fabric. A pair's
 * end 0 (A) called connect, its end 1 (B) accepted. */
#ifndef TESTS_SUPPORT_NET_H
#define TESTS_SUPPORT_NET_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/exs.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include "tests/support/proc.h"

enum t_family {
	T_IPV4,
	T_IPV6,
	T_MAPPED, /* IPv6 sockets, IPv4 addresses */
};

struct t_addr {
	struct sockaddr_storage ss;
	socklen_t len;
	int domain; /* of a socket that connects there */
};

/* Where a connection is to be: on a fabric with the reason NONE, or on tcp with
 * a reason. */
struct t_want {
	const char *fabric;
	int reason; /* or T_ANY */
};

/* Any reason but NONE. */
#define T_ANY (-1)

/* The synchronous calls, with fewer arguments. */
ssize_t t_send(int s, const void *buf, size_t len, int flags);
ssize_t t_recv(int s, void *buf, size_t len, int flags);
int t_shutdown(int s, int how);
void t_close(int s);
int t_accept(int listener);

/* The asynchronous calls; the test fails if the operation is not accepted. */
void t_post_send(int s, const void *buf, size_t len, int flags, exs_qhandle_t q,
		 long a);
void t_post_recv(int s, void *buf, size_t len, int flags, exs_qhandle_t q,
		 long a);

/* One event, within 20 seconds. */
exs_event_t t_event(exs_qhandle_t q);

/* Asserts that the next event is this one, without an error; returns its
 * length. */
size_t t_event_is(exs_qhandle_t q, int type, long a);

/* Asserts that there is no event now. */
void t_no_event(exs_qhandle_t q);

/* exs_init() and the version. */
void t_init(void);

/* 127.0.0.1, ::1 or ::ffff:127.0.0.1, with that port; or the addresses in
 * T_ADDRESS and T_ADDRESS6, for a fabric that needs addresses of its device. */
struct t_addr t_loopback(enum t_family family, int port);
int t_port(const struct t_addr *at);
int t_port_of(int s);

/* The type of sockets made from here on: SOCK_STREAM, SOCK_SEQPACKET. */
extern int t_type;
/* Whether they are UNIX sockets with abstract names (T_UNIX). */
bool t_is_unix(void);

/* Makes a listener by exs_ calls, and stores its address in *at. */
int t_listener(enum t_family family, struct t_addr *at);
int t_connect(const struct t_addr *to);

/* Both ends in this process. The listener stays until t_unlisten(), which the
 * runner calls at the end of a row. */
void t_pair(enum t_family family, int fd[2]);
void t_unlisten(void);

/* By plain calls, which the library does not see: a listener, and a pair over
 * IPv4; and a server for t_peer_start(), which sends its port and then echoes
 * what one client sends. */
int t_plain_listener(struct t_addr *at);
void t_plain_pair(int fd[2]);
void t_plain_echo(int ctl, void *unused);

/* Returns this process's end; the forked process calls f with the other and
 * then exits with 0. Neither has called exs_init() before. */
enum t_end {
	T_A, /* connects */
	T_B, /* accepts */
};
int t_pair_fork(struct t_peer *p, enum t_end here, void (*f)(int s, int ctl));

/* Send and receive everything, in any mode of the descriptor. */
void t_send_all(int s, const void *buf, size_t len, int flags);
void t_recv_all(int s, void *buf, size_t len);

/* The pattern of bytes.h, in chunks of at most so many bytes. */
void t_send_stream(int s, uint64_t seed, uint64_t pos, uint64_t len,
		   size_t chunk);
void t_recv_stream(int s, uint64_t seed, uint64_t pos, uint64_t len,
		   size_t chunk);

/* Asserts that the stream has ended: two receives return 0. */
void t_recv_end(int s);

exs_x_sockinfo_t t_info(int s);
bool t_is(int s, struct t_want want);

/* Sends bytes both ways until both ends are as wanted. */
void t_settle_pair(int a, int b, struct t_want want);
void t_settle_ends(int a, struct t_want want_a, int b, struct t_want want_b);

/* The same for one end; the other process calls it at the same time. */
void t_settle(int s, struct t_want want);

/* The same, until the end with `decides` knows where the connection is, which
 * may be TCP; the other end is called without `decides`. */
void t_settle_anywhere(int s, bool decides);

/* Whether the kernel has sock_diag(7), by which processes of one host recognize
 * each other. */
bool t_has_sock_diag(void);

/* Whether the kernel numbers sockets (SO_COOKIE), by which the library detects
 * that another socket has a descriptor's number. */
bool t_has_cookies(void);

/* How many abstract names of the library belong to a port. */
int t_names_of(int port);

/* For messages: fabrics and reason of a socket, in one of four buffers. */
const char *t_where(int s);

#define T_TCP(reason) ((struct t_want){ "tcp", reason })
#define T_SHM	      ((struct t_want){ "shm", EXS_X_REASON_NONE })
#define T_SYNC	      EXS_QHANDLE_INVALID, NULL

#endif
