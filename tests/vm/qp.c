/* SPDX-License-Identifier: BSD-2-Clause */
/* In front of librdmacm's. */
#include "tests/vm/qp.h"

#include <dlfcn.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>

static _Atomic(struct ibv_qp *) last;
/* While it is held no queue pair goes. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
void (*vm_qp_made)(struct ibv_qp *qp);
void (*vm_qp_leaves)(struct ibv_qp *qp);

vm_post *vm_qp_post;

void vm_qp_stand_between(struct ibv_qp *qp, vm_post *f)
{
	if (qp->context->ops.post_send == f)
		return; /* it is the context's */
	vm_qp_post = qp->context->ops.post_send;
	qp->context->ops.post_send = f;
}

struct ibv_qp *vm_last_qp(void)
{
	return atomic_load(&last);
}

bool vm_qp_hold(struct ibv_qp *qp)
{
	pthread_mutex_lock(&lock);
	if (vm_last_qp() == qp)
		return true;
	pthread_mutex_unlock(&lock);
	return false;
}

void vm_qp_let_go(void)
{
	pthread_mutex_unlock(&lock);
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	void (*next)(struct rdma_cm_id *);

	*(void **)&next =
		dlsym(dlopen("librdmacm.so.1", RTLD_NOW), "rdma_destroy_qp");
	pthread_mutex_lock(&lock);
	if (vm_last_qp() == id->qp)
		atomic_store(&last, NULL);
	next(id);
	pthread_mutex_unlock(&lock);
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *attr)
{
	int (*next)(struct rdma_cm_id *, struct ibv_pd *,
		    struct ibv_qp_init_attr *);
	int ret;

	*(void **)&next =
		dlsym(dlopen("librdmacm.so.1", RTLD_NOW), "rdma_create_qp");
	ret = next(id, pd, attr);
	if (ret)
		return ret;
	atomic_store(&last, id->qp);
	if (vm_qp_made)
		vm_qp_made(id->qp);
	return 0;
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	int (*next)(struct rdma_cm_id *);

	*(void **)&next =
		dlsym(dlopen("librdmacm.so.1", RTLD_NOW), "rdma_disconnect");
	if (vm_qp_leaves)
		vm_qp_leaves(id->qp);
	return next(id);
}
