/* SPDX-License-Identifier: BSD-2-Clause */
/* exs key copy: a shell on the other host reads the line from its standard
 * input and makes the file, so exs need not be installed there. Other users can
 * read command lines and environments, but not a pipe. */
#include "tools/key.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/tool.h"

extern char **environ;

/* The exit status of the script. ssh itself uses 255, shells those above
 * 125. */
enum outcome {
	COPY_DONE = 0,
	COPY_SAME = 90,
	COPY_OTHER = 91,
	COPY_FAILED = 92,
};

/* One line without single quotes, for any login shell; the two %d are whether
 * to replace a key, and the length of a key's line. It writes the whole file or
 * nothing, as exi_key_write() does. */
static const char script[] =
	"exec sh -c '"
	"force=%d; umask 077; "
	"k=${EXS_KEY_FILE:-${XDG_CONFIG_HOME:-$HOME/.config}/exs/key}; "
	"case $k in /*) ;; *) k=$HOME/.config/exs/key ;; esac; "
	"mkdir -p \"${k%%/*}\" && t=$(mktemp \"${k%%/*}/.exs-key-XXXXXX\") || "
	"exit 92; "
	"trap \"rm -f \\\"$t\\\"\" EXIT; "
	"cat >\"$t\" && test $(wc -c <\"$t\") -eq %d || exit 92; "
	"if cmp -s \"$t\" \"$k\"; then chmod 600 \"$k\"; exit 90; fi; "
	"if test $force = 1; then mv -f \"$t\" \"$k\" || exit 92; exit 0; fi; "
	"ln \"$t\" \"$k\" 2>/dev/null && exit 0; "
	"test -e \"$k\" && exit 91; ln \"$t\" \"$k\"; exit 92'";

_Static_assert(COPY_SAME == 90 && COPY_OTHER == 91 && COPY_FAILED == 92,
	       "as the script says");

/* Starts ssh, with a pipe as its standard input. */
static int start(const char *host, bool force, pid_t *ret_pid, int *ret_fd)
{
	char command[sizeof(script) + 32];
	char *args[] = { (char[]){ "ssh" }, (char *)host, command, NULL };
	posix_spawn_file_actions_t actions;
	int pipes[2], err;

	snprintf(command, sizeof(command), script, force,
		 (int)EXI_KEY_LINE - 1);
	if (pipe2(pipes, O_CLOEXEC))
		return -errno;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, pipes[0], STDIN_FILENO);
	/* Ours is for what we say. */
	posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO,
					 STDOUT_FILENO);
	err = posix_spawnp(ret_pid, "ssh", &actions, NULL, args, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(pipes[0]);
	if (err) {
		close(pipes[1]);
		return -err;
	}
	*ret_fd = pipes[1];
	return 0;
}

/* Exit status of ssh, or -errno. */
static int copy_to(const char *host, const char *line, bool force)
{
	int fd = -1, status, err;
	ssize_t n;
	pid_t pid;

	err = start(host, force, &pid, &fd);
	if (err)
		return err;
	/* The key fits into the pipe; the script reports whether it read all of
	 * it. */
	n = write(fd, line, EXI_KEY_LINE - 1);
	close(fd);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	if (!WIFEXITED(status))
		return COPY_FAILED;
	status = WEXITSTATUS(status);
	return n != (ssize_t)EXI_KEY_LINE - 1 && status == COPY_DONE
		       ? COPY_FAILED
		       : status;
}

static const char *word_of(int outcome)
{
	switch (outcome) {
	case COPY_DONE:
		return "installed";
	case COPY_SAME:
		return "same";
	case COPY_OTHER:
		return "other";
	default:
		return "failed";
	}
}

/* Prints the outcome. TOOL_OK or TOOL_FAILED. */
static int tell(const char *host, int outcome, bool json)
{
	if (!json && outcome == COPY_DONE)
		printf("%s: the key is installed\n", host);
	else if (!json && outcome == COPY_SAME)
		printf("%s: the host has the key already\n", host);
	else if (outcome == COPY_OTHER)
		tool_fail("%s: the host has a different key; replace it with "
			  "copy --force, or install that key here: ssh %s exs "
			  "key show | exs key import --force -",
			  host, host);
	else if (outcome == COPY_FAILED)
		tool_fail("%s: the file could not be written there; the cause "
			  "is above",
			  host);
	else if (outcome == -ENOENT)
		tool_fail("ssh was not found; install it, or copy the key "
			  "yourself: exs key show, and exs key import -");
	else if (outcome < 0)
		tool_fail("%s: ssh cannot be started: %s", host,
			  strerrordesc_np(-outcome));
	else if (outcome != COPY_DONE && outcome != COPY_SAME)
		tool_fail("%s: ssh ended with status %d; does \"ssh %s true\" "
			  "work?",
			  host, outcome, host);
	return outcome == COPY_DONE || outcome == COPY_SAME ? TOOL_OK
							    : TOOL_FAILED;
}

static int copy_one(const char *host, const char *line,
		    const struct key_wishes *w, json_t *list)
{
	int outcome;

	if (host[0] == '-' || !host[0]) {
		tool_fail("\"%s\" is not a host name", host);
		return TOOL_FAILED;
	}
	fflush(stdout);
	outcome = copy_to(host, line, w->force);
	json_array_append_new(list, json_pack("{s:o, s:s}", "host",
					      tool_json_text(host), "result",
					      word_of(outcome)));
	return tell(host, outcome, w->json);
}

int key_copy(const struct exi_key *key, const struct key_wishes *w)
{
	char line[EXI_KEY_LINE], id[EXI_KEY_ID_TEXT];
	json_t *list = json_array(), *all;
	int ret = TOOL_OK;

	signal(SIGPIPE, SIG_IGN);
	exi_key_print(key, line);
	for (int i = 0; i < w->n_names; i++)
		if (copy_one(w->names[i], line, w, list))
			ret = TOOL_FAILED;
	exi_key_wipe(line, sizeof(line));
	all = json_pack("{s:s, s:o}", "id", exi_key_id_text(key->id, id),
			"hosts", list);
	if (w->json) {
		json_dumpf(all, stdout, JSON_INDENT(2));
		putchar('\n');
	}
	json_decref(all);
	return ret;
}
