/* SPDX-License-Identifier: BSD-2-Clause */
/* What exs check knows about one connection: the steps on its way to a fabric,
 * and the verdict. */
#ifndef EXS_TOOLS_CHECK_H
#define EXS_TOOLS_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/stat.h"

enum check_state {
	CHECK_UNKNOWN, /* not needed, not reached, or unknown */
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
	int reason; /* EXS_X_REASON_*; -1: none applies */
	bool there; /* the reason is that of the other end */
	/* A reason, seen in the other end's process, that keeps it on TCP. */
	int peer_reason;
	char plain[48]; /* the other end's process, if it has no library */
	char verdict[320];
	char cure[320];
	size_t alike; /* connections of the same kind that are not shown */
};

/* Adds a step. Characters of the text that are not printable are shown as
 * "?". */
__attribute__((format(printf, 4, 5))) void check_step(struct check *c,
						      const char *name,
						      enum check_state state,
						      const char *fmt, ...);
/* Adds to the text of the last step. */
__attribute__((format(printf, 2, 3))) void check_more(struct check *c,
						      const char *fmt, ...);

/* Sets the verdict by a reason. The step of the reason fails (the peer's step,
 * if the reason is the peer's), unless an earlier step has failed already;
 * steps after it are not reached. at: "" or the end that has the reason. */
void check_reason(struct check *c, int reason, const char *at);
/* Notes that p is at the other end, if it is known not to use the library, for
 * check_reason(). */
struct check_process;
void check_note_plain(struct check *c, const struct check_process *p);
/* A verdict without a reason of its own. cure may be "". */
__attribute__((format(printf, 4, 5))) void check_fails(struct check *c,
						       const char *step,
						       const char *cure,
						       const char *fmt, ...);

/* The steps that all connections of this process share: what the system allows;
 * which fabrics are usable, and why the others are not; the key. The first two
 * return the EXS_X_REASON_* of the first step that fails. */
int check_system(struct check *c);
int check_fabrics(struct check *c, uint16_t port);
void check_key(struct check *c, bool remote);
/* Writes a sentence about the key to text; returns whether the key is
 * usable. */
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
	uint64_t descriptors_max, memlock_max, processes_max, file_max;
	char *environ;	 /* entries, each with its NUL, and an empty one */
	bool no_environ; /* the program has overwritten it */
};
/* 0, -ESRCH, or -EACCES; with -EACCES, name and uid may be known. */
int check_process_read(pid_t pid, struct check_process *ret);
void check_process_free(struct check_process *p);
/* An EXS_ variable of the process; null: not set, or unknown. */
const char *check_process_variable(const struct check_process *p,
				   const char *name);
/* Finds the process that holds the socket, and its descriptor. False: the
 * process is another user's, or has ended. */
bool check_holder(uint64_t inode, pid_t *ret_pid, int *ret_fd);

/* Add the process's settings, and its limits. */
void check_settings(struct check *c, const struct check_process *p);
/* Adds the peer's settings to its step. */
void check_peer_settings(struct check *c, const struct check_process *p);
void check_limits(struct check *c, const struct check_process *p);
/* Adds to the last step that the process has a system call filter, which the
 * trials of this command do not have. */
void check_filter(struct check *c, const struct check_process *p);
/* What may keep the process on TCP though nothing of it is known to fail; or
 * "". */
const char *check_doubt(const struct check_process *p, char buf[120]);

/* Gives this process the settings, the limits and, if permitted, the user and
 * the network namespace of that one, so that trials run as they would there.
 * Cannot be undone; call it before any setting is read. 0 or -errno. */
int check_become(const struct check_process *p);

/* The two modes; both return an exit code. ret has one entry for each kind of
 * connection. */
int check_host(const char *host, const char *port, struct check *ret);
int check_pid(pid_t pid, int fd, struct check **ret, size_t *ret_n);

#endif
