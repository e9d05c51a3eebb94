#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Upgrade under fire with descriptors passed at random moments: files.py EXS
FIRE SECONDS. Both processes of fire's variant "files" run under exs run, while
their connections are sent to the kernel and back by exs downgrade and exs
upgrade."""

import os
import re
import subprocess
import sys
import tempfile
import time

LEAST = 5  # connections that were on a fabric, and that passed descriptors


def child_of(pid):
    with open('/proc/%d/task/%d/children' % (pid, pid)) as f:
        return [int(p) for p in f.read().split()]


def main(exs, fire, seconds):
    env = dict(os.environ, T_UNIX='1', EXS_UNIX='on', EXS_UPGRADE='connect',
               EXS_RING_KB='16')
    rounds = 0
    with tempfile.TemporaryDirectory() as d:
        with subprocess.Popen([exs, 'run', '--report=' + d + '/report', fire,
                               '--seconds', seconds, '--pairs', '4', '--apart',
                               'files'], env=env) as p:
            end = time.monotonic() + 60 + 3 * int(seconds)
            while p.poll() is None and time.monotonic() < end:
                # One of the two, or both, and either may have ended.
                try:
                    all_ = [p.pid] + child_of(p.pid)
                except OSError:
                    continue
                for pid in all_[rounds % 3 == 1:][:1 + rounds % 2]:
                    for what in 'downgrade', 'upgrade':
                        subprocess.run([exs, what, str(pid)], check=False,
                                       stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
                rounds += 1
            if p.poll() is None:
                p.kill()
        with open(d + '/report') as f:
            report = f.read()
    moved = sum(int(n) for n in
                re.findall(r'(\d+) connections? on a fabric', report))
    passed = sum(int(n) for n in
                 re.findall(r'(\d+) connections?,.*\(ancillary\)', report))
    print('%d rounds, %d connections were on a fabric, %d ends passed files' %
          (rounds, moved, passed))
    if p.returncode or moved < LEAST or passed < LEAST:
        print(report)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]),
                  sys.argv[3]))
