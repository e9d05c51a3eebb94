/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting for the events of a queue. */
#ifndef EXI_CORE_CALL_DEQUEUE_H
#define EXI_CORE_CALL_DEQUEUE_H

#include <signal.h>
#include <stddef.h>
#include <sys/exs.h>
#include <time.h>

struct exi_queue;

/* exs_qdequeue(3): takes up to |want| events; if want is positive, waits for
 * that many. Returns their number or -errno. timeout: null waits for ever. */
int exi_queue_dequeue(exs_qhandle_t q, exs_event_t *ev, int want,
		      const struct timeval *timeout);
/* exs_x_dequeue(3): waits until a time of the clock, with this signal mask. */
int exi_queue_dequeue_until(exs_qhandle_t q, exs_event_t *ev, int want,
			    const struct timespec *until, const sigset_t *mask);
int exi_queue_fd(struct exi_queue *q);
int exi_queue_set(struct exi_queue *q, int attr, const void *val, size_t len);

/* Called when no thread polls any more: asks the peers for wake-ups. */
void exi_queue_leave_hot(struct exi_queue *q);

/* The service's tick: requests doorbells for connections that no thread has
 * polled since the last tick. Returns the milliseconds until the next one; 0:
 * none is needed. */
int exi_queue_tick(void);

#endif
