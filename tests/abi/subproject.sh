#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# subproject.sh SOURCE: a Meson project that has the library as a subproject
# builds a program, which runs, and gets none of the library's tests.
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/subprojects"
ln -s "$1" "$tmp/subprojects/libexs"
cat >"$tmp/meson.build" <<'END_OF_FILE'
project('mine', 'c')
executable('mine', 'mine.c',
  dependencies: dependency('exs', fallback: 'libexs'))
END_OF_FILE
cat >"$tmp/mine.c" <<'END_OF_FILE'
#include <sys/exs.h>

int main(void)
{
	return exs_init(EXS_VERSION);
}
END_OF_FILE
{
	meson setup "$tmp/build" "$tmp" --force-fallback-for=exs \
		-Doptimization=0 -Ddebug=false &&
		ninja -C "$tmp/build" mine && "$tmp/build/mine"
} >"$tmp/log" 2>&1 || {
	tail -n 40 "$tmp/log"
	exit 1
}
[ -e "$tmp/build/subprojects/libexs/libexs.so" ] || exit 1
meson introspect --tests "$tmp/build" >"$tmp/tests" && [ "$(cat "$tmp/tests")" = "[]" ] || {
	echo "the project got tests of the library"
	exit 1
}
