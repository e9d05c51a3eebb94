#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Layers: who may include whom. Prints each line that breaks a rule.
cd "$(dirname "$0")/../.." || exit 1
bad=0

# Own headers that files of the folders $1 include, but for those that match
# the pattern $2.
only()
{
	# shellcheck disable=SC2086 # folders are words
	found=$(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' \
		--include='*.[ch]' $1 |
		grep -vE ":[[:space:]]*#[[:space:]]*include[[:space:]]*\"($2)\"")
	[ -z "$found" ] && return
	echo "$1 may include $2 only:"
	echo "$found"
	bad=1
}

only core '(core/[a-z_/]+|exi_build)\.h'
only api '((api|core)/[a-z_/]+|exi_build)\.h'
for p in providers/*/; do
	p=${p%/}
	only "$p" "(core|$p)/[a-z_/]+\\.h"
done
only preload '((preload|core)/[a-z_/]+|exi_build)\.h'
only tools '((tools|core)/[a-z_/]+|exi_build)\.h'
# The public headers and the examples stand on nothing of ours but themselves.
only 'api/sys examples' 'none'
exit $bad
