/* SPDX-License-Identifier: BSD-2-Clause */
/* Libfabric's shm, within one host. It keeps a file in /dev/shm for each endpoint,
 * to be removed by who ends, for which it takes the program's signals; that of a
 * process that was killed stays. So its calls are led here (ofi_fds.c): it takes no
 * signal; its files have names of ours, are removed at exit, and each has a lock
 * as long as its process lives, by which others find those that were left, and
 * remove them. And locks within are got back from who died. */
#include "providers/ofi/ofi_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/util.h"

#define OURS "libexs-ofi-"

struct file {
	struct exi_list node;
	int lock; /* the description that has it */
	char name[sizeof(OURS) + 16];
};

static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;
static struct exi_list files = EXI_LIST_INIT(files);

/* --- files -------------------------------------------------------------- */

int ofip_shm_name(struct fid_ep *ep)
{
	char name[OFIP_NAME_MAX];
	uint64_t number;

	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		return -EIO;
	snprintf(name, sizeof(name), "fi_shm://" OURS "%016llx",
		 (unsigned long long)number);
	return fi_setname(&ep->fid, name, strlen(name) + 1);
}

static bool ours(const char *name)
{
	return !strncmp(name, OURS, strlen(OURS)) &&
	       strlen(name) < sizeof(((struct file *)0)->name);
}

/* Nobody has it: its process has died. One that is just being made has no lock for
 * a moment; who makes it sees that it has gone. */
static void remove_if_left(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return;
	if (!flock(fd, LOCK_EX | LOCK_NB))
		unlinkat(dir, name, 0);
	close(fd);
}

void ofip_shm_clean(void)
{
	DIR *d = opendir("/dev/shm");
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (ours(e->d_name))
			remove_if_left(dirfd(d), e->d_name);
	if (d)
		closedir(d);
}

/* With its lock. */
static int make_locked(const char *name, int flags, mode_t mode)
{
	struct stat st;
	int fd;

	for (;;) {
		fd = shm_open(name, flags, mode);
		if (fd < 0 || flock(fd, LOCK_SH) < 0 || fstat(fd, &st) < 0 ||
		    st.st_nlink)
			return fd;
		close(fd);
	}
}

static struct file *remember(const char *name, int fd)
{
	struct file *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->lock = exi_rma_host->fd_keep(fcntl(fd, F_DUPFD_CLOEXEC, 0));
	if (f->lock < 0) {
		free(f);
		return NULL;
	}
	snprintf(f->name, sizeof(f->name), "%s", name);
	pthread_mutex_lock(&files_lock);
	exi_list_add_tail(&files, &f->node);
	pthread_mutex_unlock(&files_lock);
	return f;
}

int ofip_shm_open(const char *name, int flags, mode_t mode)
{
	int fd, err = EMFILE;

	if (!(flags & O_CREAT) || !ours(name))
		return shm_open(name, flags, mode);
	ofip_shm_clean();
	fd = make_locked(name, flags, mode);
	if (fd < 0 || remember(name, fd))
		return fd;
	shm_unlink(name);
	close(fd);
	errno = err;
	return -1;
}

static void forget(struct file *f)
{
	exi_list_del(&f->node);
	exi_rma_host->fd_close(f->lock);
	free(f);
}

int ofip_shm_unlink(const char *name)
{
	struct exi_list *pos, *tmp;
	int ret = shm_unlink(name);

	pthread_mutex_lock(&files_lock);
	exi_list_for_each_safe (pos, tmp, &files) {
		struct file *f = exi_container(pos, struct file, node);

		if (!strcmp(f->name, name))
			forget(f);
	}
	pthread_mutex_unlock(&files_lock);
	return ret;
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

/* --- locks -------------------------------------------------------------- */

/* The C library's spin lock, but it tells who has it: who is killed within never gives
 * it back, and all that has to do with that endpoint would spin for ever. A command to
 * an endpoint is seen by one store, made last, so that half of one is none (but of a
 * write that is not there at once it would be two: ofi_info.c). */
#define HELD 0x40000000

/* Before the CPU is another's: a large write takes long. And before somebody asks. */
#define SPINS 64
#define ASKS  8192

/* Of a lock that nobody has: another on each architecture. */
static int free_word;
static _Atomic int self;

/* The process, or its parent has not asked yet how it ended. */
static bool is_dead(pid_t pid)
{
	char path[32], text[64] = "", *state;
	ssize_t n;
	int fd;

	if (kill(pid, 0) < 0 && errno == ESRCH)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	exi_rma_host->fds_begin();
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	exi_rma_host->fds_end();
	state = n > 0 ? strrchr(text, ')') : NULL;
	return state && (state[2] == 'Z' || state[2] == 'X');
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

/* It is given back by the C library. */
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

/* Endpoints are open until it ends. */
__attribute__((destructor)) static void remove_all(void)
{
	struct exi_list *pos;

	if (exi_list_empty(&files))
		return;
	exi_list_for_each (pos, &files)
		shm_unlink(exi_container(pos, struct file, node)->name);
	ofip_shm_clean();
}

void ofip_shm_forked(void)
{
	struct exi_list *pos, *tmp;

	exi_list_for_each_safe (pos, tmp, &files)
		forget(exi_container(pos, struct file, node));
	atomic_store(&self, getpid());
}
