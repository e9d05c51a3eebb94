/* SPDX-License-Identifier: BSD-2-Clause */
/* The configuration: which settings are in effect.
 *
 * A value is a text from one of three sources. Each setting is parsed from its
 * default, then from the file, then from the environment; a text that does not
 * parse leaves the earlier value. For a strict setting, nothing is started
 * then: such a setting says what may be used, what must be used, or how much,
 * and the earlier value would be a guess. The other settings are about speed
 * and output. */
#include "core/base/config.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "core/base/cgroup.h"
#include "core/base/config_file.h"
#include "core/base/config_ports.h"
#include "core/base/log.h"
#include "core/base/setting.h"

/* The part of a cgroup's memory that rings may use by default. */
#define CGROUP_PART 8

#define N_FILES 2 /* the host's, and that of EXS_CONFIG */

/* The source of a value; a later one wins. */
enum origin {
	ORIGIN_DEFAULT,
	ORIGIN_FILE,
	ORIGIN_ENVIRONMENT,
	ORIGIN_CGROUP,
};

static struct exi_config config;
static enum origin origins[EXI_CONFIG_SETTINGS];
static char origin_texts[EXI_CONFIG_SETTINGS][160];
static char config_file[EXI_CONFIG_PATH_MAX];
static char refusal[1024];
static pthread_once_t loaded = PTHREAD_ONCE_INIT;

void exi_config_refuse(const char *fmt, ...)
{
	va_list ap;

	if (refusal[0])
		return;
	va_start(ap, fmt);
	vsnprintf(refusal, sizeof(refusal), fmt, ap);
	va_end(ap);
	for (char *p = refusal; *p; p++) /* one line, on a terminal */
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
}

static void apply(size_t i, enum origin origin, const char *text,
		  const struct exi_config_file *f)
{
	const char *from = f ? " from " : "", *file = f ? f->path : "";
	const struct exi_config_setting *s = &exi_config_settings[i];
	char now[EXI_CONFIG_PATH_MAX];

	if (s->parse(s, &config, text)) {
		origins[i] = origin;
		snprintf(origin_texts[i], sizeof(origin_texts[i]), "%s%s",
			 f			    ? f->name
			 : origin == ORIGIN_DEFAULT ? "default"
						    : "environment",
			 f ? f->from[i] : "");
		return;
	}
	if (s->strict) {
		exi_config_refuse("%s: cannot use \"%.*s\"%s%s; it accepts %s",
				  s->variable, EXI_CONFIG_PATH_MAX, text, from,
				  file, s->accepts);
		return;
	}
	s->print(s, &config, now, sizeof(now));
	exi_warn("%s: cannot use \"%s\"%s%s; it accepts %s; using \"%s\"",
		 s->variable, text, from, file, s->accepts, now);
}

static void resolve(const struct exi_config_file f[N_FILES], size_t first,
		    size_t last)
{
	for (size_t i = first; i < last; i++) {
		const char *env =
			secure_getenv(exi_config_settings[i].variable);

		for (size_t n = 0; n < N_FILES; n++)
			if (f[n].level[i])
				apply(i, ORIGIN_FILE, f[n].texts[i], &f[n]);
		if (env)
			apply(i, ORIGIN_ENVIRONMENT, env, NULL);
	}
}

/* Whether a later file's setting for all ports, or the environment's, wins. */
static bool is_overruled(const struct exi_config_file f[N_FILES], size_t n,
			 size_t setting)
{
	const char *variable = exi_config_settings[setting].variable;

	while (++n < N_FILES)
		if (f[n].level[setting])
			return true;
	return secure_getenv(variable) != NULL;
}

static void resolve_ports(const struct exi_config_file f[N_FILES])
{
	for (size_t n = 0; n < N_FILES; n++)
		for (unsigned int i = 0; i < f[n].n_by_port; i++) {
			const struct exi_config_port_text *t = &f[n].by_port[i];

			if (!is_overruled(f, n, t->setting))
				exi_config_keep_port(&f[n], t, &config);
		}
}

static bool is_known_variable(const char *entry, size_t len)
{
	static const char file_variable[] = "EXS_CONFIG";

	if (len == strlen(file_variable) && !memcmp(entry, file_variable, len))
		return true;
	for (size_t i = 0; i < EXI_CONFIG_SETTINGS; i++) {
		if (strlen(exi_config_settings[i].variable) == len &&
		    !memcmp(entry, exi_config_settings[i].variable, len))
			return true;
	}
	return false;
}

static void complain_of_unknown_variables(void)
{
	for (char **e = environ; e && *e; e++) {
		size_t len = strcspn(*e, "=");

		if (!strncmp(*e, EXI_CONFIG_PREFIX,
			     strlen(EXI_CONFIG_PREFIX)) &&
		    !is_known_variable(*e, len))
			exi_warn("unknown variable %.*s is ignored; exs info "
				 "--env lists the known ones",
				 (int)len, *e);
	}
}

static void complain_of_contradictions(void)
{
	if (!config.require[0] || !strcmp(config.require, "tcp"))
		return;
	if (!config.upgrade)
		exi_warn("EXS_REQUIRE %s cannot be met: EXS_UPGRADE is never",
			 config.require);
	for (unsigned int i = 0; i < config.n_providers; i++) {
		if (!strcmp(config.providers[i], config.require))
			return;
	}
	exi_warn("EXS_REQUIRE %s cannot be met: EXS_PROVIDER does not list it",
		 config.require);
}

static void find_file(void)
{
	const char *path = secure_getenv("EXS_CONFIG");

	if (path && !exi_setting_expand_path(path, config_file))
		exi_config_refuse(
			"EXS_CONFIG: cannot use \"%.*s\"; it accepts a path "
			"of at most %d bytes",
			EXI_CONFIG_PATH_MAX, path, EXI_CONFIG_PATH_MAX - 1);
}

static const char *keep(const char *variable)
{
	const char *value = secure_getenv(variable);

	return value ? strdup(value) : NULL;
}

/* The program's own memory comes first. */
static void follow_cgroup(void)
{
	uint64_t mb = exi_cgroup_memory("/proc/self/cgroup", "/sys/fs/cgroup") /
			      CGROUP_PART >>
		      20;
	int i = exi_config_setting_of("memory_limit_mb");

	if (origins[i] != ORIGIN_DEFAULT || mb >= config.memory_limit_mb)
		return;
	config.memory_limit_mb = (uint32_t)mb;
	origins[i] = ORIGIN_CGROUP;
	strcpy(origin_texts[i], "cgroup");
}

bool exi_config_warns_later;

static void load(void)
{
	static struct exi_config_file files[N_FILES] = {
		{ .path = EXI_CONFIG_SYSTEM,
		  .label = "",
		  .name = EXI_CONFIG_SYSTEM },
		{ .path = config_file,
		  .label = "EXS_CONFIG: ",
		  .name = "file" },
	};

	if (exi_config_warns_later)
		exi_log_level = EXI_LOG_ERROR;
	config.config_home = keep("XDG_CONFIG_HOME");
	config.home = keep("HOME");
	for (size_t i = 0; i < EXI_CONFIG_SETTINGS; i++)
		apply(i, ORIGIN_DEFAULT, exi_config_settings[i].fallback, NULL);
	find_file();
	for (size_t n = 0; n < N_FILES; n++)
		exi_config_read(&files[n], false);
	resolve(files, 0, EXI_CONFIG_OF_LOG);
	exi_log_level =
		exi_config_warns_later && config.log_level > EXI_LOG_ERROR
			? EXI_LOG_ERROR
			: config.log_level;
	exi_log_file(config.log_file);
	for (size_t n = 0; n < N_FILES; n++)
		exi_config_read(&files[n], true);
	resolve(files, EXI_CONFIG_OF_LOG, EXI_CONFIG_SETTINGS);
	resolve_ports(files);
	follow_cgroup();
	config.unix_packets =
		config.unix_streams && secure_getenv("LIBEXS_PACKETS");
	if (!getauxval(AT_SECURE))
		complain_of_unknown_variables();
	complain_of_contradictions();
}

void exi_config_load(void)
{
	pthread_once(&loaded, load);
}

const char *exi_config_refusal(void)
{
	exi_config_load();
	return refusal[0] ? refusal : NULL;
}

const struct exi_config *exi_config_loaded;

const struct exi_config *exi_config_first(void)
{
	exi_config_load();
	__atomic_store_n(&exi_config_loaded, &config, __ATOMIC_RELEASE);
	return &config;
}

bool exi_config_row(unsigned int i, struct exi_config_row *ret)
{
	exi_config_load();
	ret->by_port = false;
	if (i == EXI_CONFIG_SETTINGS) {
		ret->variable = "EXS_CONFIG";
		ret->accepts = "a path of at most 255 bytes";
		ret->help = "A file of \"name = value\" lines, with names in "
			    "lower case and without EXS_.";
		ret->origin = config_file[0] ? "environment" : "default";
		strcpy(ret->value, config_file);
		return true;
	}
	if (i > EXI_CONFIG_SETTINGS)
		return exi_config_port_row(i - EXI_CONFIG_SETTINGS - 1, ret);
	ret->variable = exi_config_settings[i].variable;
	ret->accepts = exi_config_settings[i].accepts;
	ret->help = exi_config_settings[i].help;
	ret->origin = origin_texts[i];
	exi_config_settings[i].print(&exi_config_settings[i], &config,
				     ret->value, sizeof(ret->value));
	return true;
}
