# SPDX-License-Identifier: BSD-2-Clause
# docs/guide/conformance.md from the table:
# awk -f tests/conformance/page.awk tests/conformance/statements
BEGIN {
	head = "| | statement | cases | tcp | shm | loop | verbs |\n" \
	       "|---|---|---|---|---|---|---|\n"
}
/^= / {
	section++
	number = 0
	body = body "\n## " section ". " substr($0, 3) "\n\n" head
	next
}
/^#/ || !NF { next }
{
	cases = $1
	text = $0
	sub(/^[^ ]+ /, "", text)
	if (cases == "not-yet") {
		marks = "not yet | not yet | not yet | not yet"
		cases = ""
		missing++
	} else {
		marks = cases ~ /^@/ ? "yes | | |" : "yes | yes | yes | yes"
		gsub(/,/, "`, `", cases)
		cases = "`" cases "`"
	}
	gsub(/\|/, "\\|", text)
	statements++
	body = body sprintf("| %d.%d | %s | %s | %s |\n", section, ++number,
			    text, cases, marks)
}
END {
	print "# What is promised, and what proves it\n"
	printf "%d statements about the Extended Sockets API as libexs provides it,", statements
	print " each with the"
	print "cases that fail when it is not so" (missing ? "; for " missing " there is none yet" : "") "."
	print "A case is a program and a row (or rows) of `tests/conformance/`, which runs over every"
	print "fabric:\n"
	print "    build/tests/conformance/conf_calls shm 'send_*'\n"
	print "`tcp`, `shm` and `loop` are run with each change; `verbs` by the long tests, on soft"
	print "RoCE and soft iWARP in the emulated machine. A case that begins with `@` is a test"
	print "of the build, which knows no fabric. A change whose cases fail is not taken, so"
	print "this is what holds. The text of the specification is not public: no conformance"
	print "to it is claimed. The page is made from `tests/conformance/statements`, and a gate"
	print "compares the two with the rows that there are."
	printf "%s", body
}
