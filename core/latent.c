/* SPDX-License-Identifier: BSD-2-Clause */
/* The word of a connection that has not lasted yet: all changes of it. */
#include "core/latent.h"

#include <errno.h>

#include "core/config.h"
#include "core/flow.h"
#include "core/link.h"
#include "core/marker.h"
#include "core/registry.h"
#include "core/remote.h"

/* The word: EXI_LATENT, the role, calls under way by direction, whether the kernel
 * said the end, a count that tells the lives of a descriptor apart, and bytes by
 * direction. */
#define ROLE_SHIFT 1
#define ROLE	   ((uintptr_t)3 << ROLE_SHIFT)
#define INSIDE(d)  (3 + 2 * (d))
#define INSIDE_MAX 3u
#define OVER	   ((uintptr_t)1 << 7)
#define LIFE_SHIFT 8
#define LIFE_MASK  0xffffu
#define MOVED(d)   (24 + 20 * (d))
#define MOVED_MAX  ((1u << 20) - 1)

_Static_assert(sizeof(uintptr_t) == 8, "the word holds all of it");
_Static_assert(_Alignof(struct exi_sock) > EXI_LATENT, "an address is even");

_Atomic bool exi_latent_on;
void (*exi_latent_begun)(int fd);
void (*exi_latent_woke)(struct exi_sock *sk, int fd);

static uintptr_t word_of(int fd)
{
	return (uintptr_t)atomic_load_explicit(&exi_table.socks[fd],
					       memory_order_acquire);
}

static bool replace(int fd, uintptr_t *was, uintptr_t is)
{
	struct exi_sock *old = (struct exi_sock *)*was;
	bool ret = atomic_compare_exchange_strong(&exi_table.socks[fd], &old,
						  (struct exi_sock *)is);

	*was = (uintptr_t)old;
	return ret;
}

enum exi_role exi_latent_role(uintptr_t word)
{
	return (enum exi_role)((word & ROLE) >> ROLE_SHIFT);
}

uint32_t exi_latent_moved(uintptr_t word, enum exi_dir dir)
{
	return (uint32_t)(word >> MOVED(dir)) & MOVED_MAX;
}

unsigned int exi_latent_inside(uintptr_t word, enum exi_dir dir)
{
	return (unsigned int)(word >> INSIDE(dir)) & INSIDE_MAX;
}

bool exi_latent_over(uintptr_t word)
{
	return word & OVER;
}

uint32_t exi_latent_life(uintptr_t word)
{
	return (uint32_t)(word >> LIFE_SHIFT) & LIFE_MASK;
}

/* The longest call: what all that may be under way move has room in the word. */
#define LONGEST (MOVED_MAX / (2 * INSIDE_MAX))

/* After so many bytes it wakes. */
static uint32_t enough(enum exi_role role, enum exi_dir dir)
{
	uint64_t ret = (role == EXI_ROLE_CONNECT) == (dir == EXI_TX)
			       ? exi_config()->upgrade_bytes
			       : EXI_LINK_DOWNLOAD;

	return ret < MOVED_MAX / 2 ? (uint32_t)ret : MOVED_MAX / 2;
}

bool exi_latent_begin(int fd, enum exi_role role)
{
	static _Atomic uint32_t lives;
	const struct exi_config *cfg = exi_config();
	uintptr_t was, life;

	if (!atomic_load_explicit(&exi_latent_on, memory_order_relaxed) ||
	    (uint32_t)fd >= exi_table.size || !cfg->upgrade ||
	    !cfg->upgrade_bytes || cfg->require[0] ||
	    (!exi_registry_wire_ids() && !exi_remote_possible()))
		return false;
	was = word_of(fd);
	if (was && !(was & EXI_LATENT)) /* a socket that closed unseen */
		return false;
	if (was & EXI_LATENT)
		exi_latent_end(fd, NULL);
	life = atomic_fetch_add_explicit(&lives, 1, memory_order_relaxed);
	exi_latent_begun(fd);
	if (role == EXI_ROLE_ACCEPT)
		exi_marker_connection();
	exi_sock_put(fd, (struct exi_sock *)(EXI_LATENT |
					     (uintptr_t)role << ROLE_SHIFT |
					     (life & LIFE_MASK) << LIFE_SHIFT));
	return true;
}

void exi_latent_connected(int fd)
{
	uintptr_t was = word_of(fd);

	while ((was & EXI_LATENT) && exi_latent_role(was) == EXI_ROLE_NONE &&
	       !replace(fd, &was,
			was | (uintptr_t)EXI_ROLE_CONNECT << ROLE_SHIFT))
		;
}

/* Who connects waits to be met before the bytes go after which its peer looks. */
static bool too_long(uintptr_t word, enum exi_dir dir, size_t n)
{
	return n > LONGEST ||
	       (dir == EXI_TX && exi_latent_moved(word, dir) + n >
					 enough(exi_latent_role(word), dir));
}

bool exi_latent_enter(struct exi_latent_call *c, int fd, enum exi_dir dir,
		      size_t n)
{
	uintptr_t was = word_of(fd);

	do {
		if (!(was & EXI_LATENT) || !(was & ROLE) ||
		    exi_latent_inside(was, dir) == INSIDE_MAX ||
		    too_long(was, dir, n))
			return false;
	} while (!replace(fd, &was, was + ((uintptr_t)1 << INSIDE(dir))));
	*c = (struct exi_latent_call){ fd, dir, exi_latent_life(was) };
	return true;
}

void exi_latent_leave(const struct exi_latent_call *c, ssize_t n)
{
	uintptr_t was = word_of(c->fd), is = was;
	int saved = errno;

	do {
		if (!(was & EXI_LATENT)) {
			if (was)
				exi_flow_latent_over((struct exi_sock *)was, c,
						     n);
			break;
		}
		if (exi_latent_life(was) != c->life) /* ours was closed */
			return;
		is = was - ((uintptr_t)1 << INSIDE(c->dir));
		if (n > 0)
			is += (uintptr_t)n << MOVED(c->dir);
		else if (n == 0 && c->dir == EXI_RX)
			is |= OVER;
	} while (!replace(c->fd, &was, is));
	if ((was & EXI_LATENT) && c->dir == EXI_RX &&
	    exi_unlikely(exi_latent_moved(is, EXI_RX) >
			 enough(exi_latent_role(is), EXI_RX)))
		exi_flow_latent_woke(c->fd);
	if (n > 0 && c->dir == EXI_TX)
		exi_link_by_kernel();
	errno = saved;
}

static struct exi_latent_state state_of(uintptr_t word)
{
	return (struct exi_latent_state){
		.role = exi_latent_role(word),
		.moved = { exi_latent_moved(word, EXI_RX),
			   exi_latent_moved(word, EXI_TX) },
	};
}

bool exi_latent_end(int fd, struct exi_latent_state *ret)
{
	uintptr_t was = word_of(fd);

	do {
		if (!(was & EXI_LATENT))
			return false;
	} while (!replace(fd, &was, 0));
	if (exi_latent_role(was) == EXI_ROLE_ACCEPT)
		exi_marker_disconnection();
	if (ret)
		*ret = state_of(was);
	return true;
}

void exi_latent_each(void (*f)(int fd, const struct exi_latent_state *s))
{
	uint32_t fd, high = atomic_load(&exi_table.high);

	for (fd = 0; fd < high; fd++) {
		uintptr_t word = word_of((int)fd);
		struct exi_latent_state s = state_of(word);

		if (word & EXI_LATENT)
			f((int)fd, &s);
	}
}

static void wake_one(int fd, const struct exi_latent_state *s)
{
	exi_sock_wake(fd);
}

void exi_latent_wake_all(void)
{
	exi_latent_each(wake_one);
}

static void forget_one(int fd, const struct exi_latent_state *s)
{
	exi_latent_end(fd, NULL);
}

void exi_latent_forked(void)
{
	exi_latent_each(forget_one);
}
