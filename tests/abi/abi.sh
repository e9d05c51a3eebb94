#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# abi.sh LIBRARY [--write]: a program that was linked before runs with this library:
# no public function is gone, and none takes or gives anything else. Compared with
# libexs.abi, which --write makes anew, when something was added or the version of
# the library changed.
here=$(cd "$(dirname "$0")" && pwd)
command -v abidiff >/dev/null || {
	echo "abidiff is not here"
	exit 77
}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

{
	echo '[abi_whitelist]'
	sed -nE 's/^[[:space:]]+(exs_[a-z0-9_]+);$/  \1/p' "$here/../../api/exs.map"
} >"$tmp/public"
if [ "$2" = --write ]; then
	abidw --kmi-whitelist "$tmp/public" --headers-dir "$here/../../api/sys" \
		--no-corpus-path --no-comp-dir-path --no-show-locs \
		--drop-private-types --no-elf-needed "$1" >"$tmp/dump" || exit 1
	grep -v "elf-symbol name='exi_" "$tmp/dump" >"$here/libexs.abi"
	exit
fi
sed -n '2,$s/^ *//p' "$tmp/public" | sort >"$tmp/want"
grep -o "elf-symbol name='exs_[a-z0-9_]*'" "$here/libexs.abi" |
	cut -d "'" -f 2 | sort >"$tmp/have"
cmp -s "$tmp/want" "$tmp/have" || {
	echo "api/exs.map and libexs.abi differ; tests/abi/abi.sh LIBRARY --write:"
	diff "$tmp/want" "$tmp/have"
	exit 1
}
compare()
{
	abidiff --kmi-whitelist "$tmp/public" --no-added-syms "$1" "$2"
}
compare "$here/libexs.abi" "$1" || exit 1
# Would it be seen?
sed "/name='exs_event' /s/size-in-bits='[0-9]*'/size-in-bits='64'/" \
	"$here/libexs.abi" >"$tmp/other.abi"
compare "$tmp/other.abi" "$1" >"$tmp/said" && {
	echo "an event of another size is not seen"
	exit 1
}
exit 0
