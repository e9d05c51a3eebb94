# SPDX-License-Identifier: BSD-2-Clause
# Completion of exs(1) for bash. Commands and options are those that the exs command
# lists itself.
_exs_words()
{
	# shellcheck disable=SC2207 # words of a list
	COMPREPLY=($(compgen -W "$1" -- "$cur"))
}

_exs()
{
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	local exs=${COMP_WORDS[0]} command=${COMP_WORDS[1]} at

	COMPREPLY=()
	if [ "$COMP_CWORD" = 1 ]; then
		_exs_words "$("$exs" help 2>/dev/null | sed -n 's/^  \([a-z]*\) .*/\1/p')"
		return
	fi
	# What follows the program of exs run is the program's own.
	if [ "$command" = run ]; then
		for ((at = 2; at < COMP_CWORD; at++)); do
			case ${COMP_WORDS[at]} in
			--profile | --provider | --require | -p | -P | -r | = | -* | \
				latency | throughput | safe) ;;
			*)
				if declare -F _command_offset >/dev/null; then
					_command_offset "$at"
				else
					compopt -o default
				fi
				return
				;;
			esac
		done
	fi
	case $prev in
	--pid | --process)
		_exs_words "$(cd /proc && echo [0-9]*)"
		return
		;;
	--fabric | --provider | --require)
		_exs_words "shm verbs ofi tcp"
		return
		;;
	--profile)
		_exs_words "latency throughput safe"
		return
		;;
	esac
	case $command/$cur in
	help/*) _exs_words "$("$exs" help 2>/dev/null | sed -n 's/^  \([a-z]*\) .*/\1/p')" ;;
	*/-*)
		_exs_words "$("$exs" "$command" --help 2>/dev/null |
			grep -oE -- '--[a-z][a-z-]*')"
		;;
	key/*) _exs_words "make show import copy" ;;
	run/*) mapfile -t COMPREPLY < <(compgen -c -- "$cur") ;;
	check/* | stat/* | downgrade/* | upgrade/* | log/* | report/* | trace/*)
		_exs_words "$(cd /proc && echo [0-9]*)"
		;;
	*) compopt -o default ;;
	esac
}

complete -F _exs exs
