/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls that close and duplicate descriptors. Only the library closes its own
 * descriptors. */
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/exs_ext.h>
#include <unistd.h>

#include "core/base/cancel.h"
#include "core/base/fds.h"
#include "core/base/track.h"
#include "core/base/proof.h"
#include "core/base/util.h"
#include "core/call/feed.h"
#include "core/life/close.h"
#include "core/life/dup.h"
#include "core/life/hand.h"
#include "core/life/open.h"
#include "core/life/plain.h"
#include "core/meet/find.h"
#include "core/meet/handed.h"
#include "core/meet/latent.h"
#include "core/meet/surroundings.h"
#include "core/sock/names.h"
#include "core/sock/table.h"
#include "core/transfer/switch.h"
#include "preload/shim.h"

/* A number of a connection is about to be closed. */
static void last_name(struct exi_sock *sk, int fd)
{
	if (exi_name_others(sk, fd))
		return; /* sets still report it, as in the kernel */
	shim_report_connection(fd);
	shim_epoll_forget(sk, fd);
}

/* Ends a connection that is still latent; false: fd is none. */
static bool was_latent(int fd)
{
	struct exi_latent_state s;

	if (exi_likely(!exi_latent(fd)) || !exi_latent_end(fd, &s))
		return false;
	shim_report_latent(&s);
	return true;
}

/* Forgets the connection of a number that a call closes as a side effect,
 * before the call. */
static void let_go(int fd, struct exi_patience *p)
{
	EXI_CANCEL_OFF(false);
	struct exi_sock *sk;

	if (was_latent(fd))
		return;
	sk = exi_sock_find(fd);
	if (!sk) {
		shim_epoll_closed(fd);
		return;
	}
	last_name(sk, fd);
	exi_close_of(fd, p);
}

/* A connection that was passed to another process may now be that process's
 * alone. */
static int close_handed(int fd)
{
	struct exi_handed_note n;
	int ret;

	if (exi_likely(!atomic_load(&exi_handed_notes)) ||
	    !exi_handed_closes(fd, &n))
		return native.close(fd);
	ret = native.close(fd);
	exi_handed_done(&n);
	return ret;
}

/* This may close the last number here of a connection that is then a child's
 * alone. */
static int close_socket(struct exi_sock *sk, int fd)
{
	struct exi_handed_note n;
	bool last = exi_hand_leaves(sk, fd, &n);
	int ret;

	last_name(sk, fd);
	ret = exi_close(fd);
	if (last)
		exi_handed_done(&n);
	return ret;
}

static void forget_names(int fd)
{
	shim_epoll_closed(fd);
	exi_surroundings_closed(fd);
	exi_track_clear(fd, exi_track_at(fd), EXI_TRACK_NAMES);
}

static __attribute__((noinline)) int close_tracked(int fd)
{
	EXI_CANCEL_OFF(true);
	struct exi_sock *sk;

	if (!shim_tracks(fd, EXI_TRACK_ANY)) { /* a file that came by message */
		forget_names(fd);
		return close_handed(fd);
	}
	if (was_latent(fd))
		return native.close(fd);
	sk = exi_sock_find(fd);
	if (exi_likely(!sk || sk->named)) {
		if (exi_unlikely(exi_fd_ours(fd)))
			return (int)shim_result(-EBADF);
		forget_names(fd);
		if (!sk)
			return close_handed(fd);
	}
	return (int)shim_result(close_socket(sk, fd));
}

HOOK int close(int fd)
{
	return exi_likely(!shim_tracks(fd, EXI_TRACK_ANY | EXI_TRACK_NAMES))
		       ? native.close(fd)
		       : close_tracked(fd);
}
ALIAS(__close, close);

/* The gaps between the library's numbers. */
static int close_gaps(unsigned int first, unsigned int last, unsigned int end,
		      int flags)
{
	unsigned int from = first, fd;

	for (fd = first; fd <= last && fd < end; fd++) {
		if (!exi_fd_ours((int)fd))
			continue;
		if (fd > from && native.close_range(from, fd - 1, flags) < 0)
			return -1;
		from = fd + 1;
	}
	return from <= last ? native.close_range(from, last, flags) : 0;
}

HOOK int close_range(unsigned int first, unsigned int last, int flags)
{
	unsigned int fd, end = atomic_load(&exi_table.high);
	struct exi_patience p = { 0 };
	bool frozen;
	int ret;

	if (first > last ||
	    (flags & ~(int)(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC)))
		return native.close_range(first, last, flags);
	/* CLOSE_RANGE_UNSHARE comes first: descriptors of other threads stay
	 * open. */
	if ((flags & (int)CLOSE_RANGE_UNSHARE) && shim_ready()) {
		if (unshare(CLONE_FILES) < 0)
			return -1;
		flags &= ~(int)CLOSE_RANGE_UNSHARE;
	}
	if (end < EXI_FD_MARKS)
		end = EXI_FD_MARKS;
	if (flags & CLOSE_RANGE_CLOEXEC)
		return close_gaps(first, last, end, flags);
	for (fd = first; fd <= last && fd < end; fd++)
		if (exi_sock_peek((int)fd))
			exi_close_tell((int)fd);
	for (fd = first; fd <= last && fd < end; fd++) {
		exi_surroundings_closed((int)fd);
		if (!exi_fd_ours((int)fd) &&
		    (exi_latent((int)fd) || exi_sock_find((int)fd)))
			let_go((int)fd, &p);
	}
	exi_feed_rest();
	/* A descriptor that the library makes meanwhile would be in a gap. */
	frozen = exi_fds_freeze();
	ret = close_gaps(first, last, end, flags);
	if (frozen)
		exi_fds_thaw();
	return ret;
}

HOOK void closefrom(int first)
{
	close_range(first < 0 ? 0 : (unsigned int)first, ~0u, 0);
}

/* Puts the connection's file at the new number, too: the bytes that a peer left
 * unread when it died are in another file, which is at the numbers that the
 * library knows. */
static void same_file(int fd, int also)
{
	int flags = native.fcntl64(also, F_GETFD);

	if (flags >= 0 && exi_sock_cookie(fd) != exi_sock_cookie(also))
		native.dup3(fd, also, flags & FD_CLOEXEC ? O_CLOEXEC : 0);
}

/* Notes that fd got another number. The connection goes to TCP if the library
 * has no descriptor to spare, or if stdio may use the number, whose calls the
 * shim does not intercept. */
static int named(int fd, int also)
{
	struct exi_sock *sk;
	int reason;

	if (also < 0 || !shim_tracks(fd, EXI_TRACK_ANY | EXI_TRACK_NAMES))
		return also;
	EXI_CANCEL_OFF(false);
	sk = exi_sock_find(fd);
	shim_epoll_named(fd, also);
	exi_surroundings_named(fd, also);
	if (exi_unlikely(atomic_load(&exi_handed_notes)))
		exi_handed_copied(fd);
	if (!sk || !sk->adopted || sk->role == EXI_ROLE_LISTEN)
		return also;
	reason = also <= STDERR_FILENO	      ? EXS_X_REASON_STDIO
		 : exi_name_add(sk, fd, also) ? EXS_X_REASON_DUPLICATE
					      : EXS_X_REASON_NONE;
	if (reason != EXS_X_REASON_NONE) {
		/* A socket that is not connected yet stays off fabrics, too. */
		atomic_store(&sk->sh->hold_here, 1);
		shim_plain(fd, reason);
		same_file(fd, also);
	}
	return also;
}

/* Duplicates to the lowest free number. A program that closes a number to give
 * it to a duplicate gets that number: meanwhile the library makes no descriptor
 * of its own there. */
static int lowest(int fd, int cmd, intptr_t from)
{
	bool frozen = exi_fds_freeze();
	int ret = native.fcntl64(fd, cmd, (void *)from);

	if (frozen)
		exi_fds_thaw();
	return ret;
}

static int duplicate(int fd, int cmd, intptr_t from)
{
	int ret = lowest(fd, cmd, from);

	if (exi_unlikely(ret < 0) && errno == EMFILE && shim_reclaim())
		ret = lowest(fd, cmd, from);
	return named(fd, ret);
}

HOOK int dup(int fd)
{
	return duplicate(fd, F_DUPFD, 0);
}

/* dup3(2) onto `to`. The library forgets what it knew of `to` in the same step
 * in which the kernel puts another file there; between two steps, another
 * thread could open a file at that number. */
static int dup_over(int from, int to, int flags)
{
	struct exi_sock *sk = NULL;
	bool frozen;
	int ret;

	/* A number of the library cannot be replaced. */
	if (exi_fd_ours(to))
		return (int)shim_result(-EBADF);
	/* A call that fails closes nothing. */
	if (from == to || (flags & ~O_CLOEXEC) || fcntl(from, F_GETFD) < 0)
		return native.dup3(from, to, flags);
	if (!was_latent(to)) {
		sk = exi_sock_find(to);
		if (!sk)
			shim_epoll_closed(to);
		exi_surroundings_closed(to);
	}
	if (sk) {
		EXI_CANCEL_OFF(false);

		last_name(sk, to);
		if (exi_close_over(to, from, flags) == to)
			return named(from, to);
	}
	frozen = exi_fds_freeze();
	ret = native.dup3(from, to, flags);
	if (frozen)
		exi_fds_thaw();
	return named(from, ret);
}

HOOK int dup2(int from, int to)
{
	return from == to && !exi_fd_ours(to) ? native.dup2(from, to)
					      : dup_over(from, to, 0);
}
ALIAS(__dup2, dup2);

HOOK int dup3(int from, int to, int flags)
{
	return dup_over(from, to, flags);
}

/* Whether there is nothing to do after the call, so that it need not return
 * here: the return costs as much as all the rest. */
static inline bool fcntl_is_native(int fd, int cmd, const void *arg)
{
	if (exi_likely(!shim_tracks(fd, EXI_TRACK_ANY)))
		return cmd != F_DUPFD && cmd != F_DUPFD_CLOEXEC;
	if (exi_unlikely(exi_latent(fd)))
		return cmd == F_GETFL || cmd == F_GETFD || cmd == F_SETFD ||
		       (cmd == F_SETFL &&
			!((intptr_t)arg & ~(O_ACCMODE | O_NONBLOCK)));
	return !exi_sock_find(fd) && cmd != F_DUPFD && cmd != F_DUPFD_CLOEXEC;
}

static int any_fcntl(int fd, int cmd, void *arg)
{
	EXI_CANCEL_OFF(false);
	struct exi_sock *sk = exi_sock_find(fd);
	int ret = 0;

	/* The library asks for the connection's flags again, after the
	 * change. */
	if (exi_unlikely(sk) && cmd == F_SETFL) {
		if (shim_sock(fd))
			ret = exi_before_flags(fd, (int)(intptr_t)arg);
		if (!ret && native.fcntl64(fd, cmd, arg) < 0)
			ret = -errno;
		shim_blocking(sk);
		return (int)shim_result(ret);
	}
	if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
		return duplicate(fd, cmd, (intptr_t)arg);
	return native.fcntl64(fd, cmd, arg);
}

#undef fcntl
#undef fcntl64
HOOK int fcntl(int fd, int cmd, ...);
HOOK int fcntl(int fd, int cmd, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (exi_likely(fcntl_is_native(fd, cmd, arg)))
		return native.fcntl64(fd, cmd, arg);
	return any_fcntl(fd, cmd, arg);
}
ALIAS(__fcntl, fcntl);

HOOK int fcntl64(int fd, int cmd, ...);
HOOK int fcntl64(int fd, int cmd, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (exi_likely(fcntl_is_native(fd, cmd, arg)))
		return native.fcntl64(fd, cmd, arg);
	return any_fcntl(fd, cmd, arg);
}

HOOK FILE *fdopen(int fd, const char *mode)
{
	/* The stream's reads and writes are inside the C library. */
	shim_plain(fd, EXS_X_REASON_STDIO);
	return native.fdopen(fd, mode);
}
ALIAS(_IO_fdopen, fdopen);
