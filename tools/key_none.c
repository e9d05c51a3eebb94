/* SPDX-License-Identifier: BSD-2-Clause */
/* exs key in a build without the library that keys need. */
#include <argp.h>
#include <stdio.h>

#include "tools/check.h"
#include "tools/tool.h"

#define WHY                                                                    \
	"this build has no keys, and so no fabrics between hosts: "            \
	"it was made without libsodium; install libsodium-dev and build again"

bool check_key_state(char *text, size_t len)
{
	snprintf(text, len, "%s", WHY);
	return false;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	return key == ARGP_KEY_ARG ? 0 : ARGP_ERR_UNKNOWN;
}

static const struct argp argp = {
	.parser = parse,
	.args_doc = "[ARGUMENT...]",
	.doc = "Not here: " WHY ".",
};

int tool_key(int argc, char **argv)
{
	if (argp_parse(&argp, argc, argv, 0, NULL, NULL))
		return TOOL_USAGE;
	return tool_fail(WHY);
}
