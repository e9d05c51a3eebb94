/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of settings, each with its parser. Those of the log come first, so
 * that complaints about all other settings go where the user wants them. */
#include "core/base/config_table.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "core/base/log.h"
#include "core/base/setting.h"

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

const struct exi_config_setting exi_config_settings[] = {
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
		.help = "The fabric that every connection must use.",
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
		.help = "What the program uses its own io_uring for.",
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
		.help = "The most memory in MiB for all rings (0: connections "
			"of one host stay on TCP); the default is less if the "
			"cgroup's limit is below 8 GiB.",
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
		.help = "Whether connections of UNIX stream sockets may move "
			"to shared memory.",
		.fallback = "on",
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
		.help = "A directory through which processes with one key, in "
			"different network namespaces of this host, meet.",
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

int exi_config_setting_of(const char *name)
{
	for (int i = 0; i < EXI_CONFIG_SETTINGS; i++)
		if (!strcasecmp(exi_config_settings[i].variable +
					strlen(EXI_CONFIG_PREFIX),
				name))
			return i;
	return -1;
}
