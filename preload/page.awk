# SPDX-License-Identifier: BSD-2-Clause
# docs/guide/calls.md from the table: awk -f preload/page.awk preload/symbols
BEGIN {
	print "# The calls that `exs run` knows\n"
	print "Every call of the C library that touches the descriptor of a socket, what"
	print "happens to it on a connection that has left the kernel, and the test that"
	print "shows it does the same as natively. This page is made from `preload/symbols`"
	print "by `preload/page.awk`; a gate compares them, with the library's symbols and"
	print "with the C library's.\n"
	state("accelerated", "Taken over. It works where the connection's bytes are.")
	state("tcp", "Taken over. A connection that it is used on goes to TCP first, " \
	      "no byte lost, and stays there: then the call is the kernel's.")
	state("watched", "Taken over. The call is the kernel's, and the library makes " \
	      "itself ready or takes note.")
	state("native", "Left alone. The C library's own is right, whatever the connection is on.")
	state("unseen", "Left alone, and wrong on a connection that has left the kernel.")
	print "\nNothing is refused, but that the library's own descriptors are closed or"
	print "replaced (EBADF). Tests are rows, or patterns of rows, of `tests/preload`; an `@`"
	print "is before those of Meson."
}
function state(name, text) {
	printf "- **%s**: %s\n", name, text
	known[name] = 1
}
/^= / {
	printf "\n## %s\n\n| call | | proved by | |\n|---|---|---|---|\n", substr($0, 3)
	next
}
/^[#~]/ || !NF { next }
{
	if (!($2 in known)) {
		print "preload/symbols: " $1 ": there is no state " $2 >"/dev/stderr"
		exit 1
	}
	proof = $3
	gsub(/,/, "`, `", proof)
	note = ""
	for (i = 4; i <= NF; i++)
		note = note (i > 4 ? " " : "") $i
	printf "| `%s` | %s | %s | %s |\n", $1, $2, $3 == "-" ? "" : "`" proof "`", note
}
