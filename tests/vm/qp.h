/* SPDX-License-Identifier: BSD-2-Clause */
/* The queue pair that the library of this process made last: for tests that do
 * with it what the library would not. */
#ifndef TESTS_VM_QP_H
#define TESTS_VM_QP_H

#include <infiniband/verbs.h>
#include <stdbool.h>

/* Null when it is gone. */
struct ibv_qp *vm_last_qp(void);

/* Keeps it from going until vm_qp_let_go(). False: it is gone. */
bool vm_qp_hold(struct ibv_qp *qp);
void vm_qp_let_go(void);

/* Null, or called with each that is made. */
extern void (*vm_qp_made)(struct ibv_qp *qp);
/* What it posts goes to f from here on, which calls vm_qp_post: the
 * device's. */
typedef int vm_post(struct ibv_qp *, struct ibv_send_wr *,
		    struct ibv_send_wr **);
extern vm_post *vm_qp_post;
void vm_qp_stand_between(struct ibv_qp *qp, vm_post *f);
/* The same as vm_qp_made, before it is disconnected. */
extern void (*vm_qp_leaves)(struct ibv_qp *qp);

#endif
