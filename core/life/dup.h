/* SPDX-License-Identifier: BSD-2-Clause */
/* Duplicates: a socket gets another descriptor. */
#ifndef EXI_CORE_LIFE_DUP_H
#define EXI_CORE_LIFE_DUP_H

#include "core/base/util.h"

struct exi_sock;

/* Makes `also`, a duplicate of fd that the application just got, a name of the
 * socket. -EBUSY while it is being connected by an operation; -EMFILE. */
EXI_SHIM int exi_name_add(struct exi_sock *sk, int fd, int also);

#endif
