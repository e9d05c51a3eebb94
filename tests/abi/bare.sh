#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# bare.sh SOURCE: builds with no optional package, as on a host where only the
# required ones are installed, and without probes.
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cat >"$tmp/pkg-config" <<'END'
#!/bin/sh
for word; do
	case $word in
	-* | inih | 0* | 1*) ;;
	*) exit 1 ;;
	esac
done
exec pkg-config "$@"
END
chmod +x "$tmp/pkg-config"
CMAKE=/bin/false PKG_CONFIG=$tmp/pkg-config meson setup "$tmp/build" "$1" -Doptimization=0 -Ddebug=false \
	-Dprobes=disabled \
	>"$tmp/log" 2>&1 && ninja -C "$tmp/build" >>"$tmp/log" 2>&1 || {
	tail -n 40 "$tmp/log"
	exit 1
}
# It is such a build.
if grep -q 'Run-time dependency \(cmocka\|jansson\|libsodium\).*YES' "$tmp/log"; then
	echo "optional packages were found:"
	grep 'Run-time dependency' "$tmp/log"
	exit 1
fi
python3 "$1/tests/abi/probes.py" without "$tmp/build/libexs.so" || exit 1
[ -e "$tmp/build/libexs.so" ] && [ -e "$tmp/build/preload/libexs-preload.so" ]
