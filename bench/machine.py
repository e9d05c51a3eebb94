# SPDX-License-Identifier: BSD-2-Clause
"""The part of bench/compare that needs RDMA devices: bench/rdma in the emulated
machine of tests/vm, beside the devices' own benchmarks and rsockets."""

import json
import os
import subprocess
import sys
import time

from bench import Failed, progress
from cases import GROUPS, Case

HERE = os.path.dirname(os.path.abspath(__file__))
DEVICES = {'rxe': ('soft RoCE', '10.77.1.1'), 'siw': ('soft iWARP', '10.77.2.1')}
# Of bench/rdma: the group of cases, and what one of its figures is here.
PARTS = {'latency': ('verbs, one way, 64 B', 'p50', 1e3),
         'stream': ('verbs, stream of 1 MiB', 'bytes', 1e6),
         'copying': ('verbs, 8 receivers', 'user', 1)}
# Of a measurement, at least: few messages of a megabyte go in a second.
SECONDS = {'latency': 1, 'stream': 1, 'copying': 4}
LIMIT_S = 1500


def wanted(options):
    """A case for each device and part; the machine measures its sides."""
    for part, (title, _, _) in PARTS.items():
        for x, (device, (word, _)) in enumerate(DEVICES.items()):
            case = Case(GROUPS[title], x, word, [])
            case.part, case.device = part, device
            if not options.only or any(t in case.name for t in options.only):
                yield case


def said(bench, options, case, rounds):
    """What bench/rdma says in a machine of its own."""
    device, address = case.device, DEVICES[case.device][1]
    seconds = max(SECONDS[case.part], options.seconds)
    command = [os.path.join(HERE, '../tests/vm/run'), '--devices', device,
               '--timeout', str(LIMIT_S), '--', os.path.join(HERE, 'rdma'),
               bench.build, device + '0', address, '--json', '--rounds',
               str(rounds), '--seconds', str(seconds), '--only', case.part,
               '--connections', '8', '--receives', 'ahead']
    r = subprocess.run(command, stdin=subprocess.DEVNULL, text=True,
                       stdout=subprocess.PIPE)
    if r.returncode:
        raise Failed('%s: status %d\n%s' % (' '.join(command), r.returncode,
                                            r.stdout[-1000:]))
    return json.loads(r.stdout)


def rounds_of(part, result):
    """Of each round, the figures of each side."""
    _, key, scale = PARTS[part]
    if part == 'copying':
        row = result['placing'][0]
        found = {'copying': row['copied_user']['rounds'],
                 'libexs, zero copy': row['placed_user']['rounds']}
    else:
        rows, = result['side_by_side'].values()
        found = {r['side']: r['value']['rounds'] for r in rows}
    return [{name: {key: scale * v} for name, v in zip(found, one)}
            for one in zip(*found.values())]


def measure(bench, options, kept):
    for case in list(wanted(options)):
        rounds = options.rounds - kept.rounds(case)
        if rounds <= 0:
            continue
        progress('%s: %d rounds in the emulated machine' % (case.name, rounds))
        start = time.monotonic()
        figures = rounds_of(case.part, said(bench, options, case, rounds))
        took = time.monotonic() - start
        for one in figures:
            kept.add(case, one, took / rounds, None)
        progress()
        print('%s: %d rounds took %.0f s' % (case.name, rounds, took),
              file=sys.stderr)
