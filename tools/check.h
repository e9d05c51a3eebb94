/* SPDX-License-Identifier: BSD-2-Clause */
/* What exs check knows of one connection: the steps on its way to a fabric, and
 * the verdict. */
#ifndef EXS_TOOLS_CHECK_H
#define EXS_TOOLS_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/stat.h"

enum check_state {
	CHECK_UNKNOWN, /* not needed, not reached, or not known here */
	CHECK_GOOD,
	CHECK_FAILED,
};

struct check_step {
	const char *name;
	enum check_state state;
	char text[320];
};

#define CHECK_STEPS 16
struct check {
	char what[200]; /* which connection */
	struct check_step step[CHECK_STEPS];
	unsigned int n;
	bool moves; /* it is on a fabric, or will be */
	int reason; /* EXS_X_REASON_*; -1: it does not come to one */
	bool there; /* the reason is that of the other end */
	/* What is seen of the other end's process keeps it on TCP. */
	int peer_reason;
	char verdict[320];
	char cure[320];
	size_t alike; /* connections of the same kind that are not shown */
};

/* Adds a step. The text is shown with "?" for what is not printable. */
__attribute__((format(printf, 4, 5))) void check_step(struct check *c,
						      const char *name,
						      enum check_state state,
						      const char *fmt, ...);
/* Adds to the text of the last step. */
__attribute__((format(printf, 2, 3))) void check_more(struct check *c,
						      const char *fmt, ...);

/* The verdict by a reason: its step has failed, or that of the peer if the
 * reason is the peer's, or an earlier one that has failed already; those behind
 * it are not reached. at: "" or the end that has the reason. */
void check_reason(struct check *c, int reason, const char *at);
/* A verdict for which there is no reason. cure may be "". */
__attribute__((format(printf, 4, 5))) void check_fails(struct check *c,
						       const char *step,
						       const char *cure,
						       const char *fmt, ...);

/* The steps that any connection of this process has: what the system allows;
 * the fabrics that are usable, and why the others are not; the key.
 * EXS_X_REASON_*, of the first that fails. */
int check_system(struct check *c);
int check_fabrics(struct check *c, uint16_t port);
void check_key(struct check *c, bool remote);
/* A sentence about the key, in text; whether it can be used. */
bool check_key_state(char *text, size_t len);

/* A process, as /proc shows it. */
struct check_process {
	pid_t pid;
	char name[32];
	bool readable; /* the rest is known */
	bool library;  /* it has loaded libexs */
	uid_t uid;
	gid_t gid;
	uint64_t netns;
	bool other_root; /* its root directory is another */
	int seccomp;	 /* mode; 0: none */
	unsigned int threads, descriptors;
	uint64_t descriptors_max, memlock_max, processes_max;
	char *environ;	 /* entries, each with its NUL, and an empty one */
	bool no_environ; /* the program has overwritten it */
};
/* 0, -ESRCH, or -EACCES: name and uid may be known then. */
int check_process_read(pid_t pid, struct check_process *ret);
void check_process_free(struct check_process *p);
/* An EXS_ variable of the process; null: not set, or not known. */
const char *check_process_variable(const struct check_process *p,
				   const char *name);
/* The process that holds the socket, and its descriptor; false: it is another
 * user's, or gone. */
bool check_holder(uint64_t inode, pid_t *ret_pid, int *ret_fd);

/* Shows what was set, what its limits are. */
void check_settings(struct check *c, const struct check_process *p);
/* Adds, to the step of the peer, what was set there. */
void check_peer_settings(struct check *c, const struct check_process *p);
void check_limits(struct check *c, const struct check_process *p);

/* From here on this process has the settings, the limits and, where it may, the
 * user and the network namespace of that one: so that what is tried is tried as
 * there. For good, and before any setting was read. -errno. */
int check_become(const struct check_process *p);

/* The modes; exit codes. ret has one for each kind of connection. */
int check_host(const char *host, const char *port, struct check *ret);
int check_pid(pid_t pid, int fd, struct check **ret, size_t *ret_n);

#endif
