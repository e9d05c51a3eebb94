/* SPDX-License-Identifier: BSD-2-Clause */
/* Streams of which each byte is a function of its position. */
#include "tests/support/bytes.h"

#include <string.h>
#include "tests/support/check.h"

uint64_t t_rand(struct t_rng *r)
{
	uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

uint64_t t_below(struct t_rng *r, uint64_t n)
{
	return t_rand(r) % n;
}

size_t t_chunk(struct t_rng *r, size_t max)
{
	unsigned int bits = 64 - __builtin_clzll((unsigned long long)max);
	size_t n = t_rand(r) >> (64 - 1 - t_below(r, bits));

	return n % max + 1;
}

static uint64_t word_at(uint64_t seed, uint64_t i)
{
	uint64_t z = (i + seed) * UINT64_C(0x9e3779b97f4a7c15);

	return (z ^ (z >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
}

static uint8_t byte_at(uint64_t seed, uint64_t pos)
{
	return word_at(seed, pos / 8) >> (pos % 8 * 8);
}

void t_fill(void *buf, size_t len, uint64_t seed, uint64_t pos)
{
	uint8_t *p = buf, *end = p + len;

	for (; p < end && pos % 8; p++, pos++)
		*p = byte_at(seed, pos);
	for (; end - p >= 8; p += 8, pos += 8) {
		uint64_t word = word_at(seed, pos / 8);

		memcpy(p, &word, 8);
	}
	for (; p < end; p++, pos++)
		*p = byte_at(seed, pos);
}

/* Where the bytes seen really come from, for the message: looks a ring's
 * length and more to both sides. Never 0 when it is found: 1 stands for "in
 * place", too, which only a caller that skipped a byte can meet. */
static long long shift_of(const uint8_t *p, size_t len, uint64_t seed,
			  uint64_t pos)
{
	uint8_t want[16];
	long long by;

	if (len < sizeof(want))
		return 0;
	t_fill(want, sizeof(want), seed, pos);
	if (!memcmp(p, want, sizeof(want)))
		return 1;
	for (by = 1; by < (4 << 20); by++) {
		t_fill(want, sizeof(want), seed, pos + by);
		if (!memcmp(p, want, sizeof(want)))
			return by;
		if ((uint64_t)by > pos)
			continue;
		t_fill(want, sizeof(want), seed, pos - by);
		if (!memcmp(p, want, sizeof(want)))
			return -by;
	}
	return 0;
}

__attribute__((noreturn)) static void wrong_at(const uint8_t *p, size_t len,
					       uint64_t seed, uint64_t pos)
{
	long long by = shift_of(p, len, seed, pos);

	if (by)
		t_fail(__FILE__, __LINE__,
		       "byte %llu is the one of %llu (%lld %s)",
		       (unsigned long long)pos, (unsigned long long)(pos + by),
		       by < 0 ? -by : by, by < 0 ? "repeated" : "lost");
	by = len > 1 ? shift_of(p + 1, len - 1, seed, pos) : 0;
	t_fail(__FILE__, __LINE__,
	       "byte %llu is %02x, wanted %02x; after it come %zu more, %s",
	       (unsigned long long)pos, *p, byte_at(seed, pos), len - 1,
	       by == 0 ? "from nowhere" : "one was put in");
}

void t_check_bytes(const void *buf, size_t len, uint64_t seed, uint64_t pos)
{
	const uint8_t *p = buf, *end = p + len;

	while (p < end) {
		uint64_t word = word_at(seed, pos / 8), got;

		if (pos % 8 == 0 && end - p >= 8) {
			memcpy(&got, p, 8);
			if (got == word) {
				p += 8;
				pos += 8;
				continue;
			}
		}
		if (*p != byte_at(seed, pos))
			wrong_at(p, end - p, seed, pos);
		p++;
		pos++;
	}
}
