/* SPDX-License-Identifier: BSD-2-Clause */
/* What the rows of behave share. A row runs in a process of its own and prints
 * what it observes, in words that are the same in each run: no descriptors,
 * ports or times. It knows nothing of libexs; a script runs it twice and
 * compares. */
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

/* The name is name and more together; arg is passed in which_row. */
void add_row(const char *name, const char *more, void (*f)(void), int arg);
extern int which_row;

/* The connection of a row: the end under test connected, the other accepted
 * (the other way round with --swap). */
extern int here, peer, stream_family, stream_type;

/* Connects them over 127.0.0.1, closes the listener, and moves the connection,
 * see warm(). */
void pair(void);
/* pair() without the move. */
void cold_pair(int domain, bool mapped);
/* Sends bytes both ways, in small pieces and for a while, so that a library
 * that moves connections moves it. */
void warm(int x, int y);
/* A listener on a free port of the loopback, and its address. */
int listener(int domain, struct sockaddr_storage *at, socklen_t *len);

/* --- saying ------------------------------------------------------------- */

void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Prints what=3 or what=EAGAIN; returns the value, and keeps errno. */
long is(const char *what, long ret);
/* Prints what=5"hello". */
long got(const char *what, long ret, const void *buf);
/* The names of poll's or epoll's bits. */
void events(const char *what, unsigned int ev);
/* Prints whether a call of this thread returned "at once" or "waited", since
 * the moment. */
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
/* Ends a row that cannot continue. */
void die(const char *why) __attribute__((noreturn));

/* --- doing -------------------------------------------------------------- */

int64_t now_ns(void);
/* Lets time pass, in which something must not happen. */
void pass_ms(int ms);
/* Waits until poll reports one of the events, at most a fifth of a second. */
void settle(int fd, short ev);
/* Polls one descriptor, and prints the result. */
void poll_one(const char *what, int fd, short ev, int ms);
/* Calls f in a thread, after so many milliseconds; and waits for its end. */
void later(int ms, void (*f)(void));
void later_end(void);
/* Sends all of it, or the row ends. */
void put_all(int fd, const void *buf, size_t n);
void get_all(int fd, void *buf, size_t n);
void put_text(int fd, const char *text);
/* Receives up to n bytes without waiting, and prints them. */
void get_now(const char *what, int fd, size_t n);
/* Sends until EAGAIN. Returns the number of bytes. */
size_t fill(int fd);
/* Receives until nothing has come for a while. */
size_t drain(int fd);
void nonblock(int fd, bool on);
/* SO_LINGER with no time, and close: a reset. */
void reset(int fd);
/* Sends a descriptor with one byte over a UNIX socket, and prints the result.
 * take_fd() receives one; -1: none came. */
void pass_fd(int over, int fd);
int take_fd(int over);
/* Waits for the child, and prints its exit status. */
void child(const char *what, pid_t pid);

#endif
