/* SPDX-License-Identifier: BSD-2-Clause */
/* What a meter of exs perf takes off its times is the clock's, and no more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tools/perf_meter.h"

/* Blocks whose trips took so long, in ns: timed as a whole, and singly. */
static double overhead(uint64_t whole, uint64_t single)
{
	struct perf_meter *m = calloc(1, sizeof(*m));
	double ret;

	assert_non_null(m);
	for (int i = 0; i < 20; i++) {
		hist_add(&m->mean[0], whole * 16);
		hist_add(&m->mean[1], single * 16);
	}
	ret = perf_meter_overhead(m);
	free(m);
	return ret;
}

static void the_clock_takes_no_more_than_it_takes(void **state)
{
	uint64_t start = perf_now(), last = start;

	/* Others had the CPU while the trips of a block were timed singly. */
	double noise = overhead(100, 500000);

	for (int i = 0; i < 1000; i++)
		last = perf_now();
	assert_true(noise > 0);
	assert_true(noise <= (double)(last - start) / 1000 + 1);
}

static void an_overhead_that_is_less_is_what_was_seen(void **state)
{
	double seen = overhead(100, 101);

	assert_true(seen >= 0 && seen < 5);
	assert_true(overhead(200, 100) == 0);
	assert_true(overhead(5000, 5020) == 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_clock_takes_no_more_than_it_takes),
		cmocka_unit_test(an_overhead_that_is_less_is_what_was_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
