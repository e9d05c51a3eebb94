/* SPDX-License-Identifier: BSD-2-Clause */
/* The closing threads.
 *
 * Sockets. The kernel does not linger for a task that is ending. So the library
 * makes a thread, the grave, with a descriptor table of its own that is empty
 * from the beginning (CLOSE_RANGE_UNSHARE, which copies nothing). A closing
 * thread sends the sockets to a socket in that table and closes them here,
 * which does not drop the last reference. Then the grave ends, and with it
 * everything in its queue, whatever lies in the queues of those sockets. No
 * step waits for another process.
 *
 * Other files have a flush, for which close(2) of each reference waits: a
 * closing thread is held up for that time. There are THREADS closing
 * threads. */
#include "core/sock/closing.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "core/base/abstract.h"
#include "core/base/fds.h"
#include "core/base/futex.h"
#include "core/base/ids.h"
#include "core/base/lock.h"
#include "core/base/rights.h"
#include "core/base/thread.h"
#include "core/base/util.h"
#include "core/sock/service.h"

#define ROOM	      64u	 /* descriptors that wait */
#define THREADS	      4u	 /* that may be held up at the same time */
#define PACKETS	      1024	 /* looked at in one queue */
#define SETTLE_NS     100000000u /* exi_closing_settle() */
#define MEMORY_BLOCKS (128 << 20 >> 9) /* freed at once */
#define GRAVE_NS      10000000000u     /* a grave waits for what goes there */

struct item {
	int fd;
	bool kept;   /* by exi_fd_keep() */
	bool socket; /* false: a file that close(2) may be slow for */
};

/* Guards the items below. Held for no longer than a few system calls that do
 * not wait. */
static struct exi_lock lock;
static struct item items[ROOM];
static unsigned int n_threads, n_held;
static bool burying;

static _Atomic unsigned int n_items;
/* Threads that the kernel still has: closers and graves. */
static _Atomic unsigned int n_alive;

bool exi_closing_full(void)
{
	return atomic_load(&n_items) > ROOM / 2;
}

static void take_out_locked(unsigned int i)
{
	unsigned int last = atomic_load(&n_items) - 1;

	EXI_LOCKED(&lock);
	items[i] = items[last];
	atomic_store(&n_items, last);
}

static void close_item(const struct item *it)
{
	if (it->kept) {
		exi_fd_close(it->fd);
		return;
	}
	close(it->fd);
	exi_fds_returned();
}

/* --- the grave ------------------------------------------------------------ */

static struct sockaddr_un grave_name;
static socklen_t grave_len;
static uint64_t grave_secret;
static uint32_t graves; /* how many were begun */
/* The number of the last one that is open or could not be, and of the last one
 * that is to end. */
static _Atomic uint32_t grave_open, grave_filled;
static int grave_err;

static void wait_for(_Atomic uint32_t *word, uint32_t value, uint64_t until)
{
	struct timespec deadline = exi_ns_timespec(until);
	struct exi_word w = { .addr = (const uint32_t *)word };

	while ((w.value = atomic_load(word)) != value && exi_now_ns() < until)
		exi_futex_wait(&w, 1, &deadline);
}

static void tell(_Atomic uint32_t *word, uint32_t value)
{
	atomic_store(word, value);
	exi_futex_wake((const uint32_t *)word, 1);
}

/* The kernel chooses the name. Strangers may send there, too. No function of
 * the C library: the numbers of this table belong to this thread alone. */
static int open_grave(void)
{
	struct sock_filter code[EXI_RIGHTS_FILTER];
	struct sock_fprog filter = { .len = EXI_RIGHTS_FILTER, .filter = code };
	long s;

	if (syscall(SYS_close_range, 0u, ~0u, CLOSE_RANGE_UNSHARE) < 0)
		return -errno;
	s = syscall(SYS_socket, AF_UNIX, SOCK_DGRAM, 0);
	if (s < 0)
		return -errno;
	exi_rights_filter(code, grave_secret, sizeof(grave_secret));
	if (syscall(SYS_setsockopt, s, SOL_SOCKET, SO_ATTACH_FILTER, &filter,
		    sizeof(filter)) < 0 ||
	    syscall(SYS_bind, s, &grave_name, grave_len) < 0)
		return -errno;
	return 0;
}

static void *grave(void *arg)
{
	uint32_t number = (uint32_t)(uintptr_t)arg;

	prctl(PR_SET_NAME, "libexs-grave");
	grave_err = open_grave();
	tell(&grave_open, number);
	wait_for(&grave_filled, number, exi_now_ns() + GRAVE_NS);
	atomic_fetch_sub(&n_alive, 1);
	return NULL;
}

static void name_grave(void)
{
	grave_secret = exi_random();
	grave_len = exi_abstract(&grave_name, "libexs/1/grave/%016llx",
				 (unsigned long long)exi_random());
}

/* 0: one is open. */
static int dig(void)
{
	uint32_t number = ++graves;
	pthread_t t;
	int err;

	name_grave();
	atomic_fetch_add(&n_alive, 1);
	err = exi_thread_start(&t, grave, (void *)(uintptr_t)number);
	if (err) {
		atomic_fetch_sub(&n_alive, 1);
		return err;
	}
	wait_for(&grave_open, number, exi_now_ns() + GRAVE_NS / 2);
	return atomic_load(&grave_open) == number ? grave_err : -ETIMEDOUT;
}

/* All in one packet: the queue of a datagram socket is short. */
static int send_all(int s, const int *fds, unsigned int n)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(ROOM * sizeof(int))];
	} control = { 0 };
	struct iovec iov = { .iov_base = &grave_secret,
			     .iov_len = sizeof(grave_secret) };
	struct msghdr m = { .msg_name = &grave_name,
			    .msg_namelen = grave_len,
			    .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = &control,
			    .msg_controllen = CMSG_SPACE(n * sizeof(int)) };

	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(n * sizeof(int));
	memcpy(CMSG_DATA(&control.head), fds, n * sizeof(int));
	return sendmsg(s, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void fill_locked(int s)
{
	unsigned int i, n = 0;
	int fds[ROOM];

	EXI_LOCKED(&lock);
	for (i = 0; i < atomic_load(&n_items); i++)
		if (items[i].socket)
			fds[n++] = items[i].fd;
	if (!n || s < 0 || send_all(s, fds, n)) {
		/* Then close(2) has to wait, here. */
		for (i = 0; i < atomic_load(&n_items); i++)
			items[i].socket = false;
		return;
	}
	for (i = atomic_load(&n_items); i--;) {
		if (!items[i].socket)
			continue;
		close_item(&items[i]);
		take_out_locked(i);
	}
}

static bool has_lent(void)
{
	bool ret = false;
	unsigned int i;

	exi_lock(&lock);
	for (i = 0; i < atomic_load(&n_items); i++)
		ret = ret || !items[i].kept;
	exi_unlock(&lock);
	return ret;
}

static void bury(void)
{
	int err = dig(), s = -1;

	/* A forked child has all items that are in the list, and none that have
	 * left it. */
	if (has_lent())
		exi_fds_join();
	else
		exi_fds_begin();
	if (!err)
		s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	exi_lock(&lock);
	fill_locked(s);
	exi_unlock(&lock);
	if (s >= 0)
		close(s);
	exi_fds_end();
	tell(&grave_filled, graves);
}

/* --- the threads ---------------------------------------------------------- */

/* 1: a socket; 0: another file, which is in *ret, out of the list; -1: none. */
static int next_locked(struct item *ret)
{
	unsigned int i, n = atomic_load(&n_items);

	EXI_LOCKED(&lock);
	for (i = 0; i < n; i++)
		if (items[i].socket && !burying)
			return 1;
	for (i = 0; i < n; i++) {
		if (items[i].socket || n_held == THREADS)
			continue;
		*ret = items[i];
		take_out_locked(i);
		return 0;
	}
	return -1;
}

static void *closer(void *arg)
{
	struct item it;
	int what;

	prctl(PR_SET_NAME, "libexs-closer");
	exi_lock(&lock);
	while ((what = next_locked(&it)) >= 0) {
		burying = what == 1 || burying;
		n_held += what == 0;
		exi_unlock(&lock);
		if (what == 1) {
			bury();
		} else {
			exi_fds_join();
			close_item(&it);
			exi_fds_end();
		}
		exi_lock(&lock);
		burying = burying && what != 1;
		n_held -= what == 0;
	}
	n_threads--;
	exi_unlock(&lock);
	atomic_fetch_sub(&n_alive, 1);
	return arg;
}

void exi_closing_work(void)
{
	pthread_t t;
	bool start;

	if (exi_likely(!atomic_load_explicit(&n_items, memory_order_relaxed)))
		return;
	exi_lock(&lock);
	/* Threads that are not held up continue until nothing waits. */
	start = atomic_load(&n_items) && n_threads == n_held &&
		n_threads <= THREADS;
	n_threads += start;
	exi_unlock(&lock);
	if (!start)
		return;
	atomic_fetch_add(&n_alive, 1);
	if (exi_thread_start(&t, closer, NULL) == 0)
		return;
	/* Again with the next one. */
	atomic_fetch_sub(&n_alive, 1);
	exi_lock(&lock);
	n_threads--;
	exi_unlock(&lock);
}

static void put(struct item it)
{
	bool room;

	exi_lock(&lock);
	room = atomic_load(&n_items) < ROOM;
	if (room)
		items[atomic_fetch_add(&n_items, 1)] = it;
	exi_unlock(&lock);
	if (!room) { /* the descriptor stays open */
		if (!it.kept)
			exi_fds_returned();
		return;
	}
	/* The service makes the thread: there it costs the program no time, and
	 * a filter of system calls that the program has put on its own threads
	 * does not apply. */
	if (exi_service_self())
		exi_closing_work();
	else if (exi_service_start() == 0)
		exi_service_reschedule();
}

/* --- what is to be closed ------------------------------------------------- */

static bool is_socket(int fd)
{
	socklen_t len = sizeof(int);
	int type;

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0;
}

/* Whether the file is of the kind that honest peers send: memory, which has no
 * flush. */
static bool is_quick(int fd)
{
	struct stat st;

	return fcntl(fd, F_GET_SEALS) >= 0 && fstat(fd, &st) == 0 &&
	       st.st_blocks <= MEMORY_BLOCKS;
}

bool exi_closing_file(int fd)
{
	int saved = errno;
	bool quick = fd < 0 || is_quick(fd);

	if (!quick) {
		exi_fds_lent();
		put((struct item){ .fd = fd, .socket = is_socket(fd) });
	} else if (fd >= 0) {
		close(fd);
	}
	errno = saved;
	return quick;
}

/* Whether nothing is in the queue. An empty packet counts: the sender's
 * credentials would come with it. */
static bool at_end(int s)
{
	bool told;
	int on = 1;
	char byte;

	setsockopt(s, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
	exi_rights_receive(s, &byte, 1, MSG_PEEK, &told);
	return !told;
}

/* No descriptor lies unread there. */
static bool is_clean(int s)
{
	for (int i = 0; i < PACKETS; i++) {
		char byte;
		bool rights;
		ssize_t n = exi_rights_receive(s, &byte, 1, MSG_PEEK, &rights);

		if (rights)
			return false;
		if (n == 0)
			return at_end(s);
		if (n < 0)
			return true;
		exi_rights_receive(s, &byte, 1, 0, &rights);
	}
	return false;
}

/* Whether nothing is in the queue. Reads nothing of what another process is to
 * read. */
static bool is_idle(int s)
{
	bool rights;

	return exi_rights_receive(s, &(char){ 0 }, 1, MSG_PEEK, &rights) < 0;
}

void exi_closing_socket(int fd, bool sole)
{
	int saved = errno;

	if (fd < 0)
		return;
	/* Nothing more is taken: a clean queue stays so. */
	if (sole)
		shutdown(fd, SHUT_RDWR);
	if (sole ? is_clean(fd) : is_idle(fd))
		exi_fd_close(fd);
	else
		put((struct item){ .fd = fd, .kept = true, .socket = true });
	errno = saved;
}

/* It has no number of the library's. */
static void refuse(int fd)
{
	shutdown(fd, SHUT_RDWR);
	if (is_clean(fd)) {
		close(fd);
	} else {
		exi_fds_lent();
		put((struct item){ .fd = fd, .socket = true });
	}
}

int exi_closing_accept(int s, bool spare)
{
	int fd = accept4(s, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), kept;

	if (fd < 0)
		return -errno;
	kept = spare ? exi_fd_spare_open(fd) : exi_fd_keep_open(fd);
	if (kept >= 0)
		return kept;
	refuse(fd);
	return -ENOSPC;
}

#define WAITING 8 /* at a listener */

/* Whether no connection in a listener's queue has sent anything. A process that
 * waits to be accepted may have sent something already; mostly it is the peer,
 * which has not. */
static bool is_empty(int s)
{
	for (int i = 0; i < WAITING; i++) {
		int fd = exi_closing_accept(s, false);

		if (fd < 0 && fd != -ENOSPC)
			return fd == -EAGAIN || fd == -EINVAL;
		exi_closing_socket(fd, true);
	}
	return false;
}

void exi_closing_listener(int fd, bool sole)
{
	int saved = errno;

	if (fd < 0)
		return;
	if (sole)
		shutdown(fd, SHUT_RDWR);
	if (is_empty(fd))
		exi_fd_close(fd);
	else
		put((struct item){ .fd = fd, .kept = true, .socket = true });
	errno = saved;
}

void exi_closing_settle(void)
{
	uint64_t until = exi_now_ns() + SETTLE_NS;

	while ((atomic_load(&n_items) || atomic_load(&n_alive)) &&
	       exi_now_ns() < until)
		sched_yield();
}

/* The items that wait are the child's, too; its threads are made when there are
 * more. */
void exi_closing_forked(void)
{
	atomic_store(&lock.word, 0);
	n_threads = n_held = 0;
	burying = false;
	atomic_store(&n_alive, 0);
	for (unsigned int i = 0; i < atomic_load(&n_items); i++)
		if (!items[i].kept)
			exi_fds_lent();
}
