# SPDX-License-Identifier: BSD-2-Clause
# Completion of exs(1) for fish. Commands and options are those that the exs command
# lists itself.
function __exs_commands
    exs help 2>/dev/null | string match -rg '^  ([a-z]+ +.*)' | string replace -r ' +' \t
end

function __exs_options
    set -l command (commandline -opc)[2]
    exs $command --help 2>/dev/null | string match -rag -- '(--[a-z][a-z-]*)'
end

complete -c exs -n '__fish_is_first_token' -f -a '(__exs_commands)'
complete -c exs -n 'not __fish_is_first_token; and string match -q -- "-*" (commandline -ct)' \
    -f -a '(__exs_options)'
complete -c exs -n '__fish_seen_subcommand_from key' -f -a 'make show import copy'
complete -c exs -n '__fish_seen_subcommand_from check stat downgrade upgrade log report trace' -f -a '(__fish_complete_pids)'
complete -c exs -n '__fish_seen_subcommand_from run' -a '(__fish_complete_subcommand --fcs-skip=2)'
complete -c exs -n '__fish_seen_subcommand_from help' -f -a '(__exs_commands)'
