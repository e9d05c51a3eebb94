#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Waits that the library cannot see end, and their connections say why they are on
TCP; so do those that are used through a ring of io_uring. Usage: unseen.py UNSEEN EXS"""

import os
import re
import subprocess
import sys

SKIP = 77
TIMEOUT = 150

# Where the connection of a row is at its end, at the end that waits.
SEEN = ('elsewhere', 'files', 'known_found', 'known_removed', 'known_waited',
        'known_waited_late')
RINGS = 'io-uring'
EPOLL = 'unseen-wait'
PASSED = 'passed'


def wanted(row):
    return (None if row == 'connects' else
            [] if row.startswith('native') else
            # Once more as what the message brought.
            [PASSED, PASSED] if row.startswith('passes') else
            ['shm'] if row in SEEN or row.startswith('file') else
            [RINGS] if row.startswith('ring') else [EPOLL])


def start(unseen, exs, row, upgrade):
    env = {k: v for k, v in os.environ.items() if not k.startswith('EXS_')}
    if upgrade:
        env['EXS_UPGRADE'] = upgrade
    if row == 'files':
        env['EXS_IO_URING'] = 'files'
    return subprocess.Popen(
        [exs, 'run', '--report', unseen, row], env=env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def where(text):
    """What became of the accepted connection."""
    return re.findall(r'^  at port .* 1 connection, (?:fabric, )?(?:tcp \()?([a-z-]+)', text,
                      re.M)


def judge(row, process):
    """What is wrong, or None."""
    try:
        text = process.communicate(timeout=TIMEOUT)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return 'it hangs\n' + process.communicate()[0]
    if process.returncode == SKIP:
        print(row, 'is not tried here')
        return None
    if process.returncode:
        return 'it ends with %d\n%s' % (process.returncode, text)
    if wanted(row) is not None and where(text) != wanted(row):
        return 'its connection is not %s\n%s' % (wanted(row), text)
    return None


def main():
    unseen, exs = (os.path.abspath(a) for a in sys.argv[1:3])
    rows = subprocess.run([unseen, '--list'], stdout=subprocess.PIPE, text=True,
                          check=True).stdout.split()
    good = True
    for upgrade in None, 'connect':
        # They wait more than they work: all at once.
        running = [(row, start(unseen, exs, row, upgrade)) for row in rows]
        for row, process in running:
            wrong = judge(row, process)
            if wrong:
                print('%s, %s: %s' % (row, upgrade or 'default', wrong))
                good = False
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main())
