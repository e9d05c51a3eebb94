/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads a file of settings for this program: its lines, the rules that apply to
 * the program, and the profiles that it names. */
#include "core/base/config_file.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <ini.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/config_ports.h"

#define FILE_MAX (1 << 20)

static const char *program; /* the program whose rules apply; null: this one */

static const struct exi_config_profile profiles[] = {
	{ "latency", "EXS_UPGRADE", "connect" },
	{ "latency", "EXS_SPIN_US", "200" },
	{ "throughput", "EXS_RING_KB", "8192" },
	{ "safe", "EXS_UPGRADE", "bytes:65536" },
	{ "safe", "EXS_SPIN_US", "0" },
};

/* The index of the setting that a key of the file names. */
static int find_key(const char *section, const char *key)
{
	return section[0] && strcmp(section, "exs") != 0
		       ? -1
		       : exi_config_setting_of(key);
}

static void give(struct exi_config_file *f, size_t i,
		 enum exi_config_level level, const char *text,
		 const char *profile)
{
	if (level < f->level[i])
		return;
	if (snprintf(f->texts[i], sizeof(f->texts[i]), "%s", text) >=
	    EXI_CONFIG_PATH_MAX)
		exi_config_refuse(
			"%s\"%s\" has a value of %s that is too long; it "
			"accepts at most %d bytes",
			f->label, f->path, exi_config_settings[i].variable,
			EXI_CONFIG_PATH_MAX - 1);
	snprintf(f->from[i], sizeof(f->from[i]), "%s%.63s%s%.31s",
		 f->rule ? ", " : "", f->rule ? f->section : "",
		 profile[0] ? ", profile " : "", profile);
	f->level[i] = level;
}

/* Returns false if there is no such profile. */
static bool give_profile(struct exi_config_file *f, const char *name)
{
	enum exi_config_level level =
		f->rule ? EXI_CONFIG_RULE_PROFILE : EXI_CONFIG_PROFILE;
	struct exi_config_profile p;
	bool found = false;

	for (unsigned int i = 0; exi_config_profile(i, &p); i++) {
		if (strcmp(p.name, name) != 0)
			continue;
		found = true;
		give(f,
		     (size_t)find_key("",
				      p.variable + strlen(EXI_CONFIG_PREFIX)),
		     level, p.value, name);
	}
	return found;
}

/* Whether the program matches the list, which has names with wildcards. */
static bool is_program(const char *list)
{
	const char *mine = program ? program : program_invocation_short_name;
	char one[128];

	while (*list) {
		size_t n = strcspn(list, ", \t");

		if (n && n < sizeof(one)) {
			memcpy(one, list, n);
			one[n] = '\0';
			if (fnmatch(one, mine, 0) == 0)
				return true;
		}
		list += n;
		list += strspn(list, ", \t");
	}
	return false;
}

/* A section, or a condition after the settings of a rule, begins a new rule. */
static void begin_section(struct exi_config_file *f, const char *section,
			  bool condition)
{
	size_t n = strnlen(section, sizeof(f->section) - 1);

	if (strcmp(section, f->section) == 0 && !(condition && f->said))
		return;
	memcpy(f->section, section, n);
	f->section[n] = '\0';
	f->rule = strncmp(section, "rule", 4) == 0 &&
		  (!section[4] || section[4] == ' ');
	f->applies = true;
	f->conditions = f->said = false;
	f->ports.n = 0;
}

static void refuse_key(const struct exi_config_file *f, const char *section,
		       const char *key)
{
	if (f->complain)
		exi_config_refuse(
			"%s\"%s\" has an unknown key \"%s%s%s\"; it accepts "
			"the settings that exs info --config lists, in lower "
			"case "
			"without EXS_, profile, and in a rule program and "
			"port",
			f->label, f->path, section, section[0] ? "." : "", key);
}

static void take_condition(struct exi_config_file *f, bool port,
			   const char *value)
{
	f->conditions = true;
	if (!port) {
		f->applies = f->applies && is_program(value);
		return;
	}
	if ((f->ports.n || !exi_config_parse_ports(value, &f->ports)) &&
	    f->complain)
		exi_config_refuse(
			"%s\"%s\": [%s] has the ports \"%s\"; a rule accepts "
			"one list of at most %d ports or ranges, as in \"6379, "
			"7000-7010\"",
			f->label, f->path, f->section, value,
			EXI_CONFIG_PORTS_MAX);
	snprintf(f->ports_text, sizeof(f->ports_text), "%s", value);
}

static void give_at_ports(struct exi_config_file *f, size_t i, const char *text)
{
	struct exi_config_port_text *t = &f->by_port[f->n_by_port];

	if (f->n_by_port == EXI_CONFIG_PORT_TEXTS ||
	    strlen(text) >= sizeof(t->text)) {
		exi_config_refuse("%s\"%s\": [%s]: a file accepts %d settings "
				  "for ports, of at most %zu bytes each",
				  f->label, f->path, f->section,
				  EXI_CONFIG_PORT_TEXTS, sizeof(t->text) - 1);
		return;
	}
	t->ports = f->ports;
	t->setting = i;
	strcpy(t->text, text);
	snprintf(t->from, sizeof(t->from), ", %.63s, port %s", f->section,
		 f->ports_text);
	f->n_by_port++;
}

/* A rule for ports may only have settings that can differ by connection. */
static void take_at_ports(struct exi_config_file *f, const char *key,
			  const char *value)
{
	int i = find_key("", key);

	if (i >= 0 && exi_config_is_by_port((size_t)i)) {
		if (f->applies)
			give_at_ports(f, (size_t)i, value);
	} else if (f->complain) {
		exi_config_refuse("%s\"%s\": [%s] is for ports and has \"%s\"; "
				  "such a rule accepts upgrade and provider",
				  f->label, f->path, f->section, key);
	}
}

static int take_key(void *arg, const char *section, const char *key,
		    const char *value)
{
	struct exi_config_file *f = arg;
	bool port = !strcasecmp(key, "port"),
	     condition = port || !strcasecmp(key, "program");
	int i;

	begin_section(f, section, condition);
	if (f->rule && condition) {
		take_condition(f, port, value);
		return 1;
	}
	f->said = true;
	if (f->rule && !f->conditions && f->complain)
		exi_config_refuse(
			"%s\"%s\": [%s] does not begin with the programs or "
			"ports that it is for, program = NAME, port = NUMBER",
			f->label, f->path, section);
	i = find_key(f->rule ? "" : section, key);
	if (f->rule && f->ports.n) {
		take_at_ports(f, key, value);
	} else if (i >= 0 && f->applies) {
		give(f, (size_t)i, f->rule ? EXI_CONFIG_RULE : EXI_CONFIG_FILE,
		     value, "");
	} else if (i < 0 && !strcasecmp(key, "profile") &&
		   (f->rule || find_key(section, "log") >= 0)) {
		if (f->applies && !give_profile(f, value) && f->complain)
			exi_config_refuse(
				"%s\"%s\" names the profile \"%s\"; there are "
				"latency, throughput and safe",
				f->label, f->path, value);
	} else if (i < 0) {
		refuse_key(f, section, key);
	}
	return 1;
}

/* Only a regular file: it is read twice, and a device may never end. */
static FILE *open_regular(const char *path, int *ret_err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	FILE *in = NULL;
	struct stat st;
	int err = errno;

	if (fd >= 0 && !fstat(fd, &st)) {
		err = S_ISDIR(st.st_mode)     ? EISDIR
		      : st.st_size > FILE_MAX ? EFBIG
					      : EINVAL;
		if (S_ISREG(st.st_mode) && err != EFBIG &&
		    !(in = fdopen(fd, "r")))
			err = errno;
	}
	if (!in) {
		*ret_err = err;
		if (fd >= 0)
			close(fd);
	}
	return in;
}

/* A file, line by line, for the parser. */
struct lines {
	FILE *in;
	int n;	  /* lines so far */
	int kept; /* the longest line, if that one was too long; else 0 */
};

/* The parser would take an indented line as more of the value before it, and
 * begin a line where its room ends: so it gets no blanks in front, no comment,
 * and no line that does not fit. */
static char *next_line(char *to, int room, void *stream)
{
	struct lines *l = stream;
	bool comment = false, blank = true;
	int c, n = 0;

	l->n++;
	while ((c = getc(l->in)) != EOF && c != '\n') {
		comment |= c == '#' && blank;
		blank = c == ' ' || c == '\t';
		if (comment || (blank && !n))
			continue;
		if (n == room - 2) {
			l->kept = n;
			return NULL;
		}
		to[n++] = (char)c;
	}
	if (c == EOF && !n)
		return NULL;
	to[n++] = '\n';
	to[n] = '\0';
	return to;
}

/* The host's own file may be missing. A program that may not search the
 * directories above it, as in some changed roots, is not meant by it. */
static bool is_absent(const char *path, int err)
{
	char dir[PATH_MAX];
	struct stat st;

	snprintf(dir, sizeof(dir), "%.*s", (int)(strrchr(path, '/') - path),
		 path);
	return err == ENOENT ||
	       (err == EACCES && stat(dir, &st) < 0 && errno == EACCES);
}

void exi_config_read(struct exi_config_file *f, bool complain)
{
	struct lines l = { 0 };
	int line = 0;
	int err = 0;

	if (!f->path[0])
		return;
	f->complain = complain;
	f->section[0] = '\0';
	f->rule = false;
	f->applies = true;
	f->ports.n = f->n_by_port = 0;
	l.in = open_regular(f->path, &err);
	if (l.in) {
		line = ini_parse_stream(next_line, &l, take_key, f);
		fclose(l.in);
	}
	if (!complain || (err && !f->label[0] && is_absent(f->path, err)))
		return;
	if (err)
		exi_config_refuse(
			"%scannot read \"%s\": %s; it accepts a file of "
			"\"name = value\" lines, of at most 1 MiB",
			f->label, f->path,
			err == EINVAL ? "it is not a regular file"
				      : strerrordesc_np(err));
	else if (l.kept && !line)
		exi_config_refuse("%s\"%s\" line %d is too long; a line has "
				  "at most %d bytes, without its comment",
				  f->label, f->path, l.n, l.kept);
	else if (line)
		exi_config_refuse(
			"%s\"%s\" line %d cannot be parsed; \"name = value\", "
			"[exs], [rule NAME] and # comments are accepted",
			f->label, f->path, line);
}

void exi_config_for(const char *name)
{
	program = name;
}

bool exi_config_profile(unsigned int i, struct exi_config_profile *ret)
{
	if (i >= sizeof(profiles) / sizeof(profiles[0]))
		return false;
	*ret = profiles[i];
	return true;
}
