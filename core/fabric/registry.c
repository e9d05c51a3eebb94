/* SPDX-License-Identifier: BSD-2-Clause */
/* The providers of this build. */
#include "core/base/lock.h"
#include "core/fabric/registry.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/base/log.h"
#include "core/base/util.h"
#include "core/fabric/module.h"
#include "core/fabric/provider.h"
#include "exi_build.h"

#define PROVIDERS_MAX 8

extern const struct exi_provider exi_provider_shm;
extern const struct exi_provider exi_provider_loop;

/* Whether the folder has entries. */
static bool filled(const char *path)
{
	struct dirent *e = NULL;
	DIR *d = opendir(path);

	while (d && (e = readdir(d)) && e->d_name[0] == '.')
		;
	if (d)
		closedir(d);
	return e != NULL;
}

static bool verbs_signs(void)
{
	return filled("/sys/class/infiniband");
}

/* Whether there are devices of other fabrics, or a configured provider that
 * needs none. */
static bool ofi_signs(void)
{
	return exi_config()->ofi_provider[0] || filled("/sys/class/cxi") ||
	       filled("/sys/class/infiniband");
}

/* Every fabric of the project; a null provider is not in this build. */
struct slot {
	const char *name;
	const struct exi_provider *provider;
	/* Null, or the fabric is in a module (module.h), which is not opened if
	 * this finds no sign of a device. */
	bool (*signs)(void);
	void *handle; /* the module's */
	/* In a forked child: the module must not be called any more, and is
	 * unloaded with this library when it is needed again. */
	char afresh[64];
	_Atomic int usable; /* 0: not probed, 1: yes, -1: no */
	int err;	    /* the error of probing */
	char why[256];
	_Atomic(struct exi_domain *) domain;
};

static struct slot slots[PROVIDERS_MAX] = {
#if EXI_WITH_SHM
	{ .name = "shm", .provider = &exi_provider_shm },
#else
	{ .name = "shm" },
#endif
	{ .name = "verbs", .signs = EXI_WITH_VERBS ? verbs_signs : NULL },
	{ .name = "ofi", .signs = EXI_WITH_OFI ? ofi_signs : NULL },
	{ .name = "tcp", .provider = &exi_provider_tcp },
#if EXI_WITH_LOOP
	{ .name = "loop", .provider = &exi_provider_loop },
#else
	{ .name = "loop" },
#endif
};

/* Guards probing and opening. */
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;

/* Whether two members, which are useless alone, are both set or both null. */
static bool all_or_none(bool a, bool b)
{
	return a == b;
}

static bool wait_ops_complete(const struct exi_wait_ops *o)
{
	return o && o->arm && o->disarm && o->word && o->peer_cpu &&
	       all_or_none(o->poll, o->patience);
}

static bool ready_ops_complete(const struct exi_ready_ops *o)
{
	return o && o->ready && o->unread && o->full && o->over &&
	       all_or_none(o->first, o->want_times) &&
	       all_or_none(o->first, o->tcp_sends) &&
	       all_or_none(o->first, o->tcp_sent);
}

static bool kernel_ops_complete(const struct exi_kernel_ops *o)
{
	return o && o->sendv && o->recvv && o->error && o->post_send &&
	       o->post_recv && o->cancel;
}

/* kernel: the fabric is TCP, where every connection begins. */
static bool conn_ops_complete(const struct exi_conn_ops *o, bool kernel)
{
	return o && o->send && o->recv && o->end &&
	       wait_ops_complete(o->wait_ops) &&
	       ready_ops_complete(o->ready_ops) &&
	       (kernel ? kernel_ops_complete(o->kernel_ops) : !o->kernel_ops);
}

static bool domain_ops_complete(const struct exi_domain_ops *o)
{
	return !o || (all_or_none(o->progress, o->event_fd) &&
		      all_or_none(o->progress, o->arm));
}

static bool switch_ops_complete(const struct exi_switch_ops *o)
{
	return o && o->head && o->start && o->cursor && o->takeback &&
	       o->drain && o->drained;
}

static bool meet_ops_complete(const struct exi_meet_ops *o)
{
	return o && o->offer && o->answer && o->accepted;
}

static bool remote_ops_complete(const struct exi_remote_ops *o)
{
	return o && o->listen && o->unlisten && o->connect && o->requested &&
	       o->sever && o->leave && o->left && o->position && o->resend &&
	       o->resume;
}

static bool place_ops_complete(const struct exi_place_ops *o)
{
	return o && o->lend && o->give && o->welcome && o->reap && o->recall &&
	       o->quiet && o->answer && o->cut && o->placed && o->forget;
}

static bool loan_ops_complete(const struct exi_loan_ops *o)
{
	return o && o->look && o->took && all_or_none(o->room, o->put);
}

static bool apart_ops_complete(const struct exi_apart_ops *o)
{
	return !o || (o->begin && o->look && o->took && o->size && o->end);
}

int exi_provider_check(const struct exi_provider *p)
{
	bool local = p->caps & EXI_CAP_LOCAL;
	bool remote = p->caps & EXI_CAP_REMOTE;
	bool switches = p->caps & EXI_CAP_SWITCH;
	bool places = p->caps & EXI_CAP_PLACE;
	bool loans = p->caps & EXI_CAP_LOAN;

	if (p->abi != EXI_PROVIDER_ABI || !p->name || !p->probe ||
	    !all_or_none(p->open, p->close) ||
	    !domain_ops_complete(p->domain_ops) ||
	    !conn_ops_complete(p->conn_ops, !switches))
		return -EINVAL;
	if (switches && !switch_ops_complete(p->conn_ops->switch_ops))
		return -EINVAL;
	if (places ? !place_ops_complete(p->conn_ops->place_ops)
		   : !!p->conn_ops->place_ops)
		return -EINVAL;
	if (loans ? !loan_ops_complete(p->conn_ops->loan_ops)
		  : !!p->conn_ops->loan_ops)
		return -EINVAL;
	if (!apart_ops_complete(p->conn_ops->apart_ops))
		return -EINVAL;
	if (remote && !remote_ops_complete(p->remote_ops))
		return -EINVAL;
	if (local && (!p->wire_id || !meet_ops_complete(p->meet_ops)))
		return -EINVAL;
	return 0;
}

static bool configured(const char *name)
{
	const struct exi_config *cfg = exi_config();
	unsigned int i;

	for (i = 0; i < cfg->n_providers; i++)
		if (strcmp(cfg->providers[i], name) == 0)
			return true;
	return strcmp(name, "tcp") == 0;
}

/* Whether the user names this fabric: then the log explains why it is not
 * used. */
static bool named(const struct slot *s)
{
	const struct exi_config *cfg = exi_config();

	return strcmp(s->name, "ofi") == 0 ? cfg->ofi_provider[0]
					   : cfg->verbs_device[0];
}

static void open_module(struct slot *s)
{
	if (s->afresh[0] &&
	    exi_module_close(s->handle, s->afresh, s->why, sizeof(s->why)))
		return;
	s->afresh[0] = 0;
	if (exi_module_open(s->name, &s->provider, &s->handle, s->why,
			    sizeof(s->why)) &&
	    named(s))
		exi_warn("%s is not used: %s", s->name, s->why);
}

static void probe(struct slot *s)
{
	/* Acquire: pairs with the store of the result, after its other
	 * members. */
	if (atomic_load_explicit(&s->usable, memory_order_acquire))
		return;
	exi_mutex_lock(&registry_lock);
	if (!s->usable) {
		if (!s->provider && s->signs)
			open_module(s);
		else if (!s->provider)
			snprintf(s->why, sizeof(s->why), "not in this build");
		if (s->provider)
			s->err = s->provider->probe(s->why, sizeof(s->why));
		if (!s->err && s->provider && exi_provider_check(s->provider))
			snprintf(s->why, sizeof(s->why), "incomplete tables");
		else if (!s->err && s->provider)
			s->why[0] = 0;
		atomic_store_explicit(&s->usable,
				      s->provider && !s->why[0] ? 1 : -1,
				      memory_order_release);
	}
	exi_mutex_unlock(&registry_lock);
}

static struct slot *slot_of(const char *name)
{
	unsigned int i;

	for (i = 0; i < PROVIDERS_MAX && slots[i].name; i++)
		if (strcmp(slots[i].name, name) == 0)
			return &slots[i];
	return NULL;
}

static void row_of(struct slot *s, struct exi_registry_row *ret)
{
	probe(s);
	ret->name = s->name;
	ret->provider = s->provider;
	ret->configured = configured(s->name);
	ret->usable = s->usable > 0;
	ret->err = ret->usable ? 0 : s->err;
	snprintf(ret->why, sizeof(ret->why), "%s", s->why);
}

bool exi_registry_row(unsigned int i, struct exi_registry_row *ret)
{
	if (i >= PROVIDERS_MAX || !slots[i].name)
		return false;
	row_of(&slots[i], ret);
	return true;
}

void exi_registry_find(const char *name, struct exi_registry_row *ret)
{
	row_of(slot_of(name), ret);
}

/* The bits change only in a child; 0: not yet computed. */
#define WIRE_IDS_KNOWN (UINT64_C(1) << 63)
static _Atomic uint64_t wire_ids;

uint64_t exi_registry_wire_ids(void)
{
	const struct exi_config *cfg = exi_config();
	uint64_t mask = atomic_load_explicit(&wire_ids, memory_order_relaxed);
	unsigned int i;

	if (exi_likely(mask))
		return mask & ~WIRE_IDS_KNOWN;
	for (i = 0; i < cfg->n_providers; i++) {
		struct slot *s = slot_of(cfg->providers[i]);

		/* Between processes of one host: no module is opened. */
		if (!s || s->signs)
			continue;
		probe(s);
		if (s->usable > 0 && (s->provider->caps & EXI_CAP_LOCAL))
			mask |= s->provider->wire_id;
	}
	atomic_store_explicit(&wire_ids, mask | WIRE_IDS_KNOWN,
			      memory_order_relaxed);
	return mask;
}

bool exi_registry_allows(const struct exi_config_way *w,
			 const struct exi_provider *p)
{
	const struct exi_config *cfg = exi_config();

	for (unsigned int i = 0; i < cfg->n_providers; i++)
		if (strcmp(cfg->providers[i], p->name) == 0)
			return w->fabrics >> i & 1;
	return false;
}

uint64_t exi_registry_wire_ids_of(const struct exi_config_way *w)
{
	const struct exi_config *cfg = exi_config();
	uint64_t mask = exi_registry_wire_ids();

	if (exi_likely(w->fabrics == UINT32_MAX))
		return mask;
	for (unsigned int i = 0; i < cfg->n_providers; i++) {
		const struct slot *s = slot_of(cfg->providers[i]);

		if (!(w->fabrics >> i & 1) && s && s->usable > 0)
			mask &= ~s->provider->wire_id;
	}
	return mask;
}

const struct exi_provider *exi_registry_choose(uint64_t mask, bool same_process)
{
	const struct exi_config *cfg = exi_config();
	unsigned int i;

	for (i = 0; i < cfg->n_providers; i++) {
		struct slot *s = slot_of(cfg->providers[i]);

		if (s && s->usable > 0 && (s->provider->wire_id & mask) &&
		    (same_process || !(s->provider->caps & EXI_CAP_IN_PROCESS)))
			return s->provider;
	}
	return NULL;
}

/* The slot of a configured name, if it is a fabric between hosts. */
static struct slot *remote_slot(const char *name)
{
	struct slot *s = slot_of(name);

	return s && s->signs && s->signs() ? s : NULL;
}

static bool is_there(const char *folder, const char *name)
{
	char path[PATH_MAX];

	return folder && folder[0] &&
	       snprintf(path, sizeof(path), "%s%s", folder, name) <
		       (int)sizeof(path) &&
	       access(path, F_OK) == 0;
}

/* Whether there may be a key; reading it shows whether it is usable. */
static bool may_have_key(void)
{
	const struct exi_config *cfg = exi_config();

	if (cfg->trust == EXI_TRUST_HOSTS)
		return true;
	if (cfg->key_file[0])
		return is_there(cfg->key_file, "");
	return is_there(cfg->config_home, "/exs/key") ||
	       is_there(cfg->home, "/.config/exs/key") ||
	       is_there(EXI_KEY_SYSTEM, "");
}

/* Whether opening the module is not worth it: it loads many libraries, and a
 * program that names no provider cannot use them without a key. */
static bool costs_too_much(const struct slot *s)
{
	return s->signs == ofi_signs && !exi_config()->ofi_provider[0] &&
	       !may_have_key();
}

bool exi_registry_remote_signs(const struct exi_config_way *w)
{
	const struct exi_config *cfg = exi_config();
	unsigned int i;

	for (i = 0; i < cfg->n_providers; i++)
		if ((!w || w->fabrics >> i & 1) &&
		    remote_slot(cfg->providers[i]))
			return true;
	return false;
}

const struct exi_provider *exi_registry_remote(int *ret_err)
{
	const struct exi_config *cfg = exi_config();
	unsigned int i;

	*ret_err = 0;
	for (i = 0; i < cfg->n_providers; i++) {
		struct slot *s = remote_slot(cfg->providers[i]);

		if (!s)
			continue;
		if (costs_too_much(s)) {
			*ret_err = -ENOKEY;
			continue;
		}
		probe(s);
		if (s->usable > 0 && (s->provider->caps & EXI_CAP_REMOTE))
			return s->provider;
		*ret_err = s->err;
	}
	return NULL;
}

const struct exi_provider *exi_registry_by_wire_id(uint64_t wire_id)
{
	if (!(wire_id & exi_registry_wire_ids()) || (wire_id & (wire_id - 1)))
		return NULL;
	return exi_registry_choose(wire_id, true);
}

static struct slot *slot_for(const struct exi_provider *p)
{
	unsigned int i;

	for (i = 0; i < PROVIDERS_MAX; i++)
		if (slots[i].provider == p)
			return &slots[i];
	return NULL;
}

/* --- what a fabric leaves out ------------------------------------------- */

static int no_progress(struct exi_domain *d)
{
	return 0;
}

static int no_event_fd(struct exi_domain *d)
{
	return -EOPNOTSUPP;
}

static int no_arm(struct exi_domain *d)
{
	return 0;
}

static void nothing_to_forget(struct exi_domain *d)
{
}

static int open_domain(const struct exi_provider *p, struct exi_domain **ret)
{
	const struct exi_domain_ops *o = p->domain_ops;
	struct exi_domain *d;
	int err;

	if (p->open) {
		err = p->open(&d);
		if (err)
			return err;
	} else {
		d = calloc(1, sizeof(*d));
		if (!d)
			return -ENOMEM;
	}
	d->provider = p;
	d->ops = (struct exi_domain_ops){
		.progress = o && o->progress ? o->progress : no_progress,
		.event_fd = o && o->progress ? o->event_fd : no_event_fd,
		.arm = o && o->progress ? o->arm : no_arm,
		.forked = o && o->forked ? o->forked : nothing_to_forget,
	};
	*ret = d;
	return 0;
}

int exi_registry_domain(const struct exi_provider *p, struct exi_domain **ret)
{
	struct slot *s = slot_for(p);
	struct exi_domain *d;
	int err = 0;

	if (!s)
		return -ENOENT;
	d = atomic_load_explicit(&s->domain, memory_order_acquire);
	if (!d) {
		exi_mutex_lock(&registry_lock);
		d = atomic_load(&s->domain);
		if (!d) {
			err = open_domain(p, &d);
			if (!err)
				atomic_store(&s->domain, d);
		}
		exi_mutex_unlock(&registry_lock);
	}
	if (!err)
		*ret = d;
	return err;
}

void exi_registry_each_domain(void (*f)(struct exi_domain *d, void *arg),
			      void *arg)
{
	unsigned int i;

	for (i = 0; i < PROVIDERS_MAX; i++) {
		struct exi_domain *d = atomic_load(&slots[i].domain);

		if (d)
			f(d, arg);
	}
}

static void forked(struct slot *s, struct exi_domain *d)
{
	const char *afresh = s->provider->afresh;

	atomic_store(&d->watched, false);
	d->ops.forked(d);
	if (!afresh)
		return;
	/* The name is in the module. */
	snprintf(s->afresh, sizeof(s->afresh), "%s", afresh);
	atomic_store(&s->domain, NULL);
	s->provider = NULL;
	s->usable = 0;
}

void exi_registry_forked(void)
{
	unsigned int i;

	pthread_mutex_init(&registry_lock, NULL);
	atomic_store(&wire_ids, 0);
	for (i = 0; i < PROVIDERS_MAX; i++) {
		struct exi_domain *d = atomic_load(&slots[i].domain);

		if (d)
			forked(&slots[i], d);
	}
}
