/* SPDX-License-Identifier: BSD-2-Clause */
/* A talk over a connection that may end in any call: each end checks what it
 * receives, counts both directions, and continues until the connection is lost.
 * End A sends pattern 1, end B pattern 2. */
#ifndef TESTS_SUPPORT_TALK_H
#define TESTS_SUPPORT_TALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct t_talk {
	int s;
	bool plain; /* by the kernel's calls */
	uint64_t sent, received;
	bool lost;
	/* Fails the test if a call must not return n: 0, or an error
	 * (errno). */
	void (*may_end)(const struct t_talk *t, ssize_t n, const char *call);
	/* Called after each call, with the time when the call began; or
	 * null. */
	void (*called)(int64_t began, const char *call);
};

/* Whether the result n of the call means that the talk is over, now and from
 * now on. */
bool t_talk_ended(struct t_talk *t, ssize_t n, const char *call);

/* Sends the next bytes of the pattern, all of them. */
void t_talk_put(struct t_talk *t, uint64_t seed, size_t len);

/* Receives once, at most so many bytes; returns the result of t_recv(). */
ssize_t t_talk_get(struct t_talk *t, uint64_t seed, size_t len);

/* Receives so many bytes. */
void t_talk_get_all(struct t_talk *t, uint64_t seed, size_t len);

/* End A sends so many bytes, and receives as many. */
void t_talk_swap(struct t_talk *t, size_t len);

/* The same, with loans of the fabric's memory. */
void t_talk_loan(struct t_talk *t);

/* End B: sends back what it receives, until the end, and returns that result: 0
 * or -1. */
ssize_t t_talk_answer(struct t_talk *t);

#endif
