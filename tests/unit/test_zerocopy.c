/* SPDX-License-Identifier: BSD-2-Clause */
/* The numbers of sends with MSG_ZEROCOPY: each is told once, whichever carried
 * it, and in whatever pieces the kernel tells of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "core/sock/zerocopy.h"

#define SENDS 200

static struct exi_zerocopy z;

/* The program's number of each of the kernel's sends. */
static uint32_t number_of[SENDS];
static uint32_t sent, by_kernel, kernel_told;
static int told[SENDS];

static void begin(uint32_t at)
{
	exi_zerocopy_clear(&z);
	z.next = z.kernel = at;
	sent = by_kernel = kernel_told = 0;
	memset(told, 0, sizeof(told));
}

static void kernel_sends(void)
{
	number_of[by_kernel++] = sent++;
	exi_zerocopy_by_kernel(&z);
}

static void copies(void)
{
	sent++;
	exi_zerocopy_copied(&z);
}

static void hear(struct exi_zerocopy_note note, uint32_t at)
{
	for (uint32_t i = note.first; i != note.last + 1; i++) {
		assert_in_range(i - at, 0, sent - 1);
		told[i - at]++;
	}
}

/* A receive; the kernel has words of up to `most` sends. False: nothing. */
static int receive(uint32_t at, uint32_t most)
{
	struct exi_zerocopy_note note;
	uint32_t n = by_kernel - kernel_told;

	if (!exi_zerocopy_take(&z, false, &note)) {
		n = n < most ? n : most;
		if (n) {
			note = exi_zerocopy_told(
				&z, (struct exi_zerocopy_note){
					    at + kernel_told,
					    at + kernel_told + n - 1, 0 });
			assert_int_equal(note.first - at,
					 number_of[kernel_told]);
			kernel_told += n;
		} else if (!exi_zerocopy_take(&z, true, &note)) {
			return 0;
		}
	}
	hear(note, at);
	return 1;
}

static void all_are_told(uint32_t at)
{
	while (receive(at, SENDS))
		;
	for (uint32_t i = 0; i < sent; i++)
		assert_int_equal(told[i], 1);
	assert_int_equal(atomic_load(&z.state), 0);
	assert_int_equal(z.n_runs, 0);
}

static void copied_sends_are_one_range(void **state)
{
	struct exi_zerocopy_note note;

	begin(0);
	for (int i = 0; i < 5; i++)
		copies();
	assert_int_equal(atomic_load(&z.state), EXI_ZEROCOPY_DUE);
	assert_true(exi_zerocopy_take(&z, false, &note));
	assert_int_equal(note.first, 0);
	assert_int_equal(note.last, 4);
	assert_false(exi_zerocopy_take(&z, true, &note));
	copies();
	assert_true(exi_zerocopy_take(&z, false, &note));
	assert_int_equal(note.first, 5);
}

static void a_range_of_the_kernels_is_cut_where_copies_lie_between(void **state)
{
	struct exi_zerocopy_note note;

	begin(0);
	kernel_sends();
	kernel_sends();
	copies();
	kernel_sends();
	assert_int_equal(atomic_load(&z.state),
			 EXI_ZEROCOPY_DUE | EXI_ZEROCOPY_KERNEL);
	assert_false(exi_zerocopy_take(&z, false, &note));
	note = exi_zerocopy_told(&z, (struct exi_zerocopy_note){ 0, 2, 0 });
	assert_int_equal(note.first, 0);
	assert_int_equal(note.last, 1);
	assert_true(exi_zerocopy_take(&z, false, &note));
	assert_int_equal(note.first, 2);
	assert_int_equal(note.last, 2);
	assert_true(exi_zerocopy_take(&z, false, &note));
	assert_int_equal(note.first, 3);
	assert_int_equal(note.last, 3);
	assert_int_equal(atomic_load(&z.state), 0);
}

static void the_kernel_may_be_later_than_a_copy(void **state)
{
	struct exi_zerocopy_note note;

	begin(0);
	kernel_sends();
	copies();
	assert_false(exi_zerocopy_take(&z, false, &note));
	assert_true(exi_zerocopy_take(&z, true, &note));
	assert_int_equal(note.first, 1);
	note = exi_zerocopy_told(&z, (struct exi_zerocopy_note){ 0, 0, 0 });
	assert_int_equal(note.first, 0);
	assert_int_equal(note.last, 0);
}

/* The kernel tells of a send before the call has returned to its thread. */
static void a_word_may_come_before_its_send_is_counted(void **state)
{
	struct exi_zerocopy_note note;

	begin(0);
	copies();
	note = exi_zerocopy_told(&z, (struct exi_zerocopy_note){ 0, 0, 0 });
	assert_int_equal(note.first, 1);
	exi_zerocopy_by_kernel(&z);
	exi_zerocopy_by_kernel(&z);
	note = exi_zerocopy_told(&z, (struct exi_zerocopy_note){ 1, 1, 0 });
	assert_int_equal(note.first, 2);
}

static void many_changes_leave_a_place_for_a_copy(void **state)
{
	begin(0);
	for (int i = 0; i < SENDS; i++)
		if (i % 2 && exi_zerocopy_has_room(&z))
			kernel_sends();
		else
			copies();
	assert_true(by_kernel > 1);
	assert_true(z.n_runs <= EXI_ZEROCOPY_RUNS);
	all_are_told(0);
}

static void each_is_told_once_in_any_order(void **state)
{
	for (unsigned int seed = 1; seed < 2000; seed++) {
		uint32_t at = seed % 2 ? 0 : UINT32_MAX - 20;

		srand(seed);
		begin(at);
		while (sent < SENDS - 1) {
			int what = rand() % 8;

			if (what < 2 && exi_zerocopy_has_room(&z))
				kernel_sends();
			else if (what < 4)
				copies();
			else if (what < 6)
				receive(at, (uint32_t)(rand() % 4));
		}
		all_are_told(at);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copied_sends_are_one_range),
		cmocka_unit_test(
			a_range_of_the_kernels_is_cut_where_copies_lie_between),
		cmocka_unit_test(the_kernel_may_be_later_than_a_copy),
		cmocka_unit_test(a_word_may_come_before_its_send_is_counted),
		cmocka_unit_test(many_changes_leave_a_place_for_a_copy),
		cmocka_unit_test(each_is_told_once_in_any_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
