/* SPDX-License-Identifier: BSD-2-Clause */
/* core/base/config*.c: the file that EXS_CONFIG names, and the parser and the
 * printer of every setting. The printer can print what the parser accepts, and
 * the parser reads that text as the same value. */
#include "core/base/config.c"

#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/fuzz.h"

/* What the machine's cgroup says is no part of an input. */
uint64_t exi_cgroup_memory(const char *list, const char *mounted)
{
	return UINT64_MAX;
}

static void read_as_file(const uint8_t *data, size_t size)
{
	static int fd = -1;
	struct exi_config_row row;
	static struct exi_config_file f[N_FILES];
	char path[64];

	if (fd < 0)
		fd = memfd_create("config", 0);
	FUZZ_TRUE(ftruncate(fd, 0) == 0);
	FUZZ_TRUE(pwrite(fd, data, size, 0) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	setenv("EXS_CONFIG", path, 1);
	find_file();
	memset(f, 0, sizeof(f));
	f[0].path = ""; /* none of this host's */
	f[1] = (struct exi_config_file){
		.path = config_file, .label = "EXS_CONFIG: ", .name = "file"
	};
	exi_config_read(&f[1], false);
	exi_config_read(&f[1], true);
	resolve(f, 0, EXI_CONFIG_SETTINGS);
	resolve_ports(f);
	complain_of_contradictions();
	for (unsigned int i = 0; exi_config_row(i, &row); i++)
		FUZZ_TRUE(strlen(row.value) < EXI_CONFIG_PATH_MAX);
}

static void read_as_value(size_t i, const char *text)
{
	char shown[EXI_CONFIG_PATH_MAX], again[EXI_CONFIG_PATH_MAX];
	const struct exi_config_setting *s = &exi_config_settings[i];

	if (!s->parse(s, &config, text))
		return;
	s->print(s, &config, shown, sizeof(shown));
	/* A path is expanded, a text is what it was. */
	if (s->parse == exi_setting_parse_path)
		return;
	FUZZ_TRUE(s->parse(s, &config, shown));
	s->print(s, &config, again, sizeof(again));
	FUZZ_TRUE(!strcmp(shown, again));
}

static void be_new(void)
{
	static bool once;

	if (!once) {
		unsetenv("EXS_CONFIG");
		unsetenv("XDG_CONFIG_HOME");
		unsetenv("HOME");
		exi_config_load();
		once = true;
	}
	exi_log_level = EXI_LOG_OFF;
	memset(&config, 0, sizeof(config));
	memset(refusal, 0, sizeof(refusal));
	exi_config_forget_ports();
	config.home = "/home/of/this/user";
	for (size_t i = 0; i < EXI_CONFIG_SETTINGS; i++)
		apply(i, ORIGIN_DEFAULT, exi_config_settings[i].fallback, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char expanded[EXI_CONFIG_PATH_MAX];
	char *text;

	be_new();
	read_as_file(data, size);
	be_new();
	if (!size)
		return 0;
	/* The first byte names a setting, the rest is its value. */
	text = strndup((const char *)data + 1, size - 1);
	FUZZ_TRUE(text);
	read_as_value(data[0] % EXI_CONFIG_SETTINGS, text);
	exi_setting_expand_path(text, expanded);
	is_known_variable(text, strcspn(text, "="));
	free(text);
	return 0;
}
