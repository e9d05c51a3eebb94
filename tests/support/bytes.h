/* SPDX-License-Identifier: BSD-2-Clause */
/* Bytes that show where they belong: the content of a stream is a function of a
 * seed and the position, so that a lost, repeated or misplaced byte is found at
 * once. And repeatable random numbers. */
#ifndef TESTS_SUPPORT_BYTES_H
#define TESTS_SUPPORT_BYTES_H

#include <stddef.h>
#include <stdint.h>

struct t_rng {
	uint64_t state;
};

uint64_t t_rand(struct t_rng *r);

/* Below n; n is at least 1. */
uint64_t t_below(struct t_rng *r, uint64_t n);

/* From 1 to max, small ones as likely as large ones. */
size_t t_chunk(struct t_rng *r, size_t max);

/* Fills buf with the content of a stream from byte pos on. */
void t_fill(void *buf, size_t len, uint64_t seed, uint64_t pos);

/* Fails the test if buf is not what t_fill() would write. */
void t_check_bytes(const void *buf, size_t len, uint64_t seed, uint64_t pos);

#endif
