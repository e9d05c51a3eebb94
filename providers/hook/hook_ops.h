/* SPDX-License-Identifier: BSD-2-Clause */
/* The operations that the hook wraps. */
#ifndef PROVIDERS_HOOK_OPS_H
#define PROVIDERS_HOOK_OPS_H

/*	FAILS(type, table, name, parameters, arguments)
 *	TELLS(type, table, name, parameters, arguments)
 *	DOES(table, name, parameters, arguments)
 *	OTHER(table, name)
 *
 * FAILS: an operation that may fail. TELLS and DOES: an operation that may not,
 * with a result and without. OTHER: hook.c wraps it by hand. The first
 * parameter is the connection, or the domain. */
#define HOOKP_EACH(FAILS, TELLS, DOES, OTHER)                                  \
	OTHER(provider, open)                                                  \
	FAILS(int, meet, offer, (struct exi_conn * c, struct exi_blob * ret),  \
	      (c, ret))                                                        \
	FAILS(int, meet, answer,                                               \
	      (struct exi_conn * c, const struct exi_blob *offer,              \
	       struct exi_blob *ret),                                          \
	      (c, offer, ret))                                                 \
	FAILS(int, meet, accepted,                                             \
	      (struct exi_conn * c, const struct exi_blob *answer),            \
	      (c, answer))                                                     \
	OTHER(conn, send)                                                      \
	OTHER(conn, recv)                                                      \
	FAILS(int, conn, end, (struct exi_conn * c), (c))                      \
	DOES(conn, close, (struct exi_conn * c), (c))                          \
	DOES(conn, stop, (struct exi_conn * c), (c))                           \
	DOES(conn, fini, (struct exi_conn * c), (c))                           \
	FAILS(int, wait, arm,                                                  \
	      (struct exi_conn * c, enum exi_dir dir, enum exi_wake how),      \
	      (c, dir, how))                                                   \
	DOES(wait, disarm,                                                     \
	     (struct exi_conn * c, enum exi_dir dir, enum exi_wake how),       \
	     (c, dir, how))                                                    \
	TELLS(int, wait, word,                                                 \
	      (struct exi_conn * c, enum exi_dir dir, struct exi_word * ret),  \
	      (c, dir, ret))                                                   \
	TELLS(bool, ready, ready, (struct exi_conn * c, enum exi_dir dir),     \
	      (c, dir))                                                        \
	TELLS(size_t, ready, unread, (struct exi_conn * c), (c))               \
	TELLS(bool, ready, full, (struct exi_conn * c), (c))                   \
	TELLS(bool, ready, over, (struct exi_conn * c), (c))                   \
	OTHER(kernel, sendv)                                                   \
	OTHER(kernel, recvv)                                                   \
	FAILS(int, kernel, post_send,                                          \
	      (struct exi_conn * c, struct exi_xfer * x), (c, x))              \
	FAILS(int, kernel, post_recv,                                          \
	      (struct exi_conn * c, struct exi_xfer * x), (c, x))              \
	DOES(kernel, cancel, (struct exi_conn * c, struct exi_xfer * x),       \
	     (c, x))                                                           \
	FAILS(int, switch, head, (struct exi_conn * c, uint64_t * ret),        \
	      (c, ret))                                                        \
	FAILS(int, switch, start, (struct exi_conn * c, uint64_t head),        \
	      (c, head))                                                       \
	DOES(switch, cursor,                                                   \
	     (struct exi_conn * c, uint64_t * pos, uint64_t * used),           \
	     (c, pos, used))                                                   \
	FAILS(int, switch, takeback,                                           \
	      (struct exi_conn * c, uint64_t pos, uint64_t used),              \
	      (c, pos, used))                                                  \
	OTHER(switch, drain)                                                   \
	DOES(switch, drained, (struct exi_conn * c, size_t n), (c, n))         \
	OTHER(loan, look)                                                      \
	DOES(loan, took, (struct exi_conn * c, size_t n), (c, n))              \
	OTHER(loan, room)                                                      \
	DOES(loan, put, (struct exi_conn * c, size_t n), (c, n))               \
	OTHER(domain, progress)                                                \
	OTHER(domain, arm)

#endif
