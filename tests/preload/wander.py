#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Walks of wander.c see the same under exs run as without it. Usage: wander.py
WANDER EXS FIRST COUNT [WAY]; the seeds are FIRST and so on, WAY is connect, tcp
or default; or, with UNIX sockets among the connections, mixed or mixed-late. Each that differs is shown with as few steps as were found to do,
and how to run them; 1 when there is one. A seed that differs natively is left
out, and counted."""

import concurrent.futures
import os
import subprocess
import sys
import time

WAYS = {
    'connect': {'EXS_UPGRADE': 'connect'},
    'default': {},
    'tcp': {'EXS_PROVIDER': 'tcp'},
    'mixed': {'EXS_UPGRADE': 'connect', 'EXS_UNIX': 'on'},
    'mixed-late': {'EXS_UNIX': 'on'},
}
AT_A_TIME = 6  # which wait most of their time
LIMIT_S = 20
# The time for the runs that shorten a list of steps, for one seed.
SHRINK_S = 90
# How often a difference must come again to be none of chance.
AGAIN = 2


class Walker:
    def __init__(self, wander, exs, way):
        self.wander, self.exs, self.way = wander, exs, way
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith('EXS_')}

    def command(self, seed, only, native):
        return ([] if native else [self.exs, 'run']) + [self.wander] + \
            (['--mixed', '1'] if 'EXS_UNIX' in WAYS[self.way] else []) + \
            (['--only', ','.join(map(str, only))] if only else []) + [str(seed)]

    def run(self, seed, only=None, native=True):
        """The lines, and how it ended."""
        env = self.env if native else dict(self.env, **WAYS[self.way])
        with subprocess.Popen(self.command(seed, only, native), env=env,
                              stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              start_new_session=True) as p:
            try:
                out, err = p.communicate(timeout=LIMIT_S)
                end = 'ends with %d' % p.returncode
            except subprocess.TimeoutExpired:
                os.killpg(p.pid, 9)
                out, err = p.communicate()
                end = 'hangs'
        return out.splitlines() + err.splitlines() + [end]

    def differs(self, seed, only=None, again=0):
        """The outputs if they differ each time, and not natively."""
        native = self.run(seed, only)
        ours = self.run(seed, only, False)
        if ours == native:
            return None
        for _ in range(again):
            if self.run(seed, only) != native or \
                    self.run(seed, only, False) == native:
                return None
        return native, ours

    def shrink(self, seed, outputs):
        """A shorter list of steps that does, too."""
        end = time.monotonic() + SHRINK_S
        native, ours = outputs
        steps = [int(line.split()[0]) for line in native
                 if line.split()[0].isdigit() and line.split()[0] != '0']
        steps = sorted(set(steps))
        line, _ = first(outputs)
        # What comes after the first difference cannot matter.
        cut = [s for s in steps if s <= number(line)] or steps
        found = self.differs(seed, cut)
        if found:
            steps, outputs = cut, found
        size = max(1, len(steps) // 2)
        while size and time.monotonic() < end:
            at, less = 0, False
            while at < len(steps) and time.monotonic() < end:
                cut = steps[:at] + steps[at + size:]
                found = self.differs(seed, cut, 1) if cut else None
                if found:
                    steps, outputs, less = cut, found, True
                else:
                    at += size
            size = size // 2 if size > 1 or not less else 1
        return steps, outputs

    def look(self, seed):
        """The seed, what it is, and its shortest list of steps and outputs."""
        native = self.run(seed)
        if self.run(seed) != native:
            return seed, 'varies', None, None
        ours = self.run(seed, None, False)
        if ours == native:
            return seed, 'same', None, None
        found = self.differs(seed, None, AGAIN)
        if not found:
            return seed, 'once', None, (native, ours)
        return (seed, 'differs') + self.shrink(seed, found)


def number(line):
    word = line.split()[0].split('.')[0] if line.split() else ''
    return int(word) if word.isdigit() else 1 << 30


def first(outputs):
    """The first lines that differ."""
    native, ours = outputs
    for a, b in zip(native, ours):
        if a != b:
            return a, b
    at = min(len(native), len(ours))
    return ' '.join(native[at:at + 1]), ' '.join(ours[at:at + 1])


def main():
    if len(sys.argv) not in (5, 6):
        print(__doc__)
        return 2
    wander, exs = (os.path.abspath(a) for a in sys.argv[1:3])
    at, count = (int(a) for a in sys.argv[3:5])
    way = sys.argv[5] if len(sys.argv) == 6 else 'default'
    walker = Walker(wander, exs, way)
    counts = dict.fromkeys(('same', 'differs', 'once', 'varies'), 0)
    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        for job in concurrent.futures.as_completed(
                pool.submit(walker.look, s) for s in range(at, at + count)):
            seed, what, steps, outputs = job.result()
            counts[what] += 1
            if what in ('once', 'varies'):
                print('seed %d %s' % (seed, 'differed once' if what == 'once'
                                      else 'varies natively'), flush=True)
            if what == 'once':
                print('  - %s\n  + %s' % first(outputs), flush=True)
            if what != 'differs':
                continue
            setting = ' '.join('%s=%s' % i for i in WAYS[way].items())
            print('seed %d, %s: %s %s' % (
                seed, way, setting,
                ' '.join(walker.command(seed, steps, False))))
            line, other = first(outputs)
            for text in outputs[0]:
                print('  %s' % text)
                if text == line:
                    break
            print('  - %s\n  + %s' % (line, other), flush=True)
    print('%d the same, %d differ, %d differed once, %d vary natively' %
          tuple(counts.values()))
    return 1 if counts['differs'] else 0


if __name__ == '__main__':
    sys.exit(main())
