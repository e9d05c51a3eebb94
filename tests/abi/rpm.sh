#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# rpm SOURCE: packaging/libexs.spec builds packages of this source, rpmlint finds no
# error in it or them, and what is in them works where rpm puts it.
cd "$1" || exit 1
for tool in rpm rpmbuild rpmlint; do
	command -v $tool >/dev/null || {
		echo "$tool is not here"
		exit 77
	}
done
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
spec=packaging/libexs.spec
version=$(sed -n 's/^Version: *//p' $spec)
[ "$version" = "$(sed -n "s/^  version: '\(.*\)',.*/\1/p" meson.build | head -n 1)" ] || {
	echo "$spec is of version $version, and the source is not"
	exit 1
}
mkdir "$tmp/SOURCES" "$tmp/db" &&
	tar -cJf "$tmp/SOURCES/libexs-$version.tar.xz" --exclude-vcs --exclude='./build*' \
		--exclude=__pycache__ --transform "s,^\.,libexs-$version," . || exit 1
# What the build needs is Debian's here, which rpm does not know.
rpmbuild -ba --nodeps --define "_topdir $tmp" --dbpath "$tmp/db" $spec \
	>"$tmp/log" 2>&1 </dev/null || {
	tail -60 "$tmp/log"
	exit 1
}
mapfile -t packages < <(find "$tmp/RPMS" -name '*.rpm' | sort)
for name in libexs libexs-verbs libexs-ofi libexs-devel exs python3-exs; do
	ls "$tmp"/RPMS/*/"$name-$version-"* >/dev/null || exit 1
done
rpmlint -c packaging/rpmlint.toml $spec "${packages[@]}" >"$tmp/lint" 2>&1
cat "$tmp/lint"
# "E:" is an error.
! grep ' E: ' "$tmp/lint" || {
	echo "rpmlint finds errors"
	exit 1
}
# As any user: the files of all packages, without the scripts.
mkdir "$tmp/root" && for p in "${packages[@]}"; do
	(cd "$tmp/root" && rpm2cpio "$p" | cpio -idm --quiet) || exit 1
done
exs=$tmp/root/usr/bin/exs
[ "$("$exs" run echo works)" = works ] || {
	echo "what is packaged cannot run a program"
	exit 1
}
[ "$(LD_LIBRARY_PATH=$(dirname "$(find "$tmp/root" -name 'libexs.so.1')") \
	PYTHONPATH=$(dirname "$(find "$tmp/root" -path '*/exs/__init__.py')")/.. \
	python3 -c 'import exs; print(exs.Queue(4).delete())')" = None ] || {
	echo "the binding does not work"
	exit 1
}
