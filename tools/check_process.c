/* SPDX-License-Identifier: BSD-2-Clause */
/* exs check: reads a process from /proc, and makes this process try things as
 * that one would. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/check.h"

#define ENVIRON_MAX (1u << 20)

/* Reads the beginning of a file in the process's folder, and adds a NUL. Null:
 * the file cannot be read. The caller frees the result. */
static char *read_file(int dir, const char *name, size_t most, size_t *ret_n)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	char *text = fd < 0 ? NULL : malloc(most + 2);
	size_t n = 0;
	ssize_t got = -1;

	while (text && n < most && (got = read(fd, text + n, most - n)) > 0)
		n += (size_t)got;
	if (fd >= 0)
		close(fd);
	if (!text || (got < 0 && !n)) {
		free(text);
		return NULL;
	}
	text[n] = text[n + 1] = '\0';
	if (ret_n)
		*ret_n = n;
	return text;
}

static unsigned long long field(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

static void take_status(struct check_process *p, const char *text)
{
	const char *at = strstr(text, "Name:\t");

	if (at)
		snprintf(p->name, sizeof(p->name), "%.*s",
			 (int)strcspn(at + 6, "\n"), at + 6);
	for (char *c = p->name; *c; c++)
		if (!isprint((unsigned char)*c))
			*c = '?';
	p->uid = (uid_t)field(text, "\nUid:");
	p->gid = (gid_t)field(text, "\nGid:");
	p->threads = (unsigned int)field(text, "\nThreads:");
	p->seccomp = (int)field(text, "\nSeccomp:");
}

/* The soft limit of a line of /proc/PID/limits; UINT64_MAX: unlimited. */
static uint64_t limit(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	at = at ? at + strlen(name) : "";
	at += strspn(at, " ");
	return isdigit((unsigned char)*at) ? strtoull(at, NULL, 10)
					   : UINT64_MAX;
}

static void take_limits(struct check_process *p, const char *text)
{
	p->descriptors_max = limit(text, "Max open files");
	p->memlock_max = limit(text, "Max locked memory");
	p->processes_max = limit(text, "Max processes");
	p->file_max = limit(text, "Max file size");
}

static unsigned int count_descriptors(int dir)
{
	int fd = openat(dir, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	unsigned int n = 0;
	struct dirent *e;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return 0;
	}
	while ((e = readdir(d)))
		n += isdigit((unsigned char)e->d_name[0]) != 0;
	closedir(d);
	return n;
}

/* Whether the process has the library, or the shim, in its memory. */
static bool has_library(int dir)
{
	int fd = openat(dir, "maps", O_RDONLY | O_CLOEXEC);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	char line[4096];
	bool ret = false;

	while (f && !ret && fgets(line, sizeof(line), f)) {
		const char *name = strrchr(line, '/');

		ret = name && (!strncmp(name, "/libexs.so", 10) ||
			       !strncmp(name, "/libexs-preload.so", 18));
	}
	if (f)
		fclose(f);
	else if (fd >= 0)
		close(fd);
	return ret;
}

static bool same_file(int dir, const char *name, const char *other,
		      uint64_t *ret_inode)
{
	struct stat a, b;

	if (fstatat(dir, name, &a, 0) || stat(other, &b))
		return true; /* not known */
	if (ret_inode)
		*ret_inode = a.st_ino;
	return a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

int check_process_read(pid_t pid, struct check_process *ret)
{
	char path[32], *status, *limits;
	int dir, err = 0;
	size_t n = 0;

	*ret = (struct check_process){ .pid = pid, .uid = (uid_t)-1 };
	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	status = read_file(dir, "status", 8192, NULL);
	if (status)
		take_status(ret, status);
	ret->environ = read_file(dir, "environ", ENVIRON_MAX, &n);
	ret->no_environ = ret->environ && n && !strchr(ret->environ, '=');
	limits = read_file(dir, "limits", 8192, NULL);
	if (!status || !limits)
		err = -ESRCH;
	else if (!ret->environ)
		err = -EACCES;
	if (!err) {
		take_limits(ret, limits);
		ret->readable = true;
		ret->descriptors = count_descriptors(dir);
		ret->library = has_library(dir);
		same_file(dir, "ns/net", "/proc/self/ns/net", &ret->netns);
		ret->other_root =
			!same_file(dir, "root", "/proc/self/root", NULL);
	}
	free(status);
	free(limits);
	close(dir);
	return err;
}

void check_process_free(struct check_process *p)
{
	free(p->environ);
	p->environ = NULL;
}

const char *check_process_variable(const struct check_process *p,
				   const char *name)
{
	size_t n = strlen(name);

	for (const char *e = p->environ; e && *e; e += strlen(e) + 1)
		if (!strncmp(e, name, n) && e[n] == '=')
			return e + n + 1;
	return NULL;
}

/* --- who has a socket ----------------------------------------------------- */

static int fd_of(int dir, const char *want)
{
	int fd = openat(dir, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	char text[64];
	int ret = -1;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	while (ret < 0 && (e = readdir(d))) {
		ssize_t n = readlinkat(fd, e->d_name, text, sizeof(text) - 1);

		text[n > 0 ? n : 0] = '\0';
		if (!strcmp(text, want))
			ret = atoi(e->d_name);
	}
	closedir(d);
	return ret;
}

bool check_holder(uint64_t inode, pid_t *ret_pid, int *ret_fd)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	char want[64];
	bool found = false;

	snprintf(want, sizeof(want), "socket:[%" PRIu64 "]", inode);
	while (d && !found && (e = readdir(d))) {
		pid_t pid = atoi(e->d_name);
		int dir, fd;

		if (pid <= 0)
			continue;
		dir = openat(dirfd(d), e->d_name,
			     O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		fd = dir < 0 ? -1 : fd_of(dir, want);
		if (dir >= 0)
			close(dir);
		found = fd >= 0;
		*ret_pid = pid;
		*ret_fd = fd;
	}
	if (d)
		closedir(d);
	return found;
}

/* --- as the process ------------------------------------------------------- */

/* The variables that decide whether and where connections move, without those
 * that name a file to be written. */
static const char *const taken[] = {
	"EXS_PROVIDER",
	"EXS_REQUIRE",
	"EXS_UPGRADE",
	"EXS_RING_KB",
	"EXS_MEMORY_LIMIT_MB",
	"EXS_KEY_FILE",
	"EXS_TRUST",
	"EXS_VERBS_DEVICE",
	"EXS_VERBS_GID_INDEX",
	"EXS_VERBS_PORT_OFFSET",
	"EXS_OFI_PROVIDER",
	"EXS_OFI_ENDPOINT",
	"EXS_OFI_PORT_OFFSET",
	"EXS_IO_URING",
	"EXS_MEET_DIR",
	"EXS_CONFIG",
	"EXS_UNIX",
	"XDG_CONFIG_HOME",
	"HOME",
};

/* Those of them that name files. */
static const char *const files[] = { "EXS_KEY_FILE", "EXS_MEET_DIR",
				     "EXS_CONFIG", "XDG_CONFIG_HOME", "HOME" };
#define N_FILES (sizeof(files) / sizeof(files[0]))

void check_settings(struct check *c, const struct check_process *p)
{
	bool any = false;

	check_step(c, "settings", CHECK_GOOD, "%s", "");
	for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
		const char *value = check_process_variable(p, taken[i]);

		if (!value || strncmp(taken[i], "EXS_", 4))
			continue;
		check_more(c, "%s%s=%s", any ? " " : "", taken[i], value);
		any = true;
	}
	if (!any && p->no_environ) {
		c->step[c->n - 1].state = CHECK_UNKNOWN;
		check_more(c, "the program has overwritten its environment, so "
			      "its EXS_ variables are not known");
	} else if (!any) {
		check_more(c, "no EXS_ variable is set for it");
	}
}

void check_peer_settings(struct check *c, const struct check_process *p)
{
	static const char *const names[] = { "EXS_PROVIDER", "EXS_UPGRADE",
					     "EXS_UNIX" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *value = check_process_variable(p, names[i]);

		if (value)
			check_more(c, ", %s=%s", names[i], value);
	}
}

#define FILTERED 2 /* SECCOMP_MODE_FILTER */

void check_filter(struct check *c, const struct check_process *p)
{
	if (p->seccomp != FILTERED)
		return;
	if (c->step[c->n - 1].state == CHECK_GOOD)
		c->step[c->n - 1].state = CHECK_UNKNOWN;
	check_more(c,
		   " for this command; %s[%d] runs in a system call filter, "
		   "which may deny them: see exs info in its unit or container "
		   "(RestrictAddressFamilies= needs AF_NETLINK and AF_UNIX)",
		   p->name, (int)p->pid);
}

const char *check_doubt(const struct check_process *p, char buf[120])
{
	buf[0] = '\0';
	if (p->library && p->seccomp == FILTERED)
		snprintf(
			buf, 120,
			", unless the system call filter of %s[%d] prevents it",
			p->name, (int)p->pid);
	else if (p->library && p->descriptors_max < EXI_STATS_FDS)
		snprintf(buf, 120,
			 ", unless %s[%d] runs out of its %d descriptors "
			 "(ulimit -n)",
			 p->name, (int)p->pid, (int)p->descriptors_max);
	return buf;
}

static const char *limit_text(char buf[32], uint64_t n)
{
	if (n == UINT64_MAX)
		strcpy(buf, "unlimited");
	else
		snprintf(buf, 32, "%" PRIu64, n);
	return buf;
}

void check_limits(struct check *c, const struct check_process *p)
{
	char a[32], b[32], e[32];

	check_step(c, "limits", CHECK_GOOD,
		   "%u of %s descriptors (ulimit -n), locked memory %s bytes "
		   "(ulimit -l), %u of %s threads (ulimit -u)",
		   p->descriptors, limit_text(a, p->descriptors_max),
		   limit_text(b, p->memlock_max), p->threads,
		   limit_text(e, p->processes_max));
}

static void take_variables(const struct check_process *p)
{
	for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
		const char *value = check_process_variable(p, taken[i]);

		if (value)
			setenv(taken[i], value, 1);
		else
			unsetenv(taken[i]);
	}
	/* The process's root directory may have other files at these paths; and
	 * here they may be anything, such as a device that root would open, if
	 * the process is root in a container. */
	for (size_t i = 0; p->other_root && i < N_FILES; i++)
		unsetenv(files[i]);
	/* The check prints what the log would say. */
	setenv("EXS_LOG", "off", 1);
	unsetenv("EXS_LOG_FILE");
	unsetenv("EXS_REPORT");
}

static void take_limit(pid_t pid, __rlimit_resource_t which)
{
	struct rlimit r;

	if (prlimit(pid, which, NULL, &r) == 0)
		setrlimit(which, &r);
}

static int enter_namespace(pid_t pid)
{
	char path[48];
	int fd, err;

	snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = setns(fd, CLONE_NEWNET) ? -errno : 0;
	close(fd);
	return err;
}

int check_become(const struct check_process *p)
{
	take_variables(p);
	take_limit(p->pid, RLIMIT_MEMLOCK);
	take_limit(p->pid, RLIMIT_NOFILE);
	if (geteuid())
		return 0;
	enter_namespace(p->pid);
	if (!p->uid)
		return 0;
	/* From here on this process has no root rights, so that a file or
	 * module that the user named cannot use them. */
	if (setgroups(0, NULL) || setresgid(p->gid, p->gid, p->gid) ||
	    setresuid(p->uid, p->uid, p->uid))
		return -errno;
	prctl(PR_SET_DUMPABLE, 0);
	return 0;
}
