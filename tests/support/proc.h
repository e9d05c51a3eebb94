/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes, threads and descriptors of a test. */
#ifndef TESTS_SUPPORT_PROC_H
#define TESTS_SUPPORT_PROC_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A forked process, and a socket to it (its line). */
struct t_peer {
	pid_t pid;
	int ctl;
};

/* fork(); the child is killed when its parent ends. */
pid_t t_fork(void);

/* Forks a process that runs f and exits with 0 when it returns. */
void t_peer_start(struct t_peer *p, void (*f)(int ctl, void *arg), void *arg);

/* Waits until it exits, with status 0; closes the line. */
void t_peer_join(struct t_peer *p);

/* Kills and reaps it; closes the line. */
void t_peer_kill(struct t_peer *p);

/* Waits until the child exits, with status 0. */
void t_join(pid_t pid);

/* Whether the child exits within ms; does not reap it. The time is not
 * multiplied by t_slow(). */
bool t_exited_within(pid_t pid, int ms);

/* Prints on stderr where the process and its children are (scripts/stuck.py);
 * for use before they are killed at a deadline. */
void t_stuck(pid_t pid);

/* Sends a number over a line, and receives one, with a deadline. */
void t_tell(int ctl, uint64_t word);
uint64_t t_ask(int ctl);

/* Receives a number, which must be this one. */
void t_expect(int ctl, uint64_t word);

/* Sends a descriptor over a line; it stays open here. */
void t_tell_fd(int ctl, int fd);
int t_ask_fd(int ctl);

/* Starts a thread; a failure of f ends the process. */
pthread_t t_thread(void *(*f)(void *), void *arg);
void t_thread_join(pthread_t t);

/* Makes the kernel refuse a system call, by its number, from now on: EPERM. */
void t_refuse(unsigned int call);

/* Whether the kernel can do that. */
bool t_has_filters(void);

/* Asserts that no child is left, dead or alive. */
void t_no_children(void);

/* The open ones of descriptors 0 to 1023 as a bit set, and the number of
 * all. */
struct t_fds {
	uint64_t open[16];
	int count;
};

void t_fds_take(struct t_fds *fds);

/* How many descriptors are open, without the one that this call uses. */
int t_fd_count(void);

/* Waits until no TCP socket is open that was not open at the start, and at most
 * thirteen other descriptors (which the library keeps for the process). */
void t_fds_settled(const struct t_fds *start);

/* For a failure: prints every open descriptor and what it is on stderr. */
void t_fds_show(void);

/* Gives up root for good: becomes the user nobody, without groups. Who is not
 * root stays the same user. */
void t_become_nobody(void);

/* Ends the row as skipped, with a line that says so, if this is not root, who
 * alone can do what the row does. */
void t_need_root(const char *what);

#endif
