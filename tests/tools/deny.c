/* SPDX-License-Identifier: BSD-2-Clause */
/* Denies a system call, as a container or a service manager may, and executes a
 * program: deny WHAT PROGRAM [ARGUMENT...]. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ANY 0xffffffffu

static const struct {
	const char *name;
	unsigned int call;
	unsigned int first; /* argument; ANY */
	int err;
} denials[] = {
	{ "nothing", 0x3fffffff, ANY, EPERM },
	{ "netlink", SYS_socket, AF_NETLINK, EAFNOSUPPORT },
	{ "netlink-eperm", SYS_socket, AF_NETLINK, EPERM },
	{ "unix", SYS_socket, AF_UNIX, EAFNOSUPPORT },
	{ "unix-eperm", SYS_socket, AF_UNIX, EPERM },
	{ "epoll", SYS_epoll_create1, ANY, EPERM },
	{ "memfd", SYS_memfd_create, ANY, EPERM },
	{ "io-uring", SYS_io_uring_setup, ANY, EPERM },
};

static int deny(unsigned int call, unsigned int first, int err)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | (first == ANY ? BPF_JGE : BPF_JEQ) | BPF_K,
			 first == ANY ? 0 : first, 0, 1),
		BPF_STMT(BPF_RET | BPF_K,
			 SECCOMP_RET_ERRNO | (unsigned int)err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { .len = sizeof(code) / sizeof(code[0]),
				     .filter = code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0
		       ? -1
		       : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

int main(int argc, char **argv)
{
	size_t i;

	for (i = 0; argc > 2 && i < sizeof(denials) / sizeof(denials[0]); i++) {
		if (strcmp(argv[1], denials[i].name) != 0)
			continue;
		if (deny(denials[i].call, denials[i].first, denials[i].err) < 0)
			break;
		execvp(argv[2], argv + 2);
		break;
	}
	perror("deny");
	return 1;
}
