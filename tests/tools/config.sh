#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# config.sh EXS: the host's file is read, below that of EXS_CONFIG, with its rules; in
# an /etc of its own.
exs=$1
[ "$(id -u)" = 0 ] && user='' || user='-U -r'
# shellcheck disable=SC2086 # flags
unshare $user -m true 2>/dev/null || {
	echo "there are no mount namespaces here"
	exit 77
}
tmp=$(mktemp -d) || exit 1
trap 'rmdir "$tmp"' EXIT
cat <<'END' | unshare $user -m sh -s "$exs" "$tmp"
exs=$1 tmp=$2 bad=0
mount -t tmpfs none "$tmp" && mkdir "$tmp/upper" "$tmp/work" "$tmp/upper/exs" &&
	printf 'ring_kb = 64\nspin_us = 3\n[rule r]\nprogram = redis*\nprofile = safe\n' \
		>"$tmp/upper/exs/exs.conf" &&
	mount -t overlay -o "lowerdir=/etc,upperdir=$tmp/upper,workdir=$tmp/work" none /etc ||
	exit 77
has()
{
	want=$1
	shift
	"$@" | grep -qE "$want" && return
	echo "$* does not say $want, but:"
	"$@"
	bad=1
}
has '^  EXS_RING_KB +64 +/etc/exs/exs.conf$' "$exs" info --config
has '^  EXS_SPIN_US +3 +/etc/exs/exs.conf$' "$exs" info
has '^  EXS_SPIN_US +0 +/etc/exs/exs.conf, rule r, profile safe$' \
	"$exs" info --program redis-server
printf 'spin_us = 4\n' >"$tmp/mine"
has '^  EXS_SPIN_US +4 +file$' env EXS_CONFIG="$tmp/mine" "$exs" info --program redis-server
has '^  EXS_UPGRADE +bytes:65536 +/etc/exs/exs.conf, rule r, profile safe$' \
	env EXS_CONFIG="$tmp/mine" "$exs" info --program redis-server
has '^  EXS_SPIN_US +5 +environment$' env EXS_SPIN_US=5 "$exs" info --config
has '^  shm +not usable +EXS_MEMORY_LIMIT_MB is 0' env EXS_MEMORY_LIMIT_MB=0 "$exs" info
# A file that another user may not read is not passed over, unlike one in a directory
# that this user cannot reach. (In a user namespace there is no other user.)
as_other()
{
	chmod "$1" /etc/exs && chmod "$2" /etc/exs/exs.conf && chmod "$3" /etc &&
		setpriv --reuid=65534 --clear-groups "$exs" info --config >"$tmp/said" 2>&1
	chmod 755 /etc /etc/exs && chmod 644 /etc/exs/exs.conf
}
if setpriv --reuid=65534 --clear-groups "$exs" --version >"$tmp/said" 2>&1; then
	as_other 755 600 755
	grep -q 'cannot read "/etc/exs/exs.conf": Permission denied' "$tmp/said" || bad=1
	as_other 700 644 755
	grep -q 'cannot read "/etc/exs/exs.conf": Permission denied' "$tmp/said" || bad=1
	as_other 755 644 711
	grep -qE '^  EXS_RING_KB +64' "$tmp/said" || bad=1
	as_other 755 644 700
	grep -qE '^  EXS_RING_KB +64' "$tmp/said" && bad=1
	grep -qE '^  EXS_RING_KB' "$tmp/said" || bad=1
else
	echo 'no other user can run exs here: who may not read the file is not tested'
fi
echo 'colour = red' >>/etc/exs/exs.conf
"$exs" info >"$tmp/said" 2>&1 && bad=1
grep -q '"/etc/exs/exs.conf" has an unknown key' "$tmp/said" || bad=1
cd / && umount /etc "$tmp"
exit $bad
END
