/* SPDX-License-Identifier: BSD-2-Clause */
/* The socket table and the memory of sockets. */
#include "core/sock.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/config.h"
#include "core/family.h"
#include "core/futex.h"
#include "core/heed.h"
#include "core/latent.h"
#include "core/link.h"
#include "core/loan.h"
#include "core/log.h"
#include "core/names.h"
#include "core/poller.h"
#include "core/queue.h"
#include "core/registry.h"
#include "core/remote.h"
#include "core/switch.h"
#include "core/unseen.h"

#define TABLE_MAX    (1u << 24)
#define CHUNK	     256u
#define CHUNKS_MAX   (TABLE_MAX / CHUNK)
#define SHARED_CHUNK 64u
#define WARM	     16u
#define HAND_OVER_NS 5000000000u
#define TAKE_OVER_NS 1000000000u
#define LET_GO_NS    20000000u /* for those who look at what is closed */

/* The thread that ends the process; 0. */
static _Atomic uint32_t exits;

struct exi_table exi_table;
bool exi_closes_seen;
_Atomic uint64_t exi_sock_forks;

/* Guards the pools and the table's writers. */
static struct exi_lock pool_lock;
static struct exi_sock **chunks;
static _Atomic uint32_t n_socks;
static struct exi_list free_socks = EXI_LIST_INIT(free_socks);
static struct exi_list retired = EXI_LIST_INIT(retired); /* see retire() */

/* Slabs of shared memory that this process made; inherited ones are used but
 * never allocated from. */
struct slab {
	struct exi_shared *mem;
	struct slab *next;
	uint32_t hint;
};
static struct slab *slabs;

/* Of these slabs, what was let go last: in the CPU's cache. */
static struct exi_shared *warm[WARM];
static unsigned int n_warm;

int exi_sock_init(void)
{
	uint32_t size = 1u << 16;
	struct rlimit rl;
	void *t, *names, *c;
	int ret = 0;

	exi_lock(&pool_lock);
	if (exi_table.socks)
		goto unlock;
	if (getrlimit(RLIMIT_NOFILE, &rl) == 0)
		while (size < rl.rlim_max && size < TABLE_MAX)
			size *= 2;
	t = mmap(NULL, size * sizeof(*exi_table.socks), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	names = mmap(NULL, size * sizeof(*exi_table.names),
		     PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	c = calloc(CHUNKS_MAX, sizeof(*chunks));
	if (t == MAP_FAILED || names == MAP_FAILED || !c) {
		ret = -ENOMEM;
		goto unlock;
	}
	chunks = c;
	exi_table.socks = t;
	exi_table.names = names;
	exi_table.size = size;
unlock:
	exi_unlock(&pool_lock);
	return ret;
}

struct exi_sock *exi_sock_by_index(uint32_t index)
{
	if (index >= atomic_load_explicit(&n_socks, memory_order_acquire))
		return NULL;
	return &chunks[index / CHUNK][index % CHUNK];
}

void exi_sock_each(void (*f)(struct exi_sock *sk, void *arg), void *arg)
{
	uint32_t i, n = atomic_load_explicit(&n_socks, memory_order_acquire);

	for (i = 0; i < n; i++) {
		struct exi_sock *sk = exi_sock_by_index(i);

		if (atomic_load_explicit(&sk->fd, memory_order_acquire) >= 0)
			f(sk, arg);
	}
}

/* --- memory ------------------------------------------------------------- */

static struct exi_sock *sock_take(void)
{
	struct exi_list *node = exi_list_pop(&free_socks);
	uint32_t i, n = atomic_load_explicit(&n_socks, memory_order_relaxed);
	struct exi_sock *chunk;

	if (node)
		return exi_container(node, struct exi_sock, free_node);
	if (n / CHUNK >= CHUNKS_MAX)
		return NULL;
	chunk = aligned_alloc(_Alignof(struct exi_sock),
			      CHUNK * sizeof(*chunk));
	if (!chunk)
		return NULL;
	memset(chunk, 0, CHUNK * sizeof(*chunk));
	for (i = 0; i < CHUNK; i++) {
		atomic_init(&chunk[i].fd, -1);
		chunk[i].index = n + i;
		exi_list_init(&chunk[i].free_node);
		exi_list_init(&chunk[i].todo);
		if (i > 0)
			exi_list_add_tail(&free_socks, &chunk[i].free_node);
	}
	chunks[n / CHUNK] = chunk;
	atomic_store_explicit(&n_socks, n + CHUNK, memory_order_release);
	return &chunk[0];
}

static struct exi_shared *claim(struct slab *s)
{
	uint32_t i;

	for (i = 0; i < SHARED_CHUNK; i++) {
		uint32_t k = (s->hint + i) % SHARED_CHUNK;

		if (exi_holders_claim(&s->mem[k].holders)) {
			s->hint = k + 1;
			return &s->mem[k];
		}
	}
	return NULL;
}

static struct exi_shared *claim_any(void)
{
	struct exi_shared *sh = NULL;

	while (n_warm)
		if (exi_holders_claim(&warm[--n_warm]->holders))
			return warm[n_warm];
	for (struct slab *s = slabs; s && !sh; s = s->next)
		sh = claim(s);
	return sh;
}

/* What children had who ended without a close is free. */
static void reclaim(void)
{
	for (struct slab *s = slabs; s; s = s->next)
		for (uint32_t i = 0; i < SHARED_CHUNK; i++)
			exi_holders_count(&s->mem[i].holders);
}

/* Whoever claims it asks whether it is free: another process may still have it. */
static void shared_keep_warm(struct exi_shared *sh)
{
	struct slab *s = slabs;

	while (s && (sh < s->mem || sh >= s->mem + SHARED_CHUNK))
		s = s->next;
	if (s && n_warm < WARM)
		warm[n_warm++] = sh;
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
	m = mmap(NULL, SHARED_CHUNK * sizeof(*sh), PROT_READ | PROT_WRITE,
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

/* What publishes the socket publishes it. */
#define RESET(a, v) atomic_store_explicit(a, v, memory_order_relaxed)

/* A fresh state in memory that had another owner: the locks stay as they
 * are, for a stale user may hold one. */
static void shared_clear(struct exi_shared *sh)
{
	enum exi_dir d;

	for (d = EXI_RX; d <= EXI_TX; d++) {
		struct exi_half *h = &sh->half[d];

		exi_lock(&h->lock);
		memset((char *)h + sizeof(h->lock), 0,
		       sizeof(*h) - sizeof(h->lock));
		RESET(&h->meet_at, UINT64_MAX);
		exi_unlock(&h->lock);
		RESET(&sh->kick[d], 0);
	}
	RESET(&sh->reason, 0);
	RESET(&sh->met, 0);
	RESET(&sh->gone, 0);
	RESET(&sh->lowat, 0);
	RESET(&sh->no_time, 0);
	RESET(&sh->foreign, 0);
	RESET(&sh->rx_fin, 0);
	RESET(&sh->hold_here, 0);
	RESET(&sh->hold_there, 0);
	RESET(&sh->down_wait, 0);
	RESET(&sh->may_switch, 0);
	RESET(&sh->greeting, 0);
	RESET(&sh->owner, 0);
	RESET(&sh->several, 0);
	RESET(&sh->use, atomic_load(&sh->use) + 1);
	RESET(&sh->keeper, 0);
	RESET(&sh->keepalive.stands, 0);
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
	c->swops = p->switch_ops;
	c->pops = p->place_ops;
	c->lops = p->loan_ops;
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
	c->bells = &sk->sh->bells_sent;
	return c;
}

void exi_sock_conn_free(struct exi_conn *c)
{
	if (!c)
		return;
	c->ops->close(c);
	c->ops->stop(c);
	c->ops->fini(c);
	free(c);
}

/* --- the table ---------------------------------------------------------- */

uint64_t exi_sock_cookie(int fd)
{
	uint64_t cookie = 0;
	socklen_t len = sizeof(cookie);

	if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &len) < 0)
		return 0;
	return cookie;
}

/* Both: who asks without a lock looks at the second alone. */
static void no_fabric(struct exi_sock *sk)
{
	__atomic_store_n(&sk->fab, NULL, __ATOMIC_RELAXED);
	RESET(&sk->remote, false);
	RESET(&sk->settled, false);
}

static int sock_setup(struct exi_sock *sk, int fd, enum exi_role role,
		      bool adopted)
{
	enum exi_dir d;

	RESET(&sk->role, role);
	sk->adopted = adopted;
	RESET(&sk->lingers, false);
	RESET(&sk->closing, false);
	sk->family = 0;
	RESET(&sk->process, exi_use_token());
	sk->seen = 0;
	/* What plain calls close is found out by it. */
	RESET(&sk->cookie, exi_closes_seen ? 0 : exi_sock_cookie(fd));
	sk->watched = sk->counted = false;
	sk->marked = false;
	sk->signs = false;
	sk->latent_life = UINT32_MAX;
	RESET(&sk->named, false);
	sk->record_left = 0;
	sk->n_kept = 0;
	RESET(&sk->framed, false);
	RESET(&sk->blocks, false);
	RESET(&sk->peer_port, 0);
	sk->reached = 0;
	RESET(&sk->blocking, EXI_BLOCKING_ASK);
	no_fabric(sk);
	sk->link = NULL;
	sk->poll_events = 0;
	sk->foreign_link = sk->unused = false;
	RESET(&sk->generation, atomic_load(&sk->generation) + 1);
	RESET(&sk->hearer, 0);
	RESET(&sk->unheard, 0);
	exi_list_init(&sk->poll_ops);
	for (d = EXI_RX; d <= EXI_TX; d++) {
		exi_list_init(&sk->ops[d]);
		RESET(&sk->n_ops[d], 0);
		sk->posted[d] = NULL;
		sk->n_lent[d] = 0;
		sk->armed[d] = 0;
	}
	if (sk->tcp_spare) {
		sk->tcp = sk->tcp_spare;
		sk->tcp_spare = NULL;
		sk->tcp->fd = fd;
		sk->tcp->bells = &sk->sh->bells_sent;
	} else {
		sk->tcp = exi_sock_conn_new(sk, &exi_provider_tcp, fd);
	}
	if (!sk->tcp)
		return -ENOMEM;
	RESET(&sk->sh->owner, sk->process);
	RESET(&sk->sh->reason,
	      adopted ? EXS_X_REASON_UNDECIDED : EXS_X_REASON_PLAIN_SOCKET);
	return 0;
}

void exi_sock_put(int fd, struct exi_sock *sk)
{
	uint32_t high = atomic_load(&exi_table.high);

	while ((uint32_t)fd >= high &&
	       !atomic_compare_exchange_weak(&exi_table.high, &high,
					     (uint32_t)fd + 1))
		;
	/* Release: pairs with exi_sock_find(). */
	atomic_store_explicit(&exi_table.socks[fd], sk, memory_order_release);
	exi_heed_put(fd, EXI_HEED_BYTES | EXI_HEED_ANY);
}

static _Atomic bool named_calls;

/* Nobody is meeting the peer, and nobody will; the link lock is held. */
static bool stays_on_tcp_locked(struct exi_sock *sk)
{
	struct exi_shared *sh = sk->sh;
	enum exi_dir d;

	EXI_LOCKED(&sk->link_lock);
	for (d = EXI_RX; d <= EXI_TX; d++)
		if (atomic_load(&sh->half[d].meet_at) != UINT64_MAX ||
		    atomic_load(&sh->half[d].mode) != EXI_MODE_TCP ||
		    __atomic_load_n(&sh->half[d].fabric_bytes,
				    __ATOMIC_RELAXED) ||
		    atomic_load(&sk->n_ops[d]))
			return false;
	return !sk->link && !sk->fab && !sk->closing && !sk->framed &&
	       !sk->named && sk->process == exi_use_token() &&
	       exi_holders_alone(&sh->holders);
}

bool exi_sock_settle(struct exi_sock *sk, int fd)
{
	uint32_t reason = atomic_load_explicit(&exi_sock_shared(sk)->reason,
					       memory_order_relaxed);
	uint32_t was;
	bool ret;

	if (reason == EXS_X_REASON_UNDECIDED || reason == EXS_X_REASON_NONE ||
	    exi_lock_held(&sk->link_lock))
		return false;
	/* Before the looks, see heed.h. */
	was = exi_heed_at(fd);
	if (!was || !exi_trylock(&sk->link_lock))
		return false;
	ret = !atomic_load(&named_calls) && atomic_load(&sk->fd) == fd &&
	      exi_sock_peek(fd) == sk && stays_on_tcp_locked(sk);
	if (ret) {
		atomic_store(&sk->settled, true);
		exi_heed_clear(fd, was, EXI_HEED_BYTES);
	}
	exi_unlock(&sk->link_lock);
	return ret;
}

static void heed_each(void)
{
	uint32_t fd, high = atomic_load(&exi_table.high);

	for (fd = 0; fd < high; fd++)
		if (atomic_load(&exi_table.socks[fd]))
			exi_heed_put((int)fd, EXI_HEED_BYTES | EXI_HEED_ANY);
}

void exi_sock_heed_all(void)
{
	if (!atomic_exchange(&named_calls, true))
		heed_each();
}

/* It came to nothing; the link lock is held. */
static void abandon(struct exi_sock *sk)
{
	exi_holders_leave(&sk->sh->holders);
	exi_lock(&pool_lock);
	exi_list_add_head(&free_socks, &sk->free_node);
	exi_unlock(&pool_lock);
}

static bool is_looked_at(const struct exi_sock *sk)
{
	return atomic_load(&sk->lookers[EXI_RX]) ||
	       atomic_load(&sk->lookers[EXI_TX]);
}

/* Nobody looks at what is left of it. */
static void bury(struct exi_sock *sk)
{
	struct exi_conn *tcp = sk->left_tcp;

	/* Kept for the next socket of this place, as it was made. */
	tcp->ops->close(tcp);
	tcp->ops->stop(tcp);
	tcp->ops->fini(tcp);
	memset(tcp->priv, 0, tcp->ops->priv_size);
	sk->tcp_spare = tcp;
	exi_sock_conn_free(sk->left_fab);
	exi_holders_leave(&sk->sh->holders);
	exi_lock(&pool_lock);
	shared_keep_warm(sk->sh);
	exi_list_add_head(&free_socks, &sk->free_node); /* warm */
	exi_unlock(&pool_lock);
}

/* Who looks at it may be the caller itself, interrupted by the signal whose handler
 * closes it: waiting for that would last for ever. */
static void retire(struct exi_sock *sk)
{
	exi_lock(&pool_lock);
	exi_list_add_tail(&retired, &sk->free_node);
	exi_unlock(&pool_lock);
}

/* One that nobody looks at any more, or null. */
static struct exi_sock *unretire(void)
{
	struct exi_sock *ret = NULL;
	struct exi_list *pos, *tmp;

	exi_lock(&pool_lock);
	exi_list_for_each_safe (pos, tmp, &retired) {
		ret = exi_container(pos, struct exi_sock, free_node);
		if (!is_looked_at(ret)) {
			exi_list_del(pos);
			break;
		}
		ret = NULL;
	}
	exi_unlock(&pool_lock);
	return ret;
}

/* Memory for a socket, set up; its link lock is held then. */
static int begin(int fd, enum exi_role role, bool adopted,
		 struct exi_sock **ret)
{
	struct exi_shared *sh = NULL;
	struct exi_sock *sk, *old;
	bool some;
	int err;

	exi_lock(&pool_lock);
	some = !exi_list_empty(&retired);
	sk = sock_take();
	if (sk)
		sh = shared_take();
	if (sk && !sh)
		exi_list_add_head(&free_socks, &sk->free_node);
	exi_unlock(&pool_lock);
	while (exi_unlikely(some) && (old = unretire()))
		bury(old);
	if (!sh)
		return -ENOMEM;
	shared_clear(sh);
	/* The service may still look at what had this place. */
	exi_lock(&sk->link_lock);
	__atomic_store_n(&sk->sh, sh, __ATOMIC_RELAXED);
	err = sock_setup(sk, fd, role, adopted);
	if (err) {
		abandon(sk);
		exi_unlock(&sk->link_lock);
		return err;
	}
	RESET(&sk->born, atomic_load(&exi_sock_forks));
	*ret = sk;
	return 0;
}

static void (*forget)(struct exi_sock *sk, int fd, uint32_t generation);

void exi_sock_forgets(void (*f)(struct exi_sock *sk, int fd,
				uint32_t generation))
{
	forget = f;
}

void exi_sock_forget(struct exi_sock *sk, int fd, uint32_t generation)
{
	forget(sk, fd, generation);
}

int exi_sock_make(int fd, enum exi_role role, bool adopted,
		  struct exi_sock **ret)
{
	struct exi_sock *old = exi_sock_peek(fd), *sk;
	int err, others;

	if ((uint32_t)fd >= exi_table.size)
		return -EMFILE;
	if (exi_latent(fd)) /* closed behind the library's back */
		exi_latent_end(fd, NULL);
	/* A name that was closed behind the library's back is not all. */
	others = old ? exi_name_remove(old, fd) : 1;
	if (others <= 0)
		exi_sock_forget(old, others < 0 ? fd : atomic_load(&old->fd),
				atomic_load(&old->generation));
	err = begin(fd, role, adopted, &sk);
	if (err)
		return err;
	exi_lock(&pool_lock);
	atomic_store_explicit(&sk->fd, fd, memory_order_release);
	exi_sock_put(fd, sk);
	*ret = sk;
	exi_unlock(&pool_lock);
	exi_unlock(&sk->link_lock);
	return 0;
}

/* Who wakes a latent connection; before all other locks. */
static struct exi_lock waking;

/* The word becomes the socket, with what it says: both halves are locked. False:
 * the descriptor was closed meanwhile. */
static bool take_word_locked(struct exi_sock *sk, int fd)
{
	struct exi_sock *word = atomic_load(&exi_table.socks[fd]);
	uintptr_t w;
	enum exi_dir d;

	EXI_LOCKED(&sk->sh->half[EXI_RX].lock);
	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	do {
		w = (uintptr_t)word;
		if (!(w & EXI_LATENT))
			return false;
		RESET(&sk->role, exi_latent_role(w));
	} while (!atomic_compare_exchange_strong(&exi_table.socks[fd], &word,
						 sk));
	for (d = EXI_RX; d <= EXI_TX; d++) {
		struct exi_half *h = &sk->sh->half[d];

		__atomic_store_n(&h->bytes, exi_latent_moved(w, d),
				 __ATOMIC_RELAXED);
		h->bare = exi_latent_inside(w, d);
	}
	sk->sh->half[EXI_RX].fin = exi_latent_over(w);
	sk->latent_life = exi_latent_life(w);
	sk->counted = sk->role == EXI_ROLE_ACCEPT;
	return true;
}

struct exi_sock *exi_sock_wake(int fd)
{
	struct exi_sock *sk;
	struct exi_half *h;
	bool taken;

	exi_lock(&waking);
	if (!exi_latent(fd)) {
		exi_unlock(&waking);
		return exi_sock_peek(fd);
	}
	if (begin(fd, EXI_ROLE_NONE, true, &sk)) {
		exi_latent_end(fd, NULL);
		exi_unlock(&waking);
		return NULL;
	}
	h = sk->sh->half;
	exi_lock(&h[EXI_RX].lock);
	exi_lock(&h[EXI_TX].lock);
	/* Who finds it in the table finds that it is the descriptor's. */
	atomic_store_explicit(&sk->fd, fd, memory_order_release);
	taken = take_word_locked(sk, fd);
	if (taken)
		exi_link_expect(sk, false);
	else
		atomic_store_explicit(&sk->fd, -1, memory_order_release);
	exi_unlock(&h[EXI_TX].lock);
	exi_unlock(&h[EXI_RX].lock);
	if (taken)
		exi_latent_woke(sk, fd);
	else
		abandon(sk);
	exi_unlock(&sk->link_lock);
	exi_unlock(&waking);
	return exi_sock_peek(fd);
}

int exi_sock_get(int fd, struct exi_sock **ret)
{
	struct exi_sock *sk = exi_sock_find(fd);
	int type;
	socklen_t len = sizeof(type);

	if (sk && exi_sock_is(sk, fd)) {
		*ret = sk;
		return 0;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0)
		return -errno;
	return exi_sock_make(fd, EXI_ROLE_NONE, false, ret);
}

void exi_sock_mark(struct exi_sock *sk, int fd)
{
	sk->cookie = exi_sock_cookie(fd);
}

void exi_sock_exchange(struct exi_sock *sk)
{
	atomic_store(&sk->cookie, 0);
}

bool exi_sock_current(struct exi_sock *sk, int fd)
{
	uint64_t was = atomic_load(&sk->cookie);

	/* Exchanged meanwhile: was is from before, the kernel's from after. */
	return !was || was == exi_sock_cookie(fd) ||
	       atomic_load(&sk->cookie) != was;
}

void exi_sock_unlist(struct exi_sock *sk)
{
	int fd = atomic_load(&sk->fd);
	struct exi_sock *old = sk;

	atomic_compare_exchange_strong(&exi_table.socks[fd], &old, NULL);
	if (!sk->named)
		return;
	exi_lock(&pool_lock);
	exi_names_forget(sk, fd);
	exi_unlock(&pool_lock);
}

void exi_sock_drop_locked(struct exi_sock *sk)
{
	struct exi_shared *sh = sk->sh;
	uint64_t until = 0;

	EXI_LOCKED(&sk->link_lock);
	EXI_LOCKED(&sh->half[EXI_RX].lock);
	EXI_LOCKED(&sh->half[EXI_TX].lock);
	sk->left_tcp = sk->tcp;
	sk->left_fab = sk->fab;
	sk->tcp = NULL;
	no_fabric(sk);
	free(sk->kept);
	sk->kept = NULL;
	sk->n_kept = sk->kept_room = 0;
	exi_loan_drop(sk);
	atomic_store_explicit(&sk->fd, -1, memory_order_release);
	exi_unlock(&sh->half[EXI_TX].lock);
	exi_unlock(&sh->half[EXI_RX].lock);
	exi_unlock(&sk->link_lock);
	exi_queue_cool(sk, EXI_RX);
	exi_queue_cool(sk, EXI_TX);
	/* Who looks at its words or sleeps on them is kicked, sees that the
	 * socket is gone, and lets go. */
	while (is_looked_at(sk)) {
		if (!until)
			until = exi_now_ns() + LET_GO_NS;
		if (exi_now_ns() > until) {
			retire(sk);
			return;
		}
		exi_sock_kick(sk, EXI_RX);
		exi_sock_kick(sk, EXI_TX);
		exi_queue_wake_all();
		sched_yield();
	}
	bury(sk);
}

/* The fabric is not for children. */
static bool stays(const struct exi_sock *sk)
{
	return exi_sock_remote(sk) || exi_loan_in_place(sk, EXI_RX) ||
	       exi_loan_in_place(sk, EXI_TX);
}

/* Sockets that were there before this thread's fork began are counted for its
 * child, whatever other threads make or close meanwhile. */
static _Thread_local uint64_t my_fork;

static bool before_fork(const struct exi_sock *sk)
{
	return atomic_load(&sk->born) < my_fork;
}

/* Another thread may close it, or make another in its place. */
static void prefork_one(struct exi_sock *sk, void *arg)
{
	struct exi_shared *sh = exi_sock_shared(sk);

	if (!before_fork(sk))
		return;
	atomic_fetch_or(&sk->blocking, EXI_BLOCKING_SHARED);
	exi_holders_prefork(&sh->holders);
	atomic_store(&sh->owner, 0);
	/* The child can be given no device, nor what is on loan: it will ask. */
	if (stays(sk))
		exi_family_keep(sk);
}

void exi_sock_prefork(void)
{
	exi_latent_wake_all();
	my_fork = atomic_fetch_add(&exi_sock_forks, 1) + 1;
	exi_sock_each(prefork_one, NULL);
}

static void unfork_one(struct exi_sock *sk, void *arg)
{
	if (!before_fork(sk))
		return;
	exi_holders_unfork(&sk->sh->holders);
	/* Nobody else may change O_NONBLOCK. */
	if (exi_holders_alone(&sk->sh->holders))
		atomic_fetch_and(&sk->blocking, ~(uint32_t)EXI_BLOCKING_MASK);
}

void exi_sock_fork_failed(void)
{
	exi_sock_each(unfork_one, NULL);
}

static void fork_one(struct exi_sock *sk, void *arg)
{
	enum exi_dir d;

	sk->unused = true;
	if (!before_fork(sk))
		exi_holders_prefork(&sk->sh->holders);
	exi_holders_inherit(&sk->sh->holders);
	/* The parent is about to: it is no descriptor of the child's. Descriptors
	 * are copied before memory is: what lingers here was open there. */
	if (sk->lingers)
		close(atomic_load(&sk->fd));
	sk->lingers = sk->closing = false;
	atomic_store(&sk->link_lock.word, 0);
	exi_list_init(&sk->todo);
	sk->todo_dirs = 0;
	exi_list_init(&sk->poll_ops);
	sk->poll_events = 0;
	if (sk->link)
		exi_poller_inherited(sk, sk->link->fd);
	if (stays(sk)) {
		/* The fabric's memory and its code stay the parent's; what the
		 * core allocated is a copy. */
		if (sk->link)
			exi_fd_close(sk->link->fd);
		free(sk->link);
		sk->link = NULL;
		free(sk->fab);
		no_fabric(sk);
	} else if (sk->link) {
		sk->foreign_link = true;
		exi_list_init(&sk->link->timer.node);
	}
	if (sk->fab)
		sk->fab->sleep = 0;
	atomic_store(&sk->guarded, false);
	for (d = EXI_RX; d <= EXI_TX; d++) {
		exi_list_init(&sk->ops[d]);
		atomic_store(&sk->n_ops[d], 0);
		sk->posted[d] = NULL;
		sk->n_lent[d] = 0;
		exi_loan_forked(sk, d);
		sk->waiters[d] = NULL;
		free(sk->timeout[d]);
		sk->timeout[d] = NULL;
		sk->armed[d] = 0;
		atomic_store(&sk->hot_in[d], NULL);
		atomic_store(&sk->lookers[d], 0);
	}
}

void exi_sock_forked(void)
{
	struct slab *s, *next;

	exi_latent_forked();
	atomic_store(&waking.word, 0);
	atomic_store(&pool_lock.word, 0);
	exi_names_forked();
	exi_holders_forked();
	for (s = slabs; s; s = next) {
		next = s->next;
		free(s); /* the memory stays: inherited sockets live there */
	}
	slabs = NULL;
	n_warm = 0;
	atomic_store(&exits, 0);
	exi_sock_each(fork_one, NULL);
	heed_each(); /* the first use here is to be seen */
	exi_poller_forked();
}

/* Sends to another host, and nobody goes on with it here. */
static bool ends_here(struct exi_sock *sk)
{
	return exi_sock_remote(sk) && exi_sock_used_here(sk) &&
	       exi_holders_alone(&sk->sh->holders) &&
	       sk->sh->half[EXI_TX].mode == EXI_MODE_RING &&
	       !atomic_load(&sk->sh->gone);
}

/* Not for ever: perhaps this thread was interrupted with it, or with what its
 * owner waits for. */
static bool take_over(struct exi_lock *l, uint64_t until)
{
	while (!exi_trylock(l)) {
		if (exi_lock_held(l) || exi_now_ns() >= until)
			return false;
		sched_yield();
	}
	return true;
}

static void end_one(struct exi_sock *sk, void *arg)
{
	struct exi_half *tx = &sk->sh->half[EXI_TX];
	uint32_t ended;

	if (!ends_here(sk))
		return;
	/* Without the lock: a thread that sends and sends finds it by its next
	 * send, and leaves the lock to this one. Release: pairs with the fence
	 * in outlive(). */
	ended = __atomic_exchange_n(&tx->ended, 1, __ATOMIC_RELEASE);
	if (!take_over(&tx->lock, *(uint64_t *)arg))
		return;
	if (ends_here(sk))
		sk->fab->provider->remote_ops->leave(sk->fab);
	if (ends_here(sk) && !ended)
		sk->fab->ops->end(sk->fab);
	/* The kernel ends TCP, too, but what carries the rest may go before it,
	 * and that would look like a fabric that failed. */
	if (ends_here(sk) && exi_sock_current(sk, sk->tcp->fd))
		shutdown(sk->tcp->fd, SHUT_WR);
	exi_unlock(&tx->lock);
}

static void deliver_one(struct exi_sock *sk, void *arg)
{
	struct exi_half *tx = &sk->sh->half[EXI_TX];

	if (!exi_sock_remote(sk) || !take_over(&tx->lock, *(uint64_t *)arg))
		return;
	if (ends_here(sk))
		sk->fab->ops->stop(sk->fab);
	exi_unlock(&tx->lock);
}

/* Others go on with it, and what carries it goes with this process. First all
 * are told, then arg is until when they are waited for. */
static void hand_over(struct exi_sock *sk, void *arg)
{
	struct exi_shared *sh = sk->sh;
	int fd = atomic_load(&sk->fd);
	enum exi_dir d;

	if (!exi_sock_remote(sk) || exi_holders_alone(&sh->holders) ||
	    atomic_load(&sh->gone) || exi_switch_left(sh))
		return;
	for (d = EXI_RX; d <= EXI_TX; d++) {
		if (!exi_trylock(&sh->half[d].lock))
			return;
		exi_unlock(&sh->half[d].lock);
	}
	if (arg)
		exi_switch_down(sk, fd, EXS_X_REASON_SHARED, *(uint64_t *)arg);
	else
		exi_switch_leave(sk, EXS_X_REASON_SHARED);
}

void exi_sock_exit(void)
{
	uint64_t until;

	if (!exi_remote_used())
		return;
	exi_sock_each(hand_over, NULL);
	until = exi_now_ns() + HAND_OVER_NS;
	exi_sock_each(hand_over, &until);
	until = exi_now_ns() + TAKE_OVER_NS;
	/* Before the ends: who found one finds this. */
	atomic_store(&exits, exi_tid());
	exi_sock_each(end_one, &until);
	exi_sock_each(deliver_one, &until);
}

void exi_sock_outlive(void)
{
	uint32_t tid;

	atomic_thread_fence(memory_order_acquire);
	tid = atomic_load(&exits);
	while (tid && tid != exi_tid())
		pause();
}

/* EXS_REQUIRE: a connection that will not get there says so and fails. */
static void check_require(struct exi_sock *sk, int reason)
{
	const char *require = exi_config()->require;

	if (!require[0] || strcmp(require, "tcp") == 0)
		return;
	switch (reason) {
	case EXS_X_REASON_NONE:
	case EXS_X_REASON_UNDECIDED:
	case EXS_X_REASON_PLAIN_SOCKET:
	case EXS_X_REASON_REQUESTED:
	case EXS_X_REASON_PEER_REQUEST:
	case EXS_X_REASON_ORPHAN:
	case EXS_X_REASON_PEER_LOST:
	case EXS_X_REASON_FABRIC_LOST:
	case EXS_X_REASON_PROTOCOL:
		return; /* it was there, or may come to be */
	case EXS_X_REASON_HALF_CLOSED:
		if (exi_sock_met(sk))
			return;
		break;
	default:
		break;
	}
	exi_error("EXS_REQUIRE is %s, but descriptor %d stays on TCP: %s",
		  require, atomic_load(&sk->fd), exs_x_reason_text(reason));
	atomic_store(&sk->sh->half[EXI_RX].err, EPROTONOSUPPORT);
	atomic_store(&sk->sh->half[EXI_TX].err, EPROTONOSUPPORT);
}

void exi_sock_reason(struct exi_sock *sk, int reason)
{
	check_require(sk, reason);
	atomic_store_explicit(&sk->sh->reason, (uint32_t)reason,
			      memory_order_relaxed);
	exi_debug("descriptor %d: %s", atomic_load(&sk->fd),
		  exs_x_reason_name(reason));
}

static void ring_locked(struct exi_sock *sk, enum exi_dir dir)
{
	struct exi_waiter *w, *next;

	EXI_LOCKED(&sk->sh->half[dir].lock);
	for (w = sk->waiters[dir]; w; w = next) {
		next = w->next;
		w->wake(w);
	}
}

void exi_sock_ring(struct exi_sock *sk, enum exi_dir dir)
{
	struct exi_half *h = &exi_sock_shared(sk)->half[dir];

	exi_lock(&h->lock);
	ring_locked(sk, dir);
	exi_unlock(&h->lock);
}

/* Pairs with the load before the last look in a waiter: it sees the new state,
 * or its sleep ends at once. */
static void kick_word(struct exi_shared *sh, enum exi_dir dir)
{
	atomic_fetch_add_explicit(&sh->kick[dir], 1, memory_order_seq_cst);
	exi_futex_wake((const uint32_t *)&sh->kick[dir], INT_MAX);
}

void exi_sock_kick(struct exi_sock *sk, enum exi_dir dir)
{
	kick_word(exi_sock_shared(sk), dir);
	exi_sock_ring(sk, dir);
	exi_family_tell(sk);
}

void exi_sock_kick_locked(struct exi_sock *sk, enum exi_dir dir)
{
	EXI_LOCKED(&sk->sh->half[dir].lock);
	kick_word(sk->sh, dir);
	ring_locked(sk, dir);
	exi_family_tell(sk);
}

void exi_sock_wait(struct exi_sock *sk, enum exi_dir dir, struct exi_waiter *w)
{
	w->next = sk->waiters[dir];
	sk->waiters[dir] = w;
	exi_sock_look(sk, dir, 1);
}

void exi_sock_unwait(struct exi_sock *sk, enum exi_dir dir,
		     struct exi_waiter *w)
{
	struct exi_waiter **at = &sk->waiters[dir];

	while (*at && *at != w)
		at = &(*at)->next;
	if (!*at)
		return;
	*at = w->next;
	exi_sock_look(sk, dir, -1);
	exi_unseen_stir();
}

int exi_sock_stream(int fd)
{
	const struct exi_sock *sk = exi_sock_find(fd);
	socklen_t len = sizeof(int);
	int type;

	if (sk && (sk->role == EXI_ROLE_CONNECT || sk->role == EXI_ROLE_ACCEPT))
		return 0;
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0)
		return -errno;
	return type == SOCK_STREAM ? 0 : -EOPNOTSUPP;
}
