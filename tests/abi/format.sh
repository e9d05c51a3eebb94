#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Every C file is as clang-format writes it, and no line, comments included, has
# more than 80 columns.
cd "$(dirname "$0")/../.." || exit 1
command -v clang-format >/dev/null || {
	echo "clang-format is not here"
	exit 77
}
files()
{
	find . -name '*.[ch]' -not -path './build*' -not -path './.git/*' -print0
}

files | xargs -0 clang-format --dry-run -Werror && files | xargs -0 awk '{
	line = $0
	while ((at = index(line, "\t")))
		line = substr(line, 1, at - 1) \
			substr("        ", 1, 8 - (at - 1) % 8) \
			substr(line, at + 1)
	if (length(line) > 80) {
		print FILENAME ": " FNR ": over 80 columns"
		bad = 1
	}
}
END { exit bad }'
