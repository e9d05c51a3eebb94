#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# symbols.sh LIBRARY SHIM BEHAVE BUILD: the library exports what api/exs.map
# lists, every function of the public headers is listed, and nothing else. The
# shim takes over what preload/symbols says; what proves it is there; nothing of
# the C library, or of liburing, is missing in the table, and docs/guide/calls.md is made from it.
# Neither library needs a newer C library than INSTALL.md says.
root=$(dirname "$0")/../..
library=$1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

sed -nE 's/^[[:space:]]+(exs_[a-z0-9_]+);$/\1/p' "$root/api/exs.map" |
	sort >"$tmp/map"
nm -D --defined-only "$library" | awk '$2 != "A" && !/@EXS_PRIVATE$/ { print $3 }' |
	sed 's/@.*//' | sort >"$tmp/library"
# A function of the headers: its name at the start of a parameter list.
cat "$root"/api/sys/*.h | gcc -fpreprocessed -dD -E -P - |
	grep -oE '\bexs_[a-z0-9_]+\(' | tr -d '(' | sort -u >"$tmp/headers"

bad=0
compare()
{
	diff "$tmp/$1" "$tmp/$2" >"$tmp/diff" && return
	echo "< only in the $1, > only in the $2:"
	grep '^[<>]' "$tmp/diff"
	bad=1
}
compare map library
compare map headers

# --- the shim ---
shim=$2 behave=$3 build=$4
table=$root/preload/symbols

complain()
{
	echo "preload/symbols: $*"
	bad=1
}

grep -E '^[a-zA-Z_]' "$table" >"$tmp/rows"
awk '{ print $1 }' "$tmp/rows" | sort >"$tmp/table"
awk '$2 ~ /^(accelerated|tcp|watched)$/ { print $1 }' "$tmp/rows" |
	sort >"$tmp/listed"
nm -D --defined-only "$shim" | awk '$2 != "A" { print $3 }' |
	grep -vx exs_preload | sort >"$tmp/shim"
sed -nE -e 's/^HOOK [^;]*[ *]([a-zA-Z_0-9]+)\([^;]*$/\1/p' \
	-e 's/^ALIAS\(([a-zA-Z_0-9]+),.*/\1/p' "$root"/preload/*.c |
	sort -u >"$tmp/hooks"
compare listed shim
compare listed hooks

# A library that is loaded before may answer for files, and hang (fakeroot).
for file in "$library" "$shim"; do
	nm -D --undefined-only "$file" |
		grep -oE ' (l?stat|fstat|fstatat|__[lf]?xstat|__fxstatat)(64)?@.*| statx@.*' |
		sed "s,^,${file##*/} asks by name:," >"$tmp/by-name"
	[ ! -s "$tmp/by-name" ] || { cat "$tmp/by-name"; bad=1; }
done

# What the C library exports to programs that are linked now.
libc=$(ldd "$shim" | awk '$1 ~ /^libc\.so/ { print $3 }')
nm -D --defined-only "$libc" | awk '/@@/ && !/@GLIBC_PRIVATE$/ { print $3 }' |
	sed 's/@.*//' | sort -u >"$tmp/libc"
sed -n 's/^~ //p' "$table" | grep -xE -f - "$tmp/libc" >"$tmp/needed"
[ -s "$tmp/needed" ] || complain "the patterns find nothing in $libc"
# And of the liburing that the library was built with; the table has calls of
# newer ones.
uring=$(ldd "$library" | awk '$1 ~ /^liburing/ { print $3 }')
[ -z "$uring" ] || nm -D --defined-only "$uring" | awk '$2 == "T" { print $3 }' |
	sed 's/@.*//' | grep -xE \
		'io_uring_(queue_.*|submit.*|wait_.*|enter2?|setup|register(_files.*)?)' \
		>>"$tmp/needed"
sort -o "$tmp/needed" "$tmp/needed"
comm -23 "$tmp/needed" "$tmp/table" | sed 's/^/not in the table: /' >"$tmp/diff"
comm -13 "$tmp/libc" "$tmp/table" | grep -v '^io_uring_' |
	grep -vxE "$(sed -nE 's/ .*\(glibc 2\.[0-9]+ and later\)$//p' "$table" |
		paste -sd '|')" | sed 's/^/no such call: /' >>"$tmp/diff"
sort "$tmp/table" | uniq -d | sed 's/^/twice in the table: /' >>"$tmp/diff"
[ -s "$tmp/diff" ] && complain "$(cat "$tmp/diff")"

# Proofs: there, and of the call.
"$behave" --list >"$tmp/list" || exit 1
grep -o '"name": "[^"]*"' "$build/meson-info/intro-tests.json" >"$tmp/tests"
while read -r call state proofs _; do
	[ "$proofs" != - ] || [ "$state" = unsupported ] ||
		complain "$call: no proof"
	for proof in $(echo "$proofs" | sed 's/[*]/.*/g; s/,/ /g'); do
		case $proof in
		-) ;;
		@*) grep -qx "\"name\": \"${proof#@}\"" "$tmp/tests" ;;
		*) grep -qx "$proof" "$tmp/list" ;;
		esac || complain "$call: there is no $proof"
	done
	case $state,$proofs in
	unsupported,*) continue ;;
	esac
	grep -qw "$call" "$root"/tests/preload/*.[ch] ||
		complain "$call: no row calls it"
done <"$tmp/rows"

# --- the oldest C library ---
floor=$(sed -nE 's/.*glibc ([0-9]+\.[0-9]+) or later.*/\1/p' "$root/INSTALL.md")
for file in "$library" "$shim"; do
	needs=$(objdump -T "$file" | awk '$4 == "*UND*"' |
		grep -oE 'GLIBC_[0-9.]+' | sed 's/GLIBC_//' | sort -uV | tail -n 1)
	[ -n "$needs" ] || complain "objdump finds no symbol that $file needs"
	[ "$(printf '%s\n' "$needs" "$floor" | sort -V | tail -n 1)" = "$floor" ] || {
		echo "$file needs glibc $needs, INSTALL.md says \"$floor\":"
		objdump -T "$file" | grep -F "GLIBC_$needs"
		bad=1
	}
done

awk -f "$root/preload/page.awk" "$table" >"$tmp/page" || bad=1
cmp -s "$tmp/page" "$root/docs/guide/calls.md" || complain \
	"docs/guide/calls.md is not made from it: awk -f preload/page.awk preload/symbols"
exit $bad
