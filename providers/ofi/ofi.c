/* SPDX-License-Identifier: BSD-2-Clause */
/* The ofi fabric: all devices that libfabric drives. Its table, and its lines
 * of `exs info`. */
#include "providers/ofi/ofi_int.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/config.h"
#include "core/base/log.h"
#include "core/rma/conn.h"
#include "core/rma/domain.h"
#include "core/rma/meet.h"
#include "core/rma/place.h"

/* --- for people --------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void
say(struct exi_facts *f, const char *name, const char *fmt, ...)
{
	char text[EXI_RMA_WHY];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	f->fact(f, name, text);
}

static void describe_domain(const struct fi_info *i, struct exi_facts *f)
{
	const char *why = ofip_unfit(i);

	f->begin(f, "domain", i->domain_attr->name);
	f->fact(f, "state", why ? "not usable" : "usable");
	if (why)
		f->fact(f, "why", why);
	f->fact(f, "fabric", i->fabric_attr->name);
	f->fact(f, "endpoints",
		i->ep_attr->type == FI_EP_MSG ? "connected (msg)"
					      : "for all connections (rdm)");
	f->fact(f, "notifications",
		i->domain_attr->cq_data_size < 8 ? "messages"
						 : "immediate data");
	f->end(f);
}

static bool same_provider(const struct fi_info *a, const struct fi_info *b)
{
	return !strcmp(a->fabric_attr->prov_name, b->fabric_attr->prov_name);
}

static bool same_domain(const struct fi_info *a, const struct fi_info *b)
{
	return same_provider(a, b) && a->ep_attr->type == b->ep_attr->type &&
	       !strcmp(a->domain_attr->name, b->domain_attr->name);
}

/* Whether a domain was listed already: libfabric lists it once for each form of
 * its addresses. */
static bool told(const struct fi_info *all, const struct fi_info *i,
		 bool (*same)(const struct fi_info *, const struct fi_info *))
{
	while (all != i && !same(all, i))
		all = all->next;
	return all != i;
}

static void describe_provider(const struct fi_info *all,
			      const struct fi_info *of, struct exi_facts *f)
{
	f->begin(f, "provider", of->fabric_attr->prov_name);
	say(f, "version", "%u.%u", FI_MAJOR(of->fabric_attr->prov_version),
	    FI_MINOR(of->fabric_attr->prov_version));
	f->fact(f, "kind", ofip_hardware(of) ? "hardware" : "software");
	for (const struct fi_info *i = of; i; i = i->next)
		if (same_provider(i, of) && !told(all, i, same_domain))
			describe_domain(i, f);
	f->end(f);
}

static void describe(struct exi_facts *f)
{
	struct fi_info *all = ofip_infos(NULL, FI_EP_MSG, NULL), **end = &all;

	f->begin(f, "library", "libfabric");
	say(f, "version", "%u.%u", FI_MAJOR(fi_version()),
	    FI_MINOR(fi_version()));
	f->end(f);
	while (*end)
		end = &(*end)->next;
	*end = ofip_infos(NULL, FI_EP_RDM, NULL);
	for (const struct fi_info *i = all; i; i = i->next)
		if (!told(all, i, same_provider))
			describe_provider(all, i, f);
	if (all)
		fi_freeinfo(all);
}

/* --- the table ---------------------------------------------------------- */

/* The asker hears why there is no provider. */
static int probe(char *why, size_t len)
{
	struct fi_info *info;
	int err = ofip_info(NULL, NULL, &info, why, len);

	if (!err)
		fi_freeinfo(info);
	else if (exi_rma_host->config()->ofi_provider[0] &&
		 *exi_rma_host->log_level >= EXI_LOG_WARN)
		exi_rma_host->log(EXI_LOG_WARN, "ofi is not used: %s", why);
	return err;
}

/* A forked child, as over verbs: its parent takes back what the child uses. */
static void forked(void)
{
	ofip_nets_forked();
	ofip_socks_forked();
	ofip_shm_forked();
	ofip_fds_forked();
}

const struct exi_provider ofip_provider = {
	.abi = EXI_PROVIDER_ABI,
	.name = "ofi",
	.caps = EXI_CAP_REMOTE | EXI_CAP_SWITCH | EXI_CAP_PLACE | EXI_CAP_LOAN,
	.afresh = "libfabric.so.1",
	.probe = probe,
	.describe = describe,
	.open = exi_rma_open,
	.close = exi_rma_domain_close,
	.domain_ops = &exi_rma_domain_ops,
	.conn_ops = &exi_rma_conn_ops,
	.remote_ops = &exi_rma_remote_ops,
};

const struct exi_rma_fabric exi_rma_fabric = {
	.provider = &ofip_provider,
	.link_size = sizeof(struct ofip_link),
	.reg = ofip_net_reg,
	.dereg = ofip_net_dereg,
	.post = ofip_net_post,
	.take = ofip_net_take,
	.reap = ofip_net_reap,
	.request = ofip_net_request,
	.kill = ofip_net_kill,
	.each_net = ofip_nets_each,
	.each_link = ofip_net_links,
	.port_for = ofip_meet_port_for,
	.port_setting = "EXS_OFI_PORT_OFFSET",
	.listen = ofip_sock_listen,
	.unlisten = ofip_sock_unlisten,
	.port_of = ofip_sock_port_of,
	.ask = ofip_meet_ask,
	.part = ofip_meet_part,
	.accept = ofip_meet_accept,
	.reject = ofip_meet_reject,
	.proof = ofip_meet_proof,
	.sever = ofip_meet_sever,
	.quit = ofip_net_quit,
	.look = ofip_meet_tick,
	.arm = ofip_nets_arm,
	.forked = forked,
};

__attribute__((visibility("default"))) exi_module_fn exi_module;

const struct exi_provider *exi_module(const struct exi_host *host)
{
	if (host->abi != EXI_PROVIDER_ABI)
		return NULL;
	exi_rma_host = host;
	ofip_fds_take();
	return &ofip_provider;
}
