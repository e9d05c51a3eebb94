/* SPDX-License-Identifier: BSD-2-Clause */
/* A provider's tables are refused when a member that the core calls is missing.
 * Each member of each table is taken out in turn. A member that may be missing is
 * named here, so that a new one is required until somebody says otherwise. */
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
static struct exi_switch_ops switch_ops;
static struct exi_meet_ops meet_ops;
static struct exi_remote_ops remote_ops;
static struct exi_place_ops place_ops;
static struct exi_loan_ops loan_ops;
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
	offsetof(struct exi_conn_ops, sendv),
	offsetof(struct exi_conn_ops, recvv),
	offsetof(struct exi_conn_ops, error),
	offsetof(struct exi_conn_ops, left_unread),
};
static const size_t provider_optional[] = {
	offsetof(struct exi_provider, afresh),
	offsetof(struct exi_provider, describe),
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
static const struct table tables[] = {
	{ "domain_ops", &domain_ops, sizeof(domain_ops), NULL, 0 },
	{ "conn_ops", &conn_ops, sizeof(conn_ops), conn_optional,
	  COUNT(conn_optional) },
	{ "switch_ops", &switch_ops, sizeof(switch_ops), NULL, 0 },
	{ "meet_ops", &meet_ops, sizeof(meet_ops), NULL, 0 },
	{ "remote_ops", &remote_ops, sizeof(remote_ops), NULL, 0 },
	{ "place_ops", &place_ops, sizeof(place_ops), NULL, 0 },
	{ "loan_ops", &loan_ops, sizeof(loan_ops), NULL, 0 },
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
	provider.switch_ops = &switch_ops;
	provider.meet_ops = &meet_ops;
	provider.remote_ops = &remote_ops;
	provider.place_ops = &place_ops;
	provider.loan_ops = &loan_ops;
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
	conn_ops.poll = NULL;
	conn_ops.patience = NULL;
	T_EQ(exi_provider_check(&provider), 0);
	conn_ops.first = NULL;
	conn_ops.want_times = NULL;
	T_EQ(exi_provider_check(&provider), 0);
	loan_ops.room = NULL;
	loan_ops.put = NULL;
	T_EQ(exi_provider_check(&provider), 0);
}

static void a_table_goes_with_its_capability(void **state)
{
	make_whole();
	provider.caps &= ~(uint32_t)EXI_CAP_PLACE;
	T_EQ(exi_provider_check(&provider), -EINVAL);
	provider.place_ops = NULL;
	T_EQ(exi_provider_check(&provider), 0);
	provider.caps &= ~(uint32_t)EXI_CAP_LOAN;
	T_EQ(exi_provider_check(&provider), -EINVAL);
	provider.loan_ops = NULL;
	T_EQ(exi_provider_check(&provider), 0);
	provider.caps &= ~(uint32_t)(EXI_CAP_LOCAL | EXI_CAP_REMOTE);
	provider.wire_id = 0;
	provider.meet_ops = NULL;
	provider.remote_ops = NULL;
	T_EQ(exi_provider_check(&provider), 0);
}

/* Without EXI_CAP_SWITCH it is TCP, of which more is asked. */
static void tcp_moves_pieces_and_has_errors(void **state)
{
	make_whole();
	provider.caps &= ~(uint32_t)EXI_CAP_SWITCH;
	provider.switch_ops = NULL;
	T_EQ(exi_provider_check(&provider), 0);
	conn_ops.sendv = NULL;
	T_EQ(exi_provider_check(&provider), -EINVAL);
	make_whole();
	provider.caps &= ~(uint32_t)EXI_CAP_SWITCH;
	conn_ops.recvv = NULL;
	T_EQ(exi_provider_check(&provider), -EINVAL);
	make_whole();
	provider.caps &= ~(uint32_t)EXI_CAP_SWITCH;
	conn_ops.error = NULL;
	T_EQ(exi_provider_check(&provider), -EINVAL);
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
		cmocka_unit_test(tcp_moves_pieces_and_has_errors),
		cmocka_unit_test(those_of_this_build_are_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
