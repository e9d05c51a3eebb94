/* SPDX-License-Identifier: BSD-2-Clause */
/* The names of poll's and epoll's bits. */
#ifndef TESTS_PRELOAD_BITS_H
#define TESTS_PRELOAD_BITS_H

#include <poll.h>
#include <sys/epoll.h>

static const struct {
	unsigned int bit;
	const char *name;
} bit_names[] = {
	{ POLLIN, "IN" },	  { POLLPRI, "PRI" },
	{ POLLOUT, "OUT" },	  { POLLERR, "ERR" },
	{ POLLHUP, "HUP" },	  { POLLNVAL, "NVAL" },
	{ POLLRDNORM, "RDNORM" }, { POLLRDBAND, "RDBAND" },
	{ POLLWRNORM, "WRNORM" }, { POLLWRBAND, "WRBAND" },
	{ POLLRDHUP, "RDHUP" },	  { EPOLLET, "ET" },
	{ EPOLLONESHOT, "ONE" },
};
#define BIT_NAMES (sizeof(bit_names) / sizeof(bit_names[0]))

#endif
