/* SPDX-License-Identifier: BSD-2-Clause */
/* The loop provider: its tables, and how two ends of one process find their
 * pair. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/config.h"
#include "core/base/ids.h"
#include "core/base/list.h"
#include "core/fabric/provider.h"
#include "providers/loop/loop_int.h"

struct blob {
	uint64_t process;
	uint64_t key;
};

/* Pairs that wait for their second end. */
static pthread_mutex_t offers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct exi_list offers = EXI_LIST_INIT(offers);

static int probe(char *why, size_t len)
{
	return 0;
}

static void forked(struct exi_domain *d)
{
	pthread_mutex_init(&offers_lock, NULL);
	exi_list_init(&offers);
}

static const struct exi_domain_ops domain_ops = {
	.forked = forked,
};

static void pair_free(struct loopp_pair *p)
{
	int i;

	for (i = 0; i < 2; i++) {
		pthread_mutex_destroy(&p->pipe[i].lock);
		free(p->pipe[i].buf);
	}
	free(p);
}

static struct loopp_pair *pair_new(void)
{
	struct loopp_pair *p = calloc(1, sizeof(*p));
	int i;

	if (!p)
		return NULL;
	exi_list_init(&p->offered);
	p->key = exi_random();
	atomic_store(&p->users, 1);
	for (i = 0; i < 2; i++) {
		p->pipe[i].size = exi_config()->ring_kb * 1024u;
		p->pipe[i].buf = malloc(p->pipe[i].size);
		pthread_mutex_init(&p->pipe[i].lock, NULL);
	}
	if (!p->pipe[0].buf || !p->pipe[1].buf) {
		pair_free(p);
		return NULL;
	}
	return p;
}

void loopp_pair_unref(struct loopp_pair *p)
{
	bool last;

	if (!p)
		return;
	pthread_mutex_lock(&offers_lock);
	exi_list_del(&p->offered);
	last = atomic_fetch_sub(&p->users, 1) == 1;
	pthread_mutex_unlock(&offers_lock);
	if (last)
		pair_free(p);
}

static void attach(struct exi_conn *c, struct loopp_pair *p, int out)
{
	struct loopp_priv *priv = loopp_priv(c);

	priv->pair = p;
	priv->out = &p->pipe[out];
	priv->in = &p->pipe[!out];
}

static int offer(struct exi_conn *c, struct exi_blob *ret)
{
	struct loopp_pair *p = pair_new();
	struct blob b;

	if (!p)
		return -ENOMEM;
	attach(c, p, 0);
	pthread_mutex_lock(&offers_lock);
	exi_list_add_tail(&offers, &p->offered);
	pthread_mutex_unlock(&offers_lock);
	b = (struct blob){ .process = exi_process_token(), .key = p->key };
	memset(ret, 0, sizeof(*ret));
	memcpy(ret->bytes, &b, sizeof(b));
	ret->fd = -1;
	return 0;
}

static int answer(struct exi_conn *c, const struct exi_blob *in,
		  struct exi_blob *ret)
{
	struct loopp_pair *found = NULL;
	struct exi_list *pos;
	struct blob b;

	memcpy(&b, in->bytes, sizeof(b));
	if (b.process != exi_process_token())
		return -EPROTO;
	pthread_mutex_lock(&offers_lock);
	exi_list_for_each (pos, &offers) {
		struct loopp_pair *p =
			exi_container(pos, struct loopp_pair, offered);

		if (p->key == b.key) {
			found = p;
			exi_list_del(&p->offered);
			atomic_fetch_add(&p->users, 1);
			break;
		}
	}
	pthread_mutex_unlock(&offers_lock);
	if (!found)
		return -EPROTO;
	attach(c, found, 1);
	memset(ret, 0, sizeof(*ret));
	ret->fd = -1;
	return 0;
}

static int accepted(struct exi_conn *c, const struct exi_blob *in)
{
	return 0;
}

static const struct exi_meet_ops meet_ops = {
	.offer = offer,
	.answer = answer,
	.accepted = accepted,
};

const struct exi_provider exi_provider_loop = {
	.abi = EXI_PROVIDER_ABI,
	.wire_id = 1 << 1,
	.name = "loop",
	.caps = EXI_CAP_LOCAL | EXI_CAP_SWITCH | EXI_CAP_IN_PROCESS,
	.probe = probe,
	.domain_ops = &domain_ops,
	.conn_ops = &loopp_conn_ops,
	.meet_ops = &meet_ops,
};
