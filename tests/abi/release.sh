#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# A release compiles without a warning: no assertions, and more optimization, by which
# the compiler sees more.
cd "$(dirname "$0")/../.." || exit 1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
meson setup "$tmp/build" --buildtype=release --werror >"$tmp/log" 2>&1 &&
	ninja -C "$tmp/build" >"$tmp/log" 2>&1 && exit 0
grep -A3 -E 'error|FAILED' "$tmp/log" || cat "$tmp/log"
exit 1
