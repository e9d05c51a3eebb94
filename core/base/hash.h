/* SPDX-License-Identifier: BSD-2-Clause */
/* SHA-256 (FIPS 180-4), for libexs.so, which links no library of
 * cryptography. */
#ifndef EXI_CORE_BASE_HASH_H
#define EXI_CORE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define EXI_SHA256 32 /* bytes of a digest */

/* ret may be part of data. */
void exi_sha256(const void *data, size_t len, uint8_t ret[EXI_SHA256]);

/* HMAC (RFC 2104) of SHA-256 with a key of 32 bytes, over at most EXI_HMAC_MAX
 * bytes. */
#define EXI_HMAC_MAX 320
void exi_hmac_sha256(const uint8_t key[32], const void *data, size_t len,
		     uint8_t ret[EXI_SHA256]);

#endif
