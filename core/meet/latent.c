/* SPDX-License-Identifier: BSD-2-Clause */
/* The word of a latent connection: all changes of it. */
#include "core/meet/latent.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/config.h"
#include "core/fabric/provider.h"
#include "core/fabric/registry.h"
#include "core/meet/find.h"
#include "core/meet/marker.h"
#include "core/meet/meet.h"
#include "core/meet/remote.h"
#include "core/sock/capture.h"
#include "core/sock/stats.h"
#include "core/sock/table.h"

_Static_assert(sizeof(uintptr_t) == 8, "the word holds all of it");
_Static_assert(_Alignof(struct exi_sock) > EXI_LATENT, "an address is even");

_Atomic bool exi_latent_on;
void (*exi_latent_begun)(int fd);
void (*exi_latent_promoted)(struct exi_sock *sk, int fd);

/* Makes the number free for a latent connection; false: it is not. */
static bool makes_room(int fd)
{
	uintptr_t was = exi_latent_word_of(fd);

	if (was && !(was & EXI_LATENT)) /* a socket that closed unseen */
		return false;
	if (was & EXI_LATENT)
		exi_latent_end(fd, NULL);
	return true;
}

/* rest: the word without what is common to all. */
static void begin(int fd, uintptr_t rest)
{
	static _Atomic uint32_t lives;
	uintptr_t life =
		atomic_fetch_add_explicit(&lives, 1, memory_order_relaxed);

	exi_latent_begun(fd);
	exi_sock_put(fd, (struct exi_sock *)(EXI_LATENT | rest |
					     (life & EXI_LATENT_LIFE_MAX)
						     << EXI_LATENT_LIFE));
}

bool exi_latent_begin(int fd, enum exi_role role)
{
	const struct exi_config *cfg = exi_config();

	if (!atomic_load_explicit(&exi_latent_on, memory_order_relaxed) ||
	    (uint32_t)fd >= exi_table.size || !cfg->upgrade ||
	    !cfg->upgrade_bytes || cfg->require[0] || cfg->n_ports ||
	    atomic_load_explicit(&exi_capture_on, memory_order_relaxed) ||
	    (!exi_registry_wire_ids() && !exi_remote_possible()) ||
	    !makes_room(fd))
		return false;
	if (role == EXI_ROLE_ACCEPT)
		exi_marker_connection();
	begin(fd, (uintptr_t)role << EXI_LATENT_ROLE_SHIFT);
	if (role != EXI_ROLE_NONE)
		exi_stats_young(fd, 1 + role);
	return true;
}

bool exi_latent_came(int fd, uint32_t giver)
{
	if (!atomic_load_explicit(&exi_latent_on, memory_order_relaxed) ||
	    (uint32_t)fd >= exi_table.size || !makes_room(fd))
		return false;
	begin(fd, EXI_LATENT_CAME | (uintptr_t)giver << EXI_LATENT_GIVER);
	return true;
}

void exi_latent_shared(int fd)
{
	uintptr_t was = exi_latent_word_of(fd);

	while (exi_latent_is_come(was) &&
	       !exi_latent_replace(fd, &was, was | EXI_LATENT_SHARED))
		;
}

void exi_latent_connected(int fd)
{
	uintptr_t was = exi_latent_word_of(fd);

	while ((was & EXI_LATENT) && exi_latent_role(was) == EXI_ROLE_NONE &&
	       !exi_latent_replace(fd, &was,
				   was | (uintptr_t)EXI_ROLE_CONNECT
						   << EXI_LATENT_ROLE_SHIFT))
		;
	exi_stats_young(fd, was & EXI_LATENT ? 1 + EXI_ROLE_CONNECT : 0);
}

static struct exi_latent_state state_of(uintptr_t word)
{
	if (!exi_latent_is_open(word))
		return (struct exi_latent_state){ .role = EXI_ROLE_NONE };
	return (struct exi_latent_state){
		.role = exi_latent_role(word),
		.moved = { exi_latent_moved(word, EXI_RX),
			   exi_latent_moved(word, EXI_TX) },
	};
}

bool exi_latent_end(int fd, struct exi_latent_state *ret)
{
	uintptr_t was = exi_latent_word_of(fd);

	do {
		if (!(was & EXI_LATENT))
			return false;
	} while (!exi_latent_replace(fd, &was, 0));
	exi_stats_young(fd, 0);
	if (exi_latent_role(was) == EXI_ROLE_ACCEPT)
		exi_marker_disconnection();
	if (ret)
		*ret = state_of(was);
	return true;
}

void exi_latent_each(void (*f)(int fd, const struct exi_latent_state *s,
			       void *arg),
		     void *arg)
{
	uint32_t fd, high = atomic_load(&exi_table.high);

	for (fd = 0; fd < high; fd++) {
		uintptr_t word = exi_latent_word_of((int)fd);
		struct exi_latent_state s = state_of(word);

		if (word & EXI_LATENT)
			f((int)fd, &s, arg);
	}
}

static void wake_one(int fd, const struct exi_latent_state *s, void *arg)
{
	if (!exi_latent_is_come(exi_latent_word_of(fd)))
		exi_sock_promote(fd);
}

void exi_latent_promote_all(void)
{
	exi_latent_each(wake_one, NULL);
}

static void share_one(int fd, const struct exi_latent_state *s, void *arg)
{
	exi_latent_shared(fd);
	wake_one(fd, s, arg);
}

void exi_latent_share_all(void)
{
	exi_latent_each(share_one, NULL);
}

static void forget_one(int fd, const struct exi_latent_state *s, void *arg)
{
	exi_latent_end(fd, NULL);
}

void exi_latent_forget_all(void)
{
	exi_latent_each(forget_one, NULL);
}
