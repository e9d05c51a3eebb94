#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Connections that are met late, or never: no byte is lost when threads use one
while it becomes known, and the report counts them all. Usage: latent.py LATENT EXS"""

import os
import random
import re
import subprocess
import sys
import tempfile

CONNECTIONS = 400


def run(latent, exs, env):
    seed = random.randrange(1 << 30)
    with tempfile.NamedTemporaryFile('r') as report:
        done = subprocess.run(
            [exs, 'run', '--report=' + report.name, latent, str(CONNECTIONS),
             str(seed)], env={**os.environ, **env}, stdout=subprocess.PIPE, text=True,
            check=False)
        text = report.read()
    if done.returncode:
        sys.exit('%s, seed %d: it ends with %d' % (env, seed, done.returncode))
    # Forked children report what they have, too: theirs is nothing.
    there = sum(int(n) for n in re.findall(r'(\d+) connections? on a fabric',
                                           text))
    early = sum(int(n) for n in re.findall(r'(\d+) on TCP \(undecided\)',
                                           text))
    counted = sum(int(n) for n in re.findall(r' of (\d+) bytes', text))
    moved = int(done.stdout)
    if counted != moved:
        sys.exit('%s, seed %d: the report counts %d of %d bytes\n%s' % (
            env, seed, counted, moved, text))
    print('%s: %d ends on a fabric, %d ended before' % (env, there, early))
    if not there or not early:
        sys.exit('%s, seed %d: one kind is missing\n%s' % (env, seed, text))


for upgrade in 'auto', 'bytes:100':
    run(*sys.argv[1:3], {'EXS_UPGRADE': upgrade})
