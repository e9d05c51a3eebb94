/* SPDX-License-Identifier: BSD-2-Clause */
/* exs downgrade, exs upgrade, exs log and exs report: requests to a running
 * process through its control channel (docs/design/stats.md). */
#include "tools/control.h"

#include <argp.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/exs_ext.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/util.h"
#include "core/sock/table.h"
#include "tools/stat.h"
#include "tools/tool.h"

#define ANSWER_NS 5000000000u
#define AGAIN_NS  250000000u /* after which it is asked again */
#define MOVE_NS	  10000000000u
#define PAUSE_NS  2000000

struct wishes {
	pid_t pid;
	const char *second;
	bool has_pid;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct wishes *w = state->input;
	uint64_t n;

	switch (key) {
	case ARGP_KEY_ARG:
		if (w->second)
			argp_error(state, "unexpected argument \"%s\"", arg);
		if (w->has_pid) {
			w->second = arg;
			return 0;
		}
		if (tool_parse_count(arg, &n) || !n || n > INT_MAX)
			argp_error(state, "\"%s\" is not a process", arg);
		w->pid = (pid_t)n;
		w->has_pid = true;
		return 0;
	case ARGP_KEY_END:
		if (!w->has_pid)
			argp_error(state, "no process was given");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int fail_of(pid_t pid, int err)
{
	switch (err) {
	case -EACCES:
	case -EPERM:
		return tool_fail("process %d is another user's: ask as that "
				 "user or as root",
				 (int)pid);
	case -ESRCH:
		return tool_fail("there is no process %d", (int)pid);
	case -ENOENT:
		return tool_fail("process %d does not use libexs, has no "
				 "connection yet, or keeps no counters; exs "
				 "check --pid %d says which",
				 (int)pid, (int)pid);
	case -EINVAL:
		return tool_fail("process %d has a version of libexs that "
				 "does not know this request",
				 (int)pid);
	case -EBUSY:
		return tool_fail("process %d has another exs trace", (int)pid);
	case -ESTALE:
		return tool_fail("another exs trace of process %d began at "
				 "this moment; try again",
				 (int)pid);
	case -EOPNOTSUPP:
		return tool_fail("process %d has no report: it was not started "
				 "by exs run; exs stat -s %d shows its sums",
				 (int)pid, (int)pid);
	case -EBADMSG:
		return tool_fail("process %d answers with nonsense", (int)pid);
	case -ENXIO:
		return tool_fail("process %d cannot be asked: its libexs has "
				 "no control channel",
				 (int)pid);
	case -ETIMEDOUT:
		return tool_fail("process %d does not answer: it is stopped, "
				 "or its library has no thread, because no "
				 "connection tried to leave TCP yet; the "
				 "request takes effect when it can answer",
				 (int)pid);
	default:
		return tool_fail("process %d: %s", (int)pid,
				 strerrordesc_np(-err));
	}
}

/* Converts an answer to 0 or -errno. The process may belong to any user: a
 * number that is no errno of the kernel is none here. */
static int error_of(int64_t answer)
{
	if (answer >= 0)
		return 0;
	return answer > INT_MIN && strerrordesc_np((int)-answer) ? (int)answer
								 : -EBADMSG;
}

static void sleep_briefly(void)
{
	struct timespec pause = { .tv_nsec = PAUSE_NS };

	nanosleep(&pause, NULL);
}

/* Waits for the answer with this token. */
static int await_answer(const struct stat_page *p, uint64_t token, int64_t *ret)
{
	uint64_t deadline = exi_now_ns() + AGAIN_NS;
	struct exi_stats_head h;

	for (;;) {
		if (pread(p->fd[0], &h, sizeof(h), 0) < (ssize_t)sizeof(h))
			return -ENXIO;
		if (atomic_load(&h.answer_token) == token)
			break;
		if (exi_now_ns() >= deadline)
			return -ETIMEDOUT;
		sleep_briefly();
	}
	/* A second copy: the token was stored after the answer. */
	atomic_thread_fence(memory_order_acquire);
	if (pread(p->fd[0], &h, sizeof(h), 0) < (ssize_t)sizeof(h))
		return -ENXIO;
	if (atomic_load(&h.answer_token) != token)
		return -EAGAIN; /* another request came since */
	*ret = atomic_load(&h.answer);
	return 0;
}

/* The mount of pipes, which has no other files. */
static long pipe_mount(void)
{
	int ends[2];
	long ret;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -1;
	ret = stat_mount_of(ends[0]);
	close(ends[0]);
	close(ends[1]);
	return ret;
}

/* Opens a pipe of the process for writing, if it is the right one: it must have
 * the owner of the page, as the kernel reports it. A page that a stranger wrote
 * may name another user's pipe, of which the process has the reading end. */
static int open_pipe(int fds, const char *number, const struct stat_page *p,
		     uint64_t inode)
{
	int path = openat(fds, number, O_PATH | O_CLOEXEC), ret = -1;
	long mount = pipe_mount();
	struct stat st, page;
	char self[64];

	if (path < 0)
		return -1;
	if (mount >= 0 && stat_mount_of(path) == mount &&
	    fstat(path, &st) == 0 && S_ISFIFO(st.st_mode) &&
	    fstat(p->fd[0], &page) == 0 && st.st_uid == page.st_uid &&
	    st.st_ino == inode) {
		snprintf(self, sizeof(self), "/proc/self/fd/%d", path);
		ret = open(self, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
	}
	close(path);
	return ret;
}

int control_open_pipe(int fds, const struct stat_page *p, uint64_t inode)
{
	int copy = openat(fds, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), ret;
	DIR *d = copy < 0 ? NULL : fdopendir(copy);
	char want[48], text[64];
	struct dirent *e;

	if (!d) {
		if (copy >= 0)
			close(copy);
		return -1;
	}
	snprintf(want, sizeof(want), "pipe:[%" PRIu64 "]", inode);
	for (ret = -1; ret < 0 && (e = readdir(d));) {
		ssize_t n = readlinkat(fds, e->d_name, text, sizeof(text) - 1);

		text[n > 0 ? n : 0] = '\0';
		if (!strcmp(text, want))
			ret = open_pipe(fds, e->d_name, p, inode);
	}
	closedir(d);
	return ret;
}

/* The text of an answer, which must be read before the next one begins. */
struct answer {
	int64_t n; /* the answer; of a text: its length */
	char text[16384];
};

static int read_text(const struct stat_page *p, uint64_t token,
		     struct answer *ret)
{
	const struct exi_stats_head *h = &p->head;
	uint64_t room = h->text_bytes < sizeof(ret->text) ? h->text_bytes
							  : sizeof(ret->text);
	struct exi_stats_head again;

	if (ret->n < 0 || h->text_at > INT64_MAX / 2 ||
	    (uint64_t)ret->n > room ||
	    pread(p->fd[0], ret->text, (size_t)ret->n, (off_t)h->text_at) !=
		    ret->n)
		return -ENXIO;
	/* The process clears the token before it writes another text. */
	atomic_thread_fence(memory_order_acquire);
	if (pread(p->fd[0], &again, sizeof(again), 0) <
		    (ssize_t)sizeof(again) ||
	    atomic_load(&again.answer_token) != token)
		return -EAGAIN;
	return 0;
}

/* Repeats the request until there is an answer: the process discards a request
 * that comes after a stranger's bytes. All requests may be repeated. */
static int ask_through(const struct stat_page *p, int fds,
		       struct exi_control_ask *ask, struct answer *ret)
{
	int fifo = p->head.control ? control_open_pipe(fds, p, p->head.control)
				   : -1;
	uint64_t deadline = exi_now_ns() + ANSWER_NS;
	int err;

	if (fifo < 0)
		return -ENXIO;
	do {
		if (getrandom(&ask->token, sizeof(ask->token), 0) !=
		    sizeof(ask->token))
			ask->token = exi_now_ns();
		ask->token |= 1;
		err = write(fifo, ask, sizeof(*ask)) < 0 ? -errno : 0;
		if (!err || err == -EAGAIN) /* full: it is emptied soon */
			err = await_answer(p, ask->token, &ret->n);
		if (!err && ret->n >= 0 && ask->what == EXI_CONTROL_REPORT)
			err = read_text(p, ask->token, ret);
	} while ((err == -EAGAIN || err == -ETIMEDOUT) &&
		 exi_now_ns() < deadline);
	close(fifo);
	return err;
}

/* Sends the request to the process. Returns an exit code; *ret is the
 * answer. */
static int ask_all(pid_t pid, struct exi_control_ask *what, struct answer *ret)
{
	struct stat_page page;
	int fds, err = stat_open(pid, &page, &fds);

	what->magic = EXI_CONTROL_MAGIC;
	signal(SIGPIPE, SIG_IGN); /* it may end meanwhile */
	if (!err) {
		err = ask_through(&page, fds, what, ret);
		stat_close(&page, fds);
	}
	if (!err)
		err = error_of(ret->n);
	return err ? fail_of(pid, err) : TOOL_OK;
}

int control_ask(pid_t pid, struct exi_control_ask *what, int64_t *ret)
{
	struct answer a = { 0 };
	int code = ask_all(pid, what, &a);

	*ret = a.n;
	return code;
}

static const struct argp *usage_of(struct argp *a, const char *args,
				   const char *doc)
{
	*a = (struct argp){ .parser = parse, .args_doc = args, .doc = doc };
	return a;
}

/* A descriptor, or -1: all. */
static int descriptor_of(const struct wishes *w, int *ret)
{
	uint64_t n;

	*ret = -1;
	if (!w->second)
		return TOOL_OK;
	if (tool_parse_count(w->second, &n) || n > INT_MAX) {
		tool_fail("\"%s\" is not a descriptor", w->second);
		return TOOL_USAGE;
	}
	*ret = (int)n;
	return TOOL_OK;
}

struct left {
	int fd; /* or -1: any */
	size_t n;
};

/* Counts connections that were asked for and are still on a fabric. */
static void count_left(const struct exi_stats_entry *e, void *arg)
{
	struct left *l = arg;

	if ((l->fd < 0 || atomic_load(&e->fd) == l->fd) &&
	    atomic_load(&e->reason) == EXS_X_REASON_OPERATOR &&
	    atomic_load(&e->fabric[0]) &&
	    (atomic_load(&e->dir[EXI_RX].mode) == EXI_MODE_RING ||
	     atomic_load(&e->dir[EXI_TX].mode) == EXI_MODE_RING))
		l->n++;
}

/* Reads how far the entries reach now; the rest of the head was checked when
 * the page was opened. False: there is a new area, or the process has no
 * descriptor any more, because it has ended. */
static bool look_again(struct stat_page *p, int fds)
{
	struct exi_stats_head now;
	char entries[256];

	if (lseek(fds, 0, SEEK_SET) < 0 ||
	    getdents64(fds, entries, sizeof(entries)) <= 0 ||
	    pread(p->fd[0], &now, sizeof(now), 0) < (ssize_t)sizeof(now))
		return false;
	for (unsigned int i = 1; i < EXI_STATS_AREAS; i++)
		if (atomic_load(&now.areas[i]) !=
		    atomic_load(&p->head.areas[i]))
			return false;
	atomic_store(&p->head.entries_high, atomic_load(&now.entries_high));
	return true;
}

/* Waits until all have moved, or for a while, and returns how many are left, or
 * -errno if that is unknown; a process that has ended has none. This reads the
 * page only, which costs as much as that process has connections; the host may
 * have many more sockets. */
static int await_move(pid_t pid, int fd, size_t *ret)
{
	uint64_t deadline = exi_now_ns() + MOVE_NS;
	struct stat_process of = { .pid = pid };
	struct left left = { .fd = fd };
	struct stat_page page;
	bool open = false;
	int fds, err;

	do {
		if (left.n)
			sleep_briefly();
		if (open && !look_again(&page, fds)) {
			stat_close(&page, fds);
			open = false;
		}
		left.n = 0;
		err = open ? 0 : stat_open(pid, &page, &fds);
		if (err)
			break;
		open = true;
		err = stat_page_each(&page, &of, count_left, &left);
	} while (!err && left.n && exi_now_ns() < deadline);
	if (open)
		stat_close(&page, fds);
	if (err && err != -ESRCH && err != -ENOENT)
		return err;
	*ret = left.n;
	return 0;
}

int tool_downgrade(int argc, char **argv)
{
	struct exi_control_ask what = { .what = EXI_CONTROL_DOWN };
	struct wishes w = { 0 };
	size_t left = 0;
	struct argp a;
	int64_t n = 0;
	int ret;

	if (argp_parse(usage_of(&a, "PID [FD]",
				"Moves all connections of a running program, "
				"or one of them, to TCP, where debuggers, "
				"checkpoints and captures see them. exs "
				"upgrade lets them leave TCP again."),
		       argc, argv, 0, NULL, &w))
		return TOOL_USAGE;
	ret = descriptor_of(&w, &what.fd);
	if (!ret)
		ret = control_ask(w.pid, &what, &n);
	if (ret)
		return ret;
	ret = await_move(w.pid, what.fd, &left);
	if (ret)
		return tool_fail(
			"process %d was asked to move %" PRId64 " connection%s"
			", but its page, which shows what is on TCP, cannot "
			"be read: %s",
			(int)w.pid, n, n == 1 ? "" : "s",
			strerrordesc_np(-ret));
	if (left)
		return tool_fail("not on TCP yet: %zu of %" PRId64
				 " connection%s; a peer does not answer, and "
				 "the move completes when it does",
				 left, n, n == 1 ? "" : "s");
	printf("%" PRId64 " connection%s moved to TCP; exs upgrade %d lets "
	       "%s go again\n",
	       n, n == 1 ? "" : "s", (int)w.pid, n == 1 ? "it" : "them");
	return TOOL_OK;
}

int tool_upgrade(int argc, char **argv)
{
	struct exi_control_ask what = { .what = EXI_CONTROL_UP };
	struct wishes w = { 0 };
	struct argp a;
	int64_t n = 0;
	int ret;

	if (argp_parse(usage_of(&a, "PID [FD]",
				"Lets connections that exs downgrade moved to "
				"TCP leave TCP again."),
		       argc, argv, 0, NULL, &w))
		return TOOL_USAGE;
	ret = descriptor_of(&w, &what.fd);
	if (!ret)
		ret = control_ask(w.pid, &what, &n);
	if (!ret)
		printf("%" PRId64 " connection%s may leave TCP\n", n,
		       n == 1 ? "" : "s");
	return ret;
}

/* Whether the process writes to /dev/null what it writes to standard error. */
static bool hears_nobody(pid_t pid)
{
	char path[64];
	struct stat st, null;

	snprintf(path, sizeof(path), "/proc/%d/fd/2", (int)pid);
	return stat(path, &st) == 0 && stat("/dev/null", &null) == 0 &&
	       S_ISCHR(st.st_mode) && st.st_rdev == null.st_rdev;
}

int tool_log(int argc, char **argv)
{
	static const char *const words[] = { "off",  "error", "warn",
					     "info", "debug", "trace" };
	struct exi_control_ask what = { .what = EXI_CONTROL_LOG, .value = -1 };
	const int n_words = sizeof(words) / sizeof(words[0]);
	struct wishes w = { 0 };
	struct argp a;
	int64_t n = 0;
	int ret;

	if (argp_parse(usage_of(&a, "PID [LEVEL]",
				"Shows how much a running program logs, or "
				"sets it: off, error, warn, info, debug or "
				"trace. The log goes to the file that "
				"EXS_LOG_FILE named when the program started."),
		       argc, argv, 0, NULL, &w))
		return TOOL_USAGE;
	for (int i = 0; w.second && i < n_words; i++)
		if (!strcasecmp(words[i], w.second))
			what.value = i;
	if (w.second && what.value < 0) {
		tool_fail("\"%s\" is not a level: off, error, warn, info, "
			  "debug or trace",
			  w.second);
		return TOOL_USAGE;
	}
	ret = control_ask(w.pid, &what, &n);
	if (!ret)
		puts(n < n_words ? words[n] : "?");
	if (!ret && n && hears_nobody(w.pid))
		tool_fail("standard error of process %d is /dev/null: its log "
			  "is lost unless EXS_LOG_FILE names a file",
			  (int)w.pid);
	return ret;
}

int tool_report(int argc, char **argv)
{
	struct exi_control_ask what = { .what = EXI_CONTROL_REPORT, .fd = -1 };
	struct wishes w = { 0 };
	static struct answer a;
	struct argp argp;
	int ret;

	if (argp_parse(usage_of(&argp, "PID",
				"Prints the report that a running program, "
				"started by exs run, would write if it ended "
				"now."),
		       argc, argv, 0, NULL, &w))
		return TOOL_USAGE;
	if (w.second) {
		tool_fail("unexpected argument \"%s\"", w.second);
		return TOOL_USAGE;
	}
	ret = ask_all(w.pid, &what, &a);
	for (int64_t i = 0; !ret && i < a.n; i++)
		putchar(a.text[i] == '\n' || isprint((unsigned char)a.text[i])
				? a.text[i]
				: '?');
	return ret;
}
