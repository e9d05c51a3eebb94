#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# symbols.sh LIBRARY SHIM: the library exports what api/exs.map lists, every
# function of the public headers is listed, and nothing else; the shim takes over
# what preload/symbols lists.
root=$(dirname "$0")/../..
library=$1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

sed -nE 's/^[[:space:]]+(exs_[a-z0-9_]+);$/\1/p' "$root/api/exs.map" |
	sort >"$tmp/map"
nm -D --defined-only "$library" | awk '$2 != "A" && !/@EXS_PRIVATE$/ { print $3 }' |
	sed 's/@.*//' | sort >"$tmp/library"
# A function of the headers: its name at the start of a parameter list.
cat "$root"/api/sys/*.h | gcc -fpreprocessed -dD -E -P - |
	grep -oE '\bexs_[a-z0-9_]+\(' | tr -d '(' | sort -u >"$tmp/headers"

bad=0
compare()
{
	diff "$tmp/$1" "$tmp/$2" >"$tmp/diff" && return
	echo "< only in the $1, > only in the $2:"
	grep '^[<>]' "$tmp/diff"
	bad=1
}
# And the shim's: what preload/symbols lists, each once a hook.
if [ -n "$2" ]; then
	grep -v '^#' "$root/preload/symbols" | sort >"$tmp/listed"
	nm -D --defined-only "$2" | awk '$2 != "A" { print $3 }' |
		grep -vx exs_preload | sort >"$tmp/shim"
	sed -nE 's/^HOOK [^;]*[ *]([a-zA-Z_0-9]+)\([^;]*$/\1/p' \
		"$root"/preload/*.c | sort -u >"$tmp/hooks"
	compare listed shim
	compare listed hooks
fi
compare map library
compare map headers
exit $bad
