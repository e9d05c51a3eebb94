/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The parameters of a scenario come from the environment, so that one program searches
 * all scenarios of a model. Before the model includes this file it lists them,
 *
 *	#define PARAMETERS(P) P(NAME, DEFAULT) P(NAME, DEFAULT)...
 *
 * and before anything else its init says TAKE_PARAMETERS. A default may be an expression
 * of parameters that are listed earlier, now.NAME. models/check sets the variables; BUG
 * is the number that the planted bug is defined as. The partial order reduction knows
 * that what is `local' changes nothing for others.
 */
#define DECLARE_PARAMETER(name, otherwise) local byte name;
#define TAKE_PARAMETER(name, otherwise) \
	{ const char *text = getenv(#name); now.name = text ? atoi(text) : (otherwise); }

PARAMETERS(DECLARE_PARAMETER)

#define TAKE_PARAMETERS	c_code { PARAMETERS(TAKE_PARAMETER) }
