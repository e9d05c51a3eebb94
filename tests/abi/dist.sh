#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# dist.sh SOURCE: the archive that "meson dist" makes of the last commit builds without
# git, and what its README says to do first is in it.
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
git -C "$1" rev-parse HEAD >/dev/null 2>&1 || {
	echo "this is no clone"
	exit 77
}
git clone -q "file://$(realpath "$1")" "$tmp/clone" &&
	meson setup "$tmp/build" "$tmp/clone" -Dtests=disabled -Dexamples=disabled \
		>"$tmp/log" 2>&1 &&
	meson dist -C "$tmp/build" --no-tests >>"$tmp/log" 2>&1 || {
	cat "$tmp/log"
	exit 1
}
mkdir "$tmp/source" && tar -xf "$tmp"/build/meson-dist/*.tar.xz -C "$tmp/source" || exit 1
cd "$tmp"/source/* || exit 1
for file in README.md INSTALL.md scripts/install scripts/demo debian/rules; do
	[ -e $file ] || {
		echo "$file is not in the archive"
		exit 1
	}
done
mkdir "$tmp/none" # no git there
ln -s /bin/false "$tmp/none/git"
PATH=$tmp/none:$PATH
meson setup "$tmp/again" -Dtests=disabled -Dexamples=disabled --prefix "$tmp/root" \
	>"$tmp/log" 2>&1 && ninja -C "$tmp/again" >>"$tmp/log" 2>&1 &&
	meson install -C "$tmp/again" >>"$tmp/log" 2>&1 || {
	tail -50 "$tmp/log"
	exit 1
}
[ "$("$tmp/root/bin/exs" run echo works)" = works ]
