/* SPDX-License-Identifier: BSD-2-Clause */
/* Rules for ports: settings of single connections that differ from those of the
 * process. */
#ifndef EXI_CORE_BASE_CONFIG_PORTS_H
#define EXI_CORE_BASE_CONFIG_PORTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/config.h"
#include "core/base/config_file.h"

/* Parses a list such as "6379, 7000-7010". Returns false if the text is no such
 * list. */
bool exi_config_parse_ports(const char *text, struct exi_config_ports *ret);

/* Whether a rule for ports may give the setting. */
bool exi_config_is_by_port(size_t setting);

/* Stores a setting of a file for some ports. Called after the settings of the
 * whole process are in effect; of two settings for one port the later one wins.
 * A text that does not parse is refused. */
void exi_config_keep_port(const struct exi_config_file *f,
			  const struct exi_config_port_text *t,
			  struct exi_config *c);

/* Fills *ret with the i-th stored setting; false if there is none. */
bool exi_config_port_row(unsigned int i, struct exi_config_row *ret);

/* Removes all stored settings; for the fuzzer. */
void exi_config_forget_ports(void);

#endif
