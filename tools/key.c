/* SPDX-License-Identifier: BSD-2-Clause */
/* exs key: the key by which hosts trust each other. */
#include "tools/key.h"

#include <argp.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/trust/key.h"
#include "tools/check.h"
#include "tools/tool.h"

struct request {
	const char *verb;
	struct key_wishes wishes;
};

enum {
	KEY_JSON = 256,
};

static const struct argp_option options[] = {
	{ "force", 'f', NULL, 0,
	  "make, import and copy: replace a different key", 0 },
	{ "json", KEY_JSON, NULL, 0, "Print one JSON object; not with show",
	  0 },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct request *r = state->input;

	switch (key) {
	case 'f':
		r->wishes.force = true;
		return 0;
	case KEY_JSON:
		r->wishes.json = true;
		return 0;
	case ARGP_KEY_ARG:
		if (r->verb)
			return ARGP_ERR_UNKNOWN; /* all that follow at once */
		r->verb = arg;
		return 0;
	case ARGP_KEY_ARGS:
		r->wishes.names = &state->argv[state->next];
		r->wishes.n_names = state->argc - state->next;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "\nmake\nshow\nimport -\ncopy HOST...",
	.doc = "Shows the key by which hosts trust each other: its path, its "
	       "ID, and whether it can be used."
	       "\vmake          creates a key\n"
	       "show          prints the key, to be copied\n"
	       "import -      reads a key from standard input\n"
	       "copy HOST...  copies the key to other hosts by ssh\n\n"
	       "Connections to other hosts leave TCP only if both ends have "
	       "the same key; see exs-key(1).",
};

/* --- what is there --- */

struct status {
	struct exi_key_places places;
	struct exi_key *key; /* null: none that can be used */
	int err;
	char why[EXI_KEY_WHY];
};

static const char *chosen(const struct status *s)
{
	return s->places.place[s->places.chosen].path;
}

/* The path for a new key: the user's own path comes first. */
static const char *own(const struct status *s)
{
	return s->places.place[0].path;
}

static int look(struct status *s)
{
	struct exi_key_search search;
	int err;

	exi_key_search_init(&search, exi_config()->key_file);
	err = exi_key_places(&search, &s->places);
	if (err)
		return tool_fail("the path of the key is too long; set "
				 "EXS_KEY_FILE to a shorter one");
	s->key = NULL;
	s->err = exi_key_read(chosen(s), &s->key, s->why);
	return TOOL_OK;
}

static const char *verdict(const struct status *s)
{
	if (s->key)
		return "good";
	return s->places.place[s->places.chosen].there ? "refused" : "none";
}

static const char *trust(void)
{
	return exi_config()->trust == EXI_TRUST_HOSTS ? "hosts" : "key";
}

static const char *use_of(const struct status *s, unsigned int i)
{
	if (i == s->places.chosen)
		return s->places.place[i].there ? "used" : "made when needed";
	return s->places.place[i].there ? "not used" : "not there";
}

static void print_status(const struct status *s)
{
	char id[EXI_KEY_ID_TEXT];
	struct stat st;

	printf("Key\n");
	printf("  %-16s %s\n", "path", chosen(s));
	printf("  %-16s %s\n", "id",
	       s->key ? exi_key_id_text(s->key->id, id) : "-");
	printf("  %-16s %s", "verdict", verdict(s));
	if (stat(chosen(s), &st) == 0)
		printf(", mode %04o, of user %u", st.st_mode & 07777,
		       st.st_uid);
	printf("\n\nSearched\n");
	for (unsigned int i = 0; i < s->places.n; i++)
		printf("  %-16s %s, %s\n", s->places.place[i].origin,
		       s->places.place[i].path, use_of(s, i));
	printf("\nTrusted on other hosts (EXS_TRUST)\n  %-16s %s\n", trust(),
	       exi_config()->trust == EXI_TRUST_HOSTS
		       ? "every user, and anyone who can use the host's address"
		       : "holders of the same key");
}

static void print_json(const struct status *s)
{
	json_t *searched = json_array(), *all;
	char id[EXI_KEY_ID_TEXT], mode[8];
	struct stat st;
	bool there = stat(chosen(s), &st) == 0;

	snprintf(mode, sizeof(mode), "%04o", there ? st.st_mode & 07777 : 0);
	for (unsigned int i = 0; i < s->places.n; i++)
		json_array_append_new(
			searched,
			json_pack("{s:s, s:o, s:b, s:b}", "origin",
				  s->places.place[i].origin, "path",
				  tool_json_text(s->places.place[i].path),
				  "there", s->places.place[i].there, "used",
				  i == s->places.chosen));
	all = json_pack("{s:o, s:s?, s:s, s:o, s:s?, s:o, s:s, s:o}", "path",
			tool_json_text(chosen(s)), "id",
			s->key ? exi_key_id_text(s->key->id, id) : NULL,
			"verdict", verdict(s), "why",
			s->key ? json_null() : tool_json_text(s->why), "mode",
			there ? mode : NULL, "user",
			there ? json_integer(st.st_uid) : json_null(), "trust",
			trust(), "searched", searched);
	json_dumpf(all, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(all);
}

bool check_key_state(char *text, size_t len)
{
	char id[EXI_KEY_ID_TEXT];
	struct status s;
	bool good;

	if (look(&s))
		return false;
	good = s.key;
	if (good)
		snprintf(text, len, "%s, ID %s", chosen(&s),
			 exi_key_id_text(s.key->id, id));
	else
		snprintf(text, len, "%s", s.why);
	if (exi_config()->trust == EXI_TRUST_HOSTS)
		snprintf(text, len, "not needed: EXS_TRUST is hosts");
	exi_key_free(s.key);
	return good || exi_config()->trust == EXI_TRUST_HOSTS;
}

static int status(const struct key_wishes *w)
{
	struct status s;
	int ret = look(&s);

	if (ret)
		return ret;
	if (w->json)
		print_json(&s);
	else
		print_status(&s);
	if (!s.key)
		ret = w->json ? TOOL_FAILED : tool_fail("%s", s.why);
	exi_key_free(s.key);
	return ret;
}

/* --- the verbs --- */

/* Installs the key at the user's own path, and reports it. */
static int install(const struct exi_key *key, const struct key_wishes *w,
		   const char *done)
{
	struct exi_key *old = NULL;
	char id[EXI_KEY_ID_TEXT], why[EXI_KEY_WHY];
	struct status s;
	int ret = look(&s);

	if (ret)
		return ret;
	exi_key_free(s.key);
	if (exi_key_read(own(&s), &old, why) == 0 &&
	    !memcmp(old->id, key->id, sizeof(key->id)))
		done = "is there already";
	else if (exi_key_write(own(&s), key, w->force, why))
		ret = tool_fail("%s", why);
	if (!ret && w->json)
		ret = status(w);
	else if (!ret)
		printf("%s: key %s %s\n", own(&s), exi_key_id_text(key->id, id),
		       done);
	if (!ret && !w->json && old &&
	    memcmp(old->id, key->id, sizeof(old->id)))
		printf("It replaces %s, which running programs and other hosts "
		       "still have.\n",
		       exi_key_id_text(old->id, id));
	exi_key_free(old);
	return ret;
}

static int make(const struct key_wishes *w)
{
	struct exi_key *key;
	int err = exi_key_new(&key), ret;

	if (err)
		return tool_fail("no key can be made: %s",
				 strerrordesc_np(-err));
	ret = install(key, w, "is made");
	exi_key_free(key);
	return ret;
}

static int import(const struct key_wishes *w)
{
	char text[2 * EXI_KEY_LINE], why[EXI_KEY_WHY];
	struct exi_key *key;
	size_t len = 0;
	ssize_t n;
	int ret;

	do {
		n = read(STDIN_FILENO, text + len, sizeof(text) - len);
		len += n > 0 ? (size_t)n : 0;
	} while (n > 0 || (n < 0 && errno == EINTR));
	if (n < 0)
		ret = tool_fail("standard input: %s", strerrordesc_np(errno));
	else if (len == sizeof(text))
		ret = tool_fail("standard input has no key: it is too long");
	else if (exi_key_parse(text, len, &key, why))
		ret = tool_fail("standard input has no key: %s; copy the line "
				"that exs key show prints",
				why);
	else {
		ret = install(key, w, "is installed");
		exi_key_free(key);
	}
	exi_key_wipe(text, sizeof(text));
	return ret;
}

static int show(const struct exi_key *key)
{
	char line[EXI_KEY_LINE];
	ssize_t n;

	exi_key_print(key, line);
	/* Not through a stdio buffer, which would not be wiped. */
	n = write(STDOUT_FILENO, line, EXI_KEY_LINE - 1);
	exi_key_wipe(line, sizeof(line));
	if (n != (ssize_t)EXI_KEY_LINE - 1)
		return tool_fail("the key was not written: %s",
				 n < 0 ? strerrordesc_np(errno) : "no room");
	if (isatty(STDOUT_FILENO))
		tool_fail(
			"anyone who saw this line can act as you between your "
			"hosts; clear the terminal and its scrollback");
	return TOOL_OK;
}

/* The verbs that need an existing key. */
static int with_key(const struct request *r)
{
	struct status s;
	int ret = look(&s);

	if (ret)
		return ret;
	if (!s.key)
		return tool_fail("%s", s.why);
	ret = !strcmp(r->verb, "show") ? show(s.key)
				       : key_copy(s.key, &r->wishes);
	exi_key_free(s.key);
	return ret;
}

/* Why the request is invalid; null: it is valid. */
static const char *refusal(const struct request *r)
{
	static const char *const verbs[] = { "make", "show", "import", "copy" };
	const struct key_wishes *w = &r->wishes;
	bool known = !r->verb;

	for (size_t i = 0; r->verb && i < sizeof(verbs) / sizeof(*verbs); i++)
		known |= !strcmp(verbs[i], r->verb);
	if (!known)
		return "the commands are make, show, import and copy";
	if (w->force && (!r->verb || !strcmp(r->verb, "show")))
		return "--force applies to make, import and copy";
	if (!r->verb)
		return NULL;
	if (w->json && !strcmp(r->verb, "show"))
		return "it prints a line, not JSON";
	if (!strcmp(r->verb, "copy"))
		return w->n_names ? NULL
				  : "no host was given: exs key copy HOST...";
	if (!strcmp(r->verb, "import"))
		return w->n_names == 1 && !strcmp(w->names[0], "-")
			       ? NULL
			       : "it reads standard input: exs key import - "
				 "<FILE";
	return w->n_names ? "it takes no argument" : NULL;
}

int tool_key(int argc, char **argv)
{
	struct request r = { 0 };
	const char *why;

	if (argp_parse(&argp, argc, argv, 0, NULL, &r))
		return TOOL_USAGE;
	why = refusal(&r);
	if (why) {
		tool_fail("%s%s%s", r.verb ? r.verb : "", r.verb ? ": " : "",
			  why);
		return TOOL_USAGE;
	}
	if (!r.verb)
		return status(&r.wishes);
	if (!strcmp(r.verb, "make"))
		return make(&r.wishes);
	if (!strcmp(r.verb, "import"))
		return import(&r.wishes);
	return with_key(&r);
}
