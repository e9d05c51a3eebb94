#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# install.sh BUILD: what is installed is enough to build a C and a C++ program,
# found by pkg-config, and to run them.
build=$1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

meson install -C "$build" --no-rebuild --destdir "$tmp/root" >"$tmp/log" 2>&1 || {
	cat "$tmp/log"
	exit 1
}
pc=$(find "$tmp/root" -name exs.pc)
[ -n "$pc" ] || {
	echo "exs.pc is not installed"
	exit 1
}
export PKG_CONFIG_PATH="${pc%/*}" PKG_CONFIG_SYSROOT_DIR="$tmp/root"
cat >"$tmp/a.c" <<'END'
#include <sys/exs.h>
#include <sys/exs_ext.h>

int main(void)
{
	if (exs_init(EXS_VERSION))
		return 1;
	return exs_x_reason_name(EXS_X_REASON_NONE)[0] != 'n';
}
END
cp "$tmp/a.c" "$tmp/a.cc"
library=$(dirname "$(find "$tmp/root" -name libexs.so)")
for compiler in "gcc a.c" "g++ a.cc"; do
	# shellcheck disable=SC2086,SC2046 # a compiler and its file, flags
	(cd "$tmp" && set -- $compiler && "$1" -Wall -Werror -o a "$2" \
		$(pkg-config --cflags --libs exs)) || exit 1
	LD_LIBRARY_PATH=$library "$tmp/a" || {
		echo "the program made by $compiler failed"
		exit 1
	}
done
# The command finds the shim, and the shim the library, where they are now.
exs=$(find "$tmp/root" -type f -name exs)
[ -z "$exs" ] || [ "$("$exs" run echo works)" = works ] || {
	echo "what is installed cannot run a program"
	exit 1
}
