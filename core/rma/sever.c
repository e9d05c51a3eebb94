/* SPDX-License-Identifier: BSD-2-Clause */
/* Cutting a connection off its device, and freeing its link. */
#include "core/rma/sever.h"

#include <pthread.h>
#include <stdlib.h>

#include "core/base/list.h"
#include "core/fabric/module.h"
#include "core/rma/ends.h"
#include "core/rma/rma.h"
#include "core/rma/watch.h"
#include "core/trust/auth.h"

void exi_rma_meet_sever(struct exi_rma_link *l)
{
	pthread_mutex_lock(&exi_rma_service_lock);
	exi_rma_unwatch(l->pair);
	exi_list_del(&l->hoping);
	if (l->meeting)
		exi_list_del(&l->meeting->waiting);
	exi_rma_fabric.sever(l);
	pthread_mutex_unlock(&exi_rma_service_lock);
}

void exi_rma_meet_end(struct exi_rma_link *l)
{
	exi_rma_meet_sever(l);
	exi_rma_host->fd_close(l->pair);
	if (l->meeting)
		exi_auth_fini(&l->meeting->auth);
	free(l->meeting);
	pthread_mutex_lock(&exi_rma_service_lock);
	exi_rma_link_free(l);
	pthread_mutex_unlock(&exi_rma_service_lock);
}
