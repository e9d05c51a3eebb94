/* SPDX-License-Identifier: BSD-2-Clause */
/* For the tests of the tcp provider: a domain, ends of connections as the core
 * would make them, and transfers that know what became of them. */
#ifndef TESTS_UNIT_TEST_TCP_ENDS_H
#define TESTS_UNIT_TEST_TCP_ENDS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "providers/tcp/tcp_int.h"
#include "tests/support/run.h"

/* The program's main: argv[1] is the engine, argv[2] a pattern of rows. */
int ends_main(int argc, char **argv, const char *group,
	      const struct t_row *rows, size_t n);

/* The domain under test; the row opens and closes it. */
extern struct tcpp_domain *dom;
extern const struct exi_conn_ops *ops;
extern const struct exi_wait_ops *wops;
extern const struct exi_ready_ops *rops;
extern const struct exi_kernel_ops *kops;

void dom_open(void);
void dom_close(void);
bool dom_is_uring(void);

/* One call of progress(). */
int dom_progress(void);

/* Sleeps as the core does, progress() before and after; false when the time
 * is over. */
bool dom_wait(int ms);

/* One end. ready counts upcalls by direction. */
struct end {
	struct exi_conn *c;
	int fd;
	_Atomic int ready[2];
};

/* Makes an end of a descriptor, and closes both. */
void end_make(struct end *e, int fd);
void end_close(struct end *e);

/* The three words, without the descriptor. */
void end_stop(struct end *e);

/* A connected pair of TCP sockets; of ends. */
void tcp_pair(int fd[2]);
void ends_pair(struct end e[2]);

/* Closing the descriptor will reset the connection. */
void reset_on_close(int fd);

/* Sends until the kernel takes no more; returns how many bytes. It would still
 * take a few that fit into its last buffer. */
size_t fill_up(int fd);

struct transfer {
	struct exi_xfer x;
	struct end *end;
	_Atomic int dones;
	ssize_t result;
	/* The last thing that done() does. */
	void (*then)(struct transfer *t);
	void *arg;
};

/* Makes it ready to be posted; then and arg stay. */
void transfer_init(struct transfer *t, struct end *e, const void *buf,
		   size_t len, int flags);

/* Post, which must succeed. */
void recv_post(struct transfer *t, struct end *e, void *buf, size_t len,
	       int flags);
void send_post(struct transfer *t, struct end *e, const void *buf, size_t len,
	       int flags);

/* Waits until it is done; returns the result. */
ssize_t transfer_wait(struct transfer *t);

/* The transfer is not done, and progress() finds nothing. */
void transfer_idle(struct transfer *t);

/* So many bytes of the transfer in the direction have moved. */
void moved_wait(struct end *e, enum exi_dir dir, size_t n);

#endif
