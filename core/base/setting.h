/* SPDX-License-Identifier: BSD-2-Clause */
/* Kinds of settings: how values are parsed and printed. parse stores the value
 * in the member of c that s names; it returns false, and changes nothing, if
 * the text is no value of this kind. print writes the member into buf as parse
 * would read it. */
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

/* The number of the fabric with this name of len bytes, in any case; -1: there
 * is none. */
int exi_setting_fabric(const char *name, size_t len);

#define EXI_SETTING_PROVIDERS_DEFAULT "shm,verbs,ofi,tcp"

/* A number (uint64_t) from s->min to s->max. */
bool exi_setting_parse_u64(const struct exi_config_setting *s,
			   struct exi_config *c, const char *text);
void exi_setting_print_u64(const struct exi_config_setting *s,
			   const struct exi_config *c, char *buf, size_t len);

/* Such a number as a uint32_t. */
bool exi_setting_parse_u32(const struct exi_config_setting *s,
			   struct exi_config *c, const char *text);
void exi_setting_print_u32(const struct exi_config_setting *s,
			   const struct exi_config *c, char *buf, size_t len);

/* A power of two, printed as a uint32_t. */
bool exi_setting_parse_power_of_two(const struct exi_config_setting *s,
				    struct exi_config *c, const char *text);

/* One of the words of s->choices, in upper or lower case; an enum or int. */
bool exi_setting_parse_choice(const struct exi_config_setting *s,
			      struct exi_config *c, const char *text);
void exi_setting_print_choice(const struct exi_config_setting *s,
			      const struct exi_config *c, char *buf,
			      size_t len);

/* "on", "1", "yes" or "true", and their opposites; a bool. */
bool exi_setting_parse_switch(const struct exi_config_setting *s,
			      struct exi_config *c, const char *text);
void exi_setting_print_switch(const struct exi_config_setting *s,
			      const struct exi_config *c, char *buf,
			      size_t len);

/* Nothing, or a number up to s->max; an int, -1 for nothing. */
bool exi_setting_parse_index(const struct exi_config_setting *s,
			     struct exi_config *c, const char *text);
void exi_setting_print_index(const struct exi_config_setting *s,
			     const struct exi_config *c, char *buf, size_t len);

/* Any text shorter than EXI_CONFIG_PATH_MAX bytes. */
bool exi_setting_parse_text(const struct exi_config_setting *s,
			    struct exi_config *c, const char *text);

/* Copies a path into ret, of EXI_CONFIG_PATH_MAX bytes, with a leading "~" as
 * the home directory. False: too long. */
bool exi_setting_expand_path(const char *text, char *ret);

/* A path, in which a leading "~/" is the home directory. */
bool exi_setting_parse_path(const struct exi_config_setting *s,
			    struct exi_config *c, const char *text);

/* Nothing, or an absolute path of at most s->max bytes. */
bool exi_setting_parse_directory(const struct exi_config_setting *s,
				 struct exi_config *c, const char *text);

/* Prints a text or a path. */
void exi_setting_print_string(const struct exi_config_setting *s,
			      const struct exi_config *c, char *buf,
			      size_t len);

/* A list of fabrics in the order of preference; "^" before a name excludes it,
 * and exclusions alone take away from the usual list. */
bool exi_setting_parse_provider(const struct exi_config_setting *s,
				struct exi_config *c, const char *text);
void exi_setting_print_provider(const struct exi_config_setting *s,
				const struct exi_config *c, char *buf,
				size_t len);

/* Nothing, or the name of a fabric. */
bool exi_setting_parse_require(const struct exi_config_setting *s,
			       struct exi_config *c, const char *text);

/* When a connection moves: "auto", "connect", "never" or "bytes:N". */
bool exi_setting_parse_upgrade(const struct exi_config_setting *s,
			       struct exi_config *c, const char *text);
void exi_setting_print_upgrade(const struct exi_config_setting *s,
			       const struct exi_config *c, char *buf,
			       size_t len);

#endif
