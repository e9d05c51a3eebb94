/* SPDX-License-Identifier: BSD-2-Clause */
/* Questions to the kernel about sockets, by sock_diag(7). */
#ifndef EXI_CORE_BASE_DIAG_H
#define EXI_CORE_BASE_DIAG_H

#include <linux/netlink.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The kernel's answer: a message, and attributes. */
union exi_diag_answer {
	struct nlmsghdr head;
	char bytes[2048];
};

/* A socket of the calling thread for questions: it answers for the thread's
 * network namespace, and gives users by their numbers in the thread's user
 * namespace. -EMFILE, -ENFILE; -EACCES: it is denied. */
int exi_diag_open(void);

/* Asks q, whose answer has at least so many bytes. 0; -ENOENT: there is no such
 * socket; -EPROTO and others: it cannot be told here. */
int exi_diag_ask(int nl, const struct nlmsghdr *q, size_t least,
		 union exi_diag_answer *ret);

/* The same by a socket that is kept open, if that is of the network namespace
 * with this cookie (SO_NETNS_COOKIE; 0: it is unknown), and, where users are
 * asked for, certainly of the calling thread's user namespace. False: it is
 * not, and nothing was asked. The kernel answers before send() returns, so
 * nothing is waited for. */
bool exi_diag_ask_kept(uint64_t netns, bool users, const struct nlmsghdr *q,
		       size_t least, union exi_diag_answer *ret, int *ret_err);

/* From now on the process has a second thread, or may have none any more: with
 * one it keeps its user namespace (unshare(2), setns(2)). */
void exi_diag_threaded(bool is);

/* The attribute of that type and at least that size, behind the message's own
 * part; null: there is none. */
const void *exi_diag_attribute(const union exi_diag_answer *a, size_t own,
			       int type, size_t size);

/* The child after fork: closes the kept socket of the parent. */
void exi_diag_forked(void);

/* The kernel's name of the network namespace of a descriptor's socket; 0: it
 * has none, or before Linux 5.14. */
uint64_t exi_netns_cookie(int fd);

#endif
