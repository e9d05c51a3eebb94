/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a link: its memory is unregistered, then freed. */
#include "core/rma/ends.h"

#include <linux/futex.h>
#include <stdlib.h>

#include "core/rma/link.h"
#include "core/rma/memory.h"
#include "core/rma/place.h"
#include "core/rma/rma.h"

void exi_rma_link_unpin(struct exi_rma_link *l)
{
	if (!l->net || !l->net->lingers) {
		exi_rma_mem_unpin(&l->ring);
		exi_rma_mem_unpin(&l->mirror);
		exi_rma_mem_unpin(&l->out);
	}
	exi_rma_place_unpin(l);
}

void exi_rma_link_free(struct exi_rma_link *l)
{
	exi_rma_place_free(l);
	exi_rma_link_close(l);
	free(l);
}
