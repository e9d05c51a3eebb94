/* SPDX-License-Identifier: BSD-2-Clause */
/* Kinds of settings: how each is read, and printed. */
#ifndef EXI_CORE_BASE_SETTING_H
#define EXI_CORE_BASE_SETTING_H

#include <stdbool.h>
#include <stddef.h>

struct exi_config;
struct exi_config_setting;

struct exi_setting_choice {
	const char *word;
	int value;
};

#define EXI_SETTING_FABRIC_NAMES "shm, verbs, ofi, tcp, loop"

#define EXI_SETTING_PROVIDERS_DEFAULT "shm,verbs,ofi,tcp"

bool exi_setting_parse_u64(const struct exi_config_setting *s,
			   struct exi_config *c, const char *text);

void exi_setting_print_u64(const struct exi_config_setting *s,
			   const struct exi_config *c, char *buf, size_t len);

bool exi_setting_parse_u32(const struct exi_config_setting *s,
			   struct exi_config *c, const char *text);

void exi_setting_print_u32(const struct exi_config_setting *s,
			   const struct exi_config *c, char *buf, size_t len);

bool exi_setting_parse_power_of_two(const struct exi_config_setting *s,
				    struct exi_config *c, const char *text);

bool exi_setting_parse_choice(const struct exi_config_setting *s,
			      struct exi_config *c, const char *text);

void exi_setting_print_choice(const struct exi_config_setting *s,
			      const struct exi_config *c, char *buf,
			      size_t len);

bool exi_setting_parse_switch(const struct exi_config_setting *s,
			      struct exi_config *c, const char *text);

void exi_setting_print_switch(const struct exi_config_setting *s,
			      const struct exi_config *c, char *buf,
			      size_t len);

bool exi_setting_parse_index(const struct exi_config_setting *s,
			     struct exi_config *c, const char *text);

void exi_setting_print_index(const struct exi_config_setting *s,
			     const struct exi_config *c, char *buf, size_t len);

bool exi_setting_parse_text(const struct exi_config_setting *s,
			    struct exi_config *c, const char *text);

bool exi_setting_expand_path(const char *text, char *ret);

bool exi_setting_parse_path(const struct exi_config_setting *s,
			    struct exi_config *c, const char *text);

void exi_setting_print_string(const struct exi_config_setting *s,
			      const struct exi_config *c, char *buf,
			      size_t len);

bool exi_setting_parse_provider(const struct exi_config_setting *s,
				struct exi_config *c, const char *text);

void exi_setting_print_provider(const struct exi_config_setting *s,
				const struct exi_config *c, char *buf,
				size_t len);

bool exi_setting_parse_require(const struct exi_config_setting *s,
			       struct exi_config *c, const char *text);

bool exi_setting_parse_upgrade(const struct exi_config_setting *s,
			       struct exi_config *c, const char *text);

void exi_setting_print_upgrade(const struct exi_config_setting *s,
			       const struct exi_config *c, char *buf,
			       size_t len);

#endif
