#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# completion.sh EXS FOLDER: bash completes commands and options, all that exs lists;
# zsh and fish can read theirs.
exs=$1 folder=$2 bad=0
# shellcheck source=/dev/null
. "$folder/exs.bash" || exit 1

complete_of()
{
	COMP_WORDS=("$exs" "$@") COMP_CWORD=$#
	COMPREPLY=()
	_exs 2>/dev/null
	printf '%s\n' "${COMPREPLY[@]}"
}

has()
{
	local want=$1 found
	shift
	found=$(complete_of "$@")
	grep -qx -- "$want" <<<"$found" && return
	echo "exs $*: $want is not completed, but: $found"
	bad=1
}

commands=$("$exs" help | sed -n 's/^  \([a-z]*\) .*/\1/p')
[ -n "$commands" ] || exit 1
for command in $commands; do
	has "$command" "${command%?}"
	case $command in help | version) continue ;; esac
	for option in $("$exs" "$command" --help | grep -oE -- '--[a-z][a-z-]*'); do
		has "$option" "$command" "${option%?}"
	done
done
has throughput run --profile t
has make key m
has sh run s
has $$ stat --process ""
has $$ downgrade ""
has check help c
for shell in zsh fish; do
	command -v $shell >/dev/null || continue
	file=$folder/exs.fish
	[ $shell = fish ] || file=$folder/_exs
	$shell -n "$file" || bad=1
done
exit $bad
