/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of sockets, which is never given back. */
#include "core/sock/memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/base/ids.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/proof.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/fabric/registry.h"
#include "core/sock/base.h"
#include "core/sock/holders.h"
#include "core/sock/stats.h"
#include "core/sock/table.h"

#define SHARED_CHUNK 64u
#define PLACE	     ((size_t)4096)
#define WARM	     16u

/* Slabs of shared memory that this process made; inherited ones are used but
 * never allocated from. Each place of a slab has pages of its own (of 4 KiB),
 * because a forked process keeps the places of connections that it has, and no
 * others: it may come to be another user's, or a stranger's. */
struct slab {
	char *mem;
	struct slab *next;
	uint64_t used; /* places of this process's sockets, and warm ones */
	uint32_t hint;
};

/* The same members of several connections lie in different sets of the
 * cache. */
#define SHIFT(i) ((size_t)((i) % 16u) * EXI_LINE)
_Static_assert(sizeof(struct exi_shared) + SHIFT(15u) <= PLACE, "a place");

bool exi_closes_seen;

static struct exi_list free_socks = EXI_LIST_INIT(free_socks);
static struct exi_list retired = EXI_LIST_INIT(retired); /* see retire() */

static struct slab *slabs;
/* Those of the processes from which this one was forked. */
static struct slab *inherited;

/* The shared parts that were freed last: they are in the CPU's cache. */
static struct exi_shared *warm[WARM];
static unsigned int n_warm;

static struct exi_shared *place(const struct slab *s, uint32_t i)
{
	return (struct exi_shared *)(void *)(s->mem + i * PLACE + SHIFT(i));
}

/* The slab in the list that has the place, and which one it is; null: none. */
static struct slab *slab_of(struct slab *s, const struct exi_shared *sh,
			    uint32_t *ret)
{
	const char *at = (const char *)sh;

	while (s && (at < s->mem || at >= s->mem + SHARED_CHUNK * PLACE))
		s = s->next;
	if (s)
		*ret = (uint32_t)((size_t)(at - s->mem) / PLACE);
	return s;
}

static struct exi_sock *sock_take(void)
{
	struct exi_list *node = exi_list_pop(&free_socks);
	uint32_t i, n = atomic_load_explicit(&exi_table_n_socks,
					     memory_order_relaxed);
	struct exi_sock *chunk;

	if (node)
		return exi_container(node, struct exi_sock, free_node);
	if (n / EXI_TABLE_CHUNK >= EXI_TABLE_CHUNKS_MAX)
		return NULL;
	chunk = aligned_alloc(_Alignof(struct exi_sock),
			      EXI_TABLE_CHUNK * sizeof(*chunk));
	if (!chunk)
		return NULL;
	memset(chunk, 0, EXI_TABLE_CHUNK * sizeof(*chunk));
	for (i = 0; i < EXI_TABLE_CHUNK; i++) {
		atomic_init(&chunk[i].fd, -1);
		chunk[i].index = n + i;
		exi_list_init(&chunk[i].free_node);
		exi_list_init(&chunk[i].todo);
		if (i > 0)
			exi_list_add_tail(&free_socks, &chunk[i].free_node);
	}
	exi_table_chunks[n / EXI_TABLE_CHUNK] = chunk;
	atomic_store_explicit(&exi_table_n_socks, n + EXI_TABLE_CHUNK,
			      memory_order_release);
	return &chunk[0];
}

static struct exi_shared *claim(struct slab *s)
{
	uint32_t i;

	for (i = 0; i < SHARED_CHUNK; i++) {
		uint32_t k = (s->hint + i) % SHARED_CHUNK;

		if (exi_holders_claim(&place(s, k)->holders)) {
			s->hint = k + 1;
			s->used |= UINT64_C(1) << k;
			return place(s, k);
		}
	}
	return NULL;
}

/* No socket of this process has the place of a slab of the list. False: it is
 * in none. */
static bool unused(struct slab *list, const struct exi_shared *sh)
{
	uint32_t i;
	struct slab *s = slab_of(list, sh, &i);

	if (s)
		s->used &= ~(UINT64_C(1) << i);
	return s;
}

/* What lies there is not shared from now on, and is 0. False: it shares a page
 * with what is. */
static bool part(char *from, char *to)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
	char *begin = from + (-(uintptr_t)from & page);
	char *end = to - ((uintptr_t)to & page);

	if (begin >= end)
		return false;
	if (mmap(begin, (size_t)(end - begin), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		 0) == MAP_FAILED) {
		exi_warn("memory stays shared with other processes: %d", errno);
		return false;
	}
	return true;
}

static bool part_place(const struct exi_shared *sh)
{
	char *at = (char *)((uintptr_t)sh & ~(PLACE - 1));

	return part(at, at + PLACE);
}

static struct exi_shared *claim_any(void)
{
	struct exi_shared *sh = NULL;

	while (n_warm) {
		sh = warm[--n_warm];
		if (exi_holders_claim(&sh->holders))
			return sh;
		unused(slabs, sh);
	}
	sh = NULL;
	for (struct slab *s = slabs; s && !sh; s = s->next)
		sh = claim(s);
	return sh;
}

/* Frees what children had that ended without a close. */
static void reclaim(void)
{
	for (struct slab *s = slabs; s; s = s->next)
		for (uint32_t i = 0; i < SHARED_CHUNK; i++)
			exi_holders_count(&place(s, i)->holders);
}

/* Keeps a shared part for early reuse. It may not be free: another process may
 * still have it, which exi_holders_claim() finds out. */
static void shared_keep_warm(struct exi_shared *sh)
{
	uint32_t i;

	if (n_warm < WARM && slab_of(slabs, sh, &i)) {
		warm[n_warm++] = sh;
	} else if (!unused(slabs, sh) && unused(inherited, sh)) {
		part_place(sh);
	}
}

void exi_memory_keep(const struct exi_shared *sh)
{
	uint32_t i;
	struct slab *s = slab_of(slabs, sh, &i);

	if (!s)
		s = slab_of(inherited, sh, &i);
	if (s)
		s->used |= UINT64_C(1) << i;
}

/* A lock there may be a thread's of the parent. */
void exi_memory_own(struct exi_shared *sh)
{
	struct exi_shared was;
	enum exi_dir d;

	memcpy(&was, sh, sizeof(was));
	if (!part_place(sh))
		return;
	for (d = EXI_RX; d <= EXI_TX; d++)
		atomic_store(&was.half[d].lock.word, 0);
	memcpy(sh, &was, sizeof(was));
}

void exi_memory_forked(void)
{
	struct slab *s, *next;
	uint32_t i, n;

	while (n_warm)
		unused(slabs, warm[--n_warm]);
	for (s = slabs; s; s = next) {
		next = s->next;
		for (i = 0; i < SHARED_CHUNK; i += n + 1) {
			for (n = 0;
			     i + n < SHARED_CHUNK && !(s->used >> (i + n) & 1);
			     n++)
				;
			part(s->mem + i * PLACE, s->mem + (i + n) * PLACE);
		}
		s->next = inherited;
		inherited = s;
	}
	slabs = NULL;
}

void exi_memory_apart(void)
{
	exi_lock(&exi_table_pool_lock);
	exi_memory_forked();
	exi_unlock(&exi_table_pool_lock);
}

static struct exi_shared *shared_take(void)
{
	struct exi_shared *sh = claim_any();
	struct slab *s;
	void *m;

	if (!sh && exi_holders_shared()) {
		reclaim();
		sh = claim_any();
	}
	if (sh)
		return sh;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	m = mmap(NULL, SHARED_CHUNK * PLACE, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (m == MAP_FAILED) {
		free(s);
		return NULL;
	}
	s->mem = m;
	s->next = slabs;
	slabs = s;
	return claim(s);
}

/* Makes a fresh state in memory that had another owner. The locks stay as they
 * are, since a stale user may hold one. */
static void shared_clear(struct exi_shared *sh)
{
	enum exi_dir d;

	for (d = EXI_RX; d <= EXI_TX; d++) {
		struct exi_half *h = &sh->half[d];
		uint32_t life;

		exi_lock(&h->lock);
		life = h->life;
		memset((char *)h + sizeof(h->lock), 0,
		       sizeof(*h) - sizeof(h->lock));
		h->life = life + 1;
		EXI_TABLE_RESET(&h->meet_at, UINT64_MAX);
		exi_unlock(&h->lock);
		EXI_TABLE_RESET(&sh->kick[d], 0);
	}
	EXI_TABLE_RESET(&sh->reason, 0);
	EXI_TABLE_RESET(&sh->met, 0);
	EXI_TABLE_RESET(&sh->gone, 0);
	EXI_TABLE_RESET(&sh->lowat, 0);
	EXI_TABLE_RESET(&sh->no_time, 0);
	EXI_TABLE_RESET(&sh->foreign, 0);
	EXI_TABLE_RESET(&sh->handed, 0);
	EXI_TABLE_RESET(&sh->size, 0);
	sh->lives = 0;
	EXI_TABLE_RESET(&sh->rx_fin, 0);
	EXI_TABLE_RESET(&sh->hold_here, 0);
	EXI_TABLE_RESET(&sh->hold_there, 0);
	EXI_TABLE_RESET(&sh->down_wait, 0);
	EXI_TABLE_RESET(&sh->may_switch, 0);
	EXI_TABLE_RESET(&sh->linked, 0);
	EXI_TABLE_RESET(&sh->owner, 0);
	EXI_TABLE_RESET(&sh->several, 0);
	EXI_TABLE_RESET(&sh->use, atomic_load(&sh->use) + 1);
	EXI_TABLE_RESET(&sh->keeper, 0);
	EXI_TABLE_RESET(&sh->keepalive.stands, 0);
	exi_zerocopy_clear(&sh->zerocopy);
	sh->bells_sent = 0;
	sh->bells_received = 0;
}

static struct exi_conn *conn_new(const struct exi_provider *p, int fd)
{
	struct exi_domain *d;
	struct exi_conn *c;
	int ret = exi_registry_domain(p, &d);
	size_t size = sizeof(*c) + p->conn_ops->priv_size;

	if (ret)
		return NULL;
	size = (size + _Alignof(struct exi_conn) - 1) &
	       ~(_Alignof(struct exi_conn) - 1);
	c = aligned_alloc(_Alignof(struct exi_conn), size);
	if (!c)
		return NULL;
	memset(c, 0, size);
	c->provider = p;
	c->ops = p->conn_ops;
	c->wops = c->ops->wait_ops;
	c->rops = c->ops->ready_ops;
	c->kops = c->ops->kernel_ops;
	c->swops = c->ops->switch_ops;
	c->pops = c->ops->place_ops;
	c->lops = c->ops->loan_ops;
	c->aops = c->ops->apart_ops;
	c->domain = d;
	c->fd = fd;
	c->bell = -1;
	return c;
}

struct exi_conn *exi_sock_conn_new(struct exi_sock *sk,
				   const struct exi_provider *p, int fd)
{
	struct exi_conn *c = conn_new(p, fd);

	if (!c)
		return NULL;
	c->shared = sk->sh->fabric;
	if (p->conn_ops->shared_size)
		memset(c->shared, 0, p->conn_ops->shared_size);
	c->sh = sk->sh;
	return c;
}

static void conn_end(struct exi_conn *c)
{
	if (c->ops->close)
		c->ops->close(c);
	if (c->ops->stop)
		c->ops->stop(c);
	if (c->ops->fini)
		c->ops->fini(c);
}

void exi_sock_conn_free(struct exi_conn *c)
{
	if (!c)
		return;
	conn_end(c);
	free(c);
}

void exi_memory_no_fabric(struct exi_sock *sk)
{
	__atomic_store_n(&sk->fab, NULL, __ATOMIC_RELAXED);
	EXI_TABLE_RESET(&sk->remote, false);
	EXI_TABLE_RESET(&sk->settled, false);
	exi_stats_fabric(sk);
}

static bool has(int fd, int option, int value)
{
	int v;
	socklen_t len = sizeof(v);

	return getsockopt(fd, SOL_SOCKET, option, &v, &len) == 0 && v == value;
}

/* What was not adopted is never taken for messages: it does not move. */
static const struct exi_base *base_of(int fd, bool adopted)
{
	if (!exi_config()->unix_streams || !has(fd, SO_DOMAIN, AF_UNIX))
		return &exi_base_tcp;
	return adopted && exi_config()->unix_packets &&
			       has(fd, SO_TYPE, SOCK_SEQPACKET)
		       ? &exi_base_packets
		       : &exi_base_unix;
}

static int sock_setup(struct exi_sock *sk, int fd, enum exi_role role,
		      bool adopted)
{
	enum exi_dir d;

	EXI_TABLE_RESET(&sk->role, role);
	__atomic_store_n(&sk->base, base_of(fd, adopted), __ATOMIC_RELAXED);
	sk->adopted = adopted;
	EXI_TABLE_RESET(&sk->lingers, false);
	EXI_TABLE_RESET(&sk->closing, false);
	sk->family = 0;
	EXI_TABLE_RESET(&sk->process, exi_use_token());
	sk->seen = 0;
	/* The cookie finds out what plain calls close. */
	EXI_TABLE_RESET(&sk->cookie, exi_closes_seen ? 0 : exi_sock_cookie(fd));
	sk->watched = sk->counted = false;
	sk->marked = false;
	sk->signs = false;
	sk->latent_life = UINT32_MAX;
	sk->giver = sk->looks = sk->answers = 0;
	EXI_TABLE_RESET(&sk->mark_since, 0);
	sk->paid_at = 0;
	sk->vain_in = sk->vain_out = 0;
	EXI_TABLE_RESET(&sk->again, false);
	sk->young = sk->looked = sk->cut = sk->asks = sk->told = false;
	sk->keeps = EXS_X_REASON_NONE;
	EXI_TABLE_RESET(&sk->named, false);
	sk->record_left = 0;
	sk->n_kept = 0;
	EXI_TABLE_RESET(&sk->framed, sk->base->packets);
	EXI_TABLE_RESET(&sk->blocks, false);
	EXI_TABLE_RESET(&sk->peer_port, 0);
	EXI_TABLE_RESET(&sk->met_port, 0);
	sk->reached = 0;
	EXI_TABLE_RESET(&sk->blocking, EXI_BLOCKING_ASK);
	exi_memory_no_fabric(sk);
	sk->link = NULL;
	sk->poll_events = 0;
	sk->foreign_link = sk->unused = false;
	EXI_TABLE_RESET(&sk->generation, atomic_load(&sk->generation) + 1);
	EXI_TABLE_RESET(&sk->hearer, 0);
	EXI_TABLE_RESET(&sk->unheard, 0);
	exi_list_init(&sk->poll_ops);
	for (d = EXI_RX; d <= EXI_TX; d++) {
		exi_list_init(&sk->ops[d]);
		EXI_TABLE_RESET(&sk->n_ops[d], 0);
		sk->posted[d] = NULL;
		sk->n_lent[d] = 0;
		sk->armed[d] = 0;
	}
	if (sk->tcp_spare) {
		sk->tcp = sk->tcp_spare;
		sk->tcp_spare = NULL;
		sk->tcp->fd = fd;
		sk->tcp->sh = sk->sh;
	} else {
		sk->tcp = exi_sock_conn_new(sk, &exi_provider_tcp, fd);
	}
	if (!sk->tcp)
		return -ENOMEM;
	EXI_TABLE_RESET(&sk->sh->owner, sk->process);
	EXI_TABLE_RESET(&sk->sh->reason, adopted ? EXS_X_REASON_UNDECIDED
						 : EXS_X_REASON_PLAIN_SOCKET);
	return 0;
}

void exi_memory_abandon(struct exi_sock *sk)
{
	exi_holders_leave(&sk->sh->holders);
	exi_lock(&exi_table_pool_lock);
	exi_list_add_head(&free_socks, &sk->free_node);
	exi_unlock(&exi_table_pool_lock);
}

bool exi_memory_is_looked_at(const struct exi_sock *sk)
{
	return atomic_load(&sk->lookers[EXI_RX]) ||
	       atomic_load(&sk->lookers[EXI_TX]);
}

void exi_memory_free(struct exi_sock *sk)
{
	struct exi_conn *tcp = sk->left_tcp;

	/* Kept for the next socket of this place, as it was made. */
	conn_end(tcp);
	memset(tcp->priv, 0, tcp->ops->priv_size);
	sk->tcp_spare = tcp;
	exi_sock_conn_free(sk->left_fab);
	for (int i = 0; i < EXI_LIVES; i++) {
		exi_sock_conn_free(sk->spent[i]);
		sk->spent[i] = NULL;
	}
	exi_holders_leave(&sk->sh->holders);
	exi_lock(&exi_table_pool_lock);
	shared_keep_warm(sk->sh);
	exi_list_add_head(&free_socks, &sk->free_node); /* warm */
	exi_unlock(&exi_table_pool_lock);
}

void exi_memory_retire(struct exi_sock *sk)
{
	exi_lock(&exi_table_pool_lock);
	exi_list_add_tail(&retired, &sk->free_node);
	exi_unlock(&exi_table_pool_lock);
}

/* A retired socket that no thread looks at any more, or null. */
static struct exi_sock *unretire(void)
{
	struct exi_sock *ret = NULL;
	struct exi_list *pos, *tmp;

	exi_lock(&exi_table_pool_lock);
	exi_list_for_each_safe (pos, tmp, &retired) {
		ret = exi_container(pos, struct exi_sock, free_node);
		if (!exi_memory_is_looked_at(ret)) {
			exi_list_del(pos);
			break;
		}
		ret = NULL;
	}
	exi_unlock(&exi_table_pool_lock);
	return ret;
}

int exi_memory_new(int fd, enum exi_role role, bool adopted,
		   struct exi_sock **ret)
{
	struct exi_shared *sh = NULL;
	struct exi_sock *sk, *old;
	bool some;
	int err;

	exi_lock(&exi_table_pool_lock);
	some = !exi_list_empty(&retired);
	sk = sock_take();
	if (sk)
		sh = shared_take();
	if (sk && !sh)
		exi_list_add_head(&free_socks, &sk->free_node);
	exi_unlock(&exi_table_pool_lock);
	while (exi_unlikely(some) && (old = unretire()))
		exi_memory_free(old);
	if (!sh)
		return -ENOMEM;
	shared_clear(sh);
	/* The service may still look at what had this place. */
	exi_lock(&sk->link_lock);
	__atomic_store_n(&sk->sh, sh, __ATOMIC_RELAXED);
	err = sock_setup(sk, fd, role, adopted);
	if (err) {
		exi_memory_abandon(sk);
		exi_unlock(&sk->link_lock);
		return err;
	}
	EXI_TABLE_RESET(&sk->born, atomic_load(&exi_sock_forks));
	*ret = sk;
	return 0;
}
