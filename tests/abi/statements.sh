#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# statements.sh BUILD PROGRAM...: each statement of tests/conformance/statements has
# cases, each case is a row of one of the programs, each program is run over every
# fabric, and docs/guide/conformance.md is made from the table.
root=$(dirname "$0")/../..
table=$root/tests/conformance/statements
build=$1
shift
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
bad=0

complain()
{
	echo "tests/conformance/statements: $*"
	bad=1
}

for program; do
	"$program" --list || complain "$program --list ends with $?" >&2
done >"$tmp/rows"
grep -o '"name": "[^"]*"' "$build/meson-info/intro-tests.json" |
	sed 's/"name": "\(.*\)"/\1/' >"$tmp/tests"
grep -E '^[^#=]' "$table" >"$tmp/statements"

while read -r cases text; do
	[ -n "$text" ] || complain "no statement after $cases"
	[ "$cases" != not-yet ] || continue
	for c in $(echo "$cases" | sed 's/[*]/.*/g; s/,/ /g'); do
		case $c in
		@*) grep -qx "${c#@}" "$tmp/tests" ;;
		*) grep -qx "$c" "$tmp/rows" ;;
		esac || complain "there is no $c"
		case $c in
		@*) ;;
		*) echo "${c%%:*}" ;;
		esac >>"$tmp/used"
	done
done <"$tmp/statements"

for program in $(sort -u "$tmp/used"); do
	for fabric in tcp shm loop; do
		grep -qx "$program over $fabric" "$tmp/tests" ||
			complain "$program is not run over $fabric"
	done
	grep -q "'$program'" "$root/tests/vm/meson.build" ||
		complain "$program is not run over verbs"
done
n=$(wc -l <"$tmp/statements")
[ "$n" -ge 200 ] || complain "$n statements"

awk -f "$root/tests/conformance/page.awk" "$table" >"$tmp/page" || bad=1
cmp -s "$tmp/page" "$root/docs/guide/conformance.md" || complain \
	"docs/guide/conformance.md is not made from it: awk -f tests/conformance/page.awk tests/conformance/statements"
exit $bad
