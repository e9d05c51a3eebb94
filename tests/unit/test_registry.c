/* SPDX-License-Identifier: BSD-2-Clause */
/* A provider's tables are refused when a member that the core calls is missing.
 * Each member of each table is taken out in turn. A member that may be missing
 * is named here, so that a new one is required until somebody says
 * otherwise. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "core/fabric/provider.h"
#include "core/fabric/registry.h"
#include "tests/support/check.h"

#define ALL                                                                    \
	(EXI_CAP_LOCAL | EXI_CAP_SWITCH | EXI_CAP_REMOTE | EXI_CAP_PLACE |     \
	 EXI_CAP_LOAN)

static struct exi_domain_ops domain_ops;
static struct exi_conn_ops conn_ops;
static struct exi_wait_ops wait_ops;
static struct exi_ready_ops ready_ops;
static struct exi_kernel_ops kernel_ops;
static struct exi_switch_ops switch_ops;
static struct exi_meet_ops meet_ops;
static struct exi_remote_ops remote_ops;
static struct exi_place_ops place_ops;
static struct exi_loan_ops loan_ops;
static struct exi_apart_ops apart_ops;
static struct exi_provider provider;

/* One table, and the members that may be missing alone, by their offset. */
struct table {
	const char *name;
	void *at;
	size_t size;
	const size_t *optional;
	size_t n_optional;
};

static const size_t conn_optional[] = {
	offsetof(struct exi_conn_ops, priv_size),
	offsetof(struct exi_conn_ops, shared_size),
	offsetof(struct exi_conn_ops, kernel_ops),
	offsetof(struct exi_conn_ops, apart_ops),
	offsetof(struct exi_conn_ops, close),
	offsetof(struct exi_conn_ops, stop),
	offsetof(struct exi_conn_ops, fini),
};
static const size_t domain_optional[] = {
	offsetof(struct exi_domain_ops, forked),
};
static const size_t ready_optional[] = {
	offsetof(struct exi_ready_ops, nothing),
	offsetof(struct exi_ready_ops, left_unread),
};
static const size_t switch_optional[] = {
	offsetof(struct exi_switch_ops, runs),
};
static const size_t loan_optional[] = {
	offsetof(struct exi_loan_ops, whole),
};
static const size_t provider_optional[] = {
	offsetof(struct exi_provider, afresh),
	offsetof(struct exi_provider, describe),
	offsetof(struct exi_provider, domain_ops),
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
static const struct table tables[] = {
	{ "domain_ops", &domain_ops, sizeof(domain_ops), domain_optional,
	  COUNT(domain_optional) },
	{ "conn_ops", &conn_ops, sizeof(conn_ops), conn_optional,
	  COUNT(conn_optional) },
	{ "wait_ops", &wait_ops, sizeof(wait_ops), NULL, 0 },
	{ "ready_ops", &ready_ops, sizeof(ready_ops), ready_optional,
	  COUNT(ready_optional) },
	{ "switch_ops", &switch_ops, sizeof(switch_ops), switch_optional,
	  COUNT(switch_optional) },
	{ "meet_ops", &meet_ops, sizeof(meet_ops), NULL, 0 },
	{ "remote_ops", &remote_ops, sizeof(remote_ops), NULL, 0 },
	{ "place_ops", &place_ops, sizeof(place_ops), NULL, 0 },
	{ "loan_ops", &loan_ops, sizeof(loan_ops), loan_optional,
	  COUNT(loan_optional) },
	{ "apart_ops", &apart_ops, sizeof(apart_ops), NULL, 0 },
	{ "provider", &provider, sizeof(provider), provider_optional,
	  COUNT(provider_optional) },
};

/* Every word of every table set: none of them is called. */
static void make_whole(void)
{
	for (size_t i = 0; i < COUNT(tables); i++)
		memset(tables[i].at, 1, tables[i].size);
	provider.abi = EXI_PROVIDER_ABI;
	provider.wire_id = 1;
	provider.name = "whole";
	provider.caps = ALL;
	provider.domain_ops = &domain_ops;
	provider.conn_ops = &conn_ops;
	provider.meet_ops = &meet_ops;
	provider.remote_ops = &remote_ops;
	conn_ops.wait_ops = &wait_ops;
	conn_ops.ready_ops = &ready_ops;
	conn_ops.kernel_ops = NULL;
	conn_ops.switch_ops = &switch_ops;
	conn_ops.place_ops = &place_ops;
	conn_ops.loan_ops = &loan_ops;
	conn_ops.apart_ops = &apart_ops;
}

static void take_out(const struct table *t, size_t at)
{
	memset((char *)t->at + at, 0, sizeof(void *));
}

static bool may_be_missing(const struct table *t, size_t at)
{
	for (size_t i = 0; i < t->n_optional; i++)
		if (t->optional[i] == at)
			return true;
	return false;
}

static void each_required_member_is_missed(void **state)
{
	for (size_t i = 0; i < COUNT(tables); i++) {
		const struct table *t = &tables[i];

		for (size_t at = 0; at < t->size; at += sizeof(void *)) {
			int want = may_be_missing(t, at) ? 0 : -EINVAL;

			make_whole();
			/* Capabilities are no member that can be missing. */
			if (t->at == &provider &&
			    at == (offsetof(struct exi_provider, caps) &
				   ~(sizeof(void *) - 1)))
				continue;
			take_out(t, at);
			if (exi_provider_check(&provider) != want)
				fail_msg("%s without its member at %zu: not %d",
					 t->name, at, want);
		}
	}
}

/* What several members do together is whole, or not there. */
static void groups_may_be_missing_as_a_whole(void **state)
{
	make_whole();
	wait_ops.poll = NULL;
	wait_ops.patience = NULL;
	T_EQ(exi_provider_check(&provider), 0);
	ready_ops.first = NULL;
	ready_ops.want_times = NULL;
	ready_ops.tcp_sends = NULL;
	ready_ops.tcp_sent = NULL;
	T_EQ(exi_provider_check(&provider), 0);
	loan_ops.room = NULL;
	loan_ops.put = NULL;
	T_EQ(exi_provider_check(&provider), 0);
	provider.open = NULL;
	provider.close = NULL;
	T_EQ(exi_provider_check(&provider), 0);
	memset(&domain_ops, 0, sizeof(domain_ops));
	T_EQ(exi_provider_check(&provider), 0);
}

static void a_table_goes_with_its_capability(void **state)
{
	make_whole();
	provider.caps &= ~(uint32_t)EXI_CAP_PLACE;
	T_EQ(exi_provider_check(&provider), -EINVAL);
	conn_ops.place_ops = NULL;
	T_EQ(exi_provider_check(&provider), 0);
	provider.caps &= ~(uint32_t)EXI_CAP_LOAN;
	T_EQ(exi_provider_check(&provider), -EINVAL);
	conn_ops.loan_ops = NULL;
	T_EQ(exi_provider_check(&provider), 0);
	provider.caps &= ~(uint32_t)(EXI_CAP_LOCAL | EXI_CAP_REMOTE);
	provider.wire_id = 0;
	provider.meet_ops = NULL;
	provider.remote_ops = NULL;
	T_EQ(exi_provider_check(&provider), 0);
}

/* Without EXI_CAP_SWITCH it is TCP, of which more is asked; of others it is
 * not. */
static void tcp_has_a_table_of_its_own(void **state)
{
	static const struct table kernel = { "kernel_ops", &kernel_ops,
					     sizeof(kernel_ops), NULL, 0 };

	make_whole();
	conn_ops.kernel_ops = &kernel_ops;
	T_EQ(exi_provider_check(&provider), -EINVAL);
	provider.caps &= ~(uint32_t)EXI_CAP_SWITCH;
	conn_ops.switch_ops = NULL;
	memset(&kernel_ops, 1, sizeof(kernel_ops));
	T_EQ(exi_provider_check(&provider), 0);
	for (size_t at = 0; at < kernel.size; at += sizeof(void *)) {
		memset(&kernel_ops, 1, sizeof(kernel_ops));
		take_out(&kernel, at);
		T_EQ(exi_provider_check(&provider), -EINVAL);
	}
	conn_ops.kernel_ops = NULL;
	T_EQ(exi_provider_check(&provider), -EINVAL);
}

/* A fabric whose connections move only when they are called has no domain of
 * its own: the core's can be called like any other. */
static void the_core_makes_the_domain_that_a_fabric_leaves_out(void **state)
{
	struct exi_registry_row row;
	struct exi_domain *d;

	exi_registry_find("shm", &row);
	if (!row.provider)
		skip();
	assert_null(row.provider->open);
	T_EQ(exi_registry_domain(row.provider, &d), 0);
	assert_ptr_equal(d->provider, row.provider);
	T_EQ(d->ops.progress(d), 0);
	T_EQ(d->ops.event_fd(d), -EOPNOTSUPP);
	T_EQ(d->ops.arm(d), 0);
	d->ops.forked(d);
}

static void those_of_this_build_are_whole(void **state)
{
	struct exi_registry_row row;
	unsigned int checked = 0;

	for (unsigned int i = 0; exi_registry_row(i, &row); i++)
		if (row.provider) {
			T_EQ(exi_provider_check(row.provider), 0);
			checked++;
		}
	assert_true(checked > 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_required_member_is_missed),
		cmocka_unit_test(groups_may_be_missing_as_a_whole),
		cmocka_unit_test(a_table_goes_with_its_capability),
		cmocka_unit_test(tcp_has_a_table_of_its_own),
		cmocka_unit_test(
			the_core_makes_the_domain_that_a_fabric_leaves_out),
		cmocka_unit_test(those_of_this_build_are_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
