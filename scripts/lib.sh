# SPDX-License-Identifier: BSD-2-Clause
# What the scripts share: Debian's packages, and how to talk. Sourced by bash.
#
# A script sets `me` (how it is called) before it sources this file.

# One list of packages, by what they are for. INSTALL.md has the same list.
packages_build="gcc libc6-dev meson ninja-build pkg-config"
packages_library="libinih-dev liburing-dev libsodium-dev systemtap-sdt-dev"
packages_tool="libjansson-dev"
packages_verbs="libibverbs-dev librdmacm-dev"
packages_ofi="libfabric-dev"
packages_examples="libssl-dev libuv1-dev"
packages_tests="libcmocka-dev python3 curl iproute2 musl-tools netcat-openbsd nftables"
packages_apps="redis-server redis-tools memcached nginx-light wrk iperf3"
packages_apps_more="cmake default-jdk-headless distcc dpkg-dev etcd-client etcd-server haproxy
	libfabric-bin libgrpc++-dev libprotobuf-dev
	nodejs openssh-client openssh-server perl postgresql protobuf-compiler-grpc
	python3-distributed python3-grpcio python3-pika python3-zmq rabbitmq-server rsync socat
	sockperf tcl tshark
	bpftrace linux-perf cpio python3-yaml rpm rpmlint systemd
	debhelper dh-python debootstrap lintian python3-pip python3-setuptools python3-wheel
	fish zsh ghc libghc-network-dev mono-mcs mono-runtime"
packages_servers="apache2-bin apache2-utils beanstalkd bind9 bind9-dnsutils dbus-bin dbus-daemon dovecot-imapd
	gearman-job-server gearman-tools gunicorn ldap-utils lftp libanyevent-perl libmojolicious-perl libnbd-bin lighttpd mariadb-client mariadb-server
	mosquitto mosquitto-clients nbd-server nghttp2-client nghttp2-server nutcracker openbsd-inetd openssl
	pgbouncer php-cli php-fpm postfix puma python3-aiohttp python3-gevent python3-tornado
	python3-twisted python3-uvloop qemu-utils samba siege slapd smbclient squid stunnel4 tinyproxy
	tmux unbound unicorn uwsgi-core uwsgi-plugin-python3 varnish vsftpd x11-apps x11-utils xvfb"
packages_vm="qemu-system-x86 linux-headers-amd64 make xz-utils busybox-static cpio
	kmod iproute2 rdma-core ibverbs-utils ibverbs-providers rdmacm-utils"
packages_gates="clang-format mandoc g++ binutils abigail-tools valgrind"
packages_clang="clang"
packages_models="spin"
packages_arm="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
packages_deb="debhelper dh-python"

# Why the script cannot go on, and the cure, in one line.
die()
{
	echo "$me: $*" >&2
	exit 1
}

# Whether the descriptor is a terminal that understands escape sequences.
is_screen()
{
	[ -t "$1" ] && [ "${TERM:-dumb}" != dumb ]
}

say()
{
	if is_screen 1 && [ -z "${NO_COLOR-}" ]; then
		printf '\033[1;34m==>\033[0m %s\n' "$*"
	else
		echo "==> $*"
	fi
}

# progress_of COUNT...: until progress_over, or this script's end, says how far the
# work is and how long it will take, each second on a terminal, seldom in a log. COUNT
# prints "DONE ALL". It is this that runs in the background, not the work, which an
# interrupt must reach.
progress_of()
{
	while sleep 0.2 && kill -0 $$ 2>/dev/null; do
		say_progress "$@"
	done &
	progress=$!
}

progress_began=0 progress_said=0
say_progress()
{
	local every=20 took n=0 m=0 line

	! is_screen 2 || every=1
	[ "$progress_began" != 0 ] || progress_began=$SECONDS progress_said=$SECONDS
	[ $((SECONDS - progress_said)) -ge $every ] || return
	progress_said=$SECONDS took=$((SECONDS - progress_began))
	read -r n m < <("$@")
	[ "${n:-0}" -gt 0 ] && [ "${m:-0}" -ge "$n" ] || return
	line="$n of $m, $took s, about $((took * (m - n) / n)) s left"
	if is_screen 2; then
		printf '\r    %s\033[K' "$line" >&2
	else
		echo "    $line" >&2
	fi
}

# Keeps the status of the work before it.
progress_over()
{
	local status=$?

	kill "$progress" 2>/dev/null
	wait "$progress" 2>/dev/null
	! is_screen 2 || printf '\r\033[K' >&2
	return $status
}

# How far ninja is, by its log.
ninja_count()
{
	tail -c 2000 "$1" | sed -nE 's,^\[([0-9]+)/([0-9]+)\].*,\1 \2,p' | tail -n 1
}

# How far apt-get is with so many packages: each is unpacked and set up.
apt_count()
{
	echo "$(grep -cE '^(Unpacking|Setting up) ' "$1") $((2 * $2))"
}

missing_packages()
{
	local p

	for p in "$@"; do
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" \
			2>/dev/null)" = installed ] || echo "$p"
	done
}

# After a failure without an installation: ends the script if packages are missing.
die_of_missing()
{
	local missing

	command -v dpkg-query >/dev/null || return 0
	missing=$(missing_packages "$@" | tr '\n' ' ')
	[ -z "$missing" ] || die "packages are missing; as root do: apt-get" \
		"install --no-install-recommends ${missing% }"
}

as_root()
{
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		sudo "$@"
	fi
}

apt_get()
{
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq \
		-o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 \
		-o Dpkg::Use-Pty=0 "$@"
}

# Runs a command while no package may start a service: the programs are wanted,
# not running servers.
without_services()
{
	local policy=/usr/sbin/policy-rc.d ours=false

	if [ ! -e $policy ]; then
		printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null &&
			as_root chmod 755 $policy && ours=true
	fi
	"$@"
	set -- $?
	! $ours || as_root rm -f $policy
	return "$1"
}

# Installs what is missing of the packages given.
need_packages()
{
	local missing log all

	command -v dpkg-query >/dev/null ||
		die "this needs a Debian system; elsewhere install what" \
			"INSTALL.md lists and give --no-install"
	missing=$(missing_packages "$@" | tr '\n' ' ')
	[ -n "$missing" ] || return 0
	if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
		die "packages are missing and there is no sudo; as root do:" \
			"apt-get install --no-install-recommends $missing"
	fi
	say "installing ${missing% }"
	log=$(mktemp) || die "no room for a temporary file; free some in ${TMPDIR:-/tmp}"
	apt_get update >"$log" 2>&1 </dev/null
	# shellcheck disable=SC2086 # the list is words
	all=$(apt-get -qq -s install --no-install-recommends $missing 2>/dev/null |
		grep -c '^Inst ')
	progress_of apt_count "$log" "$all"
	# shellcheck disable=SC2086 # the list is words
	without_services apt_get install --no-install-recommends -y $missing \
		>>"$log" 2>&1 </dev/null
	if ! progress_over; then
		cat "$log" >&2
		rm -f "$log"
		die "Debian's packages cannot be installed (apt-get's reasons" \
			"are above); as root do: apt-get update && apt-get" \
			"install --no-install-recommends $missing"
	fi
	rm -f "$log"
}

# A build folder with the options given after it, configured anew when they
# changed. Output is kept in the folder's log and shown when it fails.
configure()
{
	local dir=$1 log
	shift
	local wish="CC=${CC:-cc} $*"

	mkdir -p "$dir" || die "cannot make $dir; is the source read-only?"
	log=$dir.log
	if [ "$(cat "$dir.options" 2>/dev/null)" != "$wish" ] ||
		[ ! -f "$dir/build.ninja" ]; then
		rm -rf "$dir" "$dir.options"
		meson setup "$dir" "$@" >"$log" 2>&1 </dev/null ||
			{ cat "$log" >&2; return 1; }
		echo "$wish" >"$dir.options"
	fi
}

# The same, and built: what $targets names, or all.
targets=()
build()
{
	local log=$1.log

	configure "$@" || return 1
	progress_of ninja_count "$log"
	ninja -C "$1" -j "$jobs" "${targets[@]}" >"$log" 2>&1 </dev/null
	progress_over || { cat "$log" >&2; return 1; }
}

# The names of all tests, as suite/test.
list_tests()
{
	meson test -C build-test/gcc --no-rebuild --list 2>/dev/null |
		sed -nE 's,^libexs:([^ +]+)[^ ]* / ,\1/,p'
}

# The names of tests that match the pattern $1 and not the pattern $2, in
# $chosen, in their order.
choose()
{
	mapfile -t chosen < <(list_tests | grep -E "$1" | grep -vE "$2" |
		sed 's,^[^/]*/,,' | awk '!seen[$0]++')
}

# choose_sanitized asan|tsan: the tests that run under a sanitizer, in $chosen.
choose_sanitized()
{
	local few skip

	"choose_$1"
}

choose_asan()
{
	# The runs under fire with the most processes; the thread sanitizer has
	# those with the most threads.
	few='^(unit|api|conformance|interop|fault|examples|tools)/|^preload/latent'
	$all && few+='|^preload/differ|^vm/failures'
	# What a forked child cannot give back of libfabric's counts as lost;
	# families have none.
	skip='^fault/fire .* (1 pair|2 pairs|4 pairs here)'
	# Under exs run: the program has not the sanitizer's runtime.
	skip+='|^fault/fire files$'
	# An end gives up after ten seconds, which is little for a sanitizer that gets
	# what the other tests leave of the CPUs.
	$all || skip+='|^api/forks$'
	# Over loop they are those over shm, but in one process.
	$all || skip+='|over loop'
	choose "$few" "$skip|(init|reused numbers) over ofi|ofi settings"
}

choose_tsan()
{
	# What has threads of its own: races between processes are not seen.
	few='^(unit/|api/|conformance/(stream|switch|events|death|process|loans)'
	few+='|conformance/families over ofi, tcp$'
	few+='|fault/(liar|soak over .*|fire (stream|halfclose|async) 4 pairs here)'
	few+='|preload/latent)'
	$all && few='^(unit/|api/|conformance/|fault/|preload/(differ|latent))'
	# A number that is closed behind the library, and used again, is a race by
	# intent. What is large has one thread more than what is small, and much memory.
	skip='^(fault/fire .* (1 pair|2 pairs|4 pairs apart)|conformance/users'
	skip+='|conformance/reused numbers'
	# These have one thread.
	skip+='|unit/(stream|key|auth|packet))'
	$all || skip+='|over loop|^api/(big|forks)$'
	choose "$few" "$skip"
}

jobs=$(nproc 2>/dev/null || echo 2)
