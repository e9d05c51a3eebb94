/* SPDX-License-Identifier: BSD-2-Clause */
/* The files of settings. */
#ifndef EXI_CORE_BASE_CONFIG_FILE_H
#define EXI_CORE_BASE_CONFIG_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/config_table.h"

/* The precedence of values within a file: a level further down wins over those
 * above it; of two values of one level the later one wins. */
enum exi_config_level {
	EXI_CONFIG_NONE,
	EXI_CONFIG_PROFILE,
	EXI_CONFIG_FILE,
	EXI_CONFIG_RULE_PROFILE,
	EXI_CONFIG_RULE,
};

/* The ports that a rule is for. */
#define EXI_CONFIG_PORTS_MAX 8
struct exi_config_ports {
	unsigned int n; /* 0: any */
	struct {
		uint16_t first, last;
	} range[EXI_CONFIG_PORTS_MAX];
};

/* A setting of a rule for ports. */
#define EXI_CONFIG_PORT_TEXTS 32
#define EXI_CONFIG_PORT_TEXT  64
struct exi_config_port_text {
	struct exi_config_ports ports;
	size_t setting;
	char text[EXI_CONFIG_PORT_TEXT];
	char from[128]; /* the rule, and its ports */
};

/* What a file sets for this program; the texts belong to the loader. The caller
 * fills the first three members; the rest are zero before the file is read. */
struct exi_config_file {
	const char *path;
	const char *label; /* before it, in messages */
	const char *name;  /* as an origin */
	char texts[EXI_CONFIG_SETTINGS][EXI_CONFIG_PATH_MAX];
	char from[EXI_CONFIG_SETTINGS][128]; /* the rule and the profile */
	enum exi_config_level level[EXI_CONFIG_SETTINGS];
	bool complain;
	/* The rule that is being read. */
	char section[64];
	bool rule, applies, conditions, said;
	struct exi_config_ports ports;
	char ports_text[40];
	/* The settings of rules for ports, in their order. */
	struct exi_config_port_text by_port[EXI_CONFIG_PORT_TEXTS];
	unsigned int n_by_port;
};

/* Reads the file. With complain set, only checks it, and passes errors to
 * exi_config_refuse(). */
void exi_config_read(struct exi_config_file *f, bool complain);

/* Sets the text of exi_config_refusal(); the first reason is kept. */
__attribute__((format(printf, 1, 2))) void exi_config_refuse(const char *fmt,
							     ...);

#endif
