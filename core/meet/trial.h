/* SPDX-License-Identifier: BSD-2-Clause */
/* Tries, step by step, the calls of the system that two processes of one host
 * need in order to meet. A container, a service manager or a sandbox may deny
 * any of them. For the tools. */
#ifndef EXI_CORE_MEET_TRIAL_H
#define EXI_CORE_MEET_TRIAL_H

#include <stdbool.h>

struct exi_trial {
	const char *name;
	int err;     /* 0, or -errno of the step */
	bool needed; /* false: connections move without it, but for the note */
	const char *cure; /* what allows it */
};

/* Tries step i; returns false if there is no such step. */
bool exi_trial(unsigned int i, struct exi_trial *ret);

#endif
