/* SPDX-License-Identifier: BSD-2-Clause */
/* Information about a connection. */
#ifndef EXI_CORE_LIFE_INFO_H
#define EXI_CORE_LIFE_INFO_H

#include <sys/exs_ext.h>

#include "core/base/util.h"
#include "core/sock/table.h"

/* Fills *ret as exs_x_sockinfo(3) does. -EBADF: the descriptor has another
 * socket. The caller holds no lock of a half. */
EXI_SHIM int exi_info_of(struct exi_sock *sk, int fd, exs_x_sockinfo_t *ret);

#endif
