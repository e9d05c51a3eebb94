/* SPDX-License-Identifier: BSD-2-Clause */
/* Duplicates: another descriptor for a socket. */
#ifndef EXI_CORE_LIFE_DUP_H
#define EXI_CORE_LIFE_DUP_H

#include "core/base/util.h"

struct exi_sock;

/* Adds `also`, a duplicate of fd that the application just made, to the names
 * of the socket. -EBUSY while an operation connects the socket; -EMFILE. */
EXI_SHIM int exi_name_add(struct exi_sock *sk, int fd, int also);

#endif
