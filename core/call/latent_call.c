/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls on latent connections. */
#include "core/call/latent_call.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/signals.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/link/control.h"
#include "core/meet/find.h"
#include "core/meet/latent.h"
#include "core/meet/pair.h"
#include "core/sock/capture.h"
#include "core/sock/table.h"
#include "core/transfer/half.h"
#include "core/transfer/lookup.h"

/* Ends a call that began while the connection was latent, which it is no
 * longer. */
void exi_flow_latent_over(struct exi_sock *sk, const struct exi_latent_call *c,
			  int fd, enum exi_dir dir, ssize_t n)
{
	struct exi_shared *sh;
	struct exi_half *h;
	bool go;

	if (!exi_sock_lock(sk, fd, dir, &sh))
		return;
	h = &sh->half[dir];
	if (sk->latent_life != c->life) { /* ours was closed */
		exi_half_unlock(h);
		return;
	}
	if (h->in_kernel)
		h->in_kernel--;
	if (n > 0) {
		exi_capture_tell(sk->tcp, dir, NULL, n, 0);
		exi_half_account_locked(h, n, false);
	} else if (n == 0 && dir == EXI_RX)
		h->fin = 1;
	go = h->in_kernel == 0;
	exi_half_unlock(h);
	if (dir == EXI_TX)
		return;
	if (go && atomic_load(&sh->linked))
		exi_link_go(sk);
	if (n == 0)
		exi_link_ended(sk, fd);
	exi_flow_after_recv(sk, fd);
}

/* Promotes the latent connection fd, which received enough bytes. */
void exi_flow_latent_promoted(int fd)
{
	int saved = errno;
	struct exi_sock *sk =
		exi_signals_within() ? NULL : exi_sock_promote(fd);

	if (sk)
		exi_flow_after_recv(sk, fd);
	errno = saved;
}

void exi_flow_latent_sent(const struct exi_latent_call *c, ssize_t n)
{
	if (n > 0)
		exi_link_by_kernel(c->began, n);
}

/* The connecting end waits for the handshake before it sends the bytes after
 * which its peer looks, unless the call is in a signal handler. */
static bool too_long(uintptr_t word, enum exi_dir dir, size_t n)
{
	return n > EXI_LATENT_LONGEST ||
	       (dir == EXI_TX &&
		exi_latent_moved(word, dir) + n >
			exi_latent_enough(exi_latent_role(word), dir) &&
		(!exi_signals_within() ||
		 exi_latent_moved(word, dir) >= EXI_LATENT_MOVED_MAX / 2));
}

bool exi_latent_enter_slow(struct exi_latent_call *c, int fd, enum exi_dir dir,
			   size_t n)
{
	uintptr_t was = exi_latent_word_of(fd);

	do {
		if (!exi_latent_is_open(was) ||
		    exi_latent_inside(was, dir) == EXI_LATENT_INSIDE_MAX ||
		    too_long(was, dir, n))
			return false;
	} while (!exi_latent_replace(fd, &was, exi_latent_entered(was, dir)));
	*c = (struct exi_latent_call){ exi_latent_life(was),
				       dir == EXI_TX ? exi_link_sends() : 0 };
	return true;
}

void exi_latent_leave_slow(const struct exi_latent_call *c, int fd,
			   enum exi_dir dir, ssize_t n)
{
	uintptr_t was = exi_latent_word_of(fd), is = was;
	int saved = errno;

	do {
		if (!(was & EXI_LATENT)) {
			if (was)
				exi_flow_latent_over((struct exi_sock *)was, c,
						     fd, dir, n);
			break;
		}
		if (exi_latent_life(was) != c->life) /* ours was closed */
			return;
		is = exi_latent_left(was, dir, n);
	} while (!exi_latent_replace(fd, &was, is));
	if ((was & EXI_LATENT) && dir == EXI_RX &&
	    exi_unlikely(exi_latent_moved(is, EXI_RX) >
			 exi_latent_enough(exi_latent_role(is), EXI_RX)))
		exi_flow_latent_promoted(fd);
	if (n > 0 && dir == EXI_TX)
		exi_link_by_kernel(c->began, n);
	errno = saved;
}
