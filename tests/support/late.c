/* SPDX-License-Identifier: BSD-2-Clause */
/* A row that does not end; late.py checks what the runner reports of it. */
#include <unistd.h>
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"

static void a_row_that_hangs(void)
{
	int fd[2];

	t_plain_pair(fd);
	if (t_fork() == 0)
		pause();
	pause();
}

static const struct t_row rows[] = {
	T_ROW_LONG(a_row_that_hangs, 1),
};

int main(int argc, char **argv)
{
	return t_run("late", rows, T_COUNT(rows), argc > 1 ? argv[1] : NULL);
}
