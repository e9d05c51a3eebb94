/* SPDX-License-Identifier: BSD-2-Clause */
/* exs info: the fabrics of this host and the settings in effect. */
#include <argp.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/base/config.h"
#include "core/fabric/provider.h"
#include "core/fabric/registry.h"
#include "core/meet/trial.h"
#include "exi_build.h"
#include "tools/tool.h"

struct wishes {
	bool json;
	bool config;
	bool env;
	const char *program;
};

enum {
	KEY_JSON = 256,
	KEY_CONFIG,
	KEY_ENV,
	KEY_PROGRAM,
};

static const struct argp_option options[] = {
	{ "json", KEY_JSON, NULL, 0, "Print everything as one JSON object", 0 },
	{ "config", KEY_CONFIG, NULL, 0,
	  "Show only the settings: each with its value and origin", 0 },
	{ "env", KEY_ENV, NULL, 0,
	  "Show only the EXS_ variables: each with its meaning and values", 0 },
	{ "program", KEY_PROGRAM, "NAME", 0,
	  "Show only the settings that the rules give to a program of this "
	  "name",
	  0 },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct wishes *w = state->input;

	switch (key) {
	case KEY_JSON:
		w->json = true;
		return 0;
	case KEY_CONFIG:
		w->config = true;
		return 0;
	case KEY_ENV:
		w->env = true;
		return 0;
	case KEY_PROGRAM:
		if (!*arg || strchr(arg, '/'))
			argp_error(state,
				   "--program takes the name of a program, "
				   "not \"%s\"",
				   arg);
		w->program = arg;
		w->config = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected argument \"%s\"", arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
	.options = options,
	.parser = parse,
	.doc = "Shows the fabrics of this host and the settings in effect.",
};

/* Finds the first required step of a meeting that fails; false: none. */
static bool meeting_fails(struct exi_trial *ret)
{
	for (unsigned int i = 0; exi_trial(i, ret); i++)
		if (ret->needed && ret->err)
			return true;
	return false;
}

/* A row of the registry; a fabric within the host is not usable if this process
 * may have no rings, or cannot meet others. */
static bool fabric_row(unsigned int i, struct exi_registry_row *ret)
{
	struct exi_trial t;

	if (!exi_registry_row(i, ret))
		return false;
	if (!ret->usable || !ret->provider->wire_id ||
	    !(ret->provider->caps & EXI_CAP_LOCAL))
		return true;
	if (!exi_config()->memory_limit_mb) {
		ret->usable = false;
		snprintf(ret->why, sizeof(ret->why),
			 "EXS_MEMORY_LIMIT_MB is 0; raise it");
	} else if (meeting_fails(&t)) {
		ret->usable = false;
		snprintf(ret->why, sizeof(ret->why), "%s: %s; %s", t.name,
			 strerrordesc_np(-t.err), t.cure);
	}
	return true;
}

/* One word for a fabric, and why, if it is not ready. */
static const char *state_of(const struct exi_registry_row *row)
{
	if (!row->provider)
		return "not built";
	if (!row->usable)
		return "not usable";
	return row->configured ? "ready" : "off";
}

static const char *why_of(const struct exi_registry_row *row)
{
	if (row->why[0])
		return row->why;
	if (!row->provider)
		return "this build has no such fabric";
	if (!row->configured)
		return "EXS_PROVIDER does not list it";
	return "";
}

/* The facts that a fabric found, one line for each thing. */
struct lines {
	struct exi_facts facts;
	const char *fabric; /* until it was printed */
	int depth;
	const char *before; /* the next fact of this line */
};

static void line_begins(struct exi_facts *f, const char *kind, const char *name)
{
	struct lines *l = (struct lines *)f;

	if (l->fabric)
		printf("\nFound for %s", l->fabric);
	l->fabric = NULL;
	printf("\n%*s%s %s", 2 * ++l->depth, "", kind, name);
	l->before = ": ";
}

static void line_fact(struct exi_facts *f, const char *name, const char *value)
{
	struct lines *l = (struct lines *)f;

	if (!strcmp(name,
		    "why")) /* the state is not usable, which was printed */
		printf(" (%s)", value);
	else
		printf("%s%s %s", l->before, name, value);
	l->before = ", ";
}

static void line_ends(struct exi_facts *f)
{
	struct lines *l = (struct lines *)f;

	if (--l->depth == 0)
		putchar('\n');
}

static void show_found(const struct exi_registry_row *row)
{
	struct lines l = {
		.facts = { line_begins, line_fact, line_ends },
		.fabric = row->name,
	};

	if (row->provider && row->provider->describe)
		row->provider->describe(&l.facts);
}

/* Shows the trials, and which of them fail. */
static void show_trials(void)
{
	struct exi_trial t;
	unsigned int i;

	printf("\nTried for connections within this host\n");
	for (i = 0; exi_trial(i, &t); i++)
		if (t.err)
			printf("  %-14s %s: %s\n", t.name,
			       strerrordesc_np(-t.err), t.cure);
		else
			printf("  %-14s works\n", t.name);
}

static void show_fabrics(void)
{
	struct exi_registry_row row;

	printf("\nFabrics\n");
	for (unsigned int i = 0; fabric_row(i, &row); i++)
		printf(*why_of(&row) ? "  %-8s %-12s %s\n" : "  %-8s %s%s\n",
		       row.name, state_of(&row), why_of(&row));
}

/* Shows what providers found: devices, domains. */
static void show_all_found(void)
{
	struct exi_registry_row row;

	for (unsigned int i = 0; exi_registry_row(i, &row); i++)
		show_found(&row);
}

/* Shows the settings that are changed; on request, all of them. */
static void show_settings(bool all)
{
	struct exi_config_row row;
	unsigned int shown = 0;

	printf("\nSettings\n");
	for (unsigned int i = 0; exi_config_row(i, &row); i++) {
		if (!all && !strcmp(row.origin, "default"))
			continue;
		printf("  %-21s %-28s %s\n", row.variable,
		       row.value[0] ? row.value : "-", row.origin);
		shown++;
	}
	if (!shown)
		printf("  all at their defaults (exs info --config)\n");
}

static void show_variables(void)
{
	struct exi_config_row row;

	printf("\nVariables\n");
	for (unsigned int i = 0; exi_config_row(i, &row); i++)
		if (!row.by_port)
			printf("  %-21s %s\n  %-21s accepts %s\n", row.variable,
			       row.help, "", row.accepts);
}

/* The list as objects: a new object goes into the list of its kind, such as
 * "devices". */
struct objects {
	struct exi_facts facts;
	json_t *at[8]; /* borrowed, but the first */
	int depth;
};

/* The first n characters of a name, and an end. */
static void member_name(char *ret, size_t len, const char *name, int n,
			const char *end)
{
	snprintf(ret, len, "%.*s%s", n, name, end);
	for (; *ret; ret++) {
		if (*ret == ' ')
			*ret = '_';
	}
}

static void object_begins(struct exi_facts *f, const char *kind,
			  const char *name)
{
	struct objects *o = (struct objects *)f;
	json_t *of = o->at[o->depth], *list,
	       *new = json_pack("{s:s}", "name", name);
	int n = (int)strlen(kind);
	bool y = n && kind[n - 1] == 'y';
	char member[32];

	member_name(member, sizeof(member), kind, n - y, y ? "ies" : "s");
	list = json_object_get(of, member);
	if (!list) {
		list = json_array();
		json_object_set_new(of, member, list);
	}
	json_array_append_new(list, new);
	o->at[++o->depth] = new;
}

static void object_fact(struct exi_facts *f, const char *name,
			const char *value)
{
	struct objects *o = (struct objects *)f;
	char member[32];

	member_name(member, sizeof(member), name, (int)strlen(name), "");
	json_object_set_new(o->at[o->depth], member, tool_json_text(value));
}

static void object_ends(struct exi_facts *f)
{
	struct objects *o = (struct objects *)f;

	o->depth--;
}

static json_t *fabric_json(const struct exi_registry_row *row)
{
	struct objects o = { .facts = { object_begins, object_fact,
					object_ends } };

	o.at[0] = json_pack("{s:s, s:b, s:b, s:b, s:s?}", "name", row->name,
			    "built", row->provider != NULL, "configured",
			    row->configured, "usable", row->usable, "why",
			    row->why[0] ? row->why : NULL);
	if (row->provider && row->provider->describe)
		row->provider->describe(&o.facts);
	return o.at[0];
}

static json_t *fabrics_json(void)
{
	json_t *list = json_array();
	struct exi_registry_row row;

	for (unsigned int i = 0; fabric_row(i, &row); i++)
		json_array_append_new(list, fabric_json(&row));
	return list;
}

static json_t *trials_json(void)
{
	json_t *list = json_array();
	struct exi_trial t;

	for (unsigned int i = 0; exi_trial(i, &t); i++)
		json_array_append_new(
			list,
			json_pack("{s:s, s:b, s:b, s:s?, s:s?}", "name", t.name,
				  "works", !t.err, "needed", t.needed, "why",
				  t.err ? strerrordesc_np(-t.err) : NULL,
				  "cure", t.err ? t.cure : NULL));
	return list;
}

static json_t *settings_json(void)
{
	json_t *list = json_array();
	struct exi_config_row row;

	for (unsigned int i = 0; exi_config_row(i, &row); i++)
		json_array_append_new(
			list,
			json_pack("{s:s, s:o, s:s, s:s, s:s, s:b}", "variable",
				  row.variable, "value",
				  tool_json_text(row.value), "origin",
				  row.origin, "accepts", row.accepts, "help",
				  row.help, "by_port", row.by_port));
	return list;
}

static void show_json(void)
{
	json_t *all =
		json_pack("{s:s, s:o, s:o, s:o}", "version", EXI_VERSION_STRING,
			  "fabrics", fabrics_json(), "trials", trials_json(),
			  "config", settings_json());

	json_dumpf(all, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(all);
}

int tool_info(int argc, char **argv)
{
	struct wishes w = { 0 };

	if (argp_parse(&argp, argc, argv, 0, NULL, &w))
		return TOOL_USAGE;
	exi_config_for(w.program);
	if (exi_config_refusal())
		return tool_fail("%s", exi_config_refusal());
	if (w.json) {
		show_json();
		return TOOL_OK;
	}
	printf("libexs " EXI_VERSION_STRING "\n");
	if (w.env)
		show_variables();
	if (w.config)
		show_settings(true);
	if (w.env || w.config)
		return TOOL_OK;
	show_fabrics();
	show_trials();
	show_settings(false);
	show_all_found();
	return TOOL_OK;
}
