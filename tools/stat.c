/* SPDX-License-Identifier: BSD-2-Clause */
/* exs stat: the connections of running processes, as they are now. */
#include "tools/stat.h"

#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <time.h>
#include <unistd.h>

#include "core/base/reason.h"
#include "core/base/setting.h"
#include "core/base/util.h"
#include "core/sock/table.h"
#include "tools/tool.h"

struct wishes {
	pid_t pid;
	const char *process; /* its name */
	int port;	     /* 0: any */
	const char *fabric;
	int reason; /* -1: any */
	bool listeners;
	bool json;
	bool prometheus;
	const char *given; /* the process */
	uint64_t watch_ns;
	bool interval;	/* was given with --watch */
	uint64_t times; /* 0: until interrupted */
	struct stat_style style;
};

enum {
	KEY_JSON = 256,
	KEY_PROMETHEUS,
	KEY_FABRIC,
	KEY_REASON,
	KEY_PORT,
	KEY_TIMES,
};

static const struct argp_option options[] = {
	{ "process", 'p', "NAME", 0, "Only processes of this name, or number",
	  0 },
	{ "port", KEY_PORT, "N", 0, "Only connections with this port", 0 },
	{ "fabric", KEY_FABRIC, "NAME", 0,
	  "Only connections with a direction on this fabric, or on tcp or unix",
	  0 },
	{ "reason", KEY_REASON, "WORD", 0, "Only connections with this reason",
	  0 },
	{ "extended", 'x', NULL, 0,
	  "Add wake-ups, sleeps, bytes in the ring, age and last transfer", 0 },
	{ "summary", 's', NULL, 0, "Print one line for each process", 0 },
	{ "watch", 'w', "SECONDS", OPTION_ARG_OPTIONAL,
	  "Repeat the list with rates, every second by default", 0 },
	{ "times", KEY_TIMES, "N", 0, "With --watch: end after N lists", 0 },
	{ "json", KEY_JSON, NULL, 0, "Print everything as one JSON object", 0 },
	{ "prometheus", KEY_PROMETHEUS, NULL, 0,
	  "Print sums for each process in Prometheus' text format", 0 },
	{ 0 },
};

static int number(const char *text, long most)
{
	char *end;
	long n = strtol(text, &end, 10);

	return *text && !*end && n > 0 && n <= most ? (int)n : -1;
}

/* Refuses options that contradict each other. */
static void refuse(const struct wishes *w, struct argp_state *state)
{
	uint64_t ns;

	if (w->times && !w->watch_ns)
		argp_error(state, "--times needs --watch");
	if (w->json + w->prometheus + w->style.summary > 1)
		argp_error(state, "--json, --prometheus and --summary exclude "
				  "each other");
	/* Of an option whose argument may be left out, it is no word of its
	 * own. */
	if (w->process && w->watch_ns && !w->interval &&
	    !tool_parse_seconds(w->process, &ns))
		argp_error(state, "the time of --watch is joined to it: -w%s",
			   w->process);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct wishes *w = state->input;
	uint64_t ns = 1000000000u;

	switch (key) {
	case 'p':
	case ARGP_KEY_ARG:
		if (w->given)
			argp_error(state, "unexpected argument \"%s\"", arg);
		w->given = arg;
		w->pid = number(arg, INT_MAX);
		if (w->pid < 0) {
			w->pid = 0;
			w->process = arg;
		}
		return 0;
	case KEY_PORT:
		w->port = number(arg, 65535);
		if (w->port < 0)
			argp_error(state, "a port is 1 to 65535, not %s", arg);
		return 0;
	case KEY_FABRIC:
		if (strcasecmp(arg, "unix") != 0 &&
		    exi_setting_fabric(arg, strlen(arg)) < 0)
			argp_error(state,
				   "\"%s\" is not a fabric; the fabrics "
				   "are " EXI_SETTING_FABRIC_NAMES " and unix",
				   arg);
		w->fabric = arg;
		return 0;
	case KEY_REASON:
		w->reason = exi_reason_of(arg);
		if (w->reason < 0)
			argp_error(state,
				   "\"%s\" is not a reason; exs_x_sockinfo(3) "
				   "lists them",
				   arg);
		return 0;
	case 'x':
		w->style.extended = true;
		return 0;
	case 's':
		w->style.summary = true;
		return 0;
	case 'w':
		if (arg && (tool_parse_seconds(arg, &ns) || ns < 10000000))
			argp_error(state,
				   "--watch takes a time from 0.01 s on, not "
				   "\"%s\"",
				   arg);
		w->watch_ns = ns;
		w->interval = arg;
		return 0;
	case KEY_TIMES:
		if (tool_parse_count(arg, &w->times) || !w->times)
			argp_error(state,
				   "--times takes a number from 1, not \"%s\"",
				   arg);
		return 0;
	case KEY_JSON:
		w->json = true;
		return 0;
	case KEY_PROMETHEUS:
		w->prometheus = true;
		return 0;
	case ARGP_KEY_END:
		refuse(w, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "[PROCESS]",
	.doc = "Shows the connections of running processes that use libexs: "
	       "of your own processes, or, as root, of all.",
};

static bool wanted(const struct stat_conn *c, const struct wishes *w)
{
	const struct stat_dir *rx = &c->dir[EXI_RX], *tx = &c->dir[EXI_TX];

	return (c->role == EXI_ROLE_CONNECT || c->role == EXI_ROLE_ACCEPT) &&
	       c->process->wanted &&
	       (!w->port || c->tcp.port[0] == w->port ||
		c->tcp.port[1] == w->port) &&
	       (!w->fabric || !strcasecmp(rx->fabric, w->fabric) ||
		!strcasecmp(tx->fabric, w->fabric)) &&
	       (w->reason < 0 || c->reason == w->reason);
}

/* Keeps the connections that are wanted; returns whether a process is. Peers
 * that are left out stay known, after the others. */
static bool filter(struct stat_view *v, const struct wishes *w)
{
	struct stat_conn *kept = calloc(v->n_conns + 1, sizeof(*kept));
	size_t *at = calloc(v->n_conns + 1, sizeof(*at)), n = 0;
	bool any = false;

	for (size_t i = 0; i < v->n_processes; i++) {
		struct stat_process *p = v->processes[i];

		p->wanted = (!w->pid || p->pid == w->pid) &&
			    (!w->process || !strcmp(p->name, w->process));
		any = any || p->wanted;
	}
	if (!kept || !at)
		goto out;
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < v->n_conns; i++)
			if (wanted(&v->conns[i], w) == !round) {
				at[i] = n;
				kept[n++] = v->conns[i];
			}
		if (!round)
			v->room = n; /* how many are wanted */
	}
	for (size_t i = 0; i < v->n_conns; i++)
		if (kept[i].peer)
			kept[i].peer = &kept[at[kept[i].peer - v->conns]];
	free(v->conns);
	v->conns = kept;
	v->n_conns = v->room;
	kept = NULL;
out:
	free(kept);
	free(at);
	return any;
}

static void show(const struct stat_view *v, const struct wishes *w)
{
	if (w->json)
		stat_show_json(v);
	else if (w->prometheus)
		stat_show_prometheus(v);
	else
		stat_show(v, &w->style);
	fflush(stdout);
}

/* What may have been meant by a number after --watch. */
static int fail_for(const struct wishes *w, const char *why)
{
	if (w->watch_ns && !w->interval)
		return tool_fail("%s; the time of --watch is joined to it: "
				 "-w%d",
				 why, (int)w->pid);
	return tool_fail("%s", why);
}

static int fail_of(const struct wishes *w, int err)
{
	const int pid = (int)w->pid;
	char why[64];

	if (err == -EACCES || err == -EPERM)
		return tool_fail("process %d belongs to another user, or "
				 "cannot be inspected: run exs stat as that "
				 "user or as root",
				 pid);
	if (err == -ESRCH) {
		snprintf(why, sizeof(why), "there is no process %d", pid);
		return fail_for(w, why);
	}
	return tool_fail("the sockets cannot be read: %s",
			 strerrordesc_np(-err));
}

/* Prints what limits the list. */
static int say_limits(const struct stat_view *v, const struct wishes *w,
		      bool found)
{
	char why[160];

	if (v->strange[0])
		tool_fail("%s", v->strange);
	if (w->pid && !found) {
		snprintf(why, sizeof(why),
			 "process %d has no page of counters: it does not run "
			 "libexs, has had no connection yet, or EXS_STATS is "
			 "off",
			 (int)w->pid);
		return fail_for(w, why);
	}
	if (w->process && !found && !w->watch_ns)
		return tool_fail("no process named \"%s\"%s has a page of "
				 "counters: none runs libexs, none has had a "
				 "connection yet, or EXS_STATS is off",
				 w->process, geteuid() ? " and of yours" : "");
	if (v->denied && geteuid() && !w->json && !w->prometheus)
		fprintf(stderr,
			"exs stat: processes of other users are not shown; "
			"root sees them all\n");
	return TOOL_OK;
}

static int once(struct wishes *w, struct stat_view *v)
{
	int err = stat_look(w->pid, v);
	bool found;

	if (err)
		return fail_of(w, err);
	found = filter(v, w);
	if (found || !(w->pid || w->process) || w->watch_ns)
		show(v, w);
	return say_limits(v, w, found);
}

static int watch(struct wishes *w)
{
	struct stat_view before = { 0 }, now;
	uint64_t then = 0, at;
	struct timespec pause = exi_ns_timespec(w->watch_ns);
	bool screen = tool_is_screen(STDOUT_FILENO);
	int ret = TOOL_OK;

	for (uint64_t i = 0; !ret && (!w->times || i < w->times); i++) {
		if (i)
			nanosleep(&pause, NULL);
		if (screen)
			printf("\033[H\033[2J");
		at = exi_now_ns();
		w->style.before = i ? &before : NULL;
		w->style.seconds = (double)(at - then) / 1e9;
		ret = once(w, &now);
		if (ferror(stdout)) /* reported when the command ends */
			ret = TOOL_FAILED;
		stat_forget(&before);
		before = now;
		stat_order(&before);
		then = at;
	}
	stat_forget(&before);
	return ret;
}

int tool_stat(int argc, char **argv)
{
	struct wishes w = { .reason = -1 };
	struct stat_view v = { 0 };
	int ret;

	if (argp_parse(&argp, argc, argv, 0, NULL, &w))
		return TOOL_USAGE;
	if (w.watch_ns)
		return watch(&w);
	ret = once(&w, &v);
	stat_forget(&v);
	return ret;
}
