/* SPDX-License-Identifier: BSD-2-Clause */
/* The providers of libfabric that are found here, and those that can carry
 * connections. */
#include "providers/ofi/ofi_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/config.h"
#include "core/rma/request.h"

/* Hints of what the library can cope with; what is asked for beyond it is
 * unfit. */
static struct fi_info *hints_for(const char *provider, enum fi_ep_type type)
{
	struct fi_info *h = fi_allocinfo();

	if (!h)
		return NULL;
	h->caps = FI_MSG | FI_RMA;
	h->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
	h->ep_attr->type = type;
	h->domain_attr->threading = FI_THREAD_SAFE;
	h->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR |
				  FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	/* A message is taken after what was written before it. */
	h->tx_attr->msg_order = FI_ORDER_SAS | FI_ORDER_SAW;
	if (provider && provider[0])
		h->fabric_attr->prov_name = strdup(provider);
	return h;
}

bool ofip_inet(const struct fi_info *i)
{
	return i->addr_format == FI_SOCKADDR_IN ||
	       i->addr_format == FI_SOCKADDR_IN6 ||
	       i->addr_format == FI_SOCKADDR;
}

struct fi_info *ofip_infos(const char *provider, enum fi_ep_type type,
			   const struct sockaddr *at)
{
	struct fi_info *h = hints_for(provider, type), *ret = NULL;
	char node[NI_MAXHOST];
	socklen_t len = at && at->sa_family == AF_INET
				? sizeof(struct sockaddr_in)
				: sizeof(struct sockaddr_in6);
	int err = -FI_ENODATA;

	if (!h)
		return NULL;
	/* The C library asks the kernel for addresses. */
	exi_rma_host->fds_begin();
	if (at &&
	    !getnameinfo(at, len, node, sizeof(node), NULL, 0, NI_NUMERICHOST))
		err = fi_getinfo(OFIP_VERSION, node, NULL,
				 FI_SOURCE | FI_NUMERICHOST, h, &ret);
	/* Addresses of another kind have no node that we could name. */
	if (!err && !ofip_inet(ret)) {
		fi_freeinfo(ret);
		ret = NULL;
		err = -FI_ENODATA;
	}
	if (err)
		err = fi_getinfo(OFIP_VERSION, NULL, NULL, 0, h, &ret);
	exi_rma_host->fds_end();
	fi_freeinfo(h);
	return err ? NULL : ret;
}

bool ofip_hardware(const struct fi_info *i)
{
	static const char *const names[] = { "verbs", "efa",  "cxi",
					     "opx",   "psm2", "usnic" };
	const char *name = i->fabric_attr->prov_name;
	size_t len = strcspn(name, ";");

	for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++)
		if (len == strlen(names[k]) && !strncmp(name, names[k], len))
			return true;
	return false;
}

bool ofip_later(const struct fi_info *i)
{
	return !strcmp(i->fabric_attr->prov_name, "sockets");
}

bool ofip_shm(const struct fi_info *i)
{
	return !strcmp(i->fabric_attr->prov_name, "shm");
}

const char *ofip_unfit(const struct fi_info *i)
{
	/* The event queue's descriptor stays readable, and so says nothing. */
	if (!strncmp(i->fabric_attr->prov_name, "net", 3))
		return "experimental in libfabric 1.17: use tcp";
	/* Shm would take the program's signals, and leave files behind. */
	if (ofip_shm(i) && !ofip_fds_taken())
		return "the program used libfabric before libexs";
	/* A peer's end may end the process (ofi_fds.c). */
	if (!strcmp(i->fabric_attr->prov_name, "verbs;ofi_rxm") &&
	    !ofip_fds_taken() && !getenv("FI_OFI_RXM_USE_SRX"))
		return "the program used libfabric before libexs, without "
		       "FI_OFI_RXM_USE_SRX=1";
	if (i->domain_attr->cq_data_size < 4)
		return "completions carry less than 4 bytes of data";
	if (i->ep_attr->max_msg_size < EXI_RMA_RING_MAX)
		return "messages are shorter than a ring";
	if (i->ep_attr->msg_prefix_size)
		return "messages have a prefix";
	if (i->rx_attr->size < EXI_RMA_CREDITS)
		return "fewer receives than credits";
	return NULL;
}

bool ofip_reaches(const struct fi_info *i, const struct sockaddr *at,
		  const struct sockaddr *peer)
{
	uint8_t ours[16], theirs[16];

	if (!at || !peer || ofip_inet(i) ||
	    (i->domain_attr->caps & FI_REMOTE_COMM) ||
	    !(i->caps & FI_LOCAL_COMM))
		return true;
	exi_rma_from_sockaddr(at, ours);
	exi_rma_from_sockaddr(peer, theirs);
	return !memcmp(ours, theirs, sizeof(ours));
}

/* Sets what libfabric found as it is used here. */
static struct fi_info *settled(struct fi_info *i)
{
	if (!ofip_shm(i))
		return i;
	/* Without FI_MR_VIRT_ADDR the provider would order messages after
	 * writes by fetching these, too. */
	i->domain_attr->mr_mode |= FI_MR_VIRT_ADDR;
	i->tx_attr->msg_order = FI_ORDER_SAS;
	return i;
}

static struct fi_info *pick(struct fi_info *all, const struct sockaddr *at,
			    const struct sockaddr *peer, bool named,
			    const char **ret_why)
{
	for (struct fi_info *i = all; i; i = i->next) {
		const char *why = ofip_unfit(i);

		if (!why && !named && !ofip_hardware(i))
			why = "software, which is used only if "
			      "EXS_OFI_PROVIDER names it";
		if (!why && at && ofip_inet(i) && !i->src_addr)
			why = "it has no address of this connection";
		if (!why && !ofip_reaches(i, at, peer))
			why = "the other end is on another host";
		if (!why)
			return fi_dupinfo(i);
		*ret_why = why;
	}
	return NULL;
}

static const char *endpoints_wanted(const struct exi_config *cfg)
{
	switch (cfg->ofi_endpoint) {
	case EXI_OFI_MSG:
		return " with endpoints of kind msg (EXS_OFI_ENDPOINT)";
	case EXI_OFI_RDM:
		return " with endpoints of kind rdm (EXS_OFI_ENDPOINT)";
	default:
		return "";
	}
}

int ofip_info(const struct sockaddr *at, const struct sockaddr *peer,
	      struct fi_info **ret, char *why, size_t len)
{
	const struct exi_config *cfg = exi_rma_host->config();
	const char *name = cfg->ofi_provider, *unfit = NULL;
	static const enum fi_ep_type types[] = { FI_EP_MSG, FI_EP_RDM };

	for (int k = 0; k < 2; k++) {
		struct fi_info *all, *one;

		if ((cfg->ofi_endpoint == EXI_OFI_MSG && k) ||
		    (cfg->ofi_endpoint == EXI_OFI_RDM && !k))
			continue;
		all = ofip_infos(name, types[k], at);
		one = pick(all, at, peer, name[0], &unfit);
		if (all)
			fi_freeinfo(all);
		if (one) {
			*ret = settled(one);
			return 0;
		}
	}
	if (unfit)
		snprintf(why, len, "%s%s%s", name, name[0] ? ": " : "", unfit);
	else if (name[0])
		snprintf(why, len,
			 "EXS_OFI_PROVIDER is \"%.64s\", which libfabric %u.%u "
			 "does not have on this host%s",
			 name, FI_MAJOR(fi_version()), FI_MINOR(fi_version()),
			 endpoints_wanted(cfg));
	else
		snprintf(why, len, "libfabric finds no device%s",
			 endpoints_wanted(cfg));
	return -ENODEV;
}
