/* SPDX-License-Identifier: BSD-2-Clause */
/* The exs command: a table of subcommands. */
#include "tools/tool.h"

#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exi_build.h"

struct command {
	const char *name;
	const char *summary;
	int (*run)(int argc, char **argv);
};

static int run_help(int argc, char **argv);
static int run_version(int argc, char **argv);

static const struct command commands[] = {
	{ "check", "show step by step whether and why a connection leaves TCP",
	  tool_check },
	{ "downgrade", "move connections of a running program to TCP",
	  tool_downgrade },
	{ "info", "show the fabrics of this host and the settings in effect",
	  tool_info },
	{ "key", "manage the key by which hosts trust each other", tool_key },
	{ "log", "show or set how much a running program logs", tool_log },
	{ "perf", "measure latency, bandwidth and rates", tool_perf },
	{ "report", "show what became of a running program's connections",
	  tool_report },
	{ "run", "run a program with its connections on shared memory",
	  tool_run },
	{ "stat", "show the connections of running programs", tool_stat },
	{ "trace", "capture what connections of a running program carry",
	  tool_trace },
	{ "upgrade", "let connections leave TCP again", tool_upgrade },
	{ "help", "show this text, or the help of a command", run_help },
	{ "version", "show the version of libexs", run_version },
};

#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static char called_as[64] = "exs";

int tool_fail(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "%s: ", called_as);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return TOOL_FAILED;
}

bool tool_is_screen(int fd)
{
	const char *term = getenv("TERM");

	return isatty(fd) && term && strcmp(term, "dumb") != 0;
}

/* Output that is lost makes the command fail, whatever it has done. */
static void end_output(void)
{
	bool pending = __fpending(stdout) != 0, lost = ferror(stdout) != 0;

	if (fclose(stdout) && (pending || errno != EBADF))
		lost = true;
	if (!lost)
		return;
	fprintf(stderr, "%s: cannot write the output: %s\n", called_as,
		strerror(errno));
	_exit(TOOL_FAILED);
}

/* A number of the standard streams that is closed must not become that of a
 * socket, to which the output would go. A program that exs run starts has it
 * closed, as it was. */
static void hold_standard_numbers(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
			open("/dev/null",
			     (fd ? O_RDONLY : O_WRONLY) | O_CLOEXEC);
}

static void list_commands(FILE *out)
{
	fprintf(out, "Usage: exs COMMAND [OPTION...]\n\n");
	for (size_t i = 0; i < N_COMMANDS; i++)
		fprintf(out, "  %-10s %s\n", commands[i].name,
			commands[i].summary);
	fprintf(out, "\nexs COMMAND --help lists the options of a command.\n");
}

static const struct command *find(const char *name)
{
	for (size_t i = 0; i < N_COMMANDS; i++) {
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	}
	return NULL;
}

static bool is_letter(char typed, char letter)
{
	return tolower((unsigned char)typed) == letter;
}

/* How many letters are wrong: changed, too many, missing, or exchanged with the
 * next one. */
static size_t misspelt(const char *a, const char *b)
{
	size_t n = 0;

	for (; *a && *b; a++, b++) {
		if (is_letter(*a, *b))
			continue;
		n++;
		if (is_letter(a[0], b[1]) && is_letter(a[1], b[0]))
			a++, b++;
		else if (is_letter(a[1], *b))
			a++;
		else if (is_letter(*a, b[1]))
			b++;
	}
	return n + strlen(a) + strlen(b);
}

static int refuse(const char *name)
{
	char names[192] = "";
	size_t n = 0;

	if (name[0] == '-') {
		tool_fail("there is no option \"%s\" before the command, only "
			  "--help and --version; exs COMMAND --help lists "
			  "those of a command",
			  name);
		return TOOL_USAGE;
	}
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (misspelt(name, commands[i].name) <= 1) {
			tool_fail("there is no command \"%s\"; did you mean "
				  "%s?",
				  name, commands[i].name);
			return TOOL_USAGE;
		}
	for (size_t i = 0; i < N_COMMANDS; i++)
		n += snprintf(names + n, sizeof(names) - n, "%s%s",
			      i ? ", " : "", commands[i].name);
	tool_fail("there is no command \"%s\"; there are %s", name, names);
	return TOOL_USAGE;
}

static int run(const struct command *c, int argc, char **argv)
{
	snprintf(called_as, sizeof(called_as), "exs %s", c->name);
	argv[0] = called_as;
	return c->run(argc, argv);
}

static int surplus(const char *arg)
{
	tool_fail("unexpected argument \"%s\"", arg);
	return TOOL_USAGE;
}

static bool is_help(const char *arg)
{
	return !strcmp(arg, "--help") || !strcmp(arg, "-?") ||
	       !strcmp(arg, "-h");
}

static int show_usage(const char *how)
{
	printf("Usage: exs %s\n", how);
	return TOOL_OK;
}

static int run_help(int argc, char **argv)
{
	static char option[] = "--help";
	char *args[] = { NULL, option, NULL };
	const struct command *c;

	if (argc < 2) {
		list_commands(stdout);
		return TOOL_OK;
	}
	if (argc > 2)
		return surplus(argv[2]);
	if (is_help(argv[1]))
		return show_usage("help [COMMAND]");
	c = find(argv[1]);
	if (!c)
		return refuse(argv[1]);
	return run(c, 2, args);
}

static int run_version(int argc, char **argv)
{
	if (argc > 2)
		return surplus(argv[2]);
	if (argc > 1)
		return is_help(argv[1]) ? show_usage("version")
					: surplus(argv[1]);
	puts("libexs " EXI_VERSION_STRING);
	return TOOL_OK;
}

int main(int argc, char **argv)
{
	const struct command *c;
	const char *name = argc > 1 ? argv[1] : "";

	hold_standard_numbers();
	atexit(end_output);
	argp_err_exit_status = TOOL_USAGE;
	if (is_help(name))
		name = "help";
	else if (!strcmp(name, "--version") || !strcmp(name, "-V"))
		name = "version";
	if (!*name) {
		list_commands(stderr);
		return TOOL_USAGE;
	}
	c = find(name);
	if (!c)
		return refuse(name);
	return run(c, argc - 1, argv + 1);
}
