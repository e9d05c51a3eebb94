/* SPDX-License-Identifier: BSD-2-Clause */
/* The texts of the reasons: the rows are generated from the table `reasons`. */
#include "core/base/reason.h"

#include <string.h>
#include <sys/exs_ext.h>

struct reason {
	const char *name;
	enum exi_reason_lasts lasts;
	const char *step;
	const char *means;
	const char *cure;
	const char *text;
};

static const struct reason reasons[EXS_X_REASON_MAX_] = {
#define ROW(constant, number, ...) [constant] = { __VA_ARGS__ },
#define ROWS(n)
#include "core/base/reason_rows.h"
#undef ROW
#undef ROWS
};

/* The public header has the same numbers, and no more of them. */
#define ROW(constant, number, ...)                                             \
	_Static_assert((constant) == (number), "core/base/reasons");
#define ROWS(n) _Static_assert(EXS_X_REASON_MAX_ == (n), "core/base/reasons");
#include "core/base/reason_rows.h"

static const struct reason *find(int reason)
{
	static const struct reason unknown = {
		.name = "unknown",
		.lasts = EXI_REASON_STAYS,
		.step = "peer",
		.means = "the reason is unknown here",
		.cure = "see exs version at both ends",
		.text = "the reason is unknown here",
	};

	if (reason < 0 || reason >= EXS_X_REASON_MAX_ || !reasons[reason].name)
		return &unknown;
	return &reasons[reason];
}

const char *exi_reason_means(int reason)
{
	return find(reason)->means;
}

const char *exi_reason_cure(int reason)
{
	return find(reason)->cure;
}

enum exi_reason_lasts exi_reason_lasts(int reason)
{
	return find(reason)->lasts;
}

const char *exi_reason_step(int reason)
{
	return find(reason)->step;
}

int exi_reason_of(const char *word)
{
	for (int i = 0; i < EXS_X_REASON_MAX_; i++)
		if (!strcmp(reasons[i].name, word))
			return i;
	return -1;
}

/* Public functions; api/exs.map names them. */
__attribute__((visibility("default"))) const char *exs_x_reason_name(int reason)
{
	return find(reason)->name;
}

__attribute__((visibility("default"))) const char *exs_x_reason_text(int reason)
{
	return find(reason)->text;
}
