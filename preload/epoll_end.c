/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptor numbers of epoll sets: creating, duplicating and closing them;
 * fork; leaving the process. */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include "core/base/cancel.h"
#include "core/base/fds.h"
#include "core/base/track.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/call/ready.h"
#include "core/call/unseen.h"
#include "core/meet/latent.h"
#include "core/sock/table.h"
#include "preload/epoll.h"
#include "preload/shim.h"

/* Finds another number of the same set. */
static int other_name(const struct set *s, int fd)
{
	for (uint32_t i = 0; i < shim_epoll_high; i++)
		if ((int)i != fd && atomic_load(&shim_epoll_sets[i]) == s)
			return (int)i;
	return -1;
}

void shim_epoll_closed(int fd)
{
	struct set *s = shim_set_of(fd);

	if ((uint32_t)fd < shim_epoll_n)
		atomic_store_explicit(&shim_epoll_awaited[fd], false,
				      memory_order_relaxed);
	if (exi_likely(!s))
		return;
	EXI_CANCEL_OFF(false);
	exi_lock(&shim_epoll_structure);
	s = shim_set_of(fd);
	if (s) {
		atomic_store(&shim_epoll_sets[fd], NULL);
		if (s->names > 1) {
			s->names--;
			s->fd = other_name(s, fd);
		} else {
			for (int i = 0; i < s->size; i++)
				if (s->by_fd[i])
					shim_item_remove(s->by_fd[i], false);
			exi_fd_close(s->nudge);
			s->nudge = -1;
			shim_epoll_closed_sets[fd] = s;
		}
	}
	exi_unlock(&shim_epoll_structure);
}

bool shim_epoll_known(int fd)
{
	return shim_set_of(fd);
}

/* The second number of a set must be known when its first connection comes. */
static int made(int epfd)
{
	if ((uint32_t)epfd < shim_epoll_n)
		atomic_store_explicit(&shim_epoll_awaited[epfd], false,
				      memory_order_relaxed);
	exi_track_put(epfd, EXI_TRACK_NAMES);
	return epfd;
}

HOOK int epoll_create(int size)
{
	return made(native.epoll_create(size));
}

HOOK int epoll_create1(int flags)
{
	return made(native.epoll_create1(flags));
}

/* Whether fd is an epoll set, with or without connections: one may be added
 * later. Few descriptors refer to files without a type; for these, the test
 * uses a new descriptor that is in no set. */
static bool is_set_yet(int fd)
{
	struct stat st;
	int other;
	bool ret;

	if (shim_set_of(fd))
		return true;
	if (native.fstat(fd, &st) < 0 || (st.st_mode & S_IFMT))
		return false;
	other = eventfd(0, EFD_CLOEXEC);
	ret = other >= 0 && shim_set_is(fd, other);
	if (other >= 0)
		native.close(other);
	return ret;
}

void shim_epoll_named(int fd, int also)
{
	int saved = errno;
	struct set *s;

	/* A process that the library has left may be forbidden to make this
	 * call. */
	if (also < 0 || (uint32_t)also >= shim_epoll_n ||
	    atomic_load(&shim_gone))
		return;
	if (!is_set_yet(fd)) {
		errno = saved;
		return;
	}
	EXI_CANCEL_OFF(false);
	exi_lock(&shim_epoll_structure);
	s = shim_set_make(fd);
	if (s) {
		s->names++;
		shim_set_number_locked(also, s);
	}
	exi_unlock(&shim_epoll_structure);
	errno = saved;
}

/* Starts a set anew in the child. Items may have been held by other threads,
 * and a list may have been in the middle of a change: all items are looked at
 * again, and none is held. */
static void begin_anew(struct set *s)
{
	atomic_store(&s->lock.word, 0);
	atomic_store(&s->settling.word, 0);
	s->inherited = true;
	s->sleepers = s->arming = 0;
	exi_list_init(&s->active);
	exi_list_init(&s->line);
	exi_list_init(&s->resting);
	s->n_active = s->n_fresh = s->n_managed = s->n_resting = 0;
	s->n_moving = 0;
	for (int i = 0; i < s->size; i++) {
		struct item *it = s->by_fd[i];

		if (!it)
			continue;
		exi_list_init(&it->node);
		it->held = it->again = it->active = it->fresh = it->counted =
			it->in_line = it->rests = false;
		it->refs = 1;
		shim_item_listen(it);
		s->n_managed += it->managed;
		exi_lock(&s->lock);
		it->moves = false;
		shim_item_moves_locked(it, it->managed);
		shim_item_activate_locked(it);
		exi_unlock(&s->lock);
	}
}

/* The child has the sets, but its connections have no waiters yet. */
void shim_epoll_forked(void)
{
	atomic_store(&shim_epoll_structure.word, 0);
	shim_set_settle_forked();
	for (int i = 0; i < (int)SHIM_STRANGERS; i++)
		atomic_store(shim_set_strangers(i), 0);
	for (uint32_t i = 0; i < shim_epoll_high; i++) {
		struct set *s = shim_set_of((int)i);

		if (s && s->fd == (int)i) /* one of its numbers */
			begin_anew(s);
	}
}

void shim_epoll_leave(void)
{
	exi_lock(&shim_epoll_structure);
	for (uint32_t i = 0; i < shim_epoll_n; i++) {
		struct set *s = shim_set_of((int)i);

		if (!s)
			continue;
		atomic_store(&shim_epoll_sets[i], NULL);
		if (s->nudge >= 0)
			native.epoll_ctl((int)i, EPOLL_CTL_DEL, s->nudge, NULL);
		if (--s->names > 0)
			continue;
		exi_fd_close(s->nudge);
		s->nudge = -1;
		shim_epoll_closed_sets[i] = s;
	}
	exi_unlock(&shim_epoll_structure);
}

/* Takes a number out of all sets. If the file was added by another number,
 * which is closed, it stays. */
static void owes(int fd)
{
	uint32_t end = shim_epoll_high;

	for (uint32_t i = 0; i < end; i++)
		if (shim_set_of((int)i))
			native.epoll_ctl((int)i, EPOLL_CTL_DEL, fd, NULL);
}

static bool knows(int epfd, bool awaited)
{
	struct set *s = shim_set_of(epfd);

	return s && (!awaited || s->attended);
}

void shim_epoll_init(void)
{
	shim_epoll_n = 1u << 16;
	shim_epoll_sets = calloc(shim_epoll_n, sizeof(*shim_epoll_sets));
	shim_epoll_closed_sets =
		calloc(shim_epoll_n, sizeof(*shim_epoll_closed_sets));
	shim_epoll_latents = calloc(shim_epoll_n, sizeof(*shim_epoll_latents));
	shim_epoll_awaited = calloc(shim_epoll_n, sizeof(*shim_epoll_awaited));
	if (!shim_epoll_sets || !shim_epoll_closed_sets ||
	    !shim_epoll_latents || !shim_epoll_awaited)
		shim_epoll_n = 0;
	exi_ready_met = shim_epoll_met;
	exi_ready_owes = owes;
	exi_unseen_begin(knows);
	exi_latent_begun = shim_epoll_latent_begun;
	exi_latent_promoted = shim_epoll_latent_promoted;
}
