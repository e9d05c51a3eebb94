/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of settings. */
#ifndef EXI_CORE_BASE_CONFIG_TABLE_H
#define EXI_CORE_BASE_CONFIG_TABLE_H

#include <stddef.h>

#include "core/base/config.h"

#define EXI_CONFIG_PREFIX   "EXS_"
#define EXI_CONFIG_SETTINGS 23
/* The first so many are of the log. */
#define EXI_CONFIG_OF_LOG 2

extern const struct exi_config_setting exi_config_settings[EXI_CONFIG_SETTINGS];

/* The index of the setting with this name in a file: its variable without EXS_,
 * in upper or lower case. -1 if there is none. */
int exi_config_setting_of(const char *name);

#endif
