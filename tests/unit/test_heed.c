/* SPDX-License-Identifier: BSD-2-Clause */
/* What is put at a number is heeded, whoever finds nothing there meanwhile. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>
#include "core/base/heed.h"

#define NUMBER 7
#define ROUNDS 2000000

static _Atomic uint32_t words[EXI_HEEDED];
static _Atomic int there; /* what the table has at the number */
static _Atomic bool over;

static void *clears(void *arg)
{
	while (!atomic_load(&over)) {
		uint32_t was = exi_heed_at(NUMBER);

		if (!atomic_load(&there))
			exi_heed_clear(NUMBER, was,
				       EXI_HEED_BYTES | EXI_HEED_ANY);
	}
	return arg;
}

static void what_is_put_is_heeded(void **state)
{
	uint32_t cleared = 0, missed = 0;
	pthread_t t;

	exi_heed = words;
	assert_int_equal(pthread_create(&t, NULL, clears, NULL), 0);
	for (int i = 0; i < ROUNDS || !cleared; i++) {
		atomic_store(&there, 1);
		exi_heed_put(NUMBER, EXI_HEED_BYTES | EXI_HEED_ANY);
		for (int k = 0; k < 8; k++)
			missed += !(exi_heed_at(NUMBER) & EXI_HEED_ANY);
		atomic_store(&there, 0);
		for (int k = 0; k < 8; k++)
			cleared += !(exi_heed_at(NUMBER) & EXI_HEED_ANY);
	}
	atomic_store(&over, true);
	pthread_join(t, NULL);
	assert_int_equal(missed, 0);
}

static void bits_are_cleared_one_by_one(void **state)
{
	uint32_t was;

	exi_heed = words;
	exi_heed_put(NUMBER + 1, EXI_HEED_BYTES | EXI_HEED_ANY);
	was = exi_heed_at(NUMBER + 1);
	exi_heed_clear(NUMBER + 1, was, EXI_HEED_BYTES);
	assert_int_equal(exi_heed_at(NUMBER + 1) &
				 (EXI_HEED_BYTES | EXI_HEED_ANY),
			 EXI_HEED_ANY);
	/* The word is another since. */
	exi_heed_put(NUMBER + 1, EXI_HEED_BYTES | EXI_HEED_ANY);
	exi_heed_clear(NUMBER + 1, was, EXI_HEED_ANY);
	assert_int_equal(exi_heed_at(NUMBER + 1) &
				 (EXI_HEED_BYTES | EXI_HEED_ANY),
			 EXI_HEED_BYTES | EXI_HEED_ANY);
}

static void numbers_without_a_word_are_let_alone(void **state)
{
	exi_heed = words;
	exi_heed_put(-1, EXI_HEED_BYTES | EXI_HEED_ANY);
	exi_heed_put((int)EXI_HEEDED, EXI_HEED_BYTES | EXI_HEED_ANY);
	assert_int_equal(exi_heed_at(-1), 0);
	assert_int_equal(exi_heed_at((int)EXI_HEEDED), 0);
	exi_heed = NULL; /* no shim */
	exi_heed_put(0, EXI_HEED_BYTES | EXI_HEED_ANY);
	assert_int_equal(exi_heed_at(0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_put_is_heeded),
		cmocka_unit_test(bits_are_cleared_one_by_one),
		cmocka_unit_test(numbers_without_a_word_are_let_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
