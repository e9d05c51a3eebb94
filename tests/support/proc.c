/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes of a test, messages between them, and counts of what is left
 * open. */
#include "tests/support/proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/support/check.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

#define NOBODY 65534

/* What the library may keep open for the life of a process: the service 2;
 * TCP's engine 2; a thread that has waited 2; one each for sock_diag, markers,
 * the keeper, families, held numbers and waits that are operations; of verbs
 * its domain 2, the device 2 and events 3; one of a log, and of io_uring. */
#define LIBRARY_FDS 21

pid_t t_fork(void)
{
	pid_t parent = getpid(), pid;

	fflush(NULL);
	pid = T_OK(fork());
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* The parent may have died before. (0: another PID namespace.) */
	if (getppid() != parent && getppid() != 0)
		_exit(1);
	return 0;
}

void t_peer_start(struct t_peer *p, void (*f)(int ctl, void *arg), void *arg)
{
	int sv[2];

	T_OK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv));
	p->pid = t_fork();
	if (p->pid == 0) {
		close(sv[0]);
		f(sv[1], arg);
		exit(0);
	}
	close(sv[1]);
	p->ctl = sv[0];
}

bool t_exited_within(pid_t pid, int ms)
{
	int fd = T_OK(syscall(SYS_pidfd_open, pid, 0));
	bool gone = t_readable(fd, ms);

	close(fd);
	return gone;
}

/* Also in a handler of signals. */
void t_stuck(pid_t pid)
{
	char number[16];
	pid_t teller;

	snprintf(number, sizeof(number), "%d", pid);
	teller = _Fork();
	if (teller == 0) {
		dup2(STDERR_FILENO, STDOUT_FILENO);
		execlp("timeout", "timeout", "20", "python3", T_STUCK, number,
		       NULL);
		_exit(127);
	}
	if (teller > 0)
		waitpid(teller, NULL, 0);
}

void t_join(pid_t pid)
{
	int status;

	if (!t_exited_within(pid, 60000 * t_slow())) {
		t_stuck(pid);
		t_fail(__FILE__, __LINE__, "child %d does not end", pid);
	}
	T_EQ(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status))
		t_fail(__FILE__, __LINE__, "child %d died of SIG%s", pid,
		       sigabbrev_np(WTERMSIG(status)));
	if (WEXITSTATUS(status) != 0)
		t_fail(__FILE__, __LINE__, "child %d exits with %d", pid,
		       WEXITSTATUS(status));
}

void t_peer_join(struct t_peer *p)
{
	t_join(p->pid);
	close(p->ctl);
}

void t_peer_kill(struct t_peer *p)
{
	T_OK(kill(p->pid, SIGKILL));
	T_EQ(waitpid(p->pid, NULL, 0), p->pid);
	close(p->ctl);
}

void t_tell(int ctl, uint64_t word)
{
	T_EQ(send(ctl, &word, sizeof(word), MSG_NOSIGNAL), sizeof(word));
}

uint64_t t_ask(int ctl)
{
	uint64_t word = 0;

	if (!t_readable(ctl, 30000 * t_slow())) {
		t_stuck(getpid());
		t_fail(__FILE__, __LINE__, "the other process says nothing");
	}
	if (recv(ctl, &word, sizeof(word), 0) != sizeof(word))
		t_fail(__FILE__, __LINE__, "the other process is gone");
	return word;
}

void t_expect(int ctl, uint64_t word)
{
	uint64_t got = t_ask(ctl);

	T_EQ(got, word);
}

union fd_room {
	struct cmsghdr head;
	char bytes[CMSG_SPACE(sizeof(int))];
};

void t_tell_fd(int ctl, int fd)
{
	union fd_room room = { .bytes = { 0 } };
	struct iovec iov = { .iov_base = (char[]){ 'f' }, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &room,
		.msg_controllen = sizeof(room.bytes),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	T_EQ(sendmsg(ctl, &msg, MSG_NOSIGNAL), 1);
}

int t_ask_fd(int ctl)
{
	union fd_room room;
	char byte;
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &room,
		.msg_controllen = sizeof(room.bytes),
	};
	struct cmsghdr *c;
	int fd = -1;

	T(t_readable(ctl, 30000 * t_slow()));
	T_EQ(recvmsg(ctl, &msg, MSG_CMSG_CLOEXEC), 1);
	c = CMSG_FIRSTHDR(&msg);
	T(c != NULL && c->cmsg_type == SCM_RIGHTS);
	memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	return fd;
}

pthread_t t_thread(void *(*f)(void *), void *arg)
{
	pthread_t t;
	int err = pthread_create(&t, NULL, f, arg);

	T_EQ(err, 0);
	return t;
}

void t_thread_join(pthread_t t)
{
	int err = pthread_join(t, NULL);

	T_EQ(err, 0);
}

void t_no_children(void)
{
	T_ERR(waitpid(-1, NULL, WNOHANG), ECHILD);
}

static bool is_open(const struct t_fds *fds, int fd)
{
	return fd < 1024 && (fds->open[fd / 64] >> (fd % 64) & 1);
}

/* Calls f for each open descriptor but the one that looks. */
static void each_fd(void (*f)(int fd, void *arg), void *arg)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;

	T(dir != NULL);
	while ((e = readdir(dir))) {
		int fd = atoi(e->d_name);

		if (e->d_name[0] != '.' && fd != dirfd(dir))
			f(fd, arg);
	}
	closedir(dir);
}

static void take_one(int fd, void *arg)
{
	struct t_fds *fds = arg;

	if (fd < 1024)
		fds->open[fd / 64] |= UINT64_C(1) << (fd % 64);
	fds->count++;
}

void t_fds_take(struct t_fds *fds)
{
	memset(fds, 0, sizeof(*fds));
	each_fd(take_one, fds);
}

int t_fd_count(void)
{
	struct t_fds fds;

	t_fds_take(&fds);
	return fds.count;
}

struct leftover {
	const struct t_fds *start;
	int tcp;
	int other;
};

static void look_at_one(int fd, void *arg)
{
	struct leftover *left = arg;
	socklen_t len = sizeof(int);
	int domain = AF_UNSPEC;

	if (is_open(left->start, fd))
		return;
	getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len);
	if (domain == AF_INET || domain == AF_INET6)
		left->tcp++;
	else
		left->other++;
}

static bool nothing_left(const struct t_fds *start)
{
	struct leftover left = { .start = start };

	each_fd(look_at_one, &left);
	return left.tcp == 0 && left.other <= LIBRARY_FDS;
}

void t_fds_settled(const struct t_fds *start)
{
	struct t_deadline d = t_deadline_ms(5000);

	while (!nothing_left(start)) {
		if (t_tick(&d))
			continue;
		t_fds_show();
		t_fail(__FILE__, __LINE__, "descriptors are left open");
	}
}

/* What the kernel says of a socket in a table of its network namespace. */
static void show_row(const char *table, const char *inode)
{
	char line[512];
	FILE *f = fopen(table, "re");

	while (f && fgets(line, sizeof(line), f))
		if (strstr(line, inode))
			fprintf(stderr, "\t\t%s: %s", table, line);
	if (f)
		fclose(f);
}

static void show_one(int fd, void *arg)
{
	char path[64], what[128], inode[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, what, sizeof(what) - 1);
	what[n > 0 ? n : 0] = '\0';
	fprintf(stderr, "\tdescriptor %d: %s\n", fd, what);
	if (sscanf(what, "socket:[%62[0-9]", inode + 1) == 1) {
		inode[0] = ' ';
		show_row("/proc/self/net/tcp", inode);
		show_row("/proc/self/net/tcp6", inode);
		show_row("/proc/self/net/unix", inode);
	}
}

void t_fds_show(void)
{
	each_fd(show_one, NULL);
}

void t_need_root(const char *what)
{
	if (geteuid() == 0)
		return;
	printf("%s: skipped, only root can %s\n", t_row_name(), what);
	exit(T_SKIP);
}

void t_become_nobody(void)
{
	if (geteuid() != 0)
		return;
	T_OK(setgroups(0, NULL));
	T_OK(setresgid(NOBODY, NOBODY, NOBODY));
	T_OK(setresuid(NOBODY, NOBODY, NOBODY));
}

bool t_has_filters(void)
{
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL);
	return errno == EFAULT;
}

void t_refuse(unsigned int call)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = sizeof(code) / sizeof(code[0]),
				   .filter = code };

	T_OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	T_OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog));
}
