/* SPDX-License-Identifier: BSD-2-Clause */
/* Unique numbers: for processes, uses and secrets. */
#ifndef EXI_CORE_BASE_IDS_H
#define EXI_CORE_BASE_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/rseq.h>

#include "core/base/util.h"

/* 64 random bits. */
EXI_SHIM uint64_t exi_random(void);
/* A number other than 0 that no process has, had or will have. */
uint64_t exi_number(void);
/* A number derived from n that other processes cannot know. */
uint64_t exi_secret(uint64_t n);

/* Identifies this process; differs after fork. Never 0. */
EXI_SHIM uint64_t exi_process_token(void);
/* A token that changes with every fork, in parent and child. A thread compares
 * it to learn that another process may share a socket since. */
EXI_SHIM extern uint64_t exi_use_token_now;
static inline uint64_t exi_use_token(void)
{
	return __atomic_load_n(&exi_use_token_now, __ATOMIC_RELAXED);
}
void exi_process_forked(bool child);

#endif
