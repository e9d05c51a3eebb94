/* SPDX-License-Identifier: BSD-2-Clause */
/* Garbage in an EXS_* variable is named: where it is about speed or the log the
 * default stands and the program works, elsewhere exs_init() fails. Good values
 * do what they say. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

/* Calls f in a child with that variable, and its stderr in a file; what was
 * said comes back in text. */
static void run_with(void (*f)(void), const char *variable, const char *value,
		     char *text, size_t room)
{
	int out = T_OK(memfd_create("stderr", MFD_CLOEXEC));
	pid_t pid;
	ssize_t n;

	t_note("%s=%.100s", variable, value);
	pid = t_fork();
	if (pid == 0) {
		setenv(variable, value, 1);
		T_OK(dup2(out, STDERR_FILENO));
		f();
		exit(0);
	}
	T(t_exited_within(pid, 60000));
	n = T_OK(pread(out, text, room - 1, 0));
	text[n] = '\0';
	close(out);
	if (n)
		T_EQ(write(STDERR_FILENO, text, n), n);
	t_join(pid);
}

static void use_a_connection(void)
{
	int fd[2];

	t_init();
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], T_SHM);
	t_close(fd[0]);
	t_recv_end(fd[1]);
	t_close(fd[1]);
}

static void is_warned_about(const char *variable, const char *value)
{
	char text[4096];

	run_with(use_a_connection, variable, value, text, sizeof(text));
	T_MSG(strstr(text, variable), "no warning about %s=%s", variable,
	      value);
}

static void fail_to_start(void)
{
	T_ERR(exs_init(EXS_VERSION), EINVAL);
	T_ERR(exs_init(EXS_VERSION), EINVAL);
}

/* exs_init() fails, each time, and says why. */
static void refuses(const char *variable, const char *value)
{
	char text[4096];

	run_with(fail_to_start, variable, value, text, sizeof(text));
	T_MSG(strstr(text, variable), "no word about %s=%s", variable, value);
}

static void is_silent(const char *variable, const char *value)
{
	char text[4096];

	run_with(use_a_connection, variable, value, text, sizeof(text));
	T_MSG(text[0] == '\0', "%s=%s is warned about: %s", variable, value,
	      text);
}

static const char *const garbage[] = { "gar bage", "-", "\xff\xfe%s%n",
				       "12monkeys" };

static void garbage_about_speed_or_the_log_is_named_and_ignored(void)
{
	static const char *const variables[] = {
		"EXS_SPIN_US", "EXS_RING_KB",	      "EXS_LOG",
		"EXS_STATS",   "EXS_ZCOPY_THRESHOLD",
	};
	int i, j;

	for (i = 0; i < T_COUNT(variables); i++)
		for (j = 0; j < T_COUNT(garbage); j++)
			is_warned_about(variables[i], garbage[j]);
}

/* What may be used, what must be, and how much. */
static void garbage_about_what_is_allowed_refuses(void)
{
	static const char *const variables[] = {
		"EXS_PROVIDER",	       "EXS_REQUIRE",
		"EXS_UPGRADE",	       "EXS_TRUST",
		"EXS_MEMORY_LIMIT_MB", "EXS_TCP_ENGINE",
		"EXS_VERBS_GID_INDEX", "EXS_VERBS_PORT_OFFSET",
		"EXS_OFI_PORT_OFFSET", "EXS_IO_URING",
	};
	char path[300];
	int i, j;

	for (i = 0; i < T_COUNT(variables); i++)
		for (j = 0; j < T_COUNT(garbage); j++)
			refuses(variables[i], garbage[j]);
	refuses("EXS_PROVIDER", "tpc");
	refuses("EXS_PROVIDER", "shm,tpc");
	refuses("EXS_PROVIDER", "^verbs,^off");
	refuses("EXS_PROVIDER", "");
	refuses("EXS_REQUIRE", "smh");
	refuses("EXS_UPGRADE", "nevre");
	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	refuses("EXS_KEY_FILE", path);
	refuses("EXS_VERBS_DEVICE", path);
	refuses("EXS_OFI_PROVIDER", path);
	refuses("EXS_CONFIG", path);
}

static void absurd_numbers_are_named(void)
{
	static const char *const variables[] = {
		"EXS_SPIN_US",
		"EXS_RING_KB",
		"EXS_ZCOPY_THRESHOLD",
	};
	static const char *const numbers[] = {
		"-1",  "99999999999999999999999", "1e3", "0x",
		"1.5", "18446744073709551616",
	};
	int i, j;

	for (i = 0; i < T_COUNT(variables); i++)
		for (j = 0; j < T_COUNT(numbers); j++)
			is_warned_about(variables[i], numbers[j]);
	for (j = 0; j < T_COUNT(numbers); j++)
		refuses("EXS_MEMORY_LIMIT_MB", numbers[j]);
	is_warned_about("EXS_RING_KB", "0");
	refuses("EXS_UPGRADE", "bytes:");
	refuses("EXS_UPGRADE", "bytes:-5");
	refuses("EXS_UPGRADE", "bytes:many");
}

static void very_long_values_are_named(void)
{
	static char value[20000];

	memset(value, 'A', sizeof(value) - 1);
	refuses("EXS_PROVIDER", value);
	is_warned_about("EXS_SPIN_US", value);
	is_warned_about("EXS_LOG", value);
}

static void an_unknown_variable_is_named(void)
{
	is_warned_about("EXS_PROVIDRE", "shm");
}

static void a_missing_configuration_file_refuses(void)
{
	refuses("EXS_CONFIG", "/nonexistent/exs.ini");
}

static void a_log_file_that_cannot_be_opened_is_said(void)
{
	char text[4096];

	setenv("EXS_LOG", "debug", 1);
	run_with(use_a_connection, "EXS_LOG_FILE", "/nonexistent/folder/log",
		 text, sizeof(text));
	unsetenv("EXS_LOG");
	T(strstr(text, "EXS_LOG_FILE") ||
	  strstr(text, "/nonexistent/folder/log"));
}

/* Somebody else may have made it. */
static void says_why_not(const char *path, const char *why)
{
	char text[4096];

	setenv("EXS_LOG", "debug", 1);
	run_with(use_a_connection, "EXS_LOG_FILE", path, text, sizeof(text));
	unsetenv("EXS_LOG");
	T_MSG(strstr(text, why), "it says \"%s\"", text);
}

static void a_log_file_is_no_link_and_no_fifo_without_a_reader(void)
{
	char dir[] = "/tmp/exs-log-XXXXXX", path[64], target[64];

	T(mkdtemp(dir) != NULL);
	snprintf(path, sizeof(path), "%s/log", dir);
	snprintf(target, sizeof(target), "%s/target", dir);
	T_OK(symlink(target, path));
	says_why_not(path, "symbolic link");
	T_ERR(access(target, F_OK), ENOENT);
	T_OK(unlink(path));
	T_OK(mkfifo(path, 0666));
	says_why_not(path, "FIFO without a reader");
	T_OK(unlink(path));
	T_OK(rmdir(dir));
}

/* The usual names in containers, which are symbolic links. */
static void a_log_goes_to_the_standard_streams_by_their_names(void)
{
	char text[4096];

	setenv("EXS_LOG", "debug", 1);
	run_with(use_a_connection, "EXS_LOG_FILE", "/dev/stderr", text,
		 sizeof(text));
	unsetenv("EXS_LOG");
	T(strstr(text, "debug") && !strstr(text, "EXS_LOG_FILE"));
}

static void good_values_are_silent(void)
{
	is_silent("EXS_PROVIDER", "shm,tcp");
	is_silent("EXS_PROVIDER", "^loop");
	is_silent("EXS_UPGRADE", "auto");
	is_silent("EXS_UPGRADE", "connect");
	is_silent("EXS_UPGRADE", "bytes:4096");
	is_silent("EXS_SPIN_US", "0");
	is_silent("EXS_SPIN_US", "200");
	is_silent("EXS_RING_KB", "64");
	is_silent("EXS_MEMORY_LIMIT_MB", "100");
	is_silent("EXS_STATS", "off");
	is_silent("EXS_TCP_ENGINE", "epoll");
	is_silent("EXS_IO_URING", "files");
	is_silent("EXS_LOG", "warn");
	is_silent("EXS_REQUIRE", "shm");
}

/* A debug log goes to its file, and %p is the process. */
static void the_log_goes_where_it_is_told(void)
{
	char dir[] = "/tmp/exs-log-XXXXXX", path[64], name[64], text[4096];
	int fd[2];
	FILE *f;

	T(mkdtemp(dir) != NULL);
	snprintf(path, sizeof(path), "%s/%%p.log", dir);
	snprintf(name, sizeof(name), "%s/%d.log", dir, getpid());
	setenv("EXS_LOG_FILE", path, 1);
	setenv("EXS_LOG", "trace", 1);
	t_init();
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], T_SHM);
	t_close(fd[0]);
	t_close(fd[1]);
	f = fopen(name, "re");
	T_MSG(f != NULL, "no log at %s", name);
	T(fread(text, 1, sizeof(text), f) > 0);
	fclose(f);
	T_OK(unlink(name));
	T_OK(rmdir(dir));
}

static void exchange(int fd[2], int n)
{
	char *buf = calloc(1, n);

	t_send_all(fd[0], buf, n, 0);
	t_recv_all(fd[1], buf, n);
	free(buf);
}

static void upgrades_can_be_forbidden(void)
{
	int fd[2];

	setenv("EXS_UPGRADE", "never", 1);
	t_init();
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1],
		      (struct t_want){ "tcp", EXS_X_REASON_CONFIG });
	exchange(fd, 100000);
	T_EQ(t_info(fd[0]).exs_x_upgrades, 0);
	t_close(fd[0]);
	t_close(fd[1]);
}

/* Nothing happens before so many bytes were sent, all that must after. */
static void upgrades_come_after_the_bytes_that_were_asked_for(void)
{
	int fd[2];

	setenv("EXS_UPGRADE", "bytes:20000", 1);
	t_init();
	t_pair(T_IPV4, fd);
	exchange(fd, 10000);
	T_EQ(t_info(fd[0]).exs_x_reason, EXS_X_REASON_UNDECIDED);
	T_EQ(t_info(fd[1]).exs_x_reason, EXS_X_REASON_UNDECIDED);
	T_EQ(t_info(fd[0]).exs_x_paired, 0);
	t_settle_pair(fd[0], fd[1], T_SHM);
	t_close(fd[0]);
	t_close(fd[1]);
}

/* Without any traffic. */
static void upgrades_come_with_the_connection_when_asked(void)
{
	struct t_deadline d = t_deadline_ms(20000);
	int fd[2];

	setenv("EXS_UPGRADE", "connect", 1);
	t_init();
	t_pair(T_IPV4, fd);
	while (!t_info(fd[0]).exs_x_paired)
		T_MSG(t_tick(&d), "%s", t_where(fd[0]));
	t_settle_pair(fd[0], fd[1], T_SHM);
	t_close(fd[0]);
	t_close(fd[1]);
}

static void a_file_sets_what_the_environment_does_not(void)
{
	char path[] = "/tmp/exs-config-XXXXXX";
	static const char ini[] = "upgrade = never\nring_kb = 64\n";
	int fd[2], f = T_OK(mkstemp(path));

	T_EQ(write(f, ini, strlen(ini)), strlen(ini));
	close(f);
	setenv("EXS_CONFIG", path, 1);
	t_init();
	T_OK(unlink(path));
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1],
		      (struct t_want){ "tcp", EXS_X_REASON_CONFIG });
	t_close(fd[0]);
	t_close(fd[1]);
}

static void the_environment_goes_before_the_file(void)
{
	char path[] = "/tmp/exs-config-XXXXXX";
	static const char ini[] = "upgrade = never\n";
	int fd[2], f = T_OK(mkstemp(path));

	T_EQ(write(f, ini, strlen(ini)), strlen(ini));
	close(f);
	setenv("EXS_CONFIG", path, 1);
	setenv("EXS_UPGRADE", "auto", 1);
	t_init();
	T_OK(unlink(path));
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], T_SHM);
	t_close(fd[0]);
	t_close(fd[1]);
}

static const struct t_row rows[] = {
	T_ROW(garbage_about_speed_or_the_log_is_named_and_ignored),
	T_ROW(garbage_about_what_is_allowed_refuses),
	T_ROW(absurd_numbers_are_named),
	T_ROW(very_long_values_are_named),
	T_ROW(an_unknown_variable_is_named),
	T_ROW(a_missing_configuration_file_refuses),
	T_ROW(a_log_file_that_cannot_be_opened_is_said),
	T_ROW(a_log_file_is_no_link_and_no_fifo_without_a_reader),
	T_ROW(a_log_goes_to_the_standard_streams_by_their_names),
	T_ROW(good_values_are_silent),
	T_ROW(the_log_goes_where_it_is_told),
	T_ROW(upgrades_can_be_forbidden),
	T_ROW(upgrades_come_after_the_bytes_that_were_asked_for),
	T_ROW(upgrades_come_with_the_connection_when_asked),
	T_ROW(a_file_sets_what_the_environment_does_not),
	T_ROW(the_environment_goes_before_the_file),
};

int main(int argc, char **argv)
{
	return t_run("config", rows, T_COUNT(rows), argc > 1 ? argv[1] : NULL);
}
