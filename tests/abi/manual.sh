#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The manual: no page with a fault, a page for every exported call that tells
# its results and its errors and shows an example, every reason and variable told, every example
# compiled, every page installed and every cross reference there, also on the web.
cd "$(dirname "$0")/../.." || exit 1
command -v mandoc >/dev/null || {
	echo "mandoc is not here"
	exit 77
}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
bad=0

complain()
{
	echo "$*"
	bad=1
}

# The date of a page is when its subject last changed: it may be of any age,
# and pages of other packages are not at hand.
mandoc -T lint -W style docs/man/*.[1357] >"$tmp/lint" 2>/dev/null
grep -vE 'referenced manual not found|operating system explicitly' \
	"$tmp/lint" >"$tmp/faults" && {
	cat "$tmp/faults"
	bad=1
}

# Words that mdoc takes for a macro are not printed.
grep -nE '^\.(It|Ss|Sh)( .*)? (An|At|Do|So|Ad)( |$)' docs/man/*.[1357] &&
	complain "a word above is a macro of mdoc: write \\& before it"

for call in $(sed -nE 's/^[[:space:]]+(exs_[a-z0-9_]+);$/\1/p' api/exs.map); do
	page=$(grep -lE "^\\.Nm $call( ,)?\$" docs/man/*.3 | head -n 1)
	[ -n "$page" ] || {
		complain "no page names $call"
		continue
	}
	grep -q "^\\.Fn $call\|^\\.Fo $call" "$page" ||
		complain "$page: no synopsis of $call"
	for part in 'RETURN VALUES' EXAMPLES ERRORS; do
		grep -qx "\\.Sh $part" "$page" ||
			complain "$page: $call has no $part"
	done
done

# The reasons are those of the table; the compiler compares the header with it.
awk -v manual=1 -f core/base/reasons.awk core/base/reasons >"$tmp/reasons" ||
	complain "core/base/reasons cannot be read"
awk '/^\.El/ { on = 0 } /^\.It Li none$/ { on = 1 } on' \
	docs/man/exs_x_sockinfo.3 >"$tmp/told"
diff "$tmp/reasons" "$tmp/told" || complain "exs_x_sockinfo.3: its reasons are" \
	"not those of awk -v manual=1 -f core/base/reasons.awk core/base/reasons"

# The structures, member by member as the headers have them.
members()
{
	sed -nE 's/^[[:space:]]+([a-z][a-z0-9_ ]*[ *]+exs_[a-z0-9_]+(\[[0-9]+\])?);.*/\1/p' \
		"$@" | sort
}
members api/sys/exs.h api/sys/exs_ext.h >"$tmp/members"
[ -s "$tmp/members" ] || complain "no members found in api/sys"
members docs/man/exs_types.7 | diff "$tmp/members" - ||
	complain "the headers and exs_types.7 differ in members"
for limit in EXS_QDEPTH_MAX EXS_EVTVEC_MAX EXS_POLL_MAX; do
	value=$(sed -nE "s/^#define $limit ([0-9]+).*/\1/p" api/sys/exs.h)
	grep -q "^\.It Dv $limit Ta $value " docs/man/exs_types.7 ||
		complain "exs_types.7 has not $limit, $value"
done

sed -nE 's/.*\.variable = "(EXS_[A-Z_]+)".*/\1/p' core/base/config_table.c >"$tmp/variables"
[ -s "$tmp/variables" ] || complain "no variables found in core/base/config_table.c"
while read -r variable; do
	grep -qE "^\\.It Ev $variable\$" docs/man/exs.7 ||
		complain "exs.7 does not describe $variable"
	grep -q "^| \`$variable\`" INSTALL.md ||
		complain "INSTALL.md does not describe $variable"
done <"$tmp/variables"

# Each command is in the synopsis, and the table of the program has each.
sed -nE '/^static const struct command commands/,/^}/s/^\t\{ "([a-z]+)".*/\1/p' \
	tools/exs.c | sort >"$tmp/commands"
[ -s "$tmp/commands" ] || complain "no commands found in tools/exs.c"
sed -n '/^\.Sh SYNOPSIS/,/^\.Sh DESCRIPTION/p' docs/man/exs.1 | grep -A1 '^\.Nm$' |
	sed -n 's/^\.Cm //p' | sed 's/ | /\n/' | sort -u |
	diff "$tmp/commands" - || complain "exs.1: its synopsis has not the commands of tools/exs.c"

for page in docs/man/*.[1357]; do
	grep -q "'$(basename "$page")'" docs/man/meson.build ||
		complain "docs/man/meson.build does not install $page"
	sed -nE 's/^\.Xr (exs[a-z_-]*) ([1357]).*/\1.\2/p' "$page" |
		while read -r other; do
			[ -e "docs/man/$other" ] ||
				grep -qx "^\\.Nm ${other%.*}\( ,\)\?" \
					docs/man/*."${other##*.}" ||
				echo "$page: there is no $other"
		done
done >"$tmp/references"
[ -s "$tmp/references" ] && complain "$(cat "$tmp/references")"

# For the web: every page is there, and every link leads somewhere, which scripts/html
# itself checks; that a link which leads nowhere is noticed is tried.
sh scripts/html "$tmp/html" >/dev/null || complain "scripts/html fails"
for page in docs/man/*.[1357]; do
	grep -q "$(basename "$page").html" "$tmp/html/man/index.html" ||
		complain "scripts/html leaves $page out"
done
for page in index INSTALL docs/guide/programs docs/performance all; do
	[ -s "$tmp/html/$page.html" ] || complain "scripts/html makes no $page.html"
done
mkdir "$tmp/copy" && cp -r ./*.md docs scripts examples "$tmp/copy" &&
	echo '[nowhere](docs/design/security.md#nowhere)' >>"$tmp/copy/NEWS.md"
sh "$tmp/copy/scripts/html" "$tmp/copy/html" >"$tmp/said" 2>&1 &&
	complain "scripts/html does not see a link that leads nowhere"
grep -qx 'NEWS.html: there is no place docs/design/security.html#nowhere' \
	"$tmp/said" || complain "scripts/html says of such a link: $(cat "$tmp/said")"

# Examples: whole programs and pieces of a function both compile. The readme's
# is run, too, by another test.
for page in docs/man/*.[137]; do
	awk -v out="$tmp/$(basename "$page")" '
		/^\.Sh / { example = $2 == "EXAMPLES" }
		/^\.Bd -literal/ && example { n++; on = 1; next }
		/^\.Ed/ { on = 0 }
		on { gsub(/\\e/, "\\"); gsub(/\\&/, ""); print > (out "." n ".c") }
	' "$page"
done
for piece in "$tmp"/*.c README.md; do
	[ -e "$piece" ] || continue
	if [ "$piece" = README.md ]; then
		awk '/^```c$/ { on = 1; next } /^```/ { on = 0 } on' README.md \
			>"$tmp/whole.c"
	elif grep -q '^main(\|^int main(' "$piece"; then
		cp "$piece" "$tmp/whole.c"
	else
		{
			echo '#include <err.h>'
			echo '#include <errno.h>'
			echo '#include <netinet/in.h>'
			echo '#include <stdio.h>'
			echo '#include <sys/exs_ext.h>'
			echo '#include <time.h>'
			echo 'extern int s;'
			echo 'extern exs_qhandle_t q;'
			echo 'void piece(void)'
			echo '{'
			cat "$piece"
			echo '}'
		} >"$tmp/whole.c"
	fi
	gcc -std=gnu11 -Wall -Wno-unused -Werror -Iapi \
		-fsyntax-only "$tmp/whole.c" ||
		complain "this example does not compile: $(basename "$piece")"
done
exit $bad
