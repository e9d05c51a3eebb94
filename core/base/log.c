/* SPDX-License-Identifier: BSD-2-Clause */
/* Log lines: formatted on the stack, written at once, without locks.
 *
 * The destination is one word, descriptor and pid together, so that threads and
 * forked children agree on it without a lock that fork() could leave held. Two
 * threads may open the file at once; the slower one closes its own again. A
 * program that closes every descriptor takes the log's too and may reuse its
 * number, so the file behind the number is compared before each line. */
#include "core/base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "core/base/fds.h"

#define LINE_MAX_BYTES 1024
#define PATH_MAX_BYTES 256

int exi_log_level = EXI_LOG_WARN;

static const char *const level_names[] = {
	[EXI_LOG_OFF] = "off",	   [EXI_LOG_ERROR] = "error",
	[EXI_LOG_WARN] = "warn",   [EXI_LOG_INFO] = "info",
	[EXI_LOG_DEBUG] = "debug", [EXI_LOG_TRACE] = "trace",
};

static struct {
	char path[PATH_MAX_BYTES]; /* written before to_file is set */
	atomic_bool to_file;
	_Atomic uint64_t sink; /* pid << 32 | descriptor; 0: none yet */
	/* The inode of the file behind the descriptor. */
	_Atomic uint64_t inode;
} out;

void exi_log_file(const char *path)
{
	atomic_store_explicit(&out.to_file, false, memory_order_release);
	snprintf(out.path, sizeof(out.path), "%s", path);
	atomic_store_explicit(&out.sink, 0, memory_order_relaxed);
	/* Pairs with the acquire in sink_fd(): the path is complete. */
	atomic_store_explicit(&out.to_file, path[0] != '\0',
			      memory_order_release);
}

/* The path with each %p replaced by the pid. */
static void expand_path(char *buf, size_t len, pid_t pid)
{
	size_t n = 0;

	for (const char *p = out.path; *p && n + 1 < len; p++) {
		if (p[0] == '%' && p[1] == 'p') {
			n += snprintf(buf + n, len - n, "%d", (int)pid);
			if (n >= len)
				n = len - 1;
			p++;
		} else {
			buf[n++] = *p;
		}
	}
	buf[n] = '\0';
}

ssize_t exi_log_put(int fd, const char *text, size_t n, int flags)
{
	struct iovec v = { .iov_base = (void *)(uintptr_t)text, .iov_len = n };
	const struct timespec none = { 0 };
	sigset_t mine, old, pending;
	ssize_t done;

	/* The kernel sends both to the thread that writes. One that was pending
	 * before is the program's own. */
	sigemptyset(&mine);
	sigaddset(&mine, SIGPIPE);
	sigaddset(&mine, SIGXFSZ);
	pthread_sigmask(SIG_BLOCK, &mine, &old);
	sigpending(&pending);
	done = pwritev2(fd, &v, 1, -1, flags);
	if (done < 0) {
		int sig = errno == EPIPE ? SIGPIPE : SIGXFSZ;

		done = -errno;
		sigemptyset(&mine);
		sigaddset(&mine, sig);
		if ((done == -EPIPE || done == -EFBIG) &&
		    !sigismember(&pending, sig))
			sigtimedwait(&mine, NULL, &none);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return done;
}

/* Whether writing a line would not wait. */
static bool has_room(void)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };

	return poll(&p, 1, 0) == 1 && p.revents == POLLOUT;
}

/* Writes a line, or drops one that would wait: a peer can cause lines, and
 * stderr may have no active reader. The program shares the file, so its
 * O_NONBLOCK cannot be set. A pipe accepts RWF_NOWAIT; a terminal or a plain
 * file may not. */
static void write_at_once(const char *line, size_t len)
{
	if (has_room() &&
	    exi_log_put(STDERR_FILENO, line, len, RWF_NOWAIT) < 0 && has_room())
		exi_log_put(STDERR_FILENO, line, len, 0);
}

static void say_on_stderr(const char *line, size_t len)
{
	int domain = AF_UNSPEC;
	socklen_t size = sizeof(domain);

	if (getsockopt(STDERR_FILENO, SOL_SOCKET, SO_DOMAIN, &domain, &size))
		write_at_once(line, len);
	/* Descriptor 2 of a daemon, or of a program started by inetd, can be a
	 * connection: log lines must not go to its peer. */
	else if (domain == AF_UNIX)
		send(STDERR_FILENO, line, len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Symbolic links that only root can change. */
static bool is_standard(const char *path)
{
	return !strcmp(path, "/dev/stdout") || !strcmp(path, "/dev/stderr");
}

/* Whether a stranger may have put the file at the path: in a directory such as
 * /tmp, where the file is another user's, or a second name of a file elsewhere.
 * The kernel itself refuses these if fs.protected_regular, fs.protected_fifos
 * and fs.protected_hardlinks are set. */
static bool is_planted(const struct stat *dir, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return false;
	return (S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode)) &&
	       (st.st_nlink > 1 ||
		(st.st_uid != geteuid() && st.st_uid != dir->st_uid));
}

/* Opens a name in a directory that everybody may write to. A file system that
 * another user has mounted at the name (FUSE) might never answer, so nothing
 * there is opened. */
static int open_among_all(const struct stat *st, int dir, const char *name,
			  int flags, unsigned int mode)
{
	struct open_how how = { .flags = (uint64_t)flags,
				.mode = mode,
				.resolve = RESOLVE_NO_XDEV };
	int fd = (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));

	if (fd < 0 && (errno == ENOSYS || errno == EPERM))
		fd = openat(dir, name, flags, (mode_t)mode);
	if (fd < 0)
		return -errno;
	if (is_planted(st, fd)) {
		close(fd);
		return -EEXIST;
	}
	return fd;
}

/* The directory of the name at the end of the path; or -errno. */
static int open_folder(const char *path, const char *name)
{
	char folder[PATH_MAX] = ".";
	size_t len = (size_t)(name - path);
	int dir;

	if (len >= sizeof(folder))
		return -ENAMETOOLONG;
	if (len)
		snprintf(folder, sizeof(folder), "%.*s", (int)len, path);
	dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return dir < 0 ? -errno : dir;
}

int exi_log_open(const char *path, unsigned int mode)
{
	const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY |
			  O_NONBLOCK;
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	struct stat st;
	int dir, fd;

	if (!*name)
		return -EISDIR;
	if (is_standard(path)) {
		fd = open(path, flags, (mode_t)mode);
		return fd < 0 ? -errno : fd;
	}
	dir = open_folder(path, name);
	if (dir < 0)
		return dir;
	if (fstat(dir, &st) < 0) {
		fd = -errno;
	} else if ((st.st_mode & S_ISVTX) && (st.st_mode & S_IWOTH)) {
		fd = open_among_all(&st, dir, name, flags | O_NOFOLLOW, mode);
	} else {
		fd = openat(dir, name, flags | O_NOFOLLOW, (mode_t)mode);
		fd = fd < 0 ? -errno : fd;
	}
	close(dir);
	return fd;
}

bool exi_log_named(int fd)
{
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && st.st_nlink;
}

const char *exi_log_why(int err)
{
	switch (err) {
	case ELOOP:
		return "it is a symbolic link";
	case ENXIO:
		return "it is a socket, or a FIFO without a reader";
	case EEXIST:
		return "another user may have put it there";
	case EXDEV:
		return "something is mounted there, perhaps by another user";
	default:
		return strerrordesc_np(err);
	}
}

static void give_up(pid_t pid, const char *path, int err)
{
	char line[PATH_MAX_BYTES + 256];
	int n;

	if (!atomic_exchange(&out.to_file, false))
		return;
	n = snprintf(line, sizeof(line),
		     "libexs[%d] warn: cannot open EXS_LOG_FILE %s: %s; "
		     "logging to stderr\n",
		     (int)pid, path, exi_log_why(err));
	say_on_stderr(line, n);
}

static int open_file(pid_t pid, uint64_t *ret_inode)
{
	char path[PATH_MAX_BYTES + 64];
	struct stat st;
	int fd;

	expand_path(path, sizeof(path), pid);
	fd = exi_log_open(path, 0600);
	if (fd >= 0)
		fd = exi_fd_keep(fd);
	if (fd < 0 || fstat(fd, &st)) {
		give_up(pid, path, fd < 0 ? -fd : errno);
		exi_fd_close(fd);
		return -1;
	}
	*ret_inode = st.st_ino;
	return fd;
}

static bool is_the_log(int fd)
{
	struct stat st;

	return !fstat(fd, &st) &&
	       st.st_ino ==
		       atomic_load_explicit(&out.inode, memory_order_relaxed);
}

/* The descriptor for this process's next line; -1 is stderr. */
static int sink_fd(pid_t pid)
{
	uint64_t sink, mine, inode;
	int fd;

	/* Pairs with the release in exi_log_file(). */
	if (!atomic_load_explicit(&out.to_file, memory_order_acquire))
		return -1;
	sink = atomic_load_explicit(&out.sink, memory_order_acquire);
	if (sink >> 32 == (uint64_t)pid && is_the_log((int)(uint32_t)sink))
		return (int)(uint32_t)sink;
	fd = open_file(pid, &inode);
	if (fd < 0)
		return -1;
	mine = (uint64_t)pid << 32 | (uint32_t)fd;
	/* Threads that race here have the same path, and so store one value. */
	atomic_store_explicit(&out.inode, inode, memory_order_relaxed);
	if (!atomic_compare_exchange_strong(&out.sink, &sink, mine)) {
		exi_fd_close(fd);
		fd = (int)(uint32_t)sink;
	}
	return fd;
}

static bool is_control(char c)
{
	return (unsigned char)c < 0x20 || c == 0x7f;
}

/* Formats the line, newline included. Values come from outside: control
 * characters in them would forge lines. */
__attribute__((format(printf, 4, 0))) static size_t
format_line(char *line, pid_t pid, int level, const char *fmt, va_list ap)
{
	int n, m;

	if (level < EXI_LOG_OFF || level > EXI_LOG_TRACE)
		level = EXI_LOG_ERROR;
	n = snprintf(line, LINE_MAX_BYTES, "libexs[%d] %s: ", (int)pid,
		     level_names[level]);
	m = vsnprintf(line + n, LINE_MAX_BYTES - 1 - n, fmt, ap);
	if (m < 0)
		m = 0;
	if (m > LINE_MAX_BYTES - 2 - n) {
		m = LINE_MAX_BYTES - 2 - n;
		memcpy(line + n + m - 3, "...", 3);
	}
	for (int i = n; i < n + m; i++) {
		if (is_control(line[i]))
			line[i] = '?';
	}
	line[n + m] = '\n';
	return n + m + 1;
}

/* Writes one end of the connection; nothing if it has no name. */
static void name_end(char *to, size_t room, const char *what,
		     const struct sockaddr_storage *a)
{
	const struct sockaddr_in *in = (const void *)a;
	const struct sockaddr_in6 *in6 = (const void *)a;
	bool v6 = a->ss_family == AF_INET6;
	char text[INET6_ADDRSTRLEN];

	if (inet_ntop(a->ss_family,
		      v6 ? (const void *)&in6->sin6_addr : &in->sin_addr, text,
		      sizeof(text)))
		snprintf(to, room, "%s %s%s%s:%u", what, v6 ? "[" : "", text,
			 v6 ? "]" : "",
			 ntohs(v6 ? in6->sin6_port : in->sin_port));
}

const char *exi_log_conn(struct exi_log_conn *to, int fd)
{
	struct sockaddr_storage here = { 0 }, there = { 0 };
	socklen_t n = sizeof(here), m = sizeof(there);
	char local[EXI_LOG_CONN / 2] = "", peer[EXI_LOG_CONN / 2] = "";
	int err = errno;

	if (getsockname(fd, (struct sockaddr *)&here, &n) == 0)
		name_end(local, sizeof(local), " (local", &here);
	if (local[0] && getpeername(fd, (struct sockaddr *)&there, &m) == 0)
		name_end(peer, sizeof(peer), ", peer", &there);
	snprintf(to->text, sizeof(to->text), "descriptor %d%s%s%s", fd, local,
		 peer, local[0] ? ")" : "");
	errno = err;
	return to->text;
}

void exi_log_write(int level, const char *fmt, ...)
{
	char line[LINE_MAX_BYTES];
	int err = errno;
	pid_t pid = getpid();
	va_list ap;
	size_t len;
	int fd;

	va_start(ap, fmt);
	len = format_line(line, pid, level, fmt, ap);
	va_end(ap);
	fd = sink_fd(pid);
	if (fd < 0 || exi_log_put(fd, line, len, 0) < 0)
		say_on_stderr(line, len);
	errno = err;
}
