/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting for the events of a queue. */
#ifndef EXI_CORE_CALL_DEQUEUE_H
#define EXI_CORE_CALL_DEQUEUE_H

#include <signal.h>
#include <stddef.h>
#include <sys/exs.h>
#include <time.h>

struct exi_queue;

/* exs_qdequeue(3): takes |want| events at most, or waits for that many where
 * want is positive. How many, or -errno. timeout: null is for ever. */
int exi_queue_dequeue(exs_qhandle_t q, exs_event_t *ev, int want,
		      const struct timeval *timeout);
/* exs_x_dequeue(3): until a time of the clock, with the signals of the mask. */
int exi_queue_dequeue_until(exs_qhandle_t q, exs_event_t *ev, int want,
			    const struct timespec *until, const sigset_t *mask);
int exi_queue_fd(struct exi_queue *q);
int exi_queue_set(struct exi_queue *q, int attr, const void *val, size_t len);

/* The service's tick: asks for rings where nobody polled since the last one.
 * Milliseconds until the next; 0: it need not come again. */
int exi_queue_tick(void);

#endif
