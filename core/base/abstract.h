/* SPDX-License-Identifier: BSD-2-Clause */
/* Abstract names of UNIX sockets, which are in no file system. */
#ifndef EXI_CORE_BASE_ABSTRACT_H
#define EXI_CORE_BASE_ABSTRACT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Writes two hexadecimal digits per byte, and a final NUL. */
static inline void exi_hex(char *ret, const uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		ret[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
		ret[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
	}
	ret[2 * n] = 0;
}

/* Fills *ret with the address of the abstract name, which must fit. Returns the
 * address's length: the leading NUL counts, and there is no final one. */
__attribute__((format(printf, 2, 3))) static inline socklen_t
exi_abstract(struct sockaddr_un *ret, const char *fmt, ...)
{
	va_list ap;
	int n;

	memset(ret, 0, sizeof(*ret));
	ret->sun_family = AF_UNIX;
	va_start(ap, fmt);
	n = vsnprintf(ret->sun_path + 1, sizeof(ret->sun_path) - 1, fmt, ap);
	va_end(ap);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)n);
}

#endif
