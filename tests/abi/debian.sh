# SPDX-License-Identifier: BSD-2-Clause
# A Debian that has nothing but what every Debian has, for tests of what is installed.
# Sourced by bash, in the folder of the source. Leaves a folder in $tmp, which goes with
# the test; what runs in a Debian ends with its command.
#
# DEBIAN_TARBALL names a tar of such a Debian, for those who run these tests often; it
# is made where it is not there.

# need_debian TOOL...
need_debian()
{
	local tool

	for tool in debootstrap unshare ip "$@"; do
		command -v "$tool" >/dev/null || {
			echo "$tool is not here"
			exit 77
		}
	done
	[ "$(id -u)" = 0 ] || {
		echo "only root can make a Debian of its own"
		exit 77
	}
	tmp=$(mktemp -d) || exit 1
	trap 'rm -rf --one-file-system "$tmp"' EXIT
}

bootstrap()
{
	local mirror

	# shellcheck source=/dev/null
	. /etc/os-release
	mirror=$(sed -nE 's,^(deb |URIs:)[^h]*(https?://[^ ]*).*,\2,p' \
		/etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
		grep -v security | head -n 1)
	debootstrap --variant=minbase "$VERSION_CODENAME" "$1" \
		"${mirror:-http://deb.debian.org/debian}" >"$tmp/log" 2>&1
}

# make_debian ROOT PACKAGE...: with these packages, and no services.
make_debian()
{
	local root=$1 tar=${DEBIAN_TARBALL-}
	shift

	if [ -n "$tar" ] && [ -e "$tar" ]; then
		mkdir "$root" && tar -xf "$tar" -C "$root" || exit 1
	elif bootstrap "$root"; then
		[ -z "$tar" ] || tar -cf "$tar" -C "$root" . || exit 1
	else
		tail -5 "$tmp/log"
		echo "there is no archive to make a Debian from"
		exit 77
	fi
	cp /etc/apt/apt.conf.d/*proxy* "$root/etc/apt/apt.conf.d/" 2>/dev/null
	echo "127.0.0.1 localhost $(hostname)" >"$root/etc/hosts"
	printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
	chmod 755 "$root/usr/sbin/policy-rc.d"
	in_debian "$root" sh -c 'apt-get -qq update && apt-get -qq -y \
		--no-install-recommends install "$@" >/tmp/log 2>&1 ||
		{ tail -20 /tmp/log; exit 1; }' sh ca-certificates "$@"
}

# in_debian ROOT COMMAND...: as root, with the network of this host.
in_debian()
{
	# shellcheck disable=SC2016 # the inner shell's
	unshare --mount --pid --fork --kill-child sh -c '
		mount -t proc proc "$1/proc" &&
		root=$1 && shift && exec chroot "$root" /usr/bin/env -i \
			PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
			HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
			"$@"' sh "$@"
}

# apart_in_debian ROOT COMMAND...: with a network of its own, so that its ports are free.
apart_in_debian()
{
	# shellcheck disable=SC2016 # the inner shell's
	unshare --net --mount --pid --fork --kill-child sh -c '
		ip link set lo up && mount -t proc proc "$1/proc" &&
		root=$1 && shift && exec chroot "$root" /usr/bin/env -i \
			PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
			HOME=/root LC_ALL=C.UTF-8 "$@"' sh "$@"
}
