/* SPDX-License-Identifier: BSD-2-Clause */
/* What the rows of behave share. A row runs in a process of its own and says
 * what it sees, in words that are the same for each run: no descriptors, ports
 * or times. It knows nothing of libexs; whoever runs it twice compares. */
#ifndef TESTS_PRELOAD_BEHAVE_H
#define TESTS_PRELOAD_BEHAVE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

/* A row, from its first line to its body. */
#define ROW(name)                                                              \
	static void row_##name(void);                                          \
	__attribute__((constructor)) static void add_##name(void)              \
	{                                                                      \
		add_row(#name, "", row_##name, 0);                             \
	}                                                                      \
	static void row_##name(void)

/* The name is the two together; arg goes to which_row. */
void add_row(const char *name, const char *more, void (*f)(void), int arg);
extern int which_row;

/* The connection of a row: the end under test connected, the other accepted
 * (the other way round with --swap). */
extern int here, peer, stream_family;

/* 127.0.0.1 by a listener that is closed again, and moved, see warm(). */
void pair(void);
/* Without moving it. */
void cold_pair(int domain, bool mapped);
/* Bytes both ways, in small pieces and for a while, so that whoever wants to
 * move the connection elsewhere does. */
void warm(int x, int y);
/* A listener on a free port of the loopback, and its address. */
int listener(int domain, struct sockaddr_storage *at, socklen_t *len);

/* --- saying ------------------------------------------------------------- */

void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* what=3 or what=EAGAIN; returns the value, errno as it was. */
long is(const char *what, long ret);
/* what=5"hello". */
long got(const char *what, long ret, const void *buf);
/* The names of poll's or epoll's bits. */
void events(const char *what, unsigned int ev);
/* "at once" or "waited" of this thread, since then. */
struct moment {
	int64_t ns;
	long sleeps;
};
struct moment now(void);
void pace(struct moment since);
/* The same, and the value. */
#define TIMED(what, call)                                                      \
	({                                                                     \
		struct moment start_ = now();                                  \
		long ret_ = is(what, call);                                    \
		pace(start_);                                                  \
		ret_;                                                          \
	})
/* The row cannot go on. */
void die(const char *why) __attribute__((noreturn));

/* --- doing -------------------------------------------------------------- */

int64_t now_ns(void);
/* Lets time pass, for what must not happen. */
void pass_ms(int ms);
/* Until poll tells of one of the events, a fifth of a second at most. */
void settle(int fd, short ev);
/* poll of one descriptor, said. */
void poll_one(const char *what, int fd, short ev, int ms);
/* f in a thread, after so many milliseconds; and its end. */
void later(int ms, void (*f)(void));
void later_end(void);
/* All of it, or the row dies. */
void put_all(int fd, const void *buf, size_t n);
void get_all(int fd, void *buf, size_t n);
void put_text(int fd, const char *text);
/* Said: up to n bytes, without waiting. */
void get_now(const char *what, int fd, size_t n);
/* Until EAGAIN. Returns how much. */
size_t fill(int fd);
/* Until nothing came for a while. */
size_t drain(int fd);
void nonblock(int fd, bool on);
/* SO_LINGER with no time, and close: a reset. */
void reset(int fd);
/* Passes a descriptor on with one byte of a UNIX socket: said. And takes one;
 * -1: none came. */
void pass_fd(int over, int fd);
int take_fd(int over);
/* The child's exit, said. */
void child(const char *what, pid_t pid);

#endif
