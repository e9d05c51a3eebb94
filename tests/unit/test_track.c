/* SPDX-License-Identifier: BSD-2-Clause */
/* What is put at a number is tracked, whoever finds nothing there meanwhile. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>
#include "core/base/track.h"

#define NUMBER 7
#define ROUNDS 2000000

static _Atomic uint32_t words[EXI_TRACKED];
static _Atomic int there; /* what the table has at the number */
static _Atomic bool over;

static void *clears(void *arg)
{
	while (!atomic_load(&over)) {
		uint32_t was = exi_track_at(NUMBER);

		if (!atomic_load(&there))
			exi_track_clear(NUMBER, was,
					EXI_TRACK_BYTES | EXI_TRACK_ANY);
	}
	return arg;
}

static void what_is_put_is_tracked(void **state)
{
	uint32_t cleared = 0, missed = 0;
	pthread_t t;

	exi_track = words;
	assert_int_equal(pthread_create(&t, NULL, clears, NULL), 0);
	for (int i = 0; i < ROUNDS || !cleared; i++) {
		atomic_store(&there, 1);
		exi_track_put(NUMBER, EXI_TRACK_BYTES | EXI_TRACK_ANY);
		for (int k = 0; k < 8; k++)
			missed += !(exi_track_at(NUMBER) & EXI_TRACK_ANY);
		atomic_store(&there, 0);
		for (int k = 0; k < 8; k++)
			cleared += !(exi_track_at(NUMBER) & EXI_TRACK_ANY);
	}
	atomic_store(&over, true);
	pthread_join(t, NULL);
	assert_int_equal(missed, 0);
}

static void bits_are_cleared_one_by_one(void **state)
{
	uint32_t was;

	exi_track = words;
	exi_track_put(NUMBER + 1, EXI_TRACK_BYTES | EXI_TRACK_ANY);
	was = exi_track_at(NUMBER + 1);
	exi_track_clear(NUMBER + 1, was, EXI_TRACK_BYTES);
	assert_int_equal(exi_track_at(NUMBER + 1) &
				 (EXI_TRACK_BYTES | EXI_TRACK_ANY),
			 EXI_TRACK_ANY);
	/* The word is another since. */
	exi_track_put(NUMBER + 1, EXI_TRACK_BYTES | EXI_TRACK_ANY);
	exi_track_clear(NUMBER + 1, was, EXI_TRACK_ANY);
	assert_int_equal(exi_track_at(NUMBER + 1) &
				 (EXI_TRACK_BYTES | EXI_TRACK_ANY),
			 EXI_TRACK_BYTES | EXI_TRACK_ANY);
}

static void numbers_without_a_word_are_let_alone(void **state)
{
	exi_track = words;
	exi_track_put(-1, EXI_TRACK_BYTES | EXI_TRACK_ANY);
	exi_track_put((int)EXI_TRACKED, EXI_TRACK_BYTES | EXI_TRACK_ANY);
	assert_int_equal(exi_track_at(-1), 0);
	assert_int_equal(exi_track_at((int)EXI_TRACKED), 0);
	exi_track = NULL; /* no shim */
	exi_track_put(0, EXI_TRACK_BYTES | EXI_TRACK_ANY);
	assert_int_equal(exi_track_at(0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_put_is_tracked),
		cmocka_unit_test(bits_are_cleared_one_by_one),
		cmocka_unit_test(numbers_without_a_word_are_let_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
