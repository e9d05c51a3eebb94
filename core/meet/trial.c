/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes each step as a meeting does. */
#include "core/meet/trial.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/base/fds.h"
#include "core/base/futex.h"
#include "core/base/proof.h"
#include "core/base/thread.h"

static int close_and(int fd, int ret)
{
	if (fd >= 0)
		close(fd);
	return ret;
}

/* A listener and a connection to it. */
static int connect_to_self(const struct sockaddr *any, socklen_t len, int type,
			   int ret[2])
{
	struct sockaddr_storage at;
	socklen_t at_len = sizeof(at);
	int err;

	ret[1] = -1;
	ret[0] = socket(any->sa_family, type | SOCK_CLOEXEC, 0);
	if (ret[0] < 0)
		return -errno;
	if (bind(ret[0], any, len) < 0 || listen(ret[0], 1) < 0 ||
	    getsockname(ret[0], (struct sockaddr *)&at, &at_len) < 0)
		return close_and(ret[0], -errno);
	ret[1] = socket(any->sa_family, type | SOCK_CLOEXEC, 0);
	err = ret[1] < 0 || connect(ret[1], (struct sockaddr *)&at, at_len) < 0
		      ? -errno
		      : 0;
	if (err)
		close_and(ret[1], close_and(ret[0], err));
	return err;
}

static int try_names(void)
{
	struct sockaddr_un any = { .sun_family = AF_UNIX };
	struct ucred cred;
	socklen_t len = sizeof(cred);
	int fd[2], err;

	/* An abstract name that the kernel chooses. */
	err = connect_to_self((struct sockaddr *)&any, sizeof(any.sun_family),
			      SOCK_SEQPACKET, fd);
	if (err)
		return err;
	if (getsockopt(fd[1], SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		err = -errno;
	return close_and(fd[0], close_and(fd[1], err));
}

/* Over either loopback address; one may be missing. */
static int connect_over_loopback(int ret[2])
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6,
				    .sin6_addr = in6addr_loopback };
	int err = connect_to_self((struct sockaddr *)&in, sizeof(in),
				  SOCK_STREAM, ret);

	if (err && connect_to_self((struct sockaddr *)&in6, sizeof(in6),
				   SOCK_STREAM, ret) == 0)
		return 0;
	return err;
}

static int try_loopback(void)
{
	int fd[2], err = connect_over_loopback(fd);

	return err ? err : close_and(fd[0], close_and(fd[1], 0));
}

/* A query about a connection that does not exist is answered, too: if none can
 * be made, sock_diag is not what is missing. */
static int ask_of_none(void)
{
	struct exi_tuple none = { .local = { [10] = 0xff, [11] = 0xff },
				  .peer = { [10] = 0xff, [11] = 0xff } };
	int err = exi_proof_peer_here(&none);

	return err == -ENOENT ? 0 : err;
}

static int try_sock_diag(void)
{
	struct exi_tuple t;
	int fd[2], err;

	if (connect_over_loopback(fd))
		return ask_of_none();
	err = exi_tuple_of(fd[1], &t);
	if (!err)
		err = exi_proof_peer_here(&t);
	return close_and(fd[0], close_and(fd[1], err));
}

static int seal_and_map(int fd, size_t size)
{
	void *map;

	if (ftruncate(fd, (off_t)size) < 0)
		return -errno;
	map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	munmap(map, size);
	return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE) < 0
		       ? -errno
		       : 0;
}

static int try_memory(void)
{
	int fd = memfd_create("libexs-trial", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct sigaction none = { .sa_handler = SIG_IGN }, before;
	int err;

	if (fd < 0)
		return -errno;
	sigaction(SIGXFSZ, &none, &before); /* by ulimit -f */
	err = seal_and_map(fd, (size_t)exi_config()->ring_kb * 1024);
	sigaction(SIGXFSZ, &before, NULL);
	return close_and(fd, err);
}

static void *nothing(void *arg)
{
	return arg;
}

static int try_thread(void)
{
	pthread_t t;

	return exi_thread_start(&t, nothing, NULL);
}

static int try_descriptors(void)
{
	return exi_fd_room(8) ? 0 : -EMFILE;
}

static int try_epoll(void)
{
	int fd = epoll_create1(EPOLL_CLOEXEC);

	return fd < 0 ? -errno : close_and(fd, 0);
}

static int try_proc(void)
{
	int fd = open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : close_and(fd, 0);
}

static int try_waitv(void)
{
	return exi_futex_waitv_works() ? 0 : -ENOSYS;
}

static const struct {
	const char *name;
	int (*run)(void);
	bool needed;
	const char *cure;
} steps[] = {
	{ "UNIX sockets", try_names, true,
	  "AF_UNIX with abstract names must be allowed "
	  "(RestrictAddressFamilies=, AppArmor, seccomp)" },
	{ "loopback", try_loopback, true,
	  "the loopback interface must be up (ip link set lo up), and AF_INET "
	  "or AF_INET6 allowed" },
	{ "sock_diag", try_sock_diag, true,
	  "AF_NETLINK must be allowed (RestrictAddressFamilies=, seccomp), and "
	  "the kernel must have tcp_diag" },
	{ "shared memory", try_memory, true,
	  "memfd_create must be allowed (seccomp), and ulimit -f and -v must "
	  "leave space for EXS_RING_KB" },
	{ "threads", try_thread, true,
	  "ulimit -u, or TasksMax=, must allow one more thread" },
	{ "descriptors", try_descriptors, true,
	  "ulimit -n, or LimitNOFILE=, must be 32 or more" },
	{ "epoll", try_epoll, true, "epoll_create1 must be allowed (seccomp)" },
	{ "futex_waitv", try_waitv, false,
	  "Linux before 5.16, or seccomp: messages wake sleeping threads, "
	  "which takes longer" },
	{ "/proc", try_proc, false,
	  "a program that starts under a system call filter needs it" },
};

bool exi_trial(unsigned int i, struct exi_trial *ret)
{
	if (i >= sizeof(steps) / sizeof(steps[0]))
		return false;
	*ret = (struct exi_trial){ .name = steps[i].name,
				   .err = steps[i].run(),
				   .needed = steps[i].needed,
				   .cure = steps[i].cure };
	return true;
}
