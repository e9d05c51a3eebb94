/* SPDX-License-Identifier: BSD-2-Clause */
/* A module that keeps the host's table where the test finds it. */
#include "core/fabric/module.h"
#include "core/fabric/provider.h"

exi_module_fn exi_module;
extern const struct exi_host *fake_host;

const struct exi_host *fake_host;

const struct exi_provider *exi_module(const struct exi_host *host)
{
	static const struct exi_provider provider = {
		.abi = EXI_PROVIDER_ABI,
		.name = "fake",
	};

	fake_host = host;
	return host->abi == EXI_PROVIDER_ABI ? &provider : NULL;
}
