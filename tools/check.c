/* SPDX-License-Identifier: BSD-2-Clause */
/* exs check: why a connection is, or would be, where it is, step by step. */
#include "tools/check.h"

#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>

#include "core/base/config.h"
#include "core/base/reason.h"
#include "core/fabric/provider.h"
#include "core/fabric/registry.h"
#include "core/meet/trial.h"
#include "tools/tool.h"

struct wishes {
	const char *host, *port;
	pid_t pid;
	int fd; /* -1: all */
	bool json;
};

enum {
	KEY_FD = 256,
	KEY_JSON,
};

static const struct argp_option options[] = {
	{ "pid", 'p', "PID", 0, "Check the connections of a running process",
	  0 },
	{ "fd", KEY_FD, "N", 0,
	  "With --pid: only the connection of this descriptor", 0 },
	{ "json", KEY_JSON, NULL, 0,
	  "Print one JSON object for each connection", 0 },
	{ 0 },
};

static int number(struct argp_state *state, const char *what, const char *text)
{
	uint64_t n;

	if (tool_parse_count(text, &n) || n > INT_MAX)
		argp_error(state, "\"%s\" is not a %s", text, what);
	return (int)n;
}

/* Whether digits are a port. (To getaddrinfo(3), 65536 is the port 0.) */
static bool is_port(const char *digits)
{
	unsigned long n = strtoul(digits, NULL, 10);

	return n >= 1 && n <= 65535;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct wishes *w = state->input;

	switch (key) {
	case 'p':
		w->pid = number(state, "process", arg);
		if (!w->pid)
			argp_error(state, "\"%s\" is not a process", arg);
		return 0;
	case KEY_FD:
		w->fd = number(state, "descriptor", arg);
		return 0;
	case KEY_JSON:
		w->json = true;
		return 0;
	case ARGP_KEY_ARG:
		if (w->port)
			argp_error(state, "unexpected argument \"%s\"", arg);
		*(w->host ? &w->port : &w->host) = arg;
		return 0;
	case ARGP_KEY_END:
		if (w->pid && w->host)
			argp_error(state, "give HOST and PORT or --pid, not "
					  "both");
		if (w->host && !w->port)
			argp_error(state, "no port was given");
		if (!w->pid && !w->host)
			argp_error(state, "give HOST and PORT, or --pid");
		if (w->port && w->port[strspn(w->port, "0123456789")] == '\0' &&
		    !is_port(w->port))
			argp_error(state, "a port is 1 to 65535, not %s",
				   w->port);
		if (w->fd >= 0 && !w->pid)
			argp_error(state, "--fd needs --pid");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "HOST PORT\n--pid PID",
	.doc = "Shows step by step whether a connection to HOST would leave "
	       "TCP, or why the connections of a running process did or did "
	       "not, and what to do about it.",
};

/* --- steps -------------------------------------------------------------- */

static void make_printable(char *text)
{
	for (; *text; text++)
		if (!isprint((unsigned char)*text))
			*text = '?';
}

void check_step(struct check *c, const char *name, enum check_state state,
		const char *fmt, ...)
{
	struct check_step *s;
	va_list ap;

	if (c->n == CHECK_STEPS)
		return;
	s = &c->step[c->n++];
	s->name = name;
	s->state = state;
	va_start(ap, fmt);
	vsnprintf(s->text, sizeof(s->text), fmt, ap);
	va_end(ap);
	make_printable(s->text);
}

void check_more(struct check *c, const char *fmt, ...)
{
	struct check_step *s = &c->step[c->n - 1];
	size_t n = strlen(s->text);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(s->text + n, sizeof(s->text) - n, fmt, ap);
	va_end(ap);
	make_printable(s->text);
}

/* Takes the remedy from a fabric that the user names, or that lacks locked
 * memory, if the fabric is not usable: the fabric says what to do. */
static void cure_by_fabric(struct check *c)
{
	bool memory = c->reason == EXS_X_REASON_MEMORY;
	const struct exi_config *cfg = exi_config();
	struct exi_registry_row row;

	for (unsigned int i = 0; exi_registry_row(i, &row); i++) {
		bool named =
			(!strcmp(row.name, "ofi") && cfg->ofi_provider[0]) ||
			(!strcmp(row.name, "verbs") && cfg->verbs_device[0]);
		bool is_why = row.err == -ENOMEM || (named && !memory);

		if (is_why && row.configured && !row.usable && row.why[0]) {
			snprintf(c->cure, sizeof(c->cure), "%s: %s", row.name,
				 row.why);
			make_printable(c->cure);
		}
	}
}

/* Marks the step as failed, unless an earlier one has failed already; no later
 * one is reached. */
static void fail_at(struct check *c, const char *step)
{
	bool behind = false;

	for (unsigned int i = 0; i < c->n; i++) {
		struct check_step *s = &c->step[i];

		if (behind) {
			s->state = CHECK_UNKNOWN;
		} else if (s->state == CHECK_FAILED || !strcmp(s->name, step)) {
			s->state = CHECK_FAILED;
			behind = true;
		}
	}
	if (!behind)
		check_step(c, step, CHECK_FAILED, "%s", "");
}

void check_fails(struct check *c, const char *step, const char *cure,
		 const char *fmt, ...)
{
	va_list ap;

	c->reason = -1;
	fail_at(c, step);
	va_start(ap, fmt);
	vsnprintf(c->verdict, sizeof(c->verdict), fmt, ap);
	va_end(ap);
	make_printable(c->verdict);
	snprintf(c->cure, sizeof(c->cure), "%s", cure);
}

/* The process is seen, so what else the reason may mean need not be said. */
static void judge_plain(struct check *c)
{
	snprintf(c->verdict, sizeof(c->verdict),
		 "TCP: %s at the other end does not use libexs (%s)", c->plain,
		 exs_x_reason_name(EXS_X_REASON_PLAIN_PEER));
	make_printable(c->verdict);
	snprintf(c->cure, sizeof(c->cure), "start %s with exs run", c->plain);
	make_printable(c->cure);
}

void check_note_plain(struct check *c, const struct check_process *p)
{
	if (p->readable && !p->library)
		snprintf(c->plain, sizeof(c->plain), "%s[%d]", p->name,
			 (int)p->pid);
}

void check_reason(struct check *c, int reason, const char *at)
{
	c->reason = reason;
	c->moves = reason == EXS_X_REASON_NONE;
	if (!c->moves)
		fail_at(c, c->there ? "peer" : exi_reason_step(reason));
	snprintf(c->verdict, sizeof(c->verdict), "TCP: %s (%s)%s%s",
		 exi_reason_means(reason), exs_x_reason_name(reason),
		 at[0] ? ", says " : "", at);
	make_printable(c->verdict);
	snprintf(c->cure, sizeof(c->cure), "%s", exi_reason_cure(reason));
	if (!c->there && (!strcmp(exi_reason_step(reason), "fabrics") ||
			  reason == EXS_X_REASON_MEMORY))
		cure_by_fabric(c);
	if (reason == EXS_X_REASON_PLAIN_PEER && c->plain[0])
		judge_plain(c);
}

int check_system(struct check *c)
{
	struct exi_trial t;
	struct check_step *s = &c->step[c->n];
	int ret = EXS_X_REASON_NONE;

	check_step(c, "system", CHECK_GOOD, "%s", "");
	for (unsigned int i = 0; exi_trial(i, &t); i++) {
		if (!t.err)
			continue;
		if (t.needed)
			s->state = CHECK_FAILED;
		else if (s->state == CHECK_GOOD)
			s->state = CHECK_UNKNOWN;
		check_more(c, "%s%s: %s (%s)", s->text[0] ? "; " : "", t.name,
			   strerrordesc_np(-t.err), t.cure);
		if (t.needed && !ret)
			ret = t.err == -EMFILE || t.err == -ENFILE
				      ? EXS_X_REASON_DESCRIPTORS
			      : t.err == -ENOMEM || t.err == -EFBIG
				      ? EXS_X_REASON_MEMORY
			      : !strcmp(t.name, "shared memory")
				      ? EXS_X_REASON_NO_PROVIDER
				      : EXS_X_REASON_NO_PROOF;
	}
	if (s->state == CHECK_GOOD)
		check_more(
			c,
			"UNIX sockets, loopback, sock_diag, shared memory and "
			"threads work");
	return ret;
}

int check_fabrics(struct check *c, uint16_t port)
{
	struct exi_config_way w = exi_config_way(port);
	struct exi_registry_row row;
	bool any = false, shut;

	check_step(c, "fabrics", CHECK_GOOD, "%s", "");
	for (unsigned int i = 0; exi_registry_row(i, &row); i++) {
		bool named = row.configured && strcmp(row.name, "tcp") &&
			     strcmp(row.name, "loop");

		if (!named)
			continue;
		shut = row.provider && !exi_registry_allows(&w, row.provider);
		check_more(c, "%s%s %s", c->step[c->n - 1].text[0] ? "; " : "",
			   row.name,
			   shut		? "is left out by a rule for the port"
			   : row.usable ? "is ready"
					: "is not usable");
		if (row.why[0])
			check_more(c, " (%s)", row.why);
		any = any || (row.usable && !shut);
	}
	if (!c->step[c->n - 1].text[0])
		check_more(c, "EXS_PROVIDER allows none but tcp");
	return any ? EXS_X_REASON_NONE : EXS_X_REASON_NO_PROVIDER;
}

void check_key(struct check *c, bool remote)
{
	char text[256];

	if (!remote)
		check_step(c, "key", CHECK_UNKNOWN, "not needed within a host");
	else if (check_key_state(text, sizeof(text)))
		check_step(c, "key", CHECK_GOOD, "%s", text);
	else
		check_step(c, "key", CHECK_UNKNOWN, "%s", text);
}

/* --- what is shown ------------------------------------------------------- */

static void show(const struct check *c)
{
	static const char *const words[] = { "-", "ok", "FAILED" };

	printf("%s\n", c->what);
	for (unsigned int i = 0; i < c->n; i++)
		printf(c->step[i].text[0] ? "  %-10s %-7s %s\n"
					  : "  %-10s %s%s\n",
		       c->step[i].name, words[c->step[i].state],
		       c->step[i].text);
	printf("verdict: %s\n", c->verdict);
	if (c->cure[0])
		printf("to do: %s\n", c->cure);
	if (c->alike)
		printf("%zu other connection%s of the process %s like it\n",
		       c->alike, c->alike == 1 ? "" : "s",
		       c->alike == 1 ? "is" : "are");
}

static void show_json(const struct check *c)
{
	static const char *const words[] = { "unknown", "ok", "failed" };
	json_t *steps = json_array(), *all;

	for (unsigned int i = 0; i < c->n; i++)
		json_array_append_new(
			steps,
			json_pack("{s:s, s:s, s:o}", "step", c->step[i].name,
				  "state", words[c->step[i].state], "text",
				  tool_json_text(c->step[i].text)));
	all = json_pack("{s:o, s:o, s:b, s:s?, s:b, s:o, s:s, s:I}",
			"connection", tool_json_text(c->what), "steps", steps,
			"moves", c->moves, "reason",
			c->reason < 0 ? NULL : exs_x_reason_name(c->reason),
			"reason_of_peer", c->there, "verdict",
			tool_json_text(c->verdict), "cure", c->cure, "alike",
			(json_int_t)c->alike);
	json_dumpf(all, stdout, JSON_INDENT(1));
	putchar('\n');
	json_decref(all);
}

int tool_check(int argc, char **argv)
{
	struct wishes w = { .fd = -1 };
	struct check one = { .n = 0 }, *all = &one;
	size_t n = 1;
	int ret;

	if (argp_parse(&argp, argc, argv, 0, NULL, &w))
		return TOOL_USAGE;
	ret = w.pid ? check_pid(w.pid, w.fd, &all, &n)
		    : check_host(w.host, w.port, &one);
	for (size_t i = 0; i < n; i++) {
		if (w.json)
			show_json(&all[i]);
		else
			printf("%s", i ? "\n" : ""), show(&all[i]);
		if (!all[i].moves)
			ret = TOOL_FAILED;
	}
	if (all != &one)
		free(all);
	return ret;
}
