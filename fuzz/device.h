/* SPDX-License-Identifier: BSD-2-Clause */
/* The part of the library that a fabric between hosts uses, for targets that
 * are such a fabric: the table that a module gets, without a core behind it. */
#ifndef FUZZ_DEVICE_H
#define FUZZ_DEVICE_H

#include <stdbool.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/base/futex.h"
#include "core/base/log.h"
#include "core/fabric/module.h"
#include "core/rma/watch.h"
#include "fuzz/fuzz.h"

static inline int fuzz_fd(int fd)
{
	return fd;
}

static inline void fuzz_fd_close(int fd)
{
	if (fd >= 0)
		close(fd);
}

static inline void fuzz_socket_close(int fd, bool sole)
{
	fuzz_fd_close(fd);
}

static inline int fuzz_met(int link, int reason)
{
	return 0;
}

/* Fills the table with what every target needs; the module's code then finds
 * it. */
static inline void fuzz_device(struct exi_host *h)
{
	exi_config_load();
	exi_log_level = EXI_LOG_OFF;
	h->config = exi_config;
	h->log_level = &exi_log_level;
	h->log = exi_log_write;
	h->futex_wake = exi_futex_wake;
	h->fd_keep = h->fd_spare = fuzz_fd;
	h->fd_close = fuzz_fd_close;
	h->close_socket = h->close_listener = fuzz_socket_close;
	h->met = fuzz_met;
	exi_rma_host = h;
}

#endif
