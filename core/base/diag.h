/* SPDX-License-Identifier: BSD-2-Clause */
/* Queries to the kernel about sockets, by sock_diag(7). */
#ifndef EXI_CORE_BASE_DIAG_H
#define EXI_CORE_BASE_DIAG_H

#include <linux/netlink.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/util.h"

/* The kernel's answer: a message, and attributes. */
union exi_diag_answer {
	struct nlmsghdr head;
	char bytes[2048];
};

/* Opens a query socket for the calling thread. Its answers are about the
 * thread's network namespace, and give users by their numbers in the thread's
 * user namespace. -EMFILE, -ENFILE; -EACCES: not permitted. */
int exi_diag_open(void);

/* Sends the query q and reads an answer of at least `least` bytes. 0; -ENOENT:
 * there is no such socket; -EPROTO and others: the kernel gives no answer
 * here. */
int exi_diag_ask(int nl, const struct nlmsghdr *q, size_t least,
		 union exi_diag_answer *ret);

/* The network namespace (SO_NETNS_COOKIE) of the thread that called
 * exi_diag_learn(); 0: the kernel does not say. EXI_DIAG_UNKNOWN: nobody called
 * it. exi_diag_expect() calls it the first time; no lock held. */
#define EXI_DIAG_UNKNOWN UINT64_MAX
extern _Atomic uint64_t exi_diag_netns;
void exi_diag_learn(void);

static inline void exi_diag_expect(void)
{
	if (exi_unlikely(atomic_load_explicit(&exi_diag_netns,
					      memory_order_relaxed) ==
			 EXI_DIAG_UNKNOWN))
		exi_diag_learn();
}

/* As exi_diag_ask(), by a socket that is kept open. That socket must be of the
 * network namespace with this cookie (SO_NETNS_COOKIE; 0: unknown) and, if the
 * answer is about users, certainly of the calling thread's user namespace.
 * Returns false without a query if it is not. The kernel answers before send()
 * returns, so the call never waits. */
bool exi_diag_ask_kept(uint64_t netns, bool users, const struct nlmsghdr *q,
		       size_t least, union exi_diag_answer *ret, int *ret_err);

/* Notes whether the process may have a second thread from now on: while it has
 * one, its user namespace cannot change (unshare(2), setns(2)). */
void exi_diag_threaded(bool is);

/* Returns the attribute of this type and at least this size; attributes follow
 * `own` bytes of the message's fixed part. Null if there is none. */
const void *exi_diag_attribute(const union exi_diag_answer *a, size_t own,
			       int type, size_t size);

/* Called in the child after fork: closes the parent's query socket. */
void exi_diag_forked(void);

/* The kernel's name of the network namespace of a descriptor's socket; 0: it
 * has none, or Linux is older than 5.14. */
uint64_t exi_netns_cookie(int fd);

#endif
