#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Each public header compiles alone, in every C and C++ that its users have,
# without a warning and without reaching a header that is not installed; each
# internal one compiles alone, too.
cd "$(dirname "$0")/../.." || exit 1
build=$1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
bad=0

try()
{
	"$@" -fsyntax-only || {
		echo "does not compile alone: $*"
		bad=1
	}
}

warn='-Wall -Wextra -pedantic -Werror'
mkdir -p "$tmp/include/sys"
cp api/sys/*.h "$tmp/include/sys/"
for h in api/sys/*.h; do
	h=sys/$(basename "$h")
	# Twice: the guard works.
	printf '#include <%s>\n#include <%s>\nextern int x;\n' "$h" "$h" \
		>"$tmp/a.c"
	cp "$tmp/a.c" "$tmp/a.cc"
	printf '%s\n' 'exs_qhandle_t q = EXS_QHANDLE_INVALID;' \
		'exs_mhandle_t m[2] = { EXS_MHANDLE_INVALID, EXS_MHANDLE_UNREGISTERED };' |
		tee -a "$tmp/a.c" >>"$tmp/a.cc"
	for std in c99 c11 gnu11 gnu17; do
		# shellcheck disable=SC2086 # options are words
		try gcc -std=$std $warn -I"$tmp/include" "$tmp/a.c"
	done
	for std in c++11 c++17 c++20; do
		# shellcheck disable=SC2086 # options are words
		try g++ -std=$std $warn -Wconversion -Wold-style-cast \
			-I"$tmp/include" "$tmp/a.cc"
	done
done

# One handle in the place of the other is told, also by a C compiler.
swapped()
{
	printf '#include <sys/exs.h>\nint f(exs_qhandle_t q, exs_mhandle_t m);\n%s\n' \
		"int f(exs_qhandle_t q, exs_mhandle_t m) { return exs_qdelete($1); }" |
		gcc -x c -Wextra -Werror -Wno-unused -I"$tmp/include" -fsyntax-only - 2>&1
}
swapped q && ! swapped m >"$tmp/said" || {
	echo "a handle of memory is taken for a queue's: $(cat "$tmp/said")"
	bad=1
}

for h in $(find core providers tools tests -name '*.h' | sort); do
	echo "#include \"$h\"" >"$tmp/a.c"
	try gcc -std=gnu11 -D_GNU_SOURCE -Wall -Werror -I. -Iapi -I"$build" \
		"$tmp/a.c"
done
exit $bad
