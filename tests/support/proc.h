/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes, threads and descriptors of a test. */
#ifndef TESTS_SUPPORT_PROC_H
#define TESTS_SUPPORT_PROC_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A forked process, with a line to it. */
struct t_peer {
	pid_t pid;
	int ctl;
};

/* fork() whose child dies with its parent. */
pid_t t_fork(void);

/* Forks a process that runs f and exits with 0 when it returns. */
void t_peer_start(struct t_peer *p, void (*f)(int ctl, void *arg), void *arg);

/* Waits until it exits, with status 0; closes the line. */
void t_peer_join(struct t_peer *p);

/* Kills and reaps it; closes the line. */
void t_peer_kill(struct t_peer *p);

/* Waits until the child exits, with status 0. */
void t_join(pid_t pid);

/* Without reaping it. The time is as given. */
bool t_exited_within(pid_t pid, int ms);

/* Says on stderr where the process and its children are (scripts/stuck.py);
 * for who is about to end them at a deadline. */
void t_stuck(pid_t pid);

/* One number over a line, and back, waiting for it with a deadline. */
void t_tell(int ctl, uint64_t word);
uint64_t t_ask(int ctl);

/* The number must be this one. */
void t_expect(int ctl, uint64_t word);

/* A descriptor over a line; it stays open here. */
void t_tell_fd(int ctl, int fd);
int t_ask_fd(int ctl);

/* A thread; f's failures end the process. */
pthread_t t_thread(void *(*f)(void *), void *arg);
void t_thread_join(pthread_t t);

/* The kernel refuses a system call, by its number, from here on: EPERM. */
void t_refuse(unsigned int call);

/* Whether it can. */
bool t_has_filters(void);

/* No child is left, dead or alive. */
void t_no_children(void);

/* Descriptors 0 to 1023 that are open, as a bit set, and how many in all. */
struct t_fds {
	uint64_t open[16];
	int count;
};

void t_fds_take(struct t_fds *fds);

/* How many descriptors are open, the look itself left out. */
int t_fd_count(void);

/* Waits until no TCP socket is open that was not at the start, and no more
 * than thirteen others (what the library keeps for the process). */
void t_fds_settled(const struct t_fds *start);

/* For a failure: every open descriptor and what it is, on stderr. */
void t_fds_show(void);

/* Gives up root for good: nobody, with no groups. */
void t_become_nobody(void);

#endif
