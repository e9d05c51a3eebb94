/* SPDX-License-Identifier: BSD-2-Clause */
/* What the parts of exs key share. */
#ifndef EXS_TOOLS_KEY_H
#define EXS_TOOLS_KEY_H

#include <stdbool.h>

#include "core/trust/key.h"

struct key_wishes {
	bool force;
	bool json;
	char **names; /* the arguments after the verb */
	int n_names;
};

/* Installs the key on each host by ssh. The key is a line on the standard input
 * of a shell there, and appears nowhere else. Returns an exit code. */
int key_copy(const struct exi_key *key, const struct key_wishes *w);

#endif
