/* SPDX-License-Identifier: BSD-2-Clause */
/* The points at which a process can be struck: where each function of some
 * files of the library begins and ends, which gcc compiles so that it calls
 * here (-finstrument-functions); in this program, and in the modules of fabrics
 * beside it. A point's name is that of its function, with
 * '+' where it begins and '-' where it ends. */
#ifndef TESTS_FAULT_POINTS_H
#define TESTS_FAULT_POINTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum t_side {
	T_SIDE_A, /* connects */
	T_SIDE_B,
	T_SIDES
};

enum t_strike {
	T_KILL,
	T_STOP,
	T_DELAY, /* by T_DELAY_MS */
	T_STRIKES
};
#define T_DELAY_MS 20

struct t_point {
	uintptr_t at;
	unsigned int passed; /* how often */
	unsigned int own;    /* of these not by a forked child */
};

/* Before the sides are forked: counts from here on. */
void t_points_begin(void);

/* In the process of a side: it passes points from here on, and so do those that
 * it forks, of which only a kill strikes any. */
void t_points_of(enum t_side side);

/* The points that a side has passed since t_points_begin(); how many. */
size_t t_points(enum t_side side, struct t_point *ret, size_t most);

/* After t_points_begin(): the side is struck when it passes the point for the
 * n-th time, from 1; stopped, when it does so itself. */
void t_points_strike(enum t_side side, uintptr_t at, unsigned int n,
		     enum t_strike how);

/* Whether it was. */
bool t_points_struck(void);

/* In the process of the other side: when (t_now_ns()), or 0. */
int64_t t_points_struck_at(void);

/* In one of four buffers. */
const char *t_point_name(uintptr_t at);

#endif
