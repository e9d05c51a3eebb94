/* SPDX-License-Identifier: BSD-2-Clause */
/* The verbs fabric: InfiniBand, RoCE and iWARP through libibverbs. Its table,
 * and what it reports to users. */
#include "providers/verbs/verbs_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/config.h"
#include "core/base/log.h"
#include "core/rma/conn.h"
#include "core/rma/domain.h"
#include "core/rma/meet.h"
#include "core/rma/place.h"

/* --- for people --------------------------------------------------------- */

static const char *transport(const struct verbsp_device *d,
			     const struct ibv_port_attr *port)
{
	if (d->iwarp)
		return "iWARP";
	return port->link_layer == IBV_LINK_LAYER_ETHERNET ? "RoCE"
							   : "InfiniBand";
}

static const char *gid_type(const struct verbsp_device *d, uint32_t type)
{
	if (d->iwarp)
		return "iWARP";
	return type == IBV_GID_TYPE_ROCE_V2   ? "RoCE v2"
	       : type == IBV_GID_TYPE_ROCE_V1 ? "RoCE v1"
					      : "InfiniBand";
}

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

static void describe_gid(struct verbsp_device *d, const struct ibv_gid_entry *g,
			 struct exi_facts *f)
{
	char text[INET6_ADDRSTRLEN], link[IF_NAMESIZE], number[16];

	snprintf(number, sizeof(number), "%u", g->gid_index);
	f->begin(f, "gid", number);
	f->fact(f, "address",
		inet_ntop(AF_INET6, g->gid.raw, text, sizeof(text)));
	f->fact(f, "type", gid_type(d, g->gid_type));
	if (g->ndev_ifindex && if_indextoname(g->ndev_ifindex, link))
		f->fact(f, "interface", link);
	f->end(f);
}

static void describe_port(struct verbsp_device *d, unsigned int number,
			  struct exi_facts *f)
{
	struct ibv_gid_entry *gids = NULL;
	struct ibv_port_attr port;
	char text[16];
	int n;

	if (ibv_query_port(d->ctx, (uint8_t)number, &port))
		return;
	snprintf(text, sizeof(text), "%u", number);
	f->begin(f, "port", text);
	f->fact(f, "state", ibv_port_state_str(port.state));
	f->fact(f, "transport", transport(d, &port));
	f->fact(f, "link layer",
		port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet"
							   : "InfiniBand");
	say(f, "mtu", "%u", 128u << port.active_mtu);
	if (port.lid)
		say(f, "lid", "%u", port.lid);
	n = verbsp_gids(d->ctx, &gids);
	for (int i = 0; i < n; i++)
		if (gids[i].port_num == number)
			describe_gid(d, &gids[i], f);
	free(gids);
	f->end(f);
}

static bool describe_device(struct verbsp_device *d, void *arg)
{
	struct exi_facts *f = arg;

	f->begin(f, "device", d->name);
	f->fact(f, "state", d->why[0] ? "not usable" : "usable");
	if (d->why[0])
		f->fact(f, "why", d->why);
	f->fact(f, "kind", d->software ? "software" : "hardware");
	if (d->ctx && d->attr.fw_ver[0])
		f->fact(f, "firmware", d->attr.fw_ver);
	for (unsigned int i = 1; d->ctx && i <= d->attr.phys_port_cnt; i++)
		describe_port(d, i, f);
	f->end(f);
	return true;
}

static void describe(struct exi_facts *f)
{
	char why[EXI_RMA_WHY];

	verbsp_each_device(describe_device, f, why, sizeof(why));
}

/* --- the table ---------------------------------------------------------- */

struct verdict {
	bool usable;
	char names[EXI_RMA_WHY / 2];
	char why[EXI_RMA_WHY]; /* the first unusable device's */
	int err;
};

static bool weigh(struct verbsp_device *d, void *arg)
{
	struct verdict *v = arg;
	size_t n = strlen(v->names);

	snprintf(v->names + n, sizeof(v->names) - n, "%s%s", n ? ", " : "",
		 d->name);
	if (!d->err) {
		v->usable = true;
		return false;
	}
	/* The reasons of devices that no setting names come last. */
	if (!v->err || (v->err == -ENODEV && d->err != -ENODEV)) {
		v->err = d->err;
		snprintf(v->why, sizeof(v->why), "%.32s: %.200s", d->name,
			 d->why);
	}
	return true;
}

static int judge(char *why, size_t len)
{
	const char *named = exi_rma_host->config()->verbs_device;
	struct verdict v = { 0 };
	int err = verbsp_each_device(weigh, &v, why, len);

	if (err == -ENODEV && named[0])
		snprintf(why, len,
			 "EXS_VERBS_DEVICE is \"%.64s\", which this host does "
			 "not have; it has no RDMA device",
			 named);
	if (err)
		return err;
	if (!v.usable && named[0] && v.err == -ENODEV)
		snprintf(why, len,
			 "EXS_VERBS_DEVICE is \"%.64s\", which this host does "
			 "not have; it has %s",
			 named, v.names);
	else if (!v.usable)
		snprintf(why, len, "%s", v.why);
	return v.usable ? 0 : v.err;
}

/* A user who asks for RDMA learns why there is none. */
static int probe(char *why, size_t len)
{
	const struct exi_config *cfg = exi_rma_host->config();
	int err = judge(why, len);
	char name[64];

	if (*exi_rma_host->log_level < EXI_LOG_WARN)
		return err;
	if (err && (cfg->verbs_device[0] || cfg->verbs_gid_index >= 0 ||
		    err == -ENOMEM))
		exi_rma_host->log(EXI_LOG_WARN, "verbs is not used: %s", why);
	else if (!err && verbsp_misnamed(name, sizeof(name)))
		exi_rma_host->log(EXI_LOG_WARN,
				  "EXS_VERBS_DEVICE names %s, which this host "
				  "does not have",
				  name);
	return err;
}

const struct exi_provider verbsp_provider = {
	.abi = EXI_PROVIDER_ABI,
	.name = "verbs",
	.caps = EXI_CAP_REMOTE | EXI_CAP_SWITCH | EXI_CAP_PLACE | EXI_CAP_LOAN,
	/* librdmacm keeps devices open that are the parent's. */
	.afresh = "librdmacm.so.1",
	.probe = probe,
	.describe = describe,
	.open = exi_rma_open,
	.close = exi_rma_domain_close,
	.domain_ops = &exi_rma_domain_ops,
	.conn_ops = &exi_rma_conn_ops,
	.remote_ops = &exi_rma_remote_ops,
};

const struct exi_rma_fabric exi_rma_fabric = {
	.provider = &verbsp_provider,
	.link_size = sizeof(struct verbsp_link),
	.reg = verbsp_net_reg,
	.dereg = verbsp_net_dereg,
	.post = verbsp_net_post,
	.take = verbsp_net_take,
	.reap = verbsp_net_reap,
	.request = verbsp_net_request,
	.kill = verbsp_net_kill,
	.each_net = verbsp_nets_each,
	.each_link = verbsp_net_links,
	.port_for = verbsp_port_for,
	.port_setting = "EXS_VERBS_PORT_OFFSET",
	.any_address = true,
	.listen = verbsp_meet_listen,
	.unlisten = verbsp_meet_unlisten,
	.port_of = verbsp_meet_port_of,
	.ask = verbsp_meet_ask,
	.part = verbsp_meet_part,
	.accept = verbsp_meet_accept,
	.reject = verbsp_meet_reject,
	.proof = verbsp_meet_proof,
	.sever = verbsp_meet_sever,
	.look = verbsp_meet_tick,
	.open = verbsp_domain_open,
	.close = verbsp_domain_close,
	.forked = verbsp_domain_forked,
};

__attribute__((visibility("default"))) exi_module_fn exi_module;

const struct exi_provider *exi_module(const struct exi_host *host)
{
	if (host->abi != EXI_PROVIDER_ABI)
		return NULL;
	exi_rma_host = host;
	return &verbsp_provider;
}
