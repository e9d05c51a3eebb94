/* SPDX-License-Identifier: BSD-2-Clause */
/* The configuration of the process: EXS_* variables, then the file that
 * EXS_CONFIG names, then that of the host, then defaults; exs-config(5) has the
 * files. Read once, at exi_config_load(); constant afterwards. */
#ifndef EXI_CORE_BASE_CONFIG_H
#define EXI_CORE_BASE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/util.h"

struct exi_setting_choice;

#define EXI_CONFIG_PROVIDERS_MAX 8
#define EXI_CONFIG_NAME_MAX	 16
#define EXI_CONFIG_PATH_MAX	 256

enum exi_tcp_engine {
	EXI_TCP_ENGINE_AUTO,
	EXI_TCP_ENGINE_IO_URING,
	EXI_TCP_ENGINE_EPOLL,
};

enum exi_ofi_endpoint {
	EXI_OFI_AUTO,
	EXI_OFI_MSG,
	EXI_OFI_RDM,
};

enum exi_trust {
	EXI_TRUST_KEY,
	EXI_TRUST_HOSTS,
};

/* What the program uses its own io_uring rings for (EXS_IO_URING). */
enum exi_io_uring {
	EXI_IO_URING_AUTO,  /* the shim finds out */
	EXI_IO_URING_ANY,   /* for any connection */
	EXI_IO_URING_FILES, /* no connection, as the user states */
};

struct exi_config {
	/* EXS_PROVIDER: in order of preference, exclusions applied. "tcp" is
	 * always usable, listed or not. */
	char providers[EXI_CONFIG_PROVIDERS_MAX][EXI_CONFIG_NAME_MAX];
	unsigned int n_providers;
	/* EXS_REQUIRE: "" or a provider's name. */
	char require[EXI_CONFIG_NAME_MAX];
	/* EXS_UPGRADE: never, or after this many bytes ("connect" is 0,
	 * "auto" is EXI_UPGRADE_BYTES). */
	bool upgrade;
	uint64_t upgrade_bytes;
	enum exi_io_uring io_uring; /* EXS_IO_URING */
	uint32_t spin_us;	    /* EXS_SPIN_US */
	uint32_t ring_kb; /* EXS_RING_KB, a power of two, per direction */
	uint32_t memory_limit_mb; /* EXS_MEMORY_LIMIT_MB, rings together */
	bool unix_streams;	  /* EXS_UNIX */
	/* Not a setting: for tests, UNIX sockets of messages move, too. */
	bool unix_packets;
	uint64_t zcopy_threshold;	    /* EXS_ZCOPY_THRESHOLD, bytes */
	int log_level;			    /* EXS_LOG: enum exi_log_level */
	char log_file[EXI_CONFIG_PATH_MAX]; /* EXS_LOG_FILE: "" is stderr */
	bool stats;			    /* EXS_STATS */
	enum exi_tcp_engine tcp_engine;	    /* EXS_TCP_ENGINE */
	/* EXS_KEY_FILE: "" is searched for, see core/key.h. */
	char key_file[EXI_CONFIG_PATH_MAX];
	/* XDG_CONFIG_HOME and HOME as they were at the start, or null: servers
	 * clear them before the first connection. */
	const char *config_home, *home;
	enum exi_trust trust;			/* EXS_TRUST */
	char meet_dir[EXI_CONFIG_PATH_MAX];	/* EXS_MEET_DIR: "" is none */
	char verbs_device[EXI_CONFIG_PATH_MAX]; /* EXS_VERBS_DEVICE: a list */
	int verbs_gid_index;			/* EXS_VERBS_GID_INDEX; -1 */
	uint32_t verbs_port_offset;		/* EXS_VERBS_PORT_OFFSET */
	char ofi_provider[EXI_CONFIG_PATH_MAX]; /* EXS_OFI_PROVIDER */
	enum exi_ofi_endpoint ofi_endpoint;	/* EXS_OFI_ENDPOINT */
	uint32_t ofi_port_offset;		/* EXS_OFI_PORT_OFFSET */
	char report[EXI_CONFIG_PATH_MAX];	/* EXS_REPORT: "" is none */
	/* Settings of rules for ports; 0: exi_config_way() is the same for
	 * all. */
	unsigned int n_ports;
};

/* The settings that a rule for ports can change for one connection. */
struct exi_config_way {
	bool upgrade;
	uint64_t upgrade_bytes;
	uint32_t fabrics; /* bit i: it may use providers[i] */
};

/* The settings of connections to a service at this port, the same at both
 * ends. */
struct exi_config_way exi_config_way(uint16_t port);

#define EXI_UPGRADE_BYTES   1024
#define EXI_SPIN_US	    50
#define EXI_RING_KB	    2048
#define EXI_MEMORY_LIMIT_MB 1024

/* Never fails. If a value cannot be used, and its setting only affects speed or
 * output, a warning names the variable and what it accepts, and the default is
 * used. Other such values refuse, see below. Unknown EXS_* variables, which may
 * be another program's, cause one warning each. Thread-safe, idempotent. */
void exi_config_load(void);

/* Set before the configuration is loaded: only errors are logged, because the
 * program that this process becomes loads it again, and warns. */
extern bool exi_config_warns_later;

/* Null, or the reason, in one line, why nothing may be started: a setting that
 * allows or forbids something has a value that cannot be used, so any guess
 * could use what the user excluded, or omit what the user requires; or the file
 * cannot be read or parsed. exi_core_init() then logs it and fails. */
const char *exi_config_refusal(void);

/* Loads the configuration, which exi_config() then finds in exi_config_loaded
 * without a call. */
EXI_SHIM extern const struct exi_config *exi_config_loaded;
EXI_SHIM const struct exi_config *exi_config_first(void);

/* The configuration; loads it at first use. */
static inline const struct exi_config *exi_config(void)
{
	/* Pairs with the release in exi_config_first(). */
	const struct exi_config *c =
		__atomic_load_n(&exi_config_loaded, __ATOMIC_ACQUIRE);

	return exi_likely(c) ? c : exi_config_first();
}

/* One setting of a profile, which has several: settings for an intent. */
struct exi_config_profile {
	const char *name;
	const char *variable;
	const char *value;
};

/* Fills the i-th; false when there is none. */
bool exi_config_profile(unsigned int i, struct exi_config_profile *ret);

/* Applies the rules of the program of this name instead of this program's: for
 * the tools, before the configuration is loaded. */
void exi_config_for(const char *program);

/* One row for `exs info --config`. */
struct exi_config_row {
	const char *variable; /* EXS_... */
	const char *accepts;  /* in words */
	const char *help;     /* one sentence */
	/* "environment", "default", "cgroup" (a default that is less for the
	 * limit of the process's control group), or the file: "file" for that
	 * of EXS_CONFIG, with the rule and the profile. */
	const char *origin;
	char value[EXI_CONFIG_PATH_MAX]; /* effective */
	/* The variable has another row: this one is of a rule for ports, which
	 * the origin names. */
	bool by_port;
};

/* Fills row number i; false when there is none. */
bool exi_config_row(unsigned int i, struct exi_config_row *ret);

#define EXI_KEY_SYSTEM	  "/etc/exs/key"
#define EXI_CONFIG_SYSTEM "/etc/exs/exs.conf"

struct exi_config_setting {
	const char *variable;
	const char *accepts;
	const char *help;
	const char *fallback;
	bool strict; /* a text that does not parse refuses */
	/* Takes the text whole, or returns false and changes nothing. */
	bool (*parse)(const struct exi_config_setting *s, struct exi_config *c,
		      const char *text);
	void (*print)(const struct exi_config_setting *s,
		      const struct exi_config *c, char *buf, size_t len);
	/* For the parsers that serve several settings. */
	size_t offset; /* the offset of the member in struct exi_config */
	uint64_t min, max;
	const struct exi_setting_choice *choices; /* ends with a null word */
};

#endif
