/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls on a latent connection, which is too young to be a socket
 * (core/meet/latent.h). */
#ifndef EXI_CORE_CALL_LATENT_CALL_H
#define EXI_CORE_CALL_LATENT_CALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/meet/latent.h"
#include "core/meet/pair.h"

struct exi_sock;

/* Ends a call that began while the connection, now sk, was latent. */
void exi_flow_latent_over(struct exi_sock *sk, const struct exi_latent_call *c,
			  int fd, enum exi_dir dir, ssize_t n);
/* Promotes the latent connection fd, which received enough bytes. Keeps
 * errno. */
EXI_SHIM void exi_flow_latent_promoted(int fd);

/* n bytes were sent by the call, in a process that has, or had, links. */
EXI_SHIM void exi_flow_latent_sent(const struct exi_latent_call *c, ssize_t n);

/* What exi_latent_enter() and exi_latent_leave() do if other threads changed
 * the word meanwhile, or if it is not one of a connection that stays latent. */
EXI_SHIM bool exi_latent_enter_slow(struct exi_latent_call *c, int fd,
				    enum exi_dir dir, size_t n);
EXI_SHIM void exi_latent_leave_slow(const struct exi_latent_call *c, int fd,
				    enum exi_dir dir, ssize_t n);

/* The longest call: the word has space for the bytes of all calls that may be
 * under way. */
#define EXI_LATENT_LONGEST (EXI_LATENT_MOVED_MAX / (2 * EXI_LATENT_INSIDE_MAX))

/* The word of a call that began, and of one that ended with n bytes. */
static inline uintptr_t exi_latent_entered(uintptr_t was, enum exi_dir dir)
{
	return was + ((uintptr_t)1 << EXI_LATENT_INSIDE(dir));
}

static inline uintptr_t exi_latent_left(uintptr_t was, enum exi_dir dir,
					ssize_t n)
{
	uintptr_t is = was - ((uintptr_t)1 << EXI_LATENT_INSIDE(dir));

	if (n > 0)
		is += (uintptr_t)n << EXI_LATENT_MOVED(dir);
	else if (n == 0 && dir == EXI_RX)
		is |= EXI_LATENT_OVER;
	return is;
}

/* Counts the thread as inside, before a system call that moves up to n bytes of
 * a latent connection. *c is for exi_latent_leave(), which keeps errno. Returns
 * false if the connection is not latent, or must become a socket first. Most
 * connections of a server of short ones make few calls: these two cost each of
 * them, so their usual way has no call of a function. */
static inline __attribute__((always_inline)) bool
exi_latent_enter(struct exi_latent_call *c, int fd, enum exi_dir dir, size_t n)
{
	uintptr_t was = exi_latent_word_of(fd);

	if (exi_unlikely(
		    !exi_latent_is_open(was) ||
		    exi_latent_inside(was, dir) == EXI_LATENT_INSIDE_MAX ||
		    n > EXI_LATENT_LONGEST ||
		    (dir == EXI_TX &&
		     exi_latent_moved(was, dir) + n >
			     exi_latent_enough(exi_latent_role(was), dir))) ||
	    exi_unlikely(!exi_latent_replace(fd, &was,
					     exi_latent_entered(was, dir))))
		return exi_latent_enter_slow(c, fd, dir, n);
	*c = (struct exi_latent_call){ exi_latent_life(was),
				       dir == EXI_TX ? exi_link_sends() : 0 };
	return true;
}

static inline __attribute__((always_inline)) void
exi_latent_leave(const struct exi_latent_call *c, int fd, enum exi_dir dir,
		 ssize_t n)
{
	uintptr_t was = exi_latent_word_of(fd), is;

	is = exi_latent_left(was, dir, n);
	if (exi_unlikely(!(was & EXI_LATENT) ||
			 exi_latent_life(was) != c->life) ||
	    exi_unlikely(!exi_latent_replace(fd, &was, is))) {
		exi_latent_leave_slow(c, fd, dir, n);
		return;
	}
	if (dir == EXI_TX) {
		if (exi_unlikely(atomic_load_explicit(&exi_link_any,
						      memory_order_relaxed)))
			exi_flow_latent_sent(c, n);
	} else if (exi_unlikely(
			   exi_latent_moved(is, EXI_RX) >
			   exi_latent_enough(exi_latent_role(is), EXI_RX))) {
		exi_flow_latent_promoted(fd);
	}
}

#endif
