#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# script.sh SOURCE: scripts/install puts everything where it is told, without a
# package and without root, so that it can be used by what the script says; and
# what it says takes all of it away again.
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

fail()
{
	echo "$1:"
	cat "$tmp/log"
	exit 1
}

# A source of its own, all but what was built in it: it is built in there.
mkdir "$tmp/source" || exit 1
(cd "$1" && for f in *; do
	case $f in build*) ;; *) echo "$f" ;; esac
done | xargs tar -c) | tar -x -C "$tmp/source" || exit 1
cd "$tmp/source" || exit 1

scripts/install --prefix >"$tmp/log" 2>&1 && fail "no prefix is one"
scripts/install --here >"$tmp/log" 2>&1 && fail "an unknown option is taken"
scripts/install --no-packages --prefix "$tmp/installed" >"$tmp/log" 2>&1 ||
	fail "it does not install"
eval "$(grep '^    export ' "$tmp/log")"
[ "$(exs run echo works)" = works ] || fail "exs does not run a program"
cat >"$tmp/a.c" <<'END'
#include <sys/exs_ext.h>

int main(void)
{
	return exs_init(EXS_VERSION);
}
END
# shellcheck disable=SC2046 # flags
gcc -o "$tmp/a" "$tmp/a.c" $(pkg-config --cflags --libs exs) &&
	"$tmp/a" || fail "a program cannot be built as is said"
ninja -C build-install uninstall >"$tmp/log" 2>&1 || fail "it does not go away"
find "$tmp/installed" ! -type d >"$tmp/log" 2>/dev/null
[ ! -s "$tmp/log" ] || fail "it leaves behind"
