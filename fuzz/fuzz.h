/* SPDX-License-Identifier: BSD-2-Clause */
/* What the fuzz targets share: the bytes of an input, taken in order. */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A target: parses one input, and aborts if a property is violated. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_TRUE(cond)                                                        \
	do {                                                                   \
		if (!(cond))                                                   \
			abort();                                               \
	} while (0)

struct fuzz_in {
	const uint8_t *at;
	size_t left;
};

/* The next byte; 0 when all are taken. */
static inline uint8_t fuzz_byte(struct fuzz_in *in)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->at++;
}

static inline uint32_t fuzz_below(struct fuzz_in *in, uint32_t n)
{
	uint32_t v = fuzz_byte(in);

	if (n > 256)
		v |= (uint32_t)fuzz_byte(in) << 8;
	if (n > 65536)
		v |= (uint32_t)fuzz_byte(in) << 16;
	return v % n;
}

/* A number of up to 64 bits, mostly from few bytes of the input: small numbers,
 * powers of two and their neighbours, also negative, or any. */
static inline uint64_t fuzz_number(struct fuzz_in *in)
{
	uint8_t how = fuzz_byte(in);
	uint64_t v = 0;
	int i;

	switch (how & 7) {
	case 0:
	case 1:
		return how >> 3;
	case 2:
		return ((uint64_t)1 << (how >> 3 & 31)) + fuzz_byte(in) - 128;
	case 3:
		return ((uint64_t)1 << 32 << (how >> 3 & 31)) + fuzz_byte(in) -
		       128;
	case 4:
		return 0 - (uint64_t)(how >> 3);
	case 5:
		return (uint64_t)(how >> 3) << 8 | fuzz_byte(in);
	default:
		for (i = 0; i < (how & 8 ? 8 : 4); i++)
			v = v << 8 | fuzz_byte(in);
		return v;
	}
}

/* Copies up to len bytes, and fills the rest with zeroes. */
static inline void fuzz_copy(struct fuzz_in *in, void *to, size_t len)
{
	size_t n = len < in->left ? len : in->left;

	memset(to, 0, len);
	if (n)
		memcpy(to, in->at, n);
	in->at += n;
	in->left -= n;
}

#endif
