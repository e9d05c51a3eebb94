# SPDX-License-Identifier: BSD-2-Clause
# docs/guide/calls.md from the table: awk -f preload/page.awk preload/symbols
BEGIN {
	print "# The calls that `exs run` intercepts\n"
	print "Every call of the C library that affects the descriptor of a socket, what"
	print "happens to it on a connection that has left the kernel, and the test that"
	print "shows that the result is that of the native call. A connection of UNIX sockets"
	print "goes back to its stream in the kernel where this page says TCP. It is generated from"
	print "`preload/symbols` by `preload/page.awk`; a gate compares both with the symbols"
	print "of the library and of the C library.\n"
	state("accelerated", "Intercepted. The call works on the fabric of the connection.")
	state("tcp", "Intercepted. The connection first goes to TCP, without losing a byte, " \
	      "and stays there; then the kernel serves the call.")
	state("watched", "Intercepted. The kernel serves the call, and the library prepares for it " \
	      "or records it.")
	state("native", "Not intercepted. The C library's call is right on every fabric.")
	state("unsupported", "Not intercepted, and wrong on a connection that has left the kernel.")
	print "\nNo call is refused, except one that would close or replace a descriptor of the"
	print "library (EBADF). Tests are rows, or patterns of rows, of `tests/preload`; those with"
	print "an `@` are tests of Meson."
}
function state(name, text) {
	printf "- **%s**: %s\n", name, text
	known[name] = 1
}
/^= / {
	printf "\n## %s\n\n| call | state | proved by | remarks |\n|---|---|---|---|\n", substr($0, 3)
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
