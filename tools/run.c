/* SPDX-License-Identifier: BSD-2-Clause */
/* exs run: starts a program with the shim loaded before its libraries. */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/base/log.h"
#include "core/base/target.h"
#include "core/life/core.h"
#include "exi_build.h"
#include "tools/tool.h"

#define SHIM "libexs-preload.so"

struct run {
	const char *profile;
	const char *provider;
	const char *require;
	const char *report;
	char **argv; /* of the program */
};

static const struct argp_option options[] = {
	{ "profile", 'p', "NAME", 0,
	  "latency: upgrade at once, spin longer; throughput: larger rings; "
	  "safe: never spin, upgrade late",
	  0 },
	{ "provider", 'P', "LIST", 0, "EXS_PROVIDER, such as shm or tcp", 0 },
	{ "require", 'r', "NAME", 0,
	  "EXS_REQUIRE: fail where this fabric "
	  "cannot be used",
	  0 },
	{ "report", 'R', "FILE", OPTION_ARG_OPTIONAL,
	  "Each process writes a report on its connections when it exits, to "
	  "FILE or standard error",
	  0 },
	{ 0 }
};

/* Sets the profile's settings that the environment does not have. */
static bool apply(const char *profile)
{
	struct exi_config_profile p;
	bool found = false;

	for (unsigned int i = 0; exi_config_profile(i, &p); i++) {
		if (strcmp(p.name, profile) != 0)
			continue;
		setenv(p.variable, p.value, 0);
		found = true;
	}
	return found;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct run *r = state->input;

	switch (key) {
	case 'p':
		r->profile = arg;
		return 0;
	case 'P':
		r->provider = arg;
		return 0;
	case 'r':
		r->require = arg;
		return 0;
	case 'R':
		if (arg && !*arg)
			argp_error(state, "--report= names no file");
		r->report = arg ? arg : "-";
		return 0;
	case ARGP_KEY_ARG: /* the program and its arguments */
		r->argv = &state->argv[state->next - 1];
		state->next = state->argc;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "no program was given");
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "PROGRAM [ARGUMENT...]",
	.doc = "Runs a program with its connections to other such programs, "
	       "TCP and UNIX streams, on shared memory.\vexs run --report "
	       "redis-server\nexs run redis-benchmark -c 1\n\nexs-run(1) "
	       "describes what goes back to TCP, and what differs.",
};

/* Finds the shim relative to this command: as built, or as installed. */
static int find_shim(char *ret, size_t len)
{
	static const char *const places[] = {
		"/../preload/" SHIM,
		"/../" EXI_LIBDIR "/exs/" SHIM,
		"/../lib/exs/" SHIM,
	};
	char exe[PATH_MAX], path[PATH_MAX + 64], real[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (n >= 0)
		exe[n] = '\0';
	/* Without /proc: by the name that it was started with. */
	else if (!realpath((const char *)getauxval(AT_EXECFN), exe))
		return -errno;
	*strrchr(exe, '/') = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(path, sizeof(path), "%s%s", exe, places[i]);
		if (realpath(path, real) && access(real, R_OK) == 0)
			return snprintf(ret, len, "%s", real) < (int)len
				       ? 0
				       : -ENAMETOOLONG;
	}
	return -ENOENT;
}

/* Makes the path absolute: processes that report may be in other folders. */
static const char *from_here(const char *file, char *ret, size_t len)
{
	char here[PATH_MAX];

	if (*file == '/' || !strcmp(file, "-") || !getcwd(here, sizeof(here)))
		return file;
	snprintf(ret, len, "%s/%s", here, file);
	return ret;
}

/* Why the shim would not be loaded into the program; null when it will be. */
static const char *refusal(int fd)
{
	struct stat st;
	bool asked;

	if (fstat(fd, &st) == 0 && (st.st_mode & (S_ISUID | S_ISGID)))
		return "it changes its user (set-user-ID), and the system "
		       "loads no library into such programs";
	/* Root gains nothing from capabilities. */
	if (getuid() != 0 && fgetxattr(fd, "security.capability", NULL, 0) > 0)
		return "its file gives it capabilities (setcap), and the "
		       "system loads no library into such programs";
	return exi_target_refusal(fd, &asked);
}

/* Checks the program's file, and prints why the shim does not serve it; false:
 * the program is not started. If the file cannot be read, exec reports that. */
static bool is_served(const char *program)
{
	int fd = exi_target_open(AT_FDCWD, program);
	const char *why;

	if (fd < 0)
		return true;
	why = refusal(fd);
	if (why)
		tool_fail("%s: %s", program, why);
	else if (exi_target_is_go(fd))
		tool_fail("%s: its connections stay on TCP: a program in Go "
			  "makes its system calls itself",
			  program);
	exi_target_close(fd);
	return !why;
}

/* Prints an error if a required fabric is missing here; the program is then not
 * started. */
static bool lacks_required(void)
{
	const char *require = getenv("EXS_REQUIRE");

	return require && *require && exi_core_init() == -ENODEV;
}

/* Whether the report can be written; prints why not. Each process of the
 * program opens the file when it starts. */
static bool can_report(const char *file)
{
	int fd = strcmp(file, "-") ? exi_log_open(file, 0666) : STDERR_FILENO;

	if (fd < 0)
		tool_fail("--report: %s: %s", file, exi_log_why(-fd));
	else if (fd != STDERR_FILENO)
		close(fd);
	return fd >= 0;
}

static const char *why_not(const char *program)
{
	struct stat st;

	return strerror(stat(program, &st) == 0 && S_ISDIR(st.st_mode)
				? EISDIR
				: EACCES);
}

int tool_run(int argc, char **argv)
{
	char shim[PATH_MAX], program[PATH_MAX], preload[2 * PATH_MAX];
	char report[2 * PATH_MAX];
	struct run r = { 0 };
	const char *old = getenv("LD_PRELOAD"), *why;
	int err;

	if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &r))
		return TOOL_USAGE;
	if (r.profile && !apply(r.profile)) {
		tool_fail("there is no profile \"%s\"; the profiles are "
			  "latency, throughput and safe",
			  r.profile);
		return TOOL_USAGE;
	}
	if (r.provider)
		setenv("EXS_PROVIDER", r.provider, 1);
	if (r.require)
		setenv("EXS_REQUIRE", r.require, 1);
	if (r.report)
		setenv("EXS_REPORT",
		       from_here(r.report, report, sizeof(report)), 1);
	exi_config_warns_later = true;
	why = exi_config_refusal();
	if (why) {
		tool_fail("%s", why);
		return TOOL_USAGE;
	}
	if (find_shim(shim, sizeof(shim)))
		return tool_fail(
			SHIM
			" was not found next to this command; install both, or "
			"run the command from its build directory");
	if (strpbrk(shim, " :"))
		return tool_fail(
			"%s cannot be loaded: its path has a space or a colon",
			shim);
	err = exi_target_find(r.argv[0], program, sizeof(program));
	if (err) {
		tool_fail("%s: %s", r.argv[0],
			  err == -EACCES ? why_not(r.argv[0])
					 : "there is no such program");
		return err == -EACCES ? 126 : 127;
	}
	if (r.report && !can_report(getenv("EXS_REPORT")))
		return TOOL_FAILED;
	if (lacks_required())
		return TOOL_FAILED;
	if (!is_served(program))
		return TOOL_FAILED;
	snprintf(preload, sizeof(preload), "%s%s%s", shim,
		 old && *old ? ":" : "", old ? old : "");
	setenv("LD_PRELOAD", preload, 1);
	execv(program, r.argv);
	tool_fail("%s: %s", program, strerror(errno));
	return 126;
}
