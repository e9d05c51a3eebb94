/* SPDX-License-Identifier: BSD-2-Clause */
/* What the parts of the shim share. Each hook looks its descriptor up, hands
 * connections of the library to the core, and everything else to the C
 * library. Semantics are the kernel's; errno is written here as the kernel
 * would. */
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

/* Whether the core is started; false in a process where it cannot be, or that
 * the shim has left: all is native. */
bool shim_ready(void);

/* shim_leave() leaves the process, for the reason: every connection goes to
 * TCP, and from then on each call is the C library's of the same name.
 * shim_return() comes back: what was there before stays on TCP. */
void shim_leave(int reason);
void shim_return(void);
/* shim_gone: the shim has left. shim_leaving: it is about to, or has: nobody
 * takes tags out any more. */
extern _Atomic bool shim_gone, shim_leaving;

/* Whether the library may have anything at the number that concerns such
 * calls. */
static inline bool shim_tracks(int fd, uint32_t what)
{
	return (uint32_t)fd >= EXI_TRACKED ||
	       (atomic_load_explicit(&shim_near.track[fd],
				     memory_order_relaxed) &
		what);
}

/* The connection of a descriptor, or null: then the kernel serves it. */
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

/* shim_mover() where that is the answer of a look at the connection, which has
 * met its peer; null: it may be latent, or settled, or none. */
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

/* O_NONBLOCK or a time-out of a connection may have changed: they are asked for
 * anew. */
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

/* The value of a hook. As after a system call errno changes with failures only,
 * whatever the library did meanwhile: call is evaluated in between. */
#define shim_result(call)                                                      \
	({                                                                     \
		int *errno_ = &errno, before_ = *errno_;                       \
		ssize_t ret_ = (call);                                         \
		*errno_ = exi_likely(ret_ >= 0) ? before_ : (int)-ret_;        \
		ret_ >= 0 ? ret_ : -1;                                         \
	})

/* Puts the connection on TCP for good, natively: whatever the library knew of
 * it is forgotten. For descriptors that get a second name or leave. */
void shim_plain(int fd, int reason);
/* Calls to put several connections on TCP in one call: shim_tell() of all comes
 * first, then shim_plain_of(), and exi_feed_rest(); p is what they wait for
 * peers, together. */
struct exi_patience;
void shim_tell(int fd, int reason);
void shim_plain_of(int fd, int reason, struct exi_patience *p);
/* Puts every connection on TCP for which pick() gives a number, not -1. */
void shim_plain_each(int reason, int (*pick)(struct exi_sock *sk, void *arg),
		     void *arg);

/* Gives descriptors of the library back to the application after EMFILE, and
 * waits for no peer. True when trying again may help. */
bool shim_reclaim(void);
/* Tells that the application got fd, the lowest free number: where few are
 * left, the library gives some back before calls that it does not see miss
 * them. */
void shim_room(int fd);

/* Makes epoll sets forget the descriptor, which is about to be closed. */
void shim_epoll_forget(struct exi_sock *sk, int fd);
/* Makes an edge for whoever asks for one of the events, though none came. */
void shim_epoll_bell(struct exi_sock *sk, int fd, uint32_t events);
/* A descriptor that may be an epoll set was closed. */
void shim_epoll_closed(int fd);
/* Whether fd is an epoll set with connections in it. */
bool shim_epoll_known(int fd);
/* The number may be a set's, and got a second number. */
void shim_epoll_named(int fd, int also);
/* Called in the child of a fork. */
void shim_epoll_forked(void);
/* No set has anything but the kernel's in it any more. */
void shim_epoll_leave(void);
void shim_epoll_init(void);
/* Whether fd is an epoll set with connections that only the library knows of;
 * its descriptor is readable if one of them has an event now, and becomes so
 * when one has. */
bool shim_epoll_outer(int fd);

/* Called in the child of a fork. */
void shim_spawn_forked(void);

/* The requests that go through rings of io_uring, see uring.c. */
void shim_uring_init(void);
void shim_uring_forked(void);

/* Called around a fork of which the C library does not tell its handlers: the
 * fork's result is given, and returned. */
void shim_fork_begins(void);
long shim_forked(long pid);

/* seccomp(2), with what it is called for. */
long shim_seccomp(unsigned long operation, unsigned long flags, void *args);

/* The report at exit. A connection is counted when it ends here or goes to TCP
 * for good. */
void shim_report_init(void);
void shim_report_connection(int fd);
/* Counts a connection that was latent to its end. */
struct exi_latent_state;
void shim_report_latent(const struct exi_latent_state *s);
/* Writes the report now, of all connections that there were: the process ends,
 * or cannot write it later. */
void shim_report(void);
/* Says that a program is started without the shim, and why. */
void shim_report_target(const char *path, const char *why);
/* Called in the child of a fork: what its parent had is its parent's. */
void shim_report_forked(void);
/* From here on a signal that ends the process by default, SIGTERM, SIGINT or
 * SIGHUP, has it report before; the program sees its default. */
void shim_signals_report(void);
/* From now on handlers wait while their thread holds a lock. */
void shim_signals_begin(void);

#endif
