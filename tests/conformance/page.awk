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
	print "# What is promised, and which tests prove it\n"
	printf "%d statements about the Extended Sockets API as libexs provides it,", statements
	print " each with the"
	print "test cases that fail if it is not true" (missing ? "; for " missing " there is none yet" : "") "."
	print "A case is a program of `tests/conformance/` and a row (or a pattern of rows) of it, which"
	print "runs on every fabric:\n"
	print "    build/tests/conformance/conf_calls shm 'send_*'\n"
	print "Each change runs them on `tcp`, `shm` and `loop`; the long tests run them on `verbs`, with"
	print "soft RoCE and soft iWARP in an emulated machine. A case that begins with `@` is a test of"
	print "Meson, which is independent of fabrics. A change whose cases fail is not accepted, so the"
	print "statements hold. The text of the specification is not public: no conformance to it is"
	print "claimed. This page is generated from `tests/conformance/statements`; a gate compares both"
	print "with the rows that exist."
	printf "%s", body
}
