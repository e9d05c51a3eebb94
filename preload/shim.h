/* SPDX-License-Identifier: BSD-2-Clause */
/* What the parts of the shim share. Each hook looks its descriptor up and hands
 * connections of the library to the core, everything else to the C library. A
 * hook behaves as the kernel does, and sets errno as the kernel would. */
#ifndef EXI_PRELOAD_SHIM_H
#define EXI_PRELOAD_SHIM_H

#include <errno.h>
#include <stdbool.h>
#include <sys/types.h>

#include "core/base/track.h"
#include "core/base/util.h"
#include "core/meet/find.h"
#include "core/meet/latent.h"
#include "core/sock/table.h"
#include "core/transfer/switch.h"
#include "preload/native.h"

/* The name of a hook: exported, and listed in preload/symbols. */
#define HOOK __attribute__((visibility("default")))

/* Exports a call by another name that the C library has for it, below its
 * hook. */
#define ALIAS(name, of)                                                        \
	extern __typeof__(of) name __attribute__((alias(#of))) HOOK

/* Returns whether the core is started. Returns false in a process in which it
 * cannot start, or that the shim has left: every call is native then. */
bool shim_ready(void);

/* shim_leave() leaves the process, for the reason: every connection goes to
 * TCP, and from then on each call is the C library's of the same name.
 * shim_return() comes back: what was there before stays on TCP. */
void shim_leave(int reason);
void shim_return(void);
/* shim_gone: the shim has left. shim_leaving: it is about to leave, or has
 * left, and tags are no longer taken out of the kernel's events. */
extern _Atomic bool shim_gone, shim_leaving;

/* Whether the library may have something at the number that concerns such
 * calls. */
static inline bool shim_tracks(int fd, uint32_t what)
{
	return (uint32_t)fd >= EXI_TRACKED ||
	       (atomic_load_explicit(&shim_near.track[fd],
				     memory_order_relaxed) &
		what);
}

/* The connection of a descriptor; null: the kernel serves the descriptor. */
static inline struct exi_sock *shim_sock(int fd)
{
	struct exi_sock *sk = exi_sock_find(fd);
	enum exi_role role;

	if (exi_likely(!sk))
		return NULL;
	role = sk->role;
	return sk->adopted && (role == EXI_ROLE_CONNECT ||
			       role == EXI_ROLE_ACCEPT)
		       ? sk
		       : NULL;
}

/* shim_mover() is shim_sock() for calls that move bytes; shim_settled() is its
 * slow path. */
bool shim_settled(struct exi_sock *sk, int fd);
static inline struct exi_sock *shim_mover(int fd)
{
	struct exi_sock *sk = shim_sock(fd);

	return exi_likely(sk && __atomic_load_n(&sk->fab, __ATOMIC_RELAXED)) ||
			       !shim_settled(sk, fd)
		       ? sk
		       : NULL;
}

/* shim_mover() by a look alone: returns the connection if it has met its peer.
 * Null: the connection may be latent or settled, or there is none. */
static inline struct exi_sock *shim_met(int fd)
{
	struct exi_sock *sk = exi_sock_peek(fd);
	enum exi_role role;

	if (!sk || !__atomic_load_n(&sk->fab, __ATOMIC_RELAXED))
		return NULL;
	role = sk->role;
	return exi_likely(sk->adopted &&
			  (role == EXI_ROLE_CONNECT || role == EXI_ROLE_ACCEPT))
		       ? sk
		       : NULL;
}

/* O_NONBLOCK or a time-out of the connection may have changed: the library asks
 * the kernel for them again. */
static inline void shim_blocking(struct exi_sock *sk)
{
	uint32_t was = atomic_load(&sk->blocking);

	while ((was & EXI_BLOCKING_MASK) != EXI_BLOCKING_SHARED &&
	       !atomic_compare_exchange_weak(
		       &sk->blocking, &was,
		       (was & ~(uint32_t)EXI_BLOCKING_KNOWN) +
			       EXI_BLOCKING_CHANGE))
		;
}

/* The return value of a hook. As after a system call, errno changes only on
 * failure, whatever the library did while `call` was evaluated. */
#define shim_result(call)                                                      \
	({                                                                     \
		int *errno_ = &errno, before_ = *errno_;                       \
		ssize_t ret_ = (call);                                         \
		*errno_ = exi_likely(ret_ >= 0) ? before_ : (int)-ret_;        \
		ret_ >= 0 ? ret_ : -1;                                         \
	})

/* Puts the connection on TCP for good; the library forgets it. For descriptors
 * that get a second number or leave the process. */
void shim_plain(int fd, int reason);
/* To put several connections on TCP in one call: first shim_tell() for each,
 * then shim_plain_of() for each, then exi_feed_rest(). p limits how long they
 * wait for peers, all together. */
struct exi_patience;
void shim_tell(int fd, int reason);
void shim_plain_of(int fd, int reason, struct exi_patience *p);
/* Puts every connection on TCP for which pick() returns a number other than
 * -1. */
void shim_plain_each(int reason, int (*pick)(struct exi_sock *sk, void *arg),
		     void *arg);

/* Gives descriptors of the library back to the application after EMFILE. Waits
 * for peers only briefly. Returns true if another try may succeed. */
bool shim_reclaim(void);
/* Notes that the application got fd, the lowest free number. If few numbers are
 * left, the library gives some back, because it does not see all calls that
 * fail for lack of one. */
void shim_room(int fd);

/* Makes epoll sets forget the descriptor, which is about to be closed. */
void shim_epoll_forget(struct exi_sock *sk, int fd);
/* Makes an edge for the epoll sets that ask for one of the events, even if no
 * event has come. */
void shim_epoll_bell(struct exi_sock *sk, int fd, uint32_t events);
/* Called before a higher SO_RCVLOWAT may hide bytes that have come: their edge
 * stays, and reports whatever else an item asks for. */
void shim_epoll_hides(struct exi_sock *sk, int fd);
/* Called when a descriptor that may be an epoll set was closed. */
void shim_epoll_closed(int fd);
/* Whether fd is an epoll set with connections in it. */
bool shim_epoll_known(int fd);
/* Called when fd, which may be an epoll set, got a second number. */
void shim_epoll_named(int fd, int also);
/* Called in the child of a fork. */
void shim_epoll_forked(void);
/* Leaves only the kernel's own entries in all sets. */
void shim_epoll_leave(void);
void shim_epoll_init(void);
/* Whether fd is an epoll set with connections that only the library watches. If
 * so, the set's descriptor is readable if one of them has an event now, and
 * becomes readable when one has. */
bool shim_epoll_outer(int fd);

/* Called in the child of a fork. */
void shim_spawn_forked(void);

/* Requests that go through rings of io_uring, see uring.c. */
void shim_uring_init(void);
void shim_uring_forked(void);

/* Called around a fork for which the C library does not run the handlers of
 * pthread_atfork(). shim_forked() takes the result of the fork, and returns
 * it. */
void shim_fork_begins(void);
long shim_forked(long pid);

/* seccomp(2), and what the library must do before it. */
long shim_seccomp(unsigned long operation, unsigned long flags, void *args);
/* The calls of the family of setuid() by number. */
long shim_set_user(long number, const long *a);

/* The report at exit. A connection is counted when it ends here or goes to TCP
 * for good. */
void shim_report_init(void);
void shim_report_connection(int fd);
/* Counts a connection that was latent to its end. */
struct exi_latent_state;
void shim_report_latent(const struct exi_latent_state *s);
/* Writes the report of all connections so far, because the process ends or
 * cannot write it later. */
void shim_report(void);
/* Reports that a program is started without the shim, and why. */
void shim_report_target(const char *path, const char *why);
/* Called in the child of a fork: forgets what the parent counted. */
void shim_report_forked(void);
/* From here on the process reports before SIGTERM, SIGINT or SIGHUP ends it by
 * default. The program still sees the default action. */
void shim_signals_report(void);
/* From now on handlers wait while their thread holds a lock. */
void shim_signals_begin(void);

#endif
