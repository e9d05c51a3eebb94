# SPDX-License-Identifier: BSD-2-Clause
# From the table of reasons: the rows of reason.c, or with -v manual=1 the list in
# exs_x_sockinfo(3): awk -f core/base/reasons.awk core/base/reasons
function complain(what)
{
	print FILENAME ": " word ": " what >"/dev/stderr"
	bad = 1
	exit 1
}
function sentence(text)
{
	return toupper(substr(text, 1, 1)) substr(text, 2) (text ~ /[.]$/ ? "" : ".")
}
# Text as mdoc: variables, flags of the C library and pages are marked up.
function mdoc(text, n, i, words, word_i, end, line)
{
	n = split(text, words, " ")
	line = ""
	for (i = 1; i <= n; i++) {
		word_i = words[i]
		end = ""
		while (word_i ~ /[.,:;)]$/ && word_i !~ /\([0-9]\)$/) {
			end = " " substr(word_i, length(word_i)) end
			word_i = substr(word_i, 1, length(word_i) - 1)
		}
		if (word_i ~ /^[a-z_-]+\([0-9]\)$/) {
			flush_line(line)
			print ".Xr " substr(word_i, 1, length(word_i) - 3) " " \
				substr(word_i, length(word_i) - 1, 1) end
			line = ""
		} else if (word_i ~ /^EXS_[A-Z_]+$/) {
			flush_line(line)
			print ".Ev " word_i end
			line = ""
		} else if (length(line) + length(words[i]) > 76) {
			flush_line(line)
			line = words[i]
		} else {
			line = line (line == "" ? "" : " ") words[i]
		}
	}
	flush_line(line)
}
function flush_line(line)
{
	gsub(/--/, "\\-\\-", line)
	gsub(/ulimit -/, "ulimit \\-", line)
	if (line != "")
		print line
}
function row(	constant, text)
{
	if (word == "")
		return
	if (means == "" || cure == "")
		complain("it has no means or no cure")
	constant = "EXS_X_REASON_" toupper(word)
	gsub(/-/, "_", constant)
	if (manual) {
		print ".It Li " word
		print ".Pq Dv " constant
		mdoc(sentence(means))
		if (cure != "-")
			mdoc(sentence(cure))
		if (also != "")
			print also
	} else {
		text = means (cure == "-" ? "" : "; " cure)
		printf "ROW(%s, %d, \"%s\", %s, \"%s\", \"%s\", \"%s\", \"%s\")\n",
			constant, number, word, "EXI_REASON_" toupper(lasts), step,
			means, cure == "-" ? "" : cure, text
	}
	word = means = cure = also = ""
	rows++
}
/^#/ || /^$/ { next }
/^means\t/ { sub(/^means\t/, ""); means = $0; at = "means"; next }
/^cure\t/ { sub(/^cure\t/, ""); cure = $0; at = "cure"; next }
/^also\t/ { sub(/^also\t/, ""); also = $0; at = "also"; next }
/^\t/ {
	sub(/^\t/, "")
	if (at == "means")
		means = means " " $0
	else if (at == "cure")
		cure = cure " " $0
	else
		also = also "\n" $0
	next
}
{
	row()
	if (NF != 4 || $2 != rows || $3 !~ /^(soon|asked|stays|never)$/ ||
	    $4 !~ /^(none|socket|settings|system|peer|fabrics|key|limits|program|traffic)$/) {
		word = $0
		complain("this is no head of a reason, or not the next one")
	}
	word = $1
	number = $2
	lasts = $3
	step = $4
}
END {
	if (bad)
		exit 1
	row()
	if (!manual)
		printf "ROWS(%d)\n", rows
}
