/* SPDX-License-Identifier: BSD-2-Clause */
/* Libfabric's shm, within one host. It keeps a file in /dev/shm for each
 * endpoint, which an ending process must remove, and for that it takes the
 * program's signals; the file of a killed process stays. So its calls are
 * redirected here (ofi_fds.c): it takes no signal; its memory has no file, is
 * found by others through its process, and goes with that process; and locks in
 * it are recovered from a process that died. */
#include "providers/ofi/ofi_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/base/list.h"
#include "core/base/util.h"
#include "core/rma/watch.h"

#define PREFIX "fi_shm://"
#define OURS   "libexs-ofi-"

/* Memory of an endpoint. */
struct memory {
	struct exi_list node;
	int fd; /* by which others find it */
	char name[sizeof(OURS) + 40];
};

static _Atomic int self; /* the process */
static pthread_mutex_t ours_lock = PTHREAD_MUTEX_INITIALIZER;
static struct exi_list ours = EXI_LIST_INIT(ours);

/* --- names -------------------------------------------------------------- */

/* The PID namespace: process numbers mean the same to processes in the same
 * one. */
static uint64_t namespace(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) < 0 ? 0 : st.st_ino;
}

int ofip_shm_name(struct fid_ep *ep)
{
	char name[OFIP_NAME_MAX];
	uint64_t number;

	atomic_store(&self, getpid());
	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		return -EIO;
	snprintf(name, sizeof(name),
		 PREFIX OURS "%016" PRIx64 "%08x%016" PRIx64, namespace(),
		 (unsigned int)getpid(), number);
	return fi_setname(&ep->fid, name, strlen(name) + 1);
}

/* Whether this process may write to another's memory. Another user's memory is
 * not trusted, and root's right to write there does not count. Nothing lies at
 * the first address, so a process that may write gets an error that shows
 * it. */
static int may_write_to(pid_t pid)
{
	char byte = 0, path[32];
	struct iovec from = { .iov_base = &byte, .iov_len = 1 };
	struct iovec to = { .iov_base = (void *)1, .iov_len = 1 };
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d", pid);
	if (stat(path, &st) < 0)
		return -errno;
	if (st.st_uid != geteuid())
		return -EPERM;
	if (process_vm_writev(pid, &from, 1, &to, 1, 0) < 0 && errno != EFAULT)
		return -errno;
	return 0;
}

/* Reads a name without its prefix. False: the name is not one of ours. */
static bool parse(const char *name, uint64_t *ret_namespace, pid_t *ret_pid)
{
	uint64_t number;
	unsigned int pid;
	int end = 0;

	if (sscanf(name, OURS "%16" SCNx64 "%8x%16" SCNx64 "%n", ret_namespace,
		   &pid, &number, &end) != 3 ||
	    end != (int)sizeof(((struct memory *)0)->name) - 1 || name[end])
		return false;
	*ret_pid = (pid_t)pid;
	return true;
}

int ofip_shm_reach(const unsigned char *name, size_t len)
{
	const char *text = (const char *)name;
	uint64_t space;
	pid_t pid;

	if (!memchr(name, 0, len) || strncmp(text, PREFIX, strlen(PREFIX)) ||
	    !parse(text + strlen(PREFIX), &space, &pid))
		return -EPROTO;
	return space != namespace() ? -ESRCH : may_write_to(pid);
}

/* --- memory ------------------------------------------------------------- */

static int make(const char *name)
{
	struct memory *m = calloc(1, sizeof(*m));
	int fd = m ? memfd_create(name, MFD_CLOEXEC) : -1;

	if (fd >= 0)
		m->fd = exi_rma_host->fd_keep(fcntl(fd, F_DUPFD_CLOEXEC, 0));
	if (fd < 0 || m->fd < 0) {
		if (fd >= 0)
			close(fd);
		free(m);
		return -1;
	}
	snprintf(m->name, sizeof(m->name), "%s", name);
	pthread_mutex_lock(&ours_lock);
	exi_list_add_tail(&ours, &m->node);
	pthread_mutex_unlock(&ours_lock);
	return fd;
}

/* Opens the memory of that name in the process of that number; -1. */
static int find(pid_t pid, const char *name)
{
	char path[32], want[128], is[128];
	int ret = -1, err = ENOENT;
	struct dirent *e;
	struct stat st;
	ssize_t n;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	snprintf(want, sizeof(want), "/memfd:%s (deleted)", name);
	d = opendir(path);
	while (ret < 0 && d && (e = readdir(d))) {
		n = readlinkat(dirfd(d), e->d_name, is, sizeof(is) - 1);
		is[n > 0 ? n : 0] = 0;
		if (!strcmp(is, want))
			ret = openat(dirfd(d), e->d_name, O_RDWR | O_CLOEXEC);
	}
	if (d)
		closedir(d);
	if (ret >= 0 && (fstat(ret, &st) < 0 || st.st_uid != geteuid())) {
		close(ret);
		ret = -1;
	}
	if (ret < 0)
		errno = err;
	return ret;
}

int ofip_shm_open(const char *name, int flags, mode_t mode)
{
	uint64_t space;
	pid_t pid;

	if (!parse(name, &space, &pid))
		return shm_open(name, flags, mode);
	return flags & O_CREAT ? make(name) : find(pid, name);
}

/* Libfabric asks by its path for the size of what it opens. */
int ofip_shm_stat(const char *path, struct stat *ret)
{
	const char *name = strrchr(path, '/');
	uint64_t space;
	int fd, err;
	pid_t pid;

	if (!name || !parse(name + 1, &space, &pid))
		return stat(path, ret);
	exi_rma_host->fds_begin();
	fd = find(pid, name + 1);
	err = fd < 0 ? -1 : fstat(fd, ret);
	if (fd >= 0)
		close(fd);
	exi_rma_host->fds_end();
	return err;
}

static void forget(struct memory *m)
{
	exi_list_del(&m->node);
	exi_rma_host->fd_close(m->fd);
	free(m);
}

int ofip_shm_unlink(const char *name)
{
	struct exi_list *pos, *tmp;
	bool found = false;

	pthread_mutex_lock(&ours_lock);
	exi_list_for_each_safe (pos, tmp, &ours) {
		struct memory *m = exi_container(pos, struct memory, node);

		if (strcmp(m->name, name))
			continue;
		forget(m);
		found = true;
	}
	pthread_mutex_unlock(&ours_lock);
	return found ? 0 : shm_unlink(name);
}

/* --- signals ------------------------------------------------------------ */

/* The only ones that libfabric asks for are shm's. */
int ofip_shm_sigaction(int number, const struct sigaction *act,
		       struct sigaction *old)
{
	(void)number;
	(void)act;
	if (old)
		memset(old, 0, sizeof(*old));
	return 0;
}

/* --- writes ------------------------------------------------------------- */

static _Thread_local bool write_failed;

bool ofip_shm_write_failed(void)
{
	bool ret = write_failed;

	write_failed = false;
	return ret;
}

/* Libfabric reports a write that the kernel refuses as posted. */
long ofip_shm_syscall(long number, long a, long b, long c, long d, long e,
		      long f)
{
	long ret = syscall(number, a, b, c, d, e, f);

	if (number == SYS_process_vm_writev && ret < 0)
		write_failed = true;
	return ret;
}

/* --- locks -------------------------------------------------------------- */

/* The C library's spin lock, but it records its owner: a process that is killed
 * within never gives it back, and all threads that use that endpoint would spin
 * for ever. One store publishes a command to an endpoint, so half a command is
 * none (a write that is not there at once would need two: ofi_info.c). The
 * count of free commands may then be one too high: more than exist are never
 * needed (ofi_net.c). */
#define HELD 0x40000000

/* SPINS are tried before the CPU is given up, for a large write takes long;
 * ASKS before this thread asks whether the holder is dead. */
#define SPINS 64
#define ASKS  8192

/* The word of a free lock, which differs between architectures. */
static int free_word;

/* Whether a process is dead, with all its threads; its parent may not have
 * asked yet how it ended. */
static bool is_dead(pid_t pid)
{
	struct pollfd p = { .events = POLLIN };
	bool ret;

	exi_rma_host->fds_begin();
	p.fd = (int)syscall(SYS_pidfd_open, pid, 0);
	ret = p.fd < 0 ? errno == ESRCH : poll(&p, 1, 0) > 0;
	if (p.fd >= 0)
		close(p.fd);
	exi_rma_host->fds_end();
	return ret;
}

static bool take(pthread_spinlock_t *l, int from)
{
	return __atomic_compare_exchange_n(l, &from, atomic_load(&self) | HELD,
					   false, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED);
}

int ofip_shm_spin_trylock(pthread_spinlock_t *l)
{
	return take(l, free_word) ? 0 : EBUSY;
}

int ofip_shm_spin_unlock(pthread_spinlock_t *l)
{
	__atomic_store_n(l, free_word, __ATOMIC_RELEASE);
	return 0;
}

int ofip_shm_spin_lock(pthread_spinlock_t *l)
{
	for (unsigned int i = 1; !take(l, free_word); i++) {
		int word = __atomic_load_n(l, __ATOMIC_RELAXED);

		if (i % SPINS)
			exi_pause();
		else
			sched_yield();
		if (i % ASKS == 0 && (word & HELD) && word > 0 &&
		    is_dead(word & ~HELD) && take(l, word))
			break;
	}
	return 0;
}

/* --- the process -------------------------------------------------------- */

void ofip_shm_start(void)
{
	pthread_spinlock_t l;

	pthread_spin_init(&l, PTHREAD_PROCESS_PRIVATE);
	free_word = l;
	atomic_store(&self, getpid());
}

void ofip_shm_forked(void)
{
	struct exi_list *pos, *tmp;

	exi_list_for_each_safe (pos, tmp, &ours)
		forget(exi_container(pos, struct memory, node));
	atomic_store(&self, getpid());
}
