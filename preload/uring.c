/* SPDX-License-Identifier: BSD-2-Clause */
/* Rings of io_uring that the program makes and fills through the shared
 * liburing.
 *
 * A request that names a connection would read, write or poll TCP, past the
 * fabric. So the shim looks at each request in the call that submits it:
 * liburing moves the tail of the submission queue in these calls only, also
 * with IORING_SETUP_SQPOLL, and until then the kernel sees no request. The
 * connection is on TCP for good before the call continues.
 *
 * A ring is seen if it was made by these calls. Not seen is a ring that was
 * made otherwise (by a liburing that is linked in, or by system calls), or that
 * got a request that the shim does not understand, or that waits for an epoll
 * set, whose connections need not be on TCP. While a process has a ring that is
 * not seen, connections stay on TCP (core/meet/surroundings.h).
 *
 * The number of a ring's descriptor does not identify the ring, because
 * liburing closes it by a call that is not intercepted. From Linux 5.12 on, the
 * number of its inode does; on older kernels a ring that is seen must end by
 * io_uring_queue_exit(). */
#include <dlfcn.h>
#include <linux/io_uring.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/fds.h"
#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/meet/surroundings.h"
#include "preload/handed.h"
#include "preload/shim.h"

#define NUMBERS 65536 /* rings with higher ones are not seen */

/* The part that all versions of liburing.so.2 have in common: the head of
 * struct io_uring. */
struct io_uring {
	struct {
		unsigned int *k_head, *k_tail, *k_mask, *k_entries, *k_flags;
		unsigned int *k_dropped, *array;
		struct io_uring_sqe *sqes;
		unsigned int head, tail; /* of requests not submitted yet */
		size_t size;
		void *ring;
		unsigned int pad[4];
	} sq;
	struct {
		unsigned int *k_head, *k_tail, *k_mask, *k_entries, *k_flags;
		unsigned int *k_overflow;
		struct io_uring_cqe *cqes;
		size_t size;
		void *ring;
		unsigned int pad[4];
	} cq;
	unsigned int flags;
	int fd;
};

/* Flags up to IORING_SETUP_HYBRID_IOPOLL do not change what this file relies
 * on. With IORING_SETUP_REGISTERED_FD_ONLY the ring has no descriptor. */
#define KNOWN_FLAGS	   ((1u << 18) - 1)
#define REGISTERED_FD_ONLY (1u << 15)

/* Constants that older headers lack. */
#define SQE128 (1u << 10)
enum {
	OP_SOCKET = 45,
	OP_SENDMSG_ZC = 48,
	OP_WAITID = 50,
	OP_FUTEX_WAIT = 51,
	OP_FUTEX_WAKE = 52,
	OP_FUTEX_WAITV = 53,
	OP_EPOLL_WAIT = 59,
	OP_LAST = 62, /* IORING_OP_PIPE; later ones are not understood */
};

/* The inode of the ring that is seen and has this number; 0: none. */
static _Atomic uint64_t inodes[NUMBERS];

/* A ring is being made: it has a descriptor, and no place in the table yet. */
static struct exi_lock making;

/* The program submitted requests by itself, on a ring that its number does not
 * identify: no ring is seen any more. */
static _Atomic bool is_fed_raw;

static bool is_seen(int fd)
{
	struct stat st;

	if (atomic_load(&is_fed_raw) || fd < 0 || fd >= NUMBERS ||
	    native.fstat(fd, &st) < 0)
		return false;
	if (atomic_load(&inodes[fd]) == st.st_ino)
		return true;
	exi_lock(&making);
	exi_unlock(&making);
	return atomic_load(&inodes[fd]) == st.st_ino;
}

static void no_longer_seen(int fd)
{
	if (fd >= 0 && fd < NUMBERS)
		atomic_store(&inodes[fd], 0);
}

static int made_locked(const struct io_uring *r, int ret)
{
	struct stat st;

	EXI_LOCKED(&making);
	if (ret >= 0 && !(r->flags & (~KNOWN_FLAGS | REGISTERED_FD_ONLY)) &&
	    r->fd >= 0 && r->fd < NUMBERS && native.fstat(r->fd, &st) == 0)
		atomic_store(&inodes[r->fd], st.st_ino);
	return ret;
}

void shim_uring_init(void)
{
	exi_surroundings_ring_seen = is_seen;
}

void shim_uring_forked(void)
{
	atomic_store(&making.word, 0);
}

/* --- requests ------------------------------------------------------------ */

static void name(int fd)
{
	if (shim_tracks(fd, EXI_TRACK_ANY | EXI_TRACK_BYTES))
		shim_plain(fd, EXS_X_REASON_IO_URING);
}

static bool may_be_set(int fd)
{
	char path[64], target[32];
	ssize_t n;

	if (!shim_tracks(fd, EXI_TRACK_NAMES))
		return false;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, target, sizeof(target) - 1);
	if (n <= 0)
		return true;
	target[n] = 0;
	return strcmp(target, "anon_inode:[eventpoll]") == 0;
}

/* Requests may name a registered descriptor by another number. */
static void name_all(const struct io_uring *r, const int *fds, unsigned int n)
{
	int saved = errno;

	for (unsigned int i = 0; fds && i < n; i++) {
		if (fds[i] < 0)
			continue;
		name(fds[i]);
		if (may_be_set(fds[i]))
			no_longer_seen(r->fd);
	}
	errno = saved;
}

/* The kernel closes it, at a time that the library does not see. */
static void closes(int fd)
{
	struct exi_sock *sk = exi_sock_find(fd);
	uint32_t generation;

	if (!sk) {
		shim_epoll_closed(fd);
		return;
	}
	generation = atomic_load(&sk->generation);
	shim_epoll_forget(sk, fd);
	exi_sock_forget(sk, fd, generation);
}

/* Whether fd of such a request is the number of a descriptor. */
static bool has_fd(const struct io_uring_sqe *s)
{
	switch (s->opcode) {
	case IORING_OP_PROVIDE_BUFFERS:
	case IORING_OP_REMOVE_BUFFERS:
	case OP_SOCKET:
	case OP_WAITID:
	case OP_FUTEX_WAIT:
	case OP_FUTEX_WAKE:
	case OP_FUTEX_WAITV:
		return false;
	case IORING_OP_CLOSE:
		return !s->file_index;
	default:
		return !(s->flags & IOSQE_FIXED_FILE) && s->fd >= 0;
	}
}

static void look_at_more(const struct io_uring *r, const struct io_uring_sqe *s)
{
	switch (s->opcode) {
	case IORING_OP_POLL_ADD:
		if (has_fd(s) && may_be_set(s->fd))
			no_longer_seen(r->fd);
		break;
	case OP_EPOLL_WAIT:
		no_longer_seen(r->fd);
		break;
	case IORING_OP_EPOLL_CTL:
		name((int)s->off);
		break;
	case IORING_OP_SPLICE:
	case IORING_OP_TEE:
		if (!(s->splice_flags & SPLICE_F_FD_IN_FIXED))
			name(s->splice_fd_in);
		break;
	case IORING_OP_FILES_UPDATE:
		name_all(r, (const int *)(uintptr_t)s->addr, s->len);
		break;
	case IORING_OP_SENDMSG:
	case OP_SENDMSG_ZC:
		shim_before_passing(
			-1, (const struct mmsghdr *)(uintptr_t)s->addr, 1);
		break;
	case IORING_OP_CLOSE:
		if (has_fd(s) && shim_tracks(s->fd, EXI_TRACK_ALL))
			closes(s->fd);
		break;
	default:
		if (s->opcode > OP_LAST)
			no_longer_seen(r->fd);
		break;
	}
}

/* Called before the requests in the queue are submitted. The library's own
 * rings are for its own connections. */
static __attribute__((noinline)) void look(const struct io_uring *r)
{
	unsigned int mask = *r->sq.k_mask;
	int shift = r->flags & SQE128 ? 1 : 0;
	int saved = errno;

	if (exi_fd_ours(r->fd))
		return;
	if (r->flags & ~KNOWN_FLAGS) {
		no_longer_seen(r->fd);
		return;
	}
	for (unsigned int i = r->sq.head; i != r->sq.tail; i++) {
		const struct io_uring_sqe *s = &r->sq.sqes[(i & mask) << shift];

		if (has_fd(s))
			name(s->fd);
		look_at_more(r, s);
	}
	errno = saved;
}

static inline void hand_over(const struct io_uring *r)
{
	if (r->sq.head != r->sq.tail)
		look(r);
}

/* --- calls ---------------------------------------------------------------- */

/* As in <liburing.h>, which need not be installed. */
int io_uring_queue_init(unsigned int entries, struct io_uring *r,
			unsigned int flags);
int io_uring_queue_init_params(unsigned int entries, struct io_uring *r,
			       struct io_uring_params *p);
int io_uring_queue_init_mem(unsigned int entries, struct io_uring *r,
			    struct io_uring_params *p, void *buf, size_t size);
void io_uring_queue_exit(struct io_uring *r);
int io_uring_submit(struct io_uring *r);
int io_uring_submit_and_wait(struct io_uring *r, unsigned int n);
int io_uring_submit_and_get_events(struct io_uring *r);
int io_uring_submit_and_wait_timeout(struct io_uring *r,
				     struct io_uring_cqe **ret, unsigned int n,
				     struct __kernel_timespec *t,
				     sigset_t *mask);
int io_uring_submit_and_wait_min_timeout(struct io_uring *r,
					 struct io_uring_cqe **ret,
					 unsigned int n,
					 struct __kernel_timespec *t,
					 unsigned int min, sigset_t *mask);
int io_uring_submit_and_wait_reg(struct io_uring *r, struct io_uring_cqe **ret,
				 unsigned int n, int index);
int io_uring_wait_cqes(struct io_uring *r, struct io_uring_cqe **ret,
		       unsigned int n, struct __kernel_timespec *t,
		       sigset_t *mask);
int io_uring_wait_cqes_min_timeout(struct io_uring *r,
				   struct io_uring_cqe **ret, unsigned int n,
				   struct __kernel_timespec *t,
				   unsigned int min, sigset_t *mask);
int io_uring_wait_cqe_timeout(struct io_uring *r, struct io_uring_cqe **ret,
			      struct __kernel_timespec *t);
int io_uring_enter(unsigned int fd, unsigned int n, unsigned int min,
		   unsigned int flags, sigset_t *mask);
int io_uring_enter2(unsigned int fd, unsigned int n, unsigned int min,
		    unsigned int flags, void *arg, size_t size);
int io_uring_register(unsigned int fd, unsigned int what, const void *arg,
		      unsigned int n);
int io_uring_register_files(struct io_uring *r, const int *fds, unsigned int n);
int io_uring_register_files_tags(struct io_uring *r, const int *fds,
				 const __u64 *tags, unsigned int n);
int io_uring_register_files_update(struct io_uring *r, unsigned int at,
				   const int *fds, unsigned int n);
int io_uring_register_files_update_tag(struct io_uring *r, unsigned int at,
				       const int *fds, const __u64 *tags,
				       unsigned int n);

/* Finds liburing's own function: after the shim, or where only the caller sees
 * it. */
static void *find(_Atomic(void *) *at, const char *call, const void *caller)
{
	void *f = atomic_load(at), *h;
	Dl_info i;

	if (exi_likely(f))
		return f;
	f = dlsym(RTLD_NEXT, call);
	if (!f && dladdr(caller, &i) && i.dli_fname) {
		h = dlopen(i.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
		f = h ? dlsym(h, call) : NULL;
		if (h)
			dlclose(h);
	}
	atomic_store(at, f);
	return f;
}

/* The result of liburing's own function. If there is none, the program gets the
 * error of a kernel without such rings. */
#define CALL(call, args)                                                       \
	({                                                                     \
		static _Atomic(void *) at_;                                    \
		__typeof__(&call) f_ = (__typeof__(&call))find(                \
			&at_, #call, __builtin_return_address(0));             \
		f_ ? f_ args : -ENOSYS;                                        \
	})

/* One of these calls may be made by another. */
#define MAKE(r, call, args)                                                    \
	({                                                                     \
		bool inner_ = exi_lock_held(&making);                          \
		int ret_;                                                      \
		if (!inner_)                                                   \
			exi_lock(&making);                                     \
		ret_ = made_locked(r, CALL(call, args));                       \
		if (!inner_)                                                   \
			exi_unlock(&making);                                   \
		ret_;                                                          \
	})

HOOK int io_uring_queue_init(unsigned int entries, struct io_uring *r,
			     unsigned int flags)
{
	return MAKE(r, io_uring_queue_init, (entries, r, flags));
}

HOOK int io_uring_queue_init_params(unsigned int entries, struct io_uring *r,
				    struct io_uring_params *p)
{
	return MAKE(r, io_uring_queue_init_params, (entries, r, p));
}

HOOK int io_uring_queue_init_mem(unsigned int entries, struct io_uring *r,
				 struct io_uring_params *p, void *buf,
				 size_t size)
{
	return MAKE(r, io_uring_queue_init_mem, (entries, r, p, buf, size));
}

HOOK void io_uring_queue_exit(struct io_uring *r)
{
	static _Atomic(void *) at;
	void (*f)(struct io_uring *) = (void (*)(struct io_uring *))find(
		&at, "io_uring_queue_exit", __builtin_return_address(0));

	no_longer_seen(r->fd);
	if (f)
		f(r);
}

HOOK int io_uring_submit(struct io_uring *r)
{
	hand_over(r);
	return CALL(io_uring_submit, (r));
}

HOOK int io_uring_submit_and_wait(struct io_uring *r, unsigned int n)
{
	hand_over(r);
	return CALL(io_uring_submit_and_wait, (r, n));
}

HOOK int io_uring_submit_and_get_events(struct io_uring *r)
{
	hand_over(r);
	return CALL(io_uring_submit_and_get_events, (r));
}

HOOK int io_uring_submit_and_wait_timeout(struct io_uring *r,
					  struct io_uring_cqe **ret,
					  unsigned int n,
					  struct __kernel_timespec *t,
					  sigset_t *mask)
{
	hand_over(r);
	return CALL(io_uring_submit_and_wait_timeout, (r, ret, n, t, mask));
}

HOOK int io_uring_submit_and_wait_min_timeout(struct io_uring *r,
					      struct io_uring_cqe **ret,
					      unsigned int n,
					      struct __kernel_timespec *t,
					      unsigned int min, sigset_t *mask)
{
	hand_over(r);
	return CALL(io_uring_submit_and_wait_min_timeout,
		    (r, ret, n, t, min, mask));
}

HOOK int io_uring_submit_and_wait_reg(struct io_uring *r,
				      struct io_uring_cqe **ret, unsigned int n,
				      int index)
{
	hand_over(r);
	return CALL(io_uring_submit_and_wait_reg, (r, ret, n, index));
}

/* On old kernels a time-out is a request, and all others are submitted with
 * it. */
HOOK int io_uring_wait_cqes(struct io_uring *r, struct io_uring_cqe **ret,
			    unsigned int n, struct __kernel_timespec *t,
			    sigset_t *mask)
{
	hand_over(r);
	return CALL(io_uring_wait_cqes, (r, ret, n, t, mask));
}

HOOK int io_uring_wait_cqes_min_timeout(struct io_uring *r,
					struct io_uring_cqe **ret,
					unsigned int n,
					struct __kernel_timespec *t,
					unsigned int min, sigset_t *mask)
{
	hand_over(r);
	return CALL(io_uring_wait_cqes_min_timeout, (r, ret, n, t, min, mask));
}

HOOK int io_uring_wait_cqe_timeout(struct io_uring *r,
				   struct io_uring_cqe **ret,
				   struct __kernel_timespec *t)
{
	hand_over(r);
	return CALL(io_uring_wait_cqe_timeout, (r, ret, t));
}

/* The program fills the queue by itself, and the shim does not know its
 * contents. */
HOOK int io_uring_enter(unsigned int fd, unsigned int n, unsigned int min,
			unsigned int flags, sigset_t *mask)
{
	atomic_store(&is_fed_raw, true);
	return CALL(io_uring_enter, (fd, n, min, flags, mask));
}

HOOK int io_uring_enter2(unsigned int fd, unsigned int n, unsigned int min,
			 unsigned int flags, void *arg, size_t size)
{
	atomic_store(&is_fed_raw, true);
	return CALL(io_uring_enter2, (fd, n, min, flags, arg, size));
}

HOOK int io_uring_register(unsigned int fd, unsigned int what, const void *arg,
			   unsigned int n)
{
	atomic_store(&is_fed_raw, true);
	return CALL(io_uring_register, (fd, what, arg, n));
}

HOOK int io_uring_register_files(struct io_uring *r, const int *fds,
				 unsigned int n)
{
	name_all(r, fds, n);
	return CALL(io_uring_register_files, (r, fds, n));
}

HOOK int io_uring_register_files_tags(struct io_uring *r, const int *fds,
				      const __u64 *tags, unsigned int n)
{
	name_all(r, fds, n);
	return CALL(io_uring_register_files_tags, (r, fds, tags, n));
}

HOOK int io_uring_register_files_update(struct io_uring *r, unsigned int at,
					const int *fds, unsigned int n)
{
	name_all(r, fds, n);
	return CALL(io_uring_register_files_update, (r, at, fds, n));
}

HOOK int io_uring_register_files_update_tag(struct io_uring *r, unsigned int at,
					    const int *fds, const __u64 *tags,
					    unsigned int n)
{
	name_all(r, fds, n);
	return CALL(io_uring_register_files_update_tag, (r, at, fds, tags, n));
}
