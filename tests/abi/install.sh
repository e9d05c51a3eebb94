#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# install.sh BUILD: what is installed is enough to build a C and a C++ program,
# found by pkg-config, and to run them; also with the library linked in.
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
cp "${0%/*}/use.cc" "$tmp/a.cc"
library=$(dirname "$(find "$tmp/root" -name libexs.so)")
for compiler in "gcc a.c" "g++ a.cc"; do
	# shellcheck disable=SC2086,SC2046 # a compiler and its file, flags
	(cd "$tmp" && set -- $compiler && "$1" -Wall -Wextra -Werror -o a "$2" \
		$(pkg-config --cflags --libs exs)) || exit 1
	LD_LIBRARY_PATH=$library "$tmp/a" || {
		echo "the program made by $compiler failed"
		exit 1
	}
done
# CMake finds the same.
if command -v cmake >/dev/null; then
	mkdir "$tmp/cmake"
	cp "$tmp/a.c" "$tmp/cmake"
	cat >"$tmp/cmake/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.16)
project(a C)
find_package(exs 0.1 REQUIRED)
add_executable(shared a.c)
target_link_libraries(shared exs::exs)
add_executable(static a.c)
target_link_libraries(static exs::exs_static)
END
	(cmake -S "$tmp/cmake" -B "$tmp/cmake/build" -Dexs_DIR="$(find "$tmp/root" 		-path '*/cmake/exs' -type d)" && cmake --build "$tmp/cmake/build") 		>"$tmp/log" 2>&1 || {
		cat "$tmp/log"
		exit 1
	}
	LD_LIBRARY_PATH=$library "$tmp/cmake/build/shared" && "$tmp/cmake/build/static" || {
		echo "a program made by CMake failed"
		exit 1
	}
fi
# As the probes of Autoconf do it: the symbol without the header.
printf 'char exs_init();\nint main(void) { return !exs_init; }\n' >"$tmp/p.c"
# shellcheck disable=SC2046 # flags
gcc -w -o "$tmp/p" "$tmp/p.c" $(pkg-config --libs exs) || {
	echo "exs_init is not found by a probe of -lexs"
	exit 1
}
# Linked in, it needs no libexs.so, and does not start where there is another one.
# shellcheck disable=SC2046 # flags
gcc -o "$tmp/s" "$tmp/a.c" $(pkg-config --cflags exs) -Wl,-Bstatic \
	$(pkg-config --static --libs exs) -Wl,-Bdynamic || exit 1
if ldd "$tmp/s" | grep libexs || ! "$tmp/s"; then
	echo "a program with libexs.a does not run by itself"
	exit 1
fi
# The command finds the shim, and the shim the library, where they are now.
exs=$(find "$tmp/root" -type f -path "*/bin/exs")
[ -n "$exs" ] || exit 0
[ "$("$exs" run echo works)" = works ] || {
	echo "what is installed cannot run a program"
	exit 1
}
"$exs" run "$tmp/s" 2>"$tmp/said" && {
	echo "a program with libexs.a starts a second core under the shim"
	exit 1
}
[ "$(grep -c . "$tmp/said")" = 1 ] && grep -q 'libexs\.a' "$tmp/said" || {
	echo "a program with libexs.a says under the shim:"
	cat "$tmp/said"
	exit 1
}
