/* SPDX-License-Identifier: BSD-2-Clause */
/* Rules for ports: settings of single connections that differ from those of the
 * process. */
#include "core/base/config_ports.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_MAX (2 * EXI_CONFIG_PORT_TEXTS) /* of both files */

/* One setting of a rule. */
struct kept {
	struct exi_config_ports ports;
	size_t setting;
	bool is_upgrade;
	struct exi_config_way way; /* upgrade and bytes, or fabrics */
	char value[EXI_CONFIG_PORT_TEXT];
	char origin[192];
};

static struct kept kept[KEPT_MAX];
static unsigned int n_kept;

/* Parses a port at the beginning of *text, and moves *text behind it; 0: there
 * is none. */
static uint16_t take_port(const char **text)
{
	char *end;
	unsigned long n =
		isdigit((unsigned char)**text) ? strtoul(*text, &end, 10) : 0;

	if (!n || n > UINT16_MAX)
		return 0;
	*text = end;
	return (uint16_t)n;
}

bool exi_config_parse_ports(const char *text, struct exi_config_ports *ret)
{
	struct exi_config_ports p = { 0 };

	for (text += strspn(text, ", \t"); *text;
	     text += strspn(text, ", \t")) {
		uint16_t first = take_port(&text), last = first;

		if (first && *text == '-') {
			text++;
			last = take_port(&text);
		}
		if (!first || last < first || p.n == EXI_CONFIG_PORTS_MAX ||
		    (*text && !strchr(", \t", *text)))
			return false;
		p.range[p.n].first = first;
		p.range[p.n++].last = last;
	}
	*ret = p;
	return p.n > 0;
}

bool exi_config_is_by_port(size_t setting)
{
	const char *variable = exi_config_settings[setting].variable;

	return !strcmp(variable, "EXS_UPGRADE") ||
	       !strcmp(variable, "EXS_PROVIDER");
}

/* The bits of those of c's fabrics that are also in the list. */
static uint32_t fabrics_of(const struct exi_config *c,
			   const struct exi_config *list)
{
	uint32_t ret = 0;

	for (unsigned int i = 0; i < c->n_providers; i++)
		for (unsigned int k = 0; k < list->n_providers; k++)
			if (!strcmp(c->providers[i], list->providers[k]))
				ret |= UINT32_C(1) << i;
	return ret;
}

void exi_config_keep_port(const struct exi_config_file *f,
			  const struct exi_config_port_text *t,
			  struct exi_config *c)
{
	const struct exi_config_setting *s = &exi_config_settings[t->setting];
	struct exi_config mine = *c;
	struct kept *k = &kept[n_kept];
	char value[EXI_CONFIG_PATH_MAX];

	if (n_kept == KEPT_MAX)
		return;
	if (!s->parse(s, &mine, t->text)) {
		exi_config_refuse("%s: cannot use \"%s\" from %s; it accepts "
				  "%s",
				  s->variable, t->text, f->path, s->accepts);
		return;
	}
	*k = (struct kept){
		.ports = t->ports,
		.setting = t->setting,
		.is_upgrade = !strcmp(s->variable, "EXS_UPGRADE"),
		.way = { mine.upgrade, mine.upgrade_bytes,
			 fabrics_of(c, &mine) },
	};
	s->print(s, &mine, value, sizeof(value));
	snprintf(k->value, sizeof(k->value), "%.*s", (int)sizeof(k->value) - 1,
		 value);
	snprintf(k->origin, sizeof(k->origin), "%s%s", f->name, t->from);
	c->n_ports = ++n_kept;
}

static bool has(const struct exi_config_ports *p, uint16_t port)
{
	for (unsigned int i = 0; i < p->n; i++)
		if (port >= p->range[i].first && port <= p->range[i].last)
			return true;
	return false;
}

struct exi_config_way exi_config_way(uint16_t port)
{
	const struct exi_config *c = exi_config();
	struct exi_config_way ret = { c->upgrade, c->upgrade_bytes,
				      UINT32_MAX };

	for (unsigned int i = 0; i < c->n_ports; i++) {
		const struct kept *k = &kept[i];

		if (!has(&k->ports, port))
			continue;
		if (k->is_upgrade) {
			ret.upgrade = k->way.upgrade;
			ret.upgrade_bytes = k->way.upgrade_bytes;
		} else {
			ret.fabrics = k->way.fabrics;
		}
	}
	return ret;
}

bool exi_config_port_row(unsigned int i, struct exi_config_row *ret)
{
	const struct exi_config_setting *s;

	if (i >= n_kept)
		return false;
	s = &exi_config_settings[kept[i].setting];
	ret->variable = s->variable;
	ret->accepts = s->accepts;
	ret->help = s->help;
	ret->origin = kept[i].origin;
	ret->by_port = true;
	strcpy(ret->value, kept[i].value);
	return true;
}

void exi_config_forget_ports(void)
{
	n_kept = 0;
}
