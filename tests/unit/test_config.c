/* SPDX-License-Identifier: BSD-2-Clause */
/* The configuration is read once per process, so each environment gets a
 * process of its own: a child loads it and hands back what it got and what it
 * said on stderr. */
#include "core/base/cgroup.h"
#include "core/base/config.h"
#include "core/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define ROWS_MAX 32

struct outcome {
	struct exi_config config;
	unsigned int n_rows;
	struct {
		char variable[32];
		char origin[96];
		char value[EXI_CONFIG_PATH_MAX];
	} rows[ROWS_MAX];
	/* Of these ports. */
	struct exi_config_way way[4];
	char refusal[1024];
	char said[8192];
};

static const uint16_t ports[] = { 6379, 80, 7005, 0 };

static void read_all(int fd, void *buf, size_t len, size_t *ret)
{
	size_t got = 0;
	ssize_t n = 1;

	while (got < len && n > 0) {
		n = read(fd, (char *)buf + got, len - got);
		got += n > 0 ? n : 0;
	}
	*ret = got;
}

static void child(const char *const env[], int result, int said)
{
	struct outcome o = { 0 };
	struct exi_config_row row;

	dup2(said, STDERR_FILENO);
	clearenv();
	setenv("HOME", "/home/somebody", 1);
	for (; *env; env++)
		putenv(strdup(*env));
	o.config = *exi_config();
	exi_config_load();
	if (exi_config_refusal())
		snprintf(o.refusal, sizeof(o.refusal), "%s",
			 exi_config_refusal());
	for (size_t i = 0; i < 4; i++)
		o.way[i] = exi_config_way(ports[i]);
	while (exi_config_row(o.n_rows, &row)) {
		snprintf(o.rows[o.n_rows].variable, 32, "%s", row.variable);
		snprintf(o.rows[o.n_rows].origin, 96, "%s", row.origin);
		strcpy(o.rows[o.n_rows].value, row.value);
		o.n_rows++;
	}
	_exit(write(result, &o, sizeof(o)) != sizeof(o));
}

static struct outcome load(const char *const env[])
{
	struct outcome o;
	int result[2], said[2], status;
	size_t n;
	pid_t pid;

	assert_int_equal(pipe(result), 0);
	assert_int_equal(pipe(said), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		child(env, result[1], said[1]);
	close(result[1]);
	close(said[1]);
	read_all(result[0], &o, sizeof(o), &n);
	assert_int_equal(n, sizeof(o));
	read_all(said[0], o.said, sizeof(o.said) - 1, &n);
	o.said[n] = '\0';
	close(result[0]);
	close(said[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	return o;
}

#define LOAD(...) load((const char *[]){ __VA_ARGS__, NULL })

static int row_of(const struct outcome *o, const char *variable)
{
	for (unsigned int i = 0; i < o->n_rows; i++) {
		if (!strcmp(o->rows[i].variable, variable))
			return (int)i;
	}
	fail_msg("no row for %s", variable);
	return -1;
}

static void assert_row(const struct outcome *o, const char *variable,
		       const char *value, const char *origin)
{
	int i = row_of(o, variable);

	assert_string_equal(o->rows[i].value, value);
	assert_string_equal(o->rows[i].origin, origin);
}

static void assert_said(const struct outcome *o, const char *what)
{
	if (!strstr(o->said, what))
		fail_msg("\"%s\" is not in \"%s\"", what, o->said);
}

/* Nothing is started, and no more is said here than why. */
static void assert_refused(const struct outcome *o, const char *what)
{
	if (!strstr(o->refusal, what))
		fail_msg("\"%s\" is not in \"%s\"", what, o->refusal);
	assert_null(strchr(o->refusal, '\n'));
}

static unsigned int lines(const struct outcome *o)
{
	unsigned int n = 0;

	for (const char *p = o->said; *p; p++)
		n += *p == '\n';
	return n;
}

/* A file with this text; the caller unlinks it. */
static char *make_file(const char *text, char env[64])
{
	char path[] = "/tmp/exs-config-XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	snprintf(env, 64, "EXS_CONFIG=%s", path);
	return env;
}

static struct outcome load_file(const char *text, const char *variable)
{
	char env[64];
	struct outcome o;

	make_file(text, env);
	o = LOAD(env, variable);
	unlink(strchr(env, '=') + 1);
	return o;
}

/* As it is where nobody set it. */
static void assert_memory_limit(const struct outcome *o)
{
	uint64_t here =
		exi_cgroup_memory("/proc/self/cgroup", "/sys/fs/cgroup") / 8 >>
		20;

	assert_int_equal(o->config.memory_limit_mb, here < 1024 ? here : 1024);
	assert_string_equal(o->rows[row_of(o, "EXS_MEMORY_LIMIT_MB")].origin,
			    here < 1024 ? "cgroup" : "default");
}

static void defaults_are_as_documented_and_silent(void **state)
{
	struct outcome o = load((const char *[]){ NULL });

	assert_string_equal(o.said, "");
	assert_string_equal(o.refusal, "");
	assert_int_equal(o.config.n_providers, 4);
	assert_row(&o, "EXS_PROVIDER", "shm,verbs,ofi,tcp", "default");
	assert_row(&o, "EXS_UPGRADE", "auto", "default");
	assert_row(&o, "EXS_CONFIG", "", "default");
	assert_true(o.config.upgrade);
	assert_int_equal(o.config.upgrade_bytes, EXI_UPGRADE_BYTES);
	assert_int_equal(o.config.spin_us, EXI_SPIN_US);
	assert_int_equal(o.config.ring_kb, EXI_RING_KB);
	assert_memory_limit(&o);
	assert_int_equal(o.config.zcopy_threshold, 65536);
	assert_int_equal(o.config.log_level, EXI_LOG_WARN);
	assert_string_equal(o.config.require, "");
	assert_string_equal(o.config.log_file, "");
	assert_string_equal(o.config.key_file, "");
	assert_true(o.config.stats);
	assert_int_equal(o.config.tcp_engine, EXI_TCP_ENGINE_AUTO);
	assert_int_equal(o.config.trust, EXI_TRUST_KEY);
	assert_int_equal(o.config.io_uring, EXI_IO_URING_AUTO);
}

/* A file below the directory, and what leads there. */
static void put(const char *top, const char *name, const char *text)
{
	char path[256];
	int fd, len = (int)strlen(top) + 1;

	snprintf(path, sizeof(path), "%s/%s", top, name);
	for (char *at = strchr(path + len, '/'); at; at = strchr(at + 1, '/')) {
		*at = '\0';
		mkdir(path, 0700);
		*at = '/';
	}
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

/* The limit of a process in these groups. */
static uint64_t memory_of(const char *top, const char *groups)
{
	char list[256];

	put(top, "list", groups);
	snprintf(list, sizeof(list), "%s/list", top);
	return exi_cgroup_memory(list, top);
}

static void the_smallest_limit_of_the_groups_counts(void **state)
{
	static const char v1[] = "5:cpu,cpuacct:/c\n3:hugetlb,memory:/a/b\n"
				 "1:name=systemd:/a\n0::/\n";
	char top[] = "/tmp/exs-cgroup-XXXXXX", command[64];

	assert_non_null(mkdtemp(top));
	assert_int_equal(memory_of(top, v1), UINT64_MAX);
	/* Version 2: its own, then one around it that has less. */
	put(top, "a/b/memory.max", "3000\n");
	put(top, "a/memory.max", "max\n");
	assert_int_equal(memory_of(top, "0::/a/b\n"), 3000);
	assert_int_equal(memory_of(top, "0::/a\n"), UINT64_MAX);
	put(top, "a/b/memory.high", "2500\n");
	assert_int_equal(memory_of(top, "0::/a/b\n"), 2500);
	put(top, "a/memory.max", "2000\n");
	assert_int_equal(memory_of(top, "0::/a/b\n"), 2000);
	assert_int_equal(memory_of(top, "0::/"), UINT64_MAX);
	/* What is mounted is the group: its name is the host's. */
	put(top, "memory.max", "1000\n");
	assert_int_equal(memory_of(top, "0::/docker/abc\n"), 1000);
	assert_int_equal(memory_of(top, "0::/\n"), 1000);
	assert_int_equal(memory_of(top, v1), 1000);
	/* Both versions, side by side. */
	put(top, "memory/a/b/memory.limit_in_bytes", "900");
	put(top, "memory/memory.limit_in_bytes", "9223372036854771712\n");
	assert_int_equal(memory_of(top, v1), 900);
	put(top, "memory/a/memory.limit_in_bytes", "800\n");
	put(top, "unified/memory.max", "700\n");
	assert_int_equal(memory_of(top, "3:memory:/a/b\n"), 800);
	assert_int_equal(memory_of(top, "3:memory:/a/b\n0::/\n"), 700);
	/* Noise. */
	assert_int_equal(memory_of(top, "3\n::\n\nx:memory\n"), 700);
	assert_int_equal(memory_of(top, "3:memoryx,xmemory:/a\n"), UINT64_MAX);
	put(top, "memory.max", "-");
	put(top, "unified/memory.max", "");
	assert_int_equal(memory_of(top, "0::/\n"), UINT64_MAX);
	snprintf(command, sizeof(command), "rm -r %s", top);
	assert_int_equal(system(command), 0);
}

static void every_variable_is_taken_from_the_environment(void **state)
{
	struct outcome o = LOAD("EXS_PROVIDER=tcp,shm", "EXS_REQUIRE=shm",
				"EXS_UPGRADE=bytes:4096", "EXS_SPIN_US=0",
				"EXS_RING_KB=64", "EXS_MEMORY_LIMIT_MB=7",
				"EXS_ZCOPY_THRESHOLD=1", "EXS_LOG=info",
				"EXS_STATS=off", "EXS_TCP_ENGINE=epoll",
				"EXS_KEY_FILE=~/k", "EXS_TRUST=hosts");

	assert_string_equal(o.said, "");
	assert_row(&o, "EXS_PROVIDER", "tcp,shm", "environment");
	assert_row(&o, "EXS_REQUIRE", "shm", "environment");
	assert_row(&o, "EXS_UPGRADE", "bytes:4096", "environment");
	assert_row(&o, "EXS_SPIN_US", "0", "environment");
	assert_row(&o, "EXS_RING_KB", "64", "environment");
	assert_row(&o, "EXS_MEMORY_LIMIT_MB", "7", "environment");
	assert_row(&o, "EXS_ZCOPY_THRESHOLD", "1", "environment");
	assert_row(&o, "EXS_LOG", "info", "environment");
	assert_row(&o, "EXS_STATS", "off", "environment");
	assert_row(&o, "EXS_TCP_ENGINE", "epoll", "environment");
	assert_row(&o, "EXS_KEY_FILE", "/home/somebody/k", "environment");
	assert_row(&o, "EXS_TRUST", "hosts", "environment");
	assert_int_equal(o.config.upgrade_bytes, 4096);
	assert_int_equal(o.config.log_level, EXI_LOG_INFO);
	assert_int_equal(o.config.tcp_engine, EXI_TCP_ENGINE_EPOLL);
	assert_int_equal(o.config.trust, EXI_TRUST_HOSTS);
	assert_false(o.config.stats);
}

static void garbage_is_warned_about_and_the_default_stands(void **state)
{
	static const struct {
		const char *env;
		const char *variable;
		const char *value;
		const char *accepts;
	} cases[] = {
		{ "EXS_SPIN_US=1000001", "EXS_SPIN_US", "50", "1000000" },
		{ "EXS_SPIN_US=-1", "EXS_SPIN_US", "50", "0 to" },
		{ "EXS_SPIN_US=5us", "EXS_SPIN_US", "50", "0 to" },
		{ "EXS_RING_KB=100", "EXS_RING_KB", "2048", "power of two" },
		{ "EXS_RING_KB=8", "EXS_RING_KB", "2048", "16" },
		{ "EXS_RING_KB=131072", "EXS_RING_KB", "2048", "65536" },
		{ "EXS_RING_KB=18446744073709551680", "EXS_RING_KB", "2048",
		  "power of two" },
		{ "EXS_ZCOPY_THRESHOLD=64k", "EXS_ZCOPY_THRESHOLD", "65536",
		  "bytes" },
		{ "EXS_LOG=loud", "EXS_LOG", "warn", "trace" },
		{ "EXS_STATS=maybe", "EXS_STATS", "on", "on or off" },
	};

	struct outcome o;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		o = LOAD(cases[i].env);
		assert_row(&o, cases[i].variable, cases[i].value, "default");
		assert_said(&o, "libexs[");
		assert_said(&o, "] warn: ");
		assert_said(&o, cases[i].variable);
		assert_said(&o, strchr(cases[i].env, '=') + 1);
		assert_said(&o, cases[i].accepts);
	}
	assert_string_equal(o.refusal, "");
}

/* What may be used, what must be, or how much, is not guessed. */
static void garbage_where_something_is_allowed_refuses(void **state)
{
	static const struct {
		const char *env;
		const char *accepts;
	} cases[] = {
		{ "EXS_PROVIDER=rdma", "^name excludes" },
		{ "EXS_PROVIDER=tpc", "shm, verbs, ofi, tcp, loop" },
		{ "EXS_PROVIDER=shm,warp,tcp", "shm, verbs" },
		{ "EXS_PROVIDER=^shm,^drive", "shm, verbs" },
		{ "EXS_PROVIDER=", "shm" },
		{ "EXS_PROVIDER=shm,^shm", "shm, verbs" },
		{ "EXS_REQUIRE=fast", "one of shm" },
		{ "EXS_UPGRADE=bytes:", "bytes:N" },
		{ "EXS_UPGRADE=bytes:-1", "never" },
		{ "EXS_UPGRADE=soon", "connect" },
		{ "EXS_MEMORY_LIMIT_MB=-1", "0 to 1048576" },
		{ "EXS_TCP_ENGINE=select", "io_uring" },
		{ "EXS_IO_URING=yes", "auto, any or files" },
		{ "EXS_TRUST=all", "hosts" },
		{ "EXS_VERBS_GID_INDEX=first", "or nothing" },
		{ "EXS_VERBS_PORT_OFFSET=70000", "64511" },
		{ "EXS_OFI_PORT_OFFSET=", "64511" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct outcome o = LOAD(cases[i].env);
		char want[96];
		const char *value = strchr(cases[i].env, '=');

		snprintf(want, sizeof(want),
			 "%.*s: cannot use \"%s\"; it accepts ",
			 (int)(value - cases[i].env), cases[i].env, value + 1);
		assert_refused(&o, want);
		assert_refused(&o, cases[i].accepts);
		assert_string_equal(o.said, "");
	}
}

static void a_path_that_does_not_fit_is_refused(void **state)
{
	char env[600] = "EXS_LOG_FILE=";
	struct outcome o;

	memset(env + strlen(env), 'x', 300);
	o = LOAD(env);
	assert_string_equal(o.config.log_file, "");
	assert_said(&o, "EXS_LOG_FILE: cannot use \"xxx");
}

static void exclusions_take_away_from_the_usual_list(void **state)
{
	struct outcome o = LOAD("EXS_PROVIDER=^shm, ^ofi");

	assert_string_equal(o.said, "");
	assert_row(&o, "EXS_PROVIDER", "verbs,tcp", "environment");
	assert_int_equal(o.config.n_providers, 2);
}

static void exclusions_take_away_from_a_given_list(void **state)
{
	struct outcome o = LOAD("EXS_PROVIDER=loop,shm,tcp,^shm");

	assert_row(&o, "EXS_PROVIDER", "loop,tcp", "environment");
}

static void loop_is_used_only_when_listed(void **state)
{
	struct outcome o = LOAD("EXS_PROVIDER=LOOP");

	assert_row(&o, "EXS_PROVIDER", "loop", "environment");
	o = LOAD("EXS_PROVIDER=^loop");
	assert_row(&o, "EXS_PROVIDER", "shm,verbs,ofi,tcp", "environment");
}

static void upgrade_never_and_connect_are_understood(void **state)
{
	struct outcome o = LOAD("EXS_UPGRADE=never");

	assert_false(o.config.upgrade);
	assert_row(&o, "EXS_UPGRADE", "never", "environment");
	o = LOAD("EXS_UPGRADE=connect");
	assert_true(o.config.upgrade);
	assert_int_equal(o.config.upgrade_bytes, 0);
	assert_row(&o, "EXS_UPGRADE", "connect", "environment");
}

static void an_unknown_variable_is_warned_about_once(void **state)
{
	struct outcome o = LOAD("EXS_RNG_KB=64", "EXSTRA=1", "EXS_CONFIG=");

	assert_said(&o, "EXS_RNG_KB");
	assert_int_equal(lines(&o), 1);
}

static void a_requirement_that_cannot_be_met_is_said(void **state)
{
	struct outcome o = LOAD("EXS_REQUIRE=shm", "EXS_PROVIDER=tcp");

	assert_said(&o, "EXS_PROVIDER does not list it");
	o = LOAD("EXS_REQUIRE=shm", "EXS_UPGRADE=never");
	assert_said(&o, "EXS_UPGRADE is never");
	o = LOAD("EXS_REQUIRE=tcp", "EXS_UPGRADE=never");
	assert_string_equal(o.said, "");
}

static void the_file_gives_values_and_the_environment_wins(void **state)
{
	struct outcome o = load_file("# a comment\n"
				     "[exs]\n"
				     "provider = tcp\n"
				     "ring_kb = 64 ; inline\n"
				     "spin_us=7\n",
				     "EXS_SPIN_US=9");

	assert_string_equal(o.said, "");
	assert_row(&o, "EXS_PROVIDER", "tcp", "file");
	assert_row(&o, "EXS_RING_KB", "64", "file");
	assert_row(&o, "EXS_SPIN_US", "9", "environment");
	assert_row(&o, "EXS_STATS", "on", "default");
}

/* An indented line is a line of its own, and a comment has no limit. */
static void lines_may_be_indented_and_have_comments(void **state)
{
	char text[600] = "spin_us = 7 # tabs, too\t# twice\r\n"
			 "\t ring_kb = 64\n"
			 "    # ";
	struct outcome o;

	memset(text + strlen(text), 'x', 400);
	strcat(text, "\n \n  log_file = /tmp/a#b\n\tlog = off");
	o = load_file(text, "EXS_STATS=on");
	assert_string_equal(o.refusal, "");
	assert_string_equal(o.said, "");
	assert_row(&o, "EXS_SPIN_US", "7", "file");
	assert_row(&o, "EXS_RING_KB", "64", "file");
	assert_row(&o, "EXS_LOG_FILE", "/tmp/a#b", "file");
	assert_row(&o, "EXS_LOG", "off", "file");
}

static void garbage_in_the_environment_leaves_the_file_standing(void **state)
{
	struct outcome o = load_file("spin_us = 7\n", "EXS_SPIN_US=fast");

	assert_row(&o, "EXS_SPIN_US", "7", "file");
	assert_said(&o, "\"fast\"");
	assert_said(&o, "using \"7\"");
}

static void garbage_in_the_file_is_named(void **state)
{
	char text[600] = "key_file = ";
	struct outcome o = load_file("ring_kb = many\n", "EXS_LOG=info");

	assert_row(&o, "EXS_RING_KB", "2048", "default");
	assert_said(&o, "EXS_RING_KB: cannot use \"many\" from /tmp/");
	assert_int_equal(lines(&o), 1);
	assert_string_equal(o.refusal, "");
	o = load_file("provider = tpc\n", "EXS_LOG=info");
	assert_refused(&o, "EXS_PROVIDER: cannot use \"tpc\" from /tmp/");
	o = load_file("colour = red\n", "EXS_LOG=off");
	assert_refused(&o, "unknown key \"colour\"");
	o = load_file("[other]\nspin_us = 3\n", "EXS_LOG=off");
	assert_refused(&o, "unknown key \"other.spin_us\"");
	assert_row(&o, "EXS_SPIN_US", "50", "default");
	o = load_file("ring_kb = 64\n\nno equals sign\n", "EXS_LOG=off");
	assert_refused(&o, "line 3");
	/* What is cut off would be another path. */
	memset(text + strlen(text), 'x', 180);
	o = load_file(text, "EXS_LOG=off");
	assert_string_equal(o.refusal, "");
	memset(text + strlen(text), 'x', 150);
	o = load_file(text, "EXS_LOG=off");
	assert_refused(&o, "line 1 is too long; a line has at most 198 bytes");
}

static void the_log_settings_of_the_file_rule_its_complaints(void **state)
{
	struct outcome o = load_file("colour = red\nring_kb = many\n"
				     "log = off\n",
				     "EXS_STATS=maybe");

	assert_string_equal(o.said, "");
	assert_row(&o, "EXS_LOG", "off", "file");
}

static void a_file_that_cannot_be_read_refuses(void **state)
{
	static const char *const paths[] = { "EXS_CONFIG=/nonexistent/exs.conf",
					     "EXS_CONFIG=/tmp",
					     "EXS_CONFIG=/dev/zero" };

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		struct outcome o = LOAD(paths[i]);

		assert_refused(&o, "EXS_CONFIG: cannot read");
		assert_refused(&o, strchr(paths[i], '=') + 1);
	}
}

static void a_file_that_does_not_end_refuses(void **state)
{
	struct outcome o;
	char env[64];

	make_file("log = off\n", env);
	assert_int_equal(truncate(strchr(env, '=') + 1, (off_t)1 << 40), 0);
	o = LOAD(env);
	unlink(strchr(env, '=') + 1);
	assert_refused(&o, "File too large");
	assert_refused(&o, "at most 1 MiB");
}

static void a_file_of_noise_is_survived(void **state)
{
	char noise[4096];
	struct outcome o;
	uint32_t x = 12345;

	for (size_t i = 0; i < sizeof(noise) - 1; i++) {
		x = x * 1664525 + 1013904223;
		noise[i] = x >> 24 ? (char)(x >> 24) : '=';
	}
	noise[sizeof(noise) - 1] = '\0';
	o = load_file(noise, "EXS_RING_KB=32");
	assert_row(&o, "EXS_RING_KB", "32", "environment");
	assert_refused(&o, "EXS_CONFIG");
}

static void control_characters_do_not_forge_lines(void **state)
{
	struct outcome o = LOAD("EXS_LOG=a\nlibexs[1] error: b\033[2J",
				"EXS_TRUST=a\nlibexs[1] error: b\033[2J");

	assert_int_equal(lines(&o), 1);
	assert_null(strchr(o.said, '\033'));
	assert_refused(&o, "EXS_TRUST");
	assert_null(strchr(o.refusal, '\033'));
}

static void lines_go_to_the_log_file_with_the_pid_in_its_name(void **state)
{
	char dir[] = "/tmp/exs-log-XXXXXX";
	char env[64], path[128], line[256] = "";
	struct outcome o;
	FILE *f;
	int pid;

	assert_non_null(mkdtemp(dir));
	snprintf(env, sizeof(env), "EXS_LOG_FILE=%s/%%p.log", dir);
	o = LOAD(env, "EXS_STATS=maybe");
	assert_string_equal(o.said, "");
	snprintf(path, sizeof(path), "cat %s/*.log", dir);
	f = popen(path, "r");
	assert_non_null(f);
	assert_non_null(fgets(line, sizeof(line), f));
	pclose(f);
	assert_non_null(strstr(line, "warn: EXS_STATS"));
	assert_int_equal(sscanf(line, "libexs[%d]", &pid), 1);
	snprintf(path, sizeof(path), "%s/%d.log", dir, pid);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
}

static void a_log_file_that_cannot_be_opened_is_said_once(void **state)
{
	struct outcome o =
		LOAD("EXS_LOG_FILE=/nonexistent/log", "EXS_A=1", "EXS_B=2");

	assert_said(&o, "cannot open EXS_LOG_FILE /nonexistent/log");
	assert_said(&o, "EXS_A");
	assert_said(&o, "EXS_B");
	assert_int_equal(lines(&o), 3);
}

static void logging_keeps_errno_and_cuts_long_lines(void **state)
{
	char text[4000];
	char got[4096];
	int saved, fds[2];
	ssize_t n;

	memset(text, 'y', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(pipe(fds), 0);
	saved = dup(STDERR_FILENO);
	dup2(fds[1], STDERR_FILENO);
	errno = ENOTTY;
	exi_log_write(EXI_LOG_ERROR, "%s", text);
	n = errno;
	dup2(saved, STDERR_FILENO);
	assert_int_equal(n, ENOTTY);
	n = read(fds[0], got, sizeof(got));
	assert_true(n > 1000 && n <= 1024);
	assert_memory_equal(got + n - 4, "...\n", 4);
	close(saved);
	close(fds[0]);
	close(fds[1]);
}

static int connected(int family, int *ret_listener, char *ret_want)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6,
				  .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_in b = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr *at = family == AF_INET6 ? (void *)&a : (void *)&b;
	socklen_t n = family == AF_INET6 ? sizeof(a) : sizeof(b);
	const char *host = family == AF_INET6 ? "[::1]" : "127.0.0.1";
	int l = socket(family, SOCK_STREAM, 0);
	int s = socket(family, SOCK_STREAM, 0);
	in_port_t port;

	/* The port is at one place in both. */
	assert_int_equal(bind(l, at, n), 0);
	assert_int_equal(listen(l, 1), 0);
	assert_int_equal(getsockname(l, at, &n), 0);
	assert_int_equal(connect(s, at, n), 0);
	port = ((struct sockaddr_in *)at)->sin_port;
	assert_int_equal(getsockname(s, at, &n), 0);
	sprintf(ret_want, "descriptor %d (local %s:%u, peer %s:%u)", s, host,
		ntohs(((struct sockaddr_in *)at)->sin_port), host, ntohs(port));
	*ret_listener = l;
	return s;
}

static void a_line_names_a_connection_by_its_addresses(void **state)
{
	struct exi_log_conn name;
	char want[200];
	int l, s, pair[2];

	for (int i = 0; i < 2; i++) {
		s = connected(i ? AF_INET6 : AF_INET, &l, want);
		errno = ENOTTY;
		assert_string_equal(exi_log_conn(&name, s), want);
		close(l); /* resets what was not accepted */
		*strchr(want, ',') = '\0';
		strcat(want, ")");
		assert_string_equal(exi_log_conn(&name, s), want);
		assert_int_equal(errno, ENOTTY);
		close(s);
	}
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	sprintf(want, "descriptor %d", pair[0]);
	assert_string_equal(EXI_CONN(pair[0]), want);
	close(pair[0]);
	close(pair[1]);
	assert_string_equal(EXI_CONN(pair[0]), want);
	assert_string_equal(EXI_CONN(-1), "descriptor -1");
}

static void a_log_descriptor_taken_away_is_opened_again(void **state)
{
	char path[] = "/tmp/exs-log-XXXXXX";
	char got[512];
	int fd = mkstemp(path);
	int other[2];
	struct rlimit few = { 1024, 1024 };
	ssize_t n;

	assert_true(fd >= 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	exi_log_file(path);
	exi_log_write(EXI_LOG_WARN, "one");
	closefrom(fd + 1);
	assert_int_equal(pipe(other), 0);
	for (int high = 256; high < 1000; high++)
		dup2(other[1], high);
	exi_log_write(EXI_LOG_WARN, "two");
	closefrom(256);
	exi_log_write(EXI_LOG_WARN, "three");
	exi_log_file("");
	n = pread(fd, got, sizeof(got) - 1, 0);
	assert_true(n > 0);
	got[n] = '\0';
	assert_non_null(strstr(got, "one\n"));
	assert_non_null(strstr(got, "two\n"));
	assert_non_null(strstr(got, "three\n"));
	closefrom(fd);
	unlink(path);
}

static void where_the_home_was_stays_known(void **state)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		clearenv();
		setenv("HOME", "/home/somebody", 1);
		exi_config_load();
		setenv("HOME", "/home/other", 1);
		setenv("XDG_CONFIG_HOME", "/other", 1);
		_exit(exi_config()->config_home != NULL ||
		      strcmp(exi_config()->home, "/home/somebody"));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void a_rule_is_for_the_programs_that_it_names(void **state)
{
	struct outcome o = load_file("[rule this]\n"
				     "program = other, test_con*\n"
				     "ring_kb = 64\n"
				     "spin_us = 1\n"
				     "[rule that]\n"
				     "program = other\n"
				     "ring_kb = 128\n"
				     "provider = tcp\n"
				     "[rule]\n"
				     "program = *config\n"
				     "program = other\n"
				     "spin_us = 2\n"
				     "program = test_config\n"
				     "memory_limit_mb = 9\n"
				     "[exs]\n"
				     "ring_kb = 32\n"
				     "zcopy_threshold = 5\n",
				     "EXS_STATS=off");

	assert_string_equal(o.said, "");
	assert_row(&o, "EXS_RING_KB", "64", "file, rule this");
	assert_row(&o, "EXS_SPIN_US", "1", "file, rule this");
	assert_row(&o, "EXS_PROVIDER", "shm,verbs,ofi,tcp", "default");
	assert_row(&o, "EXS_MEMORY_LIMIT_MB", "9", "file, rule");
	assert_row(&o, "EXS_ZCOPY_THRESHOLD", "5", "file");
	assert_row(&o, "EXS_STATS", "off", "environment");
}

static void a_profile_gives_way_to_settings_of_its_place(void **state)
{
	struct outcome o = load_file("spin_us = 7\n"
				     "profile = latency\n"
				     "[rule a]\n"
				     "program = test_config\n"
				     "ring_kb = 32\n"
				     "profile = throughput\n",
				     "EXS_STATS=off");

	assert_string_equal(o.said, "");
	assert_row(&o, "EXS_SPIN_US", "7", "file");
	assert_row(&o, "EXS_UPGRADE", "connect", "file, profile latency");
	assert_row(&o, "EXS_RING_KB", "32", "file, rule a");
	o = load_file("ring_kb = 32\n[rule a]\nprogram = *\n"
		      "profile = throughput\n",
		      "EXS_STATS=off");
	assert_row(&o, "EXS_RING_KB", "8192",
		   "file, rule a, profile throughput");
	o = load_file("profile = latency\n", "EXS_UPGRADE=never");
	assert_row(&o, "EXS_UPGRADE", "never", "environment");
}

static void a_rule_that_is_not_understood_refuses(void **state)
{
	static const struct {
		const char *text, *why;
	} cases[] = {
		{ "[rule a]\nring_kb = 64\n", "does not begin with" },
		{ "[rule a]\nprogram = x\ncolour = red\n", "rule a.colour" },
		{ "program = x\nring_kb = 64\n", "unknown key \"program\"" },
		{ "profile = fast\n", "\"fast\"" },
		{ "[rules]\nprogram = x\n", "rules.program" },
		{ "[rule a]\nprogram = *\nprovider = tpc\n", "tpc" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct outcome o = load_file(cases[i].text, "EXS_LOG=off");

		assert_refused(&o, cases[i].why);
	}
}

static const struct exi_config_way usual_way = { true, EXI_UPGRADE_BYTES,
						 UINT32_MAX };

static void assert_way(const struct outcome *o, size_t i,
		       struct exi_config_way wanted)
{
	assert_int_equal(o->way[i].upgrade, wanted.upgrade);
	assert_int_equal(o->way[i].upgrade_bytes, wanted.upgrade_bytes);
	assert_int_equal(o->way[i].fabrics, wanted.fabrics);
}

static void a_rule_for_ports_is_for_connections_to_them(void **state)
{
	static const char text[] = "[rule cache]\n"
				   "port = 6379, 7000-7010\n"
				   "program = test_con*\n"
				   "upgrade = bytes:7\n"
				   "provider = ofi, shm\n"
				   "[rule one]\n"
				   "port = 7005\n"
				   "upgrade = never\n"
				   "program = other\n"
				   "port = 80\n"
				   "upgrade = never\n";
	struct outcome o = load_file(text, "EXS_PROVIDER=shm,verbs,ofi");
	unsigned int n = o.n_rows;

	assert_string_equal(o.said, "");
	assert_string_equal(o.refusal, "");
	assert_int_equal(o.config.n_ports, 2);
	/* The environment has the fabrics for all ports. */
	assert_way(&o, 0, (struct exi_config_way){ true, 7, UINT32_MAX });
	assert_way(&o, 1, usual_way);
	assert_way(&o, 2, (struct exi_config_way){ false, 0, UINT32_MAX });
	assert_way(&o, 3, usual_way);
	assert_row(&o, "EXS_UPGRADE", "auto", "default");
	assert_string_equal(o.rows[n - 2].variable, "EXS_UPGRADE");
	assert_string_equal(o.rows[n - 2].value, "bytes:7");
	assert_string_equal(o.rows[n - 2].origin,
			    "file, rule cache, port 6379, 7000-7010");
	assert_string_equal(o.rows[n - 1].value, "never");
	o = load_file(text, "EXS_UPGRADE=auto");
	/* shm and ofi of shm, verbs, ofi, tcp */
	assert_way(&o, 0,
		   (struct exi_config_way){ true, EXI_UPGRADE_BYTES, 5 });
	assert_int_equal(o.config.n_ports, 1);
	o = load_file("upgrade = never\n[rule a]\nport = 80\nupgrade = auto\n",
		      "EXS_LOG=off");
	assert_false(o.way[0].upgrade);
	assert_way(&o, 1, usual_way);
}

static void a_rule_for_ports_that_is_not_understood_refuses(void **state)
{
	static const struct {
		const char *text, *why;
	} cases[] = {
		{ "[rule a]\nport = 0\nupgrade = never\n", "ports \"0\"" },
		{ "[rule a]\nport = 65536\nupgrade = never\n", "65536" },
		{ "[rule a]\nport = 9-8\nupgrade = never\n", "9-8" },
		{ "[rule a]\nport = 80x\nupgrade = never\n", "80x" },
		{ "[rule a]\nport = -1\nupgrade = never\n", "-1" },
		{ "[rule a]\nport =\nupgrade = never\n", "ports \"\"" },
		{ "[rule a]\nport = 1,2,3,4,5,6,7,8,9\nupgrade = never\n",
		  "at most 8" },
		{ "[rule a]\nport = 80\nport = 81\nupgrade = never\n",
		  "\"81\"" },
		{ "[rule a]\nport = 80\nspin_us = 4\n",
		  "accepts upgrade and provider" },
		{ "[rule a]\nport = 80\nprofile = safe\n", "\"profile\"" },
		{ "[rule a]\nport = 80\nupgrade = never mind\n",
		  "EXS_UPGRADE: cannot use" },
		{ "[rule a]\nport = 80\nprovider = tpc\n",
		  "EXS_PROVIDER: cannot use" },
		{ "port = 80\nupgrade = never\n", "unknown key \"port\"" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct outcome o = load_file(cases[i].text, "EXS_LOG=off");

		assert_refused(&o, cases[i].why);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rule_is_for_the_programs_that_it_names),
		cmocka_unit_test(a_profile_gives_way_to_settings_of_its_place),
		cmocka_unit_test(a_rule_that_is_not_understood_refuses),
		cmocka_unit_test(a_rule_for_ports_is_for_connections_to_them),
		cmocka_unit_test(
			a_rule_for_ports_that_is_not_understood_refuses),
		cmocka_unit_test(where_the_home_was_stays_known),
		cmocka_unit_test(defaults_are_as_documented_and_silent),
		cmocka_unit_test(the_smallest_limit_of_the_groups_counts),
		cmocka_unit_test(every_variable_is_taken_from_the_environment),
		cmocka_unit_test(
			garbage_is_warned_about_and_the_default_stands),
		cmocka_unit_test(a_path_that_does_not_fit_is_refused),
		cmocka_unit_test(exclusions_take_away_from_the_usual_list),
		cmocka_unit_test(exclusions_take_away_from_a_given_list),
		cmocka_unit_test(garbage_where_something_is_allowed_refuses),
		cmocka_unit_test(loop_is_used_only_when_listed),
		cmocka_unit_test(upgrade_never_and_connect_are_understood),
		cmocka_unit_test(an_unknown_variable_is_warned_about_once),
		cmocka_unit_test(a_requirement_that_cannot_be_met_is_said),
		cmocka_unit_test(
			the_file_gives_values_and_the_environment_wins),
		cmocka_unit_test(
			garbage_in_the_environment_leaves_the_file_standing),
		cmocka_unit_test(garbage_in_the_file_is_named),
		cmocka_unit_test(
			the_log_settings_of_the_file_rule_its_complaints),
		cmocka_unit_test(a_file_that_cannot_be_read_refuses),
		cmocka_unit_test(lines_may_be_indented_and_have_comments),
		cmocka_unit_test(a_file_that_does_not_end_refuses),
		cmocka_unit_test(a_file_of_noise_is_survived),
		cmocka_unit_test(control_characters_do_not_forge_lines),
		cmocka_unit_test(
			lines_go_to_the_log_file_with_the_pid_in_its_name),
		cmocka_unit_test(a_log_file_that_cannot_be_opened_is_said_once),
		cmocka_unit_test(logging_keeps_errno_and_cuts_long_lines),
		cmocka_unit_test(a_line_names_a_connection_by_its_addresses),
		cmocka_unit_test(a_log_descriptor_taken_away_is_opened_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
