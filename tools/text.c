/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers as people write and read them, and texts for JSON. */
#include "tools/tool.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int parse_scaled(const char *text, uint64_t base, uint64_t *ret)
{
	static const char units[] = "kmgt";
	unsigned long long v;
	uint64_t scale = 1;
	const char *unit;
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return -EINVAL;
	errno = 0;
	v = strtoull(text, &end, 10);
	if (*end) {
		unit = strchr(units, end[0] | 0x20);
		if (!unit || end[1])
			return -EINVAL;
		for (; unit >= units; unit--)
			scale *= base;
	}
	if (errno || v > INT64_MAX / scale)
		return -EINVAL;
	*ret = v * scale;
	return 0;
}

int tool_parse_count(const char *text, uint64_t *ret)
{
	return parse_scaled(text, 1000, ret);
}

int tool_parse_bytes(const char *text, uint64_t *ret)
{
	return parse_scaled(text, 1024, ret);
}

int tool_parse_seconds(const char *text, uint64_t *ret_ns)
{
	double scale = 1e9;
	char *end;
	double v = strtod(text, &end);

	if (end == text || !isfinite(v) || v < 0 || v > 1e6)
		return -EINVAL;
	if (!strcasecmp(end, "ms"))
		scale = 1e6;
	else if (*end && strcasecmp(end, "s"))
		return -EINVAL;
	*ret_ns = (uint64_t)(v * scale);
	return 0;
}

/* Three digits of v, which is below 1000. */
static const char *text_three(char buf[TOOL_TEXT], double v, const char *unit)
{
	int digits = v < 9.995 ? 2 : v < 99.95 ? 1 : 0;

	snprintf(buf, TOOL_TEXT, "%.*f %s", digits, v, unit);
	return buf;
}

static const char *text_scaled(char buf[TOOL_TEXT], double v, double step,
			       const char *const *units)
{
	while (v >= 999.5 && units[1]) {
		v /= step;
		units++;
	}
	return text_three(buf, v, *units);
}

const char *tool_text_ns(char buf[TOOL_TEXT], double ns)
{
	static const char *const units[] = { "ns", "us", "ms", "s", NULL };

	if (ns <= 0)
		return strcpy(buf, "-");
	return text_scaled(buf, ns, 1000, units);
}

const char *tool_text_bytes(char buf[TOOL_TEXT], uint64_t bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB" };
	int i = 0;

	while (i < 3 && bytes >= 1024 && bytes % 1024 == 0) {
		bytes /= 1024;
		i++;
	}
	snprintf(buf, TOOL_TEXT, "%llu %s", (unsigned long long)bytes,
		 units[i]);
	return buf;
}

const char *tool_text_count(char buf[TOOL_TEXT], double count)
{
	static const char *const units[] = { "", "k", "M", "G", "T", NULL };

	if (count < 999.5 && count == floor(count)) {
		snprintf(buf, TOOL_TEXT, "%.0f ", count);
		return buf;
	}
	return text_scaled(buf, count, 1000, units);
}

json_t *tool_json_text(const char *text)
{
	json_t *o = json_string(text);
	char *plain;

	if (o)
		return o;
	plain = strdup(text);
	for (char *c = plain; c && *c; c++) {
		if (*c & 0x80)
			*c = '?';
	}
	o = json_string(plain ? plain : "?");
	free(plain);
	return o;
}
