/* SPDX-License-Identifier: BSD-2-Clause */
/* The configuration: one table of settings, each with its parser.
 *
 * A value is a text from one of three sources. Each setting is parsed from its
 * default, then from the file, then from the environment, and a text that does
 * not parse leaves what was there. With a setting that is strict nothing is
 * started then: it says what may be used, what must be, or how much, and what
 * was there is a guess. The others are about speed and what is said. The
 * settings of the log come first in the table, so that complaints about all
 * others go where the user wants them. */
#include "core/base/config.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <ini.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/cgroup.h"
#include "core/base/log.h"
#include "core/base/setting.h"

#define PREFIX "EXS_"

/* Rings may use this part of a cgroup's memory, unless the user says
 * otherwise. */
#define CGROUP_PART 8

#define TEXT_OF(number)	 #number
#define NUMBER(constant) TEXT_OF(constant)

static const struct exi_setting_choice log_levels[] = {
	{ "off", EXI_LOG_OFF },
	{ "error", EXI_LOG_ERROR },
	{ "warn", EXI_LOG_WARN },
	{ "info", EXI_LOG_INFO },
	{ "debug", EXI_LOG_DEBUG },
	{ "trace", EXI_LOG_TRACE },
	{ NULL, 0 },
};

static const struct exi_setting_choice engines[] = {
	{ "auto", EXI_TCP_ENGINE_AUTO },
	{ "io_uring", EXI_TCP_ENGINE_IO_URING },
	{ "epoll", EXI_TCP_ENGINE_EPOLL },
	{ NULL, 0 },
};

static const struct exi_setting_choice rings[] = {
	{ "auto", EXI_IO_URING_AUTO },
	{ "any", EXI_IO_URING_ANY },
	{ "files", EXI_IO_URING_FILES },
	{ NULL, 0 },
};

static const struct exi_setting_choice ofi_endpoints[] = {
	{ "auto", EXI_OFI_AUTO },
	{ "msg", EXI_OFI_MSG },
	{ "rdm", EXI_OFI_RDM },
	{ NULL, 0 }
};

static const struct exi_setting_choice trusts[] = {
	{ "key", EXI_TRUST_KEY },
	{ "hosts", EXI_TRUST_HOSTS },
	{ NULL, 0 },
};

#define AT(name) .offset = offsetof(struct exi_config, name)

static const struct exi_config_setting settings[] = {
	{
		.variable = "EXS_LOG",
		.accepts = "off, error, warn, info, debug or trace",
		.help = "How much the library logs.",
		.fallback = "warn",
		.parse = exi_setting_parse_choice,
		.print = exi_setting_print_choice,
		.choices = log_levels,
		AT(log_level),
	},
	{
		.variable = "EXS_LOG_FILE",
		.accepts = "a path of at most 255 bytes, %p for the pid",
		.help = "The file of the log; empty is stderr.",
		.fallback = "",
		.parse = exi_setting_parse_path,
		.print = exi_setting_print_string,
		AT(log_file),
	},
	{
		.variable = "EXS_PROVIDER",
		.strict = true,
		.accepts = "a list of " EXI_SETTING_FABRIC_NAMES
			   "; ^name excludes",
		.help = "The fabrics that a connection may use, best first.",
		.fallback = EXI_SETTING_PROVIDERS_DEFAULT,
		.parse = exi_setting_parse_provider,
		.print = exi_setting_print_provider,
	},
	{
		.variable = "EXS_REQUIRE",
		.strict = true,
		.accepts = "one of " EXI_SETTING_FABRIC_NAMES ", or nothing",
		.help = "Fail instead of using any other fabric.",
		.fallback = "",
		.parse = exi_setting_parse_require,
		.print = exi_setting_print_string,
		AT(require),
	},
	{
		.variable = "EXS_UPGRADE",
		.strict = true,
		.accepts = "auto, connect, bytes:N or never",
		.help = "When a connection leaves TCP for a better fabric.",
		.fallback = "auto",
		.parse = exi_setting_parse_upgrade,
		.print = exi_setting_print_upgrade,
	},
	{
		.variable = "EXS_IO_URING",
		.strict = true,
		.accepts = "auto, any or files",
		.help = "What the program's rings of io_uring are for.",
		.fallback = "auto",
		.parse = exi_setting_parse_choice,
		.print = exi_setting_print_choice,
		.choices = rings,
		AT(io_uring),
	},
	{
		.variable = "EXS_SPIN_US",
		.accepts = "0 to 1000000",
		.help = "Longest spin before sleeping; 0 never spins.",
		.fallback = NUMBER(EXI_SPIN_US),
		.parse = exi_setting_parse_u32,
		.print = exi_setting_print_u32,
		.max = 1000000,
		AT(spin_us),
	},
	{
		.variable = "EXS_RING_KB",
		.accepts = "a power of two from 16 to 65536",
		.help = "The size in KiB to which the ring of each direction "
			"grows.",
		.fallback = NUMBER(EXI_RING_KB),
		.parse = exi_setting_parse_power_of_two,
		.print = exi_setting_print_u32,
		.min = 16,
		.max = 65536,
		AT(ring_kb),
	},
	{
		.variable = "EXS_MEMORY_LIMIT_MB",
		.strict = true,
		.accepts = "0 to 1048576",
		.help = "The most memory in MiB for all rings; the default is "
			"less if the cgroup's limit is below 8 GiB.",
		.fallback = NUMBER(EXI_MEMORY_LIMIT_MB),
		.parse = exi_setting_parse_u32,
		.print = exi_setting_print_u32,
		.min = 0,
		.max = 1048576,
		AT(memory_limit_mb),
	},
	{
		.variable = "EXS_UNIX",
		.strict = true,
		.accepts = "on or off",
		.help = "Whether UNIX stream sockets of programs under exs run "
			"move to shared memory.",
		.fallback = "off",
		.parse = exi_setting_parse_switch,
		.print = exi_setting_print_switch,
		AT(unix_streams),
	},
	{
		.variable = "EXS_ZCOPY_THRESHOLD",
		.accepts = "a number of bytes",
		.help = "The size in bytes from which transfers of registered "
			"memory are not copied.",
		.fallback = "65536",
		.parse = exi_setting_parse_u64,
		.print = exi_setting_print_u64,
		.max = INT64_MAX,
		AT(zcopy_threshold),
	},
	{
		.variable = "EXS_STATS",
		.accepts = "on or off",
		.help = "Keep counters where exs stat can read them.",
		.fallback = "on",
		.parse = exi_setting_parse_switch,
		.print = exi_setting_print_switch,
		AT(stats),
	},
	{
		.variable = "EXS_TCP_ENGINE",
		.strict = true,
		.accepts = "auto, io_uring or epoll",
		.help = "What drives asynchronous operations over TCP.",
		.fallback = "auto",
		.parse = exi_setting_parse_choice,
		.print = exi_setting_print_choice,
		.choices = engines,
		AT(tcp_engine),
	},
	{
		.variable = "EXS_KEY_FILE",
		.strict = true,
		.accepts = "a path of at most 255 bytes",
		.help = "The file of the key by which hosts trust each other; "
			"empty is the place that exs key shows.",
		.fallback = "",
		.parse = exi_setting_parse_path,
		.print = exi_setting_print_string,
		AT(key_file),
	},
	{
		.variable = "EXS_TRUST",
		.strict = true,
		.accepts = "key or hosts",
		.help = "Which peers on other hosts to trust: holders of the "
			"key, or every user.",
		.fallback = "key",
		.parse = exi_setting_parse_choice,
		.print = exi_setting_print_choice,
		.choices = trusts,
		AT(trust),
	},
	{
		.variable = "EXS_MEET_DIR",
		.strict = true,
		.accepts = "an absolute path of at most 64 bytes",
		.help = "A directory in which processes of this host meet that "
			"are in different network namespaces, with a key.",
		.fallback = "",
		.parse = exi_setting_parse_directory,
		.print = exi_setting_print_string,
		.max = 64,
		AT(meet_dir),
	},
	{
		.variable = "EXS_VERBS_DEVICE",
		.strict = true,
		.accepts = "a list of RDMA devices, or nothing",
		.help = "The devices to use; software devices are used only if "
			"named here.",
		.fallback = "",
		.parse = exi_setting_parse_text,
		.print = exi_setting_print_string,
		AT(verbs_device),
	},
	{
		.variable = "EXS_VERBS_GID_INDEX",
		.strict = true,
		.accepts = "0 to 65535, or nothing",
		.help = "Only connections from the address of this GID move to "
			"verbs.",
		.fallback = "",
		.parse = exi_setting_parse_index,
		.print = exi_setting_print_index,
		.max = 65535,
		AT(verbs_gid_index),
	},
	{
		.variable = "EXS_VERBS_PORT_OFFSET",
		.strict = true,
		.accepts = "0 to 64511",
		.help = "Added to a TCP port for the port used over verbs; the "
			"same on both hosts.",
		.fallback = "21000",
		.parse = exi_setting_parse_u32,
		.print = exi_setting_print_u32,
		.max = 64511,
		AT(verbs_port_offset),
	},
	{
		.variable = "EXS_OFI_PROVIDER",
		.strict = true,
		.accepts = "a provider of libfabric, or nothing",
		.help = "The provider to use; software providers are used only "
			"if named here.",
		.fallback = "",
		.parse = exi_setting_parse_text,
		.print = exi_setting_print_string,
		AT(ofi_provider),
	},
	{
		.variable = "EXS_OFI_ENDPOINT",
		.accepts = "auto, msg or rdm",
		.help = "The kind of endpoint: one for each connection (msg), "
			"or one for all (rdm).",
		.fallback = "auto",
		.parse = exi_setting_parse_choice,
		.print = exi_setting_print_choice,
		.choices = ofi_endpoints,
		AT(ofi_endpoint),
	},
	{
		.variable = "EXS_OFI_PORT_OFFSET",
		.strict = true,
		.accepts = "0 to 64511",
		.help = "Added to a TCP port for the port used over libfabric; "
			"the same on both hosts.",
		.fallback = "22000",
		.parse = exi_setting_parse_u32,
		.print = exi_setting_print_u32,
		.max = 64511,
		AT(ofi_port_offset),
	},
	{
		.variable = "EXS_REPORT",
		.accepts = "- for standard error, or a path of at most 255 "
			   "bytes",
		.help = "Where a program under exs run writes its report when "
			"it exits.",
		.fallback = "",
		.parse = exi_setting_parse_path,
		.print = exi_setting_print_string,
		AT(report),
	},
};

_Static_assert(sizeof(enum exi_tcp_engine) == sizeof(int) &&
		       sizeof(enum exi_trust) == sizeof(int) &&
		       sizeof(enum exi_ofi_endpoint) == sizeof(int),
	       "parse_choice() writes an int");

#define N_SETTINGS   (sizeof(settings) / sizeof(settings[0]))
#define N_OF_THE_LOG 2
#define N_FILES	     2 /* the host's, and that of EXS_CONFIG */
#define FILE_MAX     (1 << 20)

/* Where a value is from: of two, the later stands. */
enum origin {
	ORIGIN_DEFAULT,
	ORIGIN_FILE,
	ORIGIN_ENVIRONMENT,
	ORIGIN_CGROUP,
};

static struct exi_config config;
static enum origin origins[N_SETTINGS];
static char origin_texts[N_SETTINGS][160];
static char config_file[EXI_CONFIG_PATH_MAX];
static char refusal[1024];
static pthread_once_t loaded = PTHREAD_ONCE_INIT;
static const char *program; /* whose rules apply; null: this one's */

static const struct exi_config_profile profiles[] = {
	{ "latency", "EXS_UPGRADE", "connect" },
	{ "latency", "EXS_SPIN_US", "200" },
	{ "throughput", "EXS_RING_KB", "8192" },
	{ "safe", "EXS_UPGRADE", "bytes:65536" },
	{ "safe", "EXS_SPIN_US", "0" },
};

/* Within a file, of two values the one from here down stands, and of two from
 * the same the later. */
enum level {
	LEVEL_NONE,
	LEVEL_PROFILE,
	LEVEL_FILE,
	LEVEL_RULE_PROFILE,
	LEVEL_RULE,
};

/* What a file says for this program; the texts are the loader's own. */
struct file {
	const char *path;
	const char *label; /* before it, in messages */
	const char *name;  /* as an origin */
	char texts[N_SETTINGS][EXI_CONFIG_PATH_MAX];
	char from[N_SETTINGS][128]; /* the rule and the profile */
	enum level level[N_SETTINGS];
	bool complain;
	/* The rule that is being read. */
	char section[64];
	bool rule, applies, conditions, said;
};

/* The first reason is kept. */
static __attribute__((format(printf, 1, 2))) void refuse(const char *fmt, ...)
{
	va_list ap;

	if (refusal[0])
		return;
	va_start(ap, fmt);
	vsnprintf(refusal, sizeof(refusal), fmt, ap);
	va_end(ap);
	for (char *p = refusal; *p; p++) /* it is one line, on a terminal */
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
}

/* The setting a key of the file means: its variable in lower case, without
 * the prefix. */
static int find_key(const char *section, const char *key)
{
	if (section[0] && strcmp(section, "exs") != 0)
		return -1;
	for (size_t i = 0; i < N_SETTINGS; i++) {
		if (!strcasecmp(settings[i].variable + strlen(PREFIX), key))
			return (int)i;
	}
	return -1;
}

static void give(struct file *f, size_t i, enum level level, const char *text,
		 const char *profile)
{
	if (level < f->level[i])
		return;
	if (snprintf(f->texts[i], sizeof(f->texts[i]), "%s", text) >=
	    EXI_CONFIG_PATH_MAX)
		refuse("%s\"%s\" has a value of %s that is too long; it "
		       "accepts at most %d bytes",
		       f->label, f->path, settings[i].variable,
		       EXI_CONFIG_PATH_MAX - 1);
	snprintf(f->from[i], sizeof(f->from[i]), "%s%.63s%s%.31s",
		 f->rule ? ", " : "", f->rule ? f->section : "",
		 profile[0] ? ", profile " : "", profile);
	f->level[i] = level;
}

/* False: there is no such profile. */
static bool give_profile(struct file *f, const char *name)
{
	enum level level = f->rule ? LEVEL_RULE_PROFILE : LEVEL_PROFILE;
	struct exi_config_profile p;
	bool found = false;

	for (unsigned int i = 0; exi_config_profile(i, &p); i++) {
		if (strcmp(p.name, name) != 0)
			continue;
		found = true;
		give(f, (size_t)find_key("", p.variable + strlen(PREFIX)),
		     level, p.value, name);
	}
	return found;
}

/* Whether the program is one of the list, of names with wildcards. */
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

/* A section, or a condition behind the settings of a rule, begins a new one. */
static void begin_section(struct file *f, const char *section, bool condition)
{
	if (strcmp(section, f->section) == 0 && !(condition && f->said))
		return;
	snprintf(f->section, sizeof(f->section), "%s", section);
	f->rule = strncmp(section, "rule", 4) == 0 &&
		  (!section[4] || section[4] == ' ');
	f->applies = true;
	f->conditions = f->said = false;
}

static void refuse_key(const struct file *f, const char *section,
		       const char *key)
{
	if (f->complain)
		refuse("%s\"%s\" has an unknown key \"%s%s%s\"; it accepts the "
		       "settings that exs info --config lists, in lower case "
		       "without EXS_, profile, and in a rule program",
		       f->label, f->path, section, section[0] ? "." : "", key);
}

static int take_key(void *arg, const char *section, const char *key,
		    const char *value)
{
	struct file *f = arg;
	bool condition = !strcasecmp(key, "program");
	int i;

	begin_section(f, section, condition);
	if (f->rule && condition) {
		f->conditions = true;
		f->applies = f->applies && is_program(value);
		return 1;
	}
	f->said = true;
	if (f->rule && !f->conditions && f->complain)
		refuse("%s\"%s\": [%s] does not begin with the programs that "
		       "it is for, program = NAME",
		       f->label, f->path, section);
	i = find_key(f->rule ? "" : section, key);
	if (i >= 0 && f->applies) {
		give(f, (size_t)i, f->rule ? LEVEL_RULE : LEVEL_FILE, value,
		     "");
	} else if (i < 0 && !strcasecmp(key, "profile") &&
		   (f->rule || find_key(section, "log") >= 0)) {
		if (f->applies && !give_profile(f, value) && f->complain)
			refuse("%s\"%s\" names the profile \"%s\"; there are "
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

/* The host's own file need not be there. A program that may not search the
 * directories above, as in some changed roots, cannot have been meant by it. */
static bool is_absent(const char *path, int err)
{
	char dir[PATH_MAX];
	struct stat st;

	snprintf(dir, sizeof(dir), "%.*s", (int)(strrchr(path, '/') - path),
		 path);
	return err == ENOENT ||
	       (err == EACCES && stat(dir, &st) < 0 && errno == EACCES);
}

/* Reads the file; with complain set, for what is wrong with it alone. */
static void read_file(struct file *f, bool complain)
{
	FILE *in;
	int line = 0;
	int err = 0;

	if (!f->path[0])
		return;
	f->complain = complain;
	f->section[0] = '\0';
	f->rule = false;
	f->applies = true;
	in = open_regular(f->path, &err);
	if (in) {
		line = ini_parse_file(in, take_key, f);
		fclose(in);
	}
	if (!complain || (err && !f->label[0] && is_absent(f->path, err)))
		return;
	if (err)
		refuse("%scannot read \"%s\": %s; it accepts a file of "
		       "\"name = value\" lines, of at most 1 MiB",
		       f->label, f->path, strerrordesc_np(err));
	else if (line)
		refuse("%s\"%s\" line %d cannot be parsed; \"name = value\", "
		       "[exs], [rule NAME] and # comments are accepted",
		       f->label, f->path, line);
}

static void apply(size_t i, enum origin origin, const char *text,
		  const struct file *f)
{
	const char *from = f ? " from " : "", *file = f ? f->path : "";
	const struct exi_config_setting *s = &settings[i];
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
		refuse("%s: cannot use \"%.*s\"%s%s; it accepts %s",
		       s->variable, EXI_CONFIG_PATH_MAX, text, from, file,
		       s->accepts);
		return;
	}
	s->print(s, &config, now, sizeof(now));
	exi_warn("%s: cannot use \"%s\"%s%s; it accepts %s; using \"%s\"",
		 s->variable, text, from, file, s->accepts, now);
}

static void resolve(const struct file f[N_FILES], size_t first, size_t last)
{
	for (size_t i = first; i < last; i++) {
		const char *env = secure_getenv(settings[i].variable);

		for (size_t n = 0; n < N_FILES; n++)
			if (f[n].level[i])
				apply(i, ORIGIN_FILE, f[n].texts[i], &f[n]);
		if (env)
			apply(i, ORIGIN_ENVIRONMENT, env, NULL);
	}
}

static bool is_known_variable(const char *entry, size_t len)
{
	static const char file_variable[] = "EXS_CONFIG";

	if (len == strlen(file_variable) && !memcmp(entry, file_variable, len))
		return true;
	for (size_t i = 0; i < N_SETTINGS; i++) {
		if (strlen(settings[i].variable) == len &&
		    !memcmp(entry, settings[i].variable, len))
			return true;
	}
	return false;
}

static void complain_of_unknown_variables(void)
{
	for (char **e = environ; e && *e; e++) {
		size_t len = strcspn(*e, "=");

		if (!strncmp(*e, PREFIX, strlen(PREFIX)) &&
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
		refuse("EXS_CONFIG: cannot use \"%.*s\"; it accepts a path "
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
	int i = find_key("", "memory_limit_mb");

	if (origins[i] != ORIGIN_DEFAULT || mb >= config.memory_limit_mb)
		return;
	config.memory_limit_mb = (uint32_t)mb;
	origins[i] = ORIGIN_CGROUP;
	strcpy(origin_texts[i], "cgroup");
}

static void load(void)
{
	static struct file files[N_FILES] = {
		{ .path = EXI_CONFIG_SYSTEM,
		  .label = "",
		  .name = EXI_CONFIG_SYSTEM },
		{ .path = config_file,
		  .label = "EXS_CONFIG: ",
		  .name = "file" },
	};

	config.config_home = keep("XDG_CONFIG_HOME");
	config.home = keep("HOME");
	for (size_t i = 0; i < N_SETTINGS; i++)
		apply(i, ORIGIN_DEFAULT, settings[i].fallback, NULL);
	find_file();
	for (size_t n = 0; n < N_FILES; n++)
		read_file(&files[n], false);
	resolve(files, 0, N_OF_THE_LOG);
	exi_log_level = config.log_level;
	exi_log_file(config.log_file);
	for (size_t n = 0; n < N_FILES; n++)
		read_file(&files[n], true);
	resolve(files, N_OF_THE_LOG, N_SETTINGS);
	follow_cgroup();
	if (!getauxval(AT_SECURE))
		complain_of_unknown_variables();
	complain_of_contradictions();
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
	if (i == N_SETTINGS) {
		ret->variable = "EXS_CONFIG";
		ret->accepts = "a path of at most 255 bytes";
		ret->help = "A file of \"name = value\" lines, with names in "
			    "lower case and without EXS_.";
		ret->origin = config_file[0] ? "environment" : "default";
		strcpy(ret->value, config_file);
		return true;
	}
	if (i > N_SETTINGS)
		return false;
	ret->variable = settings[i].variable;
	ret->accepts = settings[i].accepts;
	ret->help = settings[i].help;
	ret->origin = origin_texts[i];
	settings[i].print(&settings[i], &config, ret->value,
			  sizeof(ret->value));
	return true;
}
