#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# packages SOURCE: Debian's packages are built by scripts/package, lintian finds no
# fault in them, and they are installed and used in a Debian of their own, which has
# nothing else.
cd "$1" || exit 1
. scripts/lib.sh
for tool in debootstrap lintian dpkg-buildpackage; do
	command -v $tool >/dev/null || {
		echo "$tool is not here"
		exit 77
	}
done
[ "$(id -u)" = 0 ] || {
	echo "only root can make a Debian of its own"
	exit 77
}
tmp=$(mktemp -d) || exit 1
root=$tmp/root
finish()
{
	umount -l "$root/proc" 2>/dev/null
	rm -rf --one-file-system "$tmp"
}
trap finish EXIT
scripts/package --no-packages "$tmp/deb" || exit 1
lintian --fail-on error,warning "$tmp"/deb/*.changes || {
	echo "lintian finds faults in the packages"
	exit 1
}
. /etc/os-release
mirror=$(sed -nE 's,^(deb |URIs:)[^h]*(https?://[^ ]*).*,\2,p' /etc/apt/sources.list \
	/etc/apt/sources.list.d/* 2>/dev/null | grep -v security | head -n 1)
debootstrap --variant=minbase "$VERSION_CODENAME" "$root" "${mirror:-http://deb.debian.org/debian}" \
	>"$tmp/log" 2>&1 || {
	tail -5 "$tmp/log"
	echo "there is no archive to make a Debian from"
	exit 77
}
cp "$tmp"/deb/*.deb debian/tests/installed "$root/tmp"
cp /etc/apt/apt.conf.d/*proxy* "$root/etc/apt/apt.conf.d/" 2>/dev/null
mount -t proc proc "$root/proc" || exit 1
chroot "$root" env DEBIAN_FRONTEND=noninteractive sh -c '
	apt-get -qq update &&
	apt-get -qq -y --no-install-recommends install /tmp/*.deb gcc libc6-dev pkg-config \
		>/tmp/log 2>&1 || { tail -20 /tmp/log; exit 1; }
	sh /tmp/installed' || {
	echo "the packages do not work where they are installed"
	exit 1
}
