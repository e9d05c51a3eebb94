/* SPDX-License-Identifier: BSD-2-Clause */
/* Moving the bytes of one message. */
#ifndef EXI_CORE_TRANSFER_MESSAGE_H
#define EXI_CORE_TRANSFER_MESSAGE_H

#include <stddef.h>
#include <sys/types.h>

#include "core/fabric/provider.h"

struct exi_op;
struct exi_sock;

int exi_message_run(struct exi_sock *sk, enum exi_dir dir, struct exi_op *op,
		    struct exi_xfer *x);

ssize_t exi_message_move_message(struct exi_sock *sk, enum exi_dir dir,
				 struct exi_op *op);

void exi_message_posted_message(struct exi_sock *sk, enum exi_dir dir,
				struct exi_op *op, size_t n);

#endif
