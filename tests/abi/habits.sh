#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Habits that a search can see. Prints each line that breaks one.
cd "$(dirname "$0")/../.." || exit 1
said=$(mktemp) || exit 1
trap 'rm -f "$said"' EXIT

# $1 is the rule; standard input has the lines that break it. At the end of a
# pipe this is another shell, so what it says is kept in a file.
none()
{
	found=$(cat)
	[ -z "$found" ] || printf '%s:\n%s\n' "$1" "$found" >>"$said"
}

libraries='api core providers'
code="$libraries tools examples tests fuzz preload bench"
here=
for d in $code; do
	[ -d "$d" ] && here="$here $d"
done

# shellcheck disable=SC2086 # folders are words
search()
{
	pattern=$1
	shift
	grep -rnE --include='*.[ch]' "$pattern" "$@"
}

# Restoring it, and clearing it before a call that tells an error by it alone,
# are no results.
search '\berrno = ' core providers | grep -vE 'errno = (saved|err|0);' |
	none 'errno is written in api/ only'
search '\bvolatile\b' $here |
	none 'no volatile: C11 atomics say what is meant'
search '\b(f|d|v|vf|vd)?printf[[:space:]]*\(|\bf?puts[[:space:]]*\(|\bperror[[:space:]]*\(' \
	$libraries | grep -v 'format(printf' |
	none 'libraries do not print'
search '\b(TODO|FIXME|XXX)\b' $here | none 'no notes to oneself'
search '^[[:space:]]*(err|out|fail|error)[0-9]+:' $here |
	none 'labels say what they undo'
search '^[[:space:]]*//|[;{}][[:space:]]*//' $here |
	none 'comments are /* */'
search '\b(u|nano)?sleep[[:space:]]*\(' tests | grep -v '^tests/support/' |
	none 'tests wait for a condition with a deadline'
find core preload providers -name '*.[ch]' -exec awk '
	FNR == 1 { name = "" }
	/^[a-z].*_locked\(/ { name = FILENAME ": " $0; asserts = body = 0 }
	/;$/ && !body { name = "" } # a declaration
	/^{/ { body = 1 }
	/^}/ { if (name && body && !asserts) print name; name = "" }
	/LOCKED(_ONE)?\(/ { asserts = 1 }' {} + |
	none 'a function that ends in _locked asserts its lock'
# Calling such a function takes a lock, or the caller needs it, too.
find core preload providers -name '*.[ch]' -exec awk '
	FNR == 1 || /^[a-z].*_locked\(/ || (/;$/ && !/^\t/) { name = ""; next }
	/^[a-z].*\(/ { name = FILENAME ": " $0; needs = takes = 0; next }
	/^}/ { if (name && needs && !takes) print name; name = "" }
	/^\t*\/\*.*[^\/]$/, /\*\/$/ { next }
	{
		gsub(/\/\*.*\*\//, "")
		needs = needs || /_locked\(/
		gsub(/[a-z0-9_]+_locked|EXI_[A-Z_]*LOCKED.*/, "")
		takes = takes || /lock|exi_enter_ring/
	}' {} + |
	none 'a function that needs a lock ends in _locked'
# shellcheck disable=SC2086 # folders are words
find $here -name '*.[ch]' -exec awk '
	FNR == 1 { split("", seen) }
	/^struct [a-z0-9_]+;$/ && seen[$2]++ { print FILENAME ": " $0 }' {} + |
	none 'a type is declared once in a file'
# Two lines of head: the licence, then what the file is.
# shellcheck disable=SC2086 # folders are words
find $here -name '*.[ch]' | sort | while read -r f; do
	[ "$(head -n 1 "$f")" = '/* SPDX-License-Identifier: BSD-2-Clause */' ] &&
		sed -n 2p "$f" | grep -q '^/\*' || echo "$f"
done | none 'files begin with the licence and a sentence'
wc -l examples/*.c | awk '$1 > 100 && $2 != "total"' |
	none 'an example has at most 100 lines'
cat "$said"
! [ -s "$said" ]
