#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# packages.sh SOURCE: Debian's packages are built by scripts/package, lintian finds no fault
# in them, and they are installed and used in a Debian of their own, which has nothing
# else. There the guide is followed, and what is broken on purpose is found by exs stat
# and exs check.
cd "$1" || exit 1
. tests/abi/debian.sh
need_debian lintian dpkg-buildpackage
root=$tmp/root
scripts/package --no-packages "$tmp/deb" || exit 1
lintian --fail-on error,warning "$tmp"/deb/*.changes || {
	echo "lintian finds faults in the packages"
	exit 1
}
make_debian "$root" gcc libc6-dev pkg-config redis-server redis-tools || exit 1
mkdir "$root/tmp/tools" && cp "$tmp"/deb/*.deb debian/tests/installed "$root/tmp" &&
	cp tests/tools/{check.py,common.py,deny.c} "$root/tmp/tools" || exit 1
in_debian "$root" sh -c 'apt-get -qq -y --no-install-recommends install /tmp/*.deb \
	>/tmp/log 2>&1 || { tail -20 /tmp/log; exit 1; }' || {
	echo "the packages cannot be installed"
	exit 1
}
apart_in_debian "$root" sh /tmp/installed || {
	echo "the packages do not work where they are installed"
	exit 1
}
# The first page of the guide, as it is typed.
sed -nE '/^## /q; s/^    (exs run.*)/\1/p' docs/guide/programs.md >"$root/tmp/guide"
# shellcheck disable=SC2016 # the inner shell's
apart_in_debian "$root" timeout 120 bash -c '
	. <(sed 1q /tmp/guide) >/dev/null 2>&1
	until redis-cli -p 7379 ping >/dev/null 2>&1; do :; done
	. <(sed 1d /tmp/guide)' >"$tmp/said" 2>&1 &&
	grep -qE '^  to 127\.0\.0\.1 port 7379: [0-9]+ connections?, shm,' "$tmp/said" || {
	tail -20 "$tmp/said"
	echo "the commands of docs/guide/programs.md do not work"
	exit 1
}
# Then something is wrong: another user, a plain peer, two namespaces, no memory that may
# be locked, a device or a key of another name, a root of its own, few descriptors.
in_debian "$root" apt-get -qq -y --no-install-recommends install iproute2 >"$tmp/log" 2>&1 &&
	apart_in_debian "$root" sh -c 'cd /tmp/tools && gcc -o deny deny.c &&
		python3 check.py /usr/bin/exs deny' || {
	echo "exs stat and exs check do not name what is wrong"
	exit 1
}
