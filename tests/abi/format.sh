#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Every C file is as clang-format writes it.
cd "$(dirname "$0")/../.." || exit 1
command -v clang-format >/dev/null || {
	echo "clang-format is not here"
	exit 77
}
find . -name '*.[ch]' -not -path './build*' -not -path './.git/*' -print0 |
	xargs -0 clang-format --dry-run -Werror
