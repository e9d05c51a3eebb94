#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Which rows take a connection back to TCP, and why, by the log: reasons.py
BEHAVE EXS. What a row says is the business of differ.py."""

import os
import re
import subprocess
import sys

# Reasons for which a connection that was moved leaves.
LEAVES = {'duplicate', 'exec', 'passed', 'stdio', 'splice', 'seccomp',
          'namespace', 'zerocopy', 'orphan', 'o-async', 'shared'}

# A row does not wait until its connection was moved, which takes CPUs.
TRIES = 10

# The reasons that a row reports. A child that merely inherits reports none.
ROWS = {
    'exec_execve': {'exec'},
    'exec_execveat': {'exec'},
    'spawn_inherits_number': {'exec'},
    'spawn_given': {'exec'},
    'spawn_given_early': {'exec'},
    'spawn_not_inherited': set(),
    'spawn_closed_from': set(),
    'spawn_opened_over': set(),
    'system_and_popen': set(),
    'inside_shells': set(),
    'vfork_exec': {'exec'},
    'stdio_both_ways': {'stdio'},
    'stdio_dprintf': set(),
    'names_underscore_fdopen': {'stdio'},
    'io_splice': {'splice'},
    'pass_and_close': {'passed'},
    'confine_filter': {'seccomp'},
    'confine_asked': set(),
    'apart_user': set(),
    'apart_user_and_more': {'namespace'},
    'apart_descriptors': set(),
    'apart_descriptors_of_a_thread': {'namespace'},
    'apart_network': set(),
    'names_of_a_gone_peer': {'stdio', 'orphan'},
    'aio_read': {'stdio'},
    'aio_list': {'stdio'},
    'ask_zerocopy': {'zerocopy'},
    'zerocopy_many': set(),
    'refused_places': set(),
    'refused_pipe_calls': set(),
}


def reasons(behave, exs, row):
    env = {k: v for k, v in os.environ.items() if not k.startswith('EXS_')}
    env.update(EXS_LOG='debug', EXS_UPGRADE='connect')
    out = subprocess.run([exs, 'run', behave, row], env=env, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         errors='replace', check=True)
    moved = re.search(r'descriptor \d+(?: \(.*\))?: sends on shm', out.stderr)
    found = set(re.findall(r'descriptor -?\d+(?: \(.*\))?: ([a-z-]+)$', out.stderr, re.M))
    return moved, found & LEAVES


def main():
    behave, exs = (os.path.abspath(a) for a in sys.argv[1:3])
    good = True
    for row, want in ROWS.items():
        for _ in range(TRIES):
            moved, seen = reasons(behave, exs, row)
            if moved:
                break
        if not moved:
            print('%s: its connection was never moved' % row)
        if seen != want:
            print('%s: %s, not %s' % (row, seen or 'none', want or 'none'))
        good = good and moved and seen == want
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main())
