/* SPDX-License-Identifier: BSD-2-Clause */
/* Kinds of settings: how values are parsed and printed. */
#include "core/base/setting.h"

#include <errno.h>
#include <ini.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>

#include "core/base/config.h"

static const char *const fabric_names[] = { "shm", "verbs", "ofi", "tcp",
					    "loop" };

#define N_FABRICS (sizeof(fabric_names) / sizeof(fabric_names[0]))

_Static_assert(N_FABRICS <= EXI_CONFIG_PROVIDERS_MAX, "every name fits");

static void *member(const struct exi_config_setting *s,
		    const struct exi_config *c)
{
	return (char *)c + s->offset;
}

static bool parse_number(const char *text, uint64_t min, uint64_t max,
			 uint64_t *ret)
{
	unsigned long long v;

	if (!text[0] || text[strspn(text, "0123456789")])
		return false;
	errno = 0;
	v = strtoull(text, NULL, 10);
	if (errno || v < min || v > max)
		return false;
	*ret = v;
	return true;
}

bool exi_setting_parse_u64(const struct exi_config_setting *s,
			   struct exi_config *c, const char *text)
{
	return parse_number(text, s->min, s->max, member(s, c));
}

void exi_setting_print_u64(const struct exi_config_setting *s,
			   const struct exi_config *c, char *buf, size_t len)
{
	snprintf(buf, len, "%" PRIu64, *(uint64_t *)member(s, c));
}

bool exi_setting_parse_u32(const struct exi_config_setting *s,
			   struct exi_config *c, const char *text)
{
	uint64_t v;

	if (!parse_number(text, s->min, s->max, &v))
		return false;
	*(uint32_t *)member(s, c) = (uint32_t)v;
	return true;
}

void exi_setting_print_u32(const struct exi_config_setting *s,
			   const struct exi_config *c, char *buf, size_t len)
{
	snprintf(buf, len, "%" PRIu32, *(uint32_t *)member(s, c));
}

bool exi_setting_parse_power_of_two(const struct exi_config_setting *s,
				    struct exi_config *c, const char *text)
{
	uint64_t v;

	return parse_number(text, s->min, s->max, &v) && !(v & (v - 1)) &&
	       exi_setting_parse_u32(s, c, text);
}

bool exi_setting_parse_choice(const struct exi_config_setting *s,
			      struct exi_config *c, const char *text)
{
	for (const struct exi_setting_choice *o = s->choices; o->word; o++) {
		if (!strcasecmp(o->word, text)) {
			memcpy(member(s, c), &o->value, sizeof(o->value));
			return true;
		}
	}
	return false;
}

void exi_setting_print_choice(const struct exi_config_setting *s,
			      const struct exi_config *c, char *buf, size_t len)
{
	const struct exi_setting_choice *o = s->choices;
	int value;

	memcpy(&value, member(s, c), sizeof(value));
	while (o->value != value)
		o++;
	snprintf(buf, len, "%s", o->word);
}

static const struct exi_setting_choice switches[] = {
	{ "on", true },	  { "1", true },      { "yes", true },
	{ "true", true }, { "off", false },   { "0", false },
	{ "no", false },  { "false", false }, { NULL, 0 },
};

bool exi_setting_parse_switch(const struct exi_config_setting *s,
			      struct exi_config *c, const char *text)
{
	for (const struct exi_setting_choice *o = switches; o->word; o++) {
		if (!strcasecmp(o->word, text)) {
			*(bool *)member(s, c) = o->value;
			return true;
		}
	}
	return false;
}

void exi_setting_print_switch(const struct exi_config_setting *s,
			      const struct exi_config *c, char *buf, size_t len)
{
	snprintf(buf, len, "%s", *(bool *)member(s, c) ? "on" : "off");
}

bool exi_setting_parse_index(const struct exi_config_setting *s,
			     struct exi_config *c, const char *text)
{
	uint64_t v;

	if (text[0] && !parse_number(text, 0, s->max, &v))
		return false;
	*(int *)member(s, c) = text[0] ? (int)v : -1;
	return true;
}

void exi_setting_print_index(const struct exi_config_setting *s,
			     const struct exi_config *c, char *buf, size_t len)
{
	int v = *(int *)member(s, c);

	buf[0] = '\0';
	if (v >= 0)
		snprintf(buf, len, "%d", v);
}

bool exi_setting_parse_text(const struct exi_config_setting *s,
			    struct exi_config *c, const char *text)
{
	if (strlen(text) >= EXI_CONFIG_PATH_MAX)
		return false;
	strcpy(member(s, c), text);
	return true;
}

bool exi_setting_expand_path(const char *text, char *ret)
{
	char path[EXI_CONFIG_PATH_MAX];
	const char *home = "";
	int n;

	if (!strncmp(text, "~/", 2)) {
		home = secure_getenv("HOME");
		home = home ? home : "";
		text++;
	}
	n = snprintf(path, sizeof(path), "%s%s", home, text);
	if (n >= EXI_CONFIG_PATH_MAX)
		return false;
	memcpy(ret, path, n + 1);
	return true;
}

bool exi_setting_parse_path(const struct exi_config_setting *s,
			    struct exi_config *c, const char *text)
{
	return exi_setting_expand_path(text, member(s, c));
}

bool exi_setting_parse_directory(const struct exi_config_setting *s,
				 struct exi_config *c, const char *text)
{
	return (!*text || *text == '/') && strlen(text) <= s->max &&
	       exi_setting_parse_text(s, c, text);
}

void exi_setting_print_string(const struct exi_config_setting *s,
			      const struct exi_config *c, char *buf, size_t len)
{
	snprintf(buf, len, "%s", (const char *)member(s, c));
}

int exi_setting_fabric(const char *name, size_t len)
{
	for (size_t i = 0; i < N_FABRICS; i++) {
		if (strlen(fabric_names[i]) == len &&
		    !strncasecmp(fabric_names[i], name, len))
			return (int)i;
	}
	return -1;
}

struct provider_list {
	unsigned int n;
	int order[N_FABRICS];
	bool listed[N_FABRICS];
	bool excluded[N_FABRICS];
};

static bool list_add(struct provider_list *l, const char *name, size_t len)
{
	bool exclude = name[0] == '^';
	int i;

	i = exi_setting_fabric(name + exclude, len - exclude);
	if (i < 0)
		return false;
	if (exclude) {
		l->excluded[i] = true;
	} else if (!l->listed[i]) {
		l->listed[i] = true;
		l->order[l->n++] = i;
	}
	return true;
}

/* Parses a list of fabrics. Returns false unless there is at least one name and
 * all are known. */
static bool list_read(struct provider_list *l, const char *text)
{
	static const char between[] = ", \t";
	bool any = false;
	size_t len;

	for (text += strspn(text, between); *text;
	     text += strspn(text, between)) {
		len = strcspn(text, between);
		any = list_add(l, text, len);
		if (!any)
			break;
		text += len;
	}
	return any;
}

bool exi_setting_parse_provider(const struct exi_config_setting *s,
				struct exi_config *c, const char *text)
{
	struct provider_list l = { 0 };
	unsigned int n = 0;

	if (!list_read(&l, text))
		return false;
	/* Exclusions alone apply to the usual list. */
	if (!l.n)
		list_read(&l, EXI_SETTING_PROVIDERS_DEFAULT);
	for (unsigned int i = 0; i < l.n; i++) {
		if (!l.excluded[l.order[i]])
			strcpy(c->providers[n++], fabric_names[l.order[i]]);
	}
	if (!n)
		return false;
	c->n_providers = n;
	return true;
}

void exi_setting_print_provider(const struct exi_config_setting *s,
				const struct exi_config *c, char *buf,
				size_t len)
{
	size_t n = 0;

	buf[0] = '\0';
	for (unsigned int i = 0; i < c->n_providers; i++)
		n += snprintf(buf + n, len - n, "%s%s", i ? "," : "",
			      c->providers[i]);
}

bool exi_setting_parse_require(const struct exi_config_setting *s,
			       struct exi_config *c, const char *text)
{
	int i = exi_setting_fabric(text, strlen(text));

	if (text[0] && i < 0)
		return false;
	strcpy(c->require, text[0] ? fabric_names[i] : "");
	return true;
}

bool exi_setting_parse_upgrade(const struct exi_config_setting *s,
			       struct exi_config *c, const char *text)
{
	uint64_t bytes = 0;

	if (!strncasecmp(text, "bytes:", 6)) {
		if (!parse_number(text + 6, 0, INT64_MAX, &bytes))
			return false;
	} else if (!strcasecmp(text, "auto")) {
		bytes = EXI_UPGRADE_BYTES;
	} else if (strcasecmp(text, "connect") && strcasecmp(text, "never")) {
		return false;
	}
	c->upgrade = strcasecmp(text, "never") != 0;
	c->upgrade_bytes = bytes;
	return true;
}

void exi_setting_print_upgrade(const struct exi_config_setting *s,
			       const struct exi_config *c, char *buf,
			       size_t len)
{
	if (!c->upgrade)
		snprintf(buf, len, "never");
	else if (c->upgrade_bytes == EXI_UPGRADE_BYTES)
		snprintf(buf, len, "auto");
	else if (!c->upgrade_bytes)
		snprintf(buf, len, "connect");
	else
		snprintf(buf, len, "bytes:%" PRIu64, c->upgrade_bytes);
}
