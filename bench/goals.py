# SPDX-License-Identifier: BSD-2-Clause
"""Two tables that gather rows of other tables: what was to be reached, and what
the default settings give programs of several kinds."""

import results
from bench import median, number
from cases import ASYNC, BARE, EPOLL, GROUPS, PIPE, SHIM, SYNC, TCP, UNIX

UCX, LINE, DEVICE = 'UCX', 'line', 'perftest'
DEEP = ASYNC + ', %d deep'
STREAMS = [SYNC, DEEP % 4, DEEP % 16, DEEP % 64]
# Case, ways of calling, peer, how many times as fast as that.
GOALS = (
    ('round trip, 8 B', [SYNC], UCX, 2),
    ('round trip, 8 B', [SYNC], LINE, 1 / 1.5),
    ('round trip, 8 B', [ASYNC], UCX, 1 / 0.9),
    ('round trip, 8 B', [ASYNC], LINE, 1 / 2.2),
    ('round trip, 8 B', [SHIM + EPOLL], LINE, 1 / 2.25),
    ('round trip, 1 KiB', [ASYNC], UCX, 1 / 0.9),
    ('round trip, 64 KiB', [SYNC, ASYNC], UCX, 1 / 0.9),
    ('stream, 8 B', [DEEP % 64], UCX, 5),
    ('stream, 1 KiB', [SYNC, DEEP % 16, DEEP % 64], UCX, 1.2),
    ('stream, 64 KiB', STREAMS, UCX, 1.2),
    ('stream, 1 MiB', [*STREAMS, DEEP % 64 + ', one buffer'], UCX, 1),
    ('threads, 8 B, 64 deep', ['2, shared queue'], 'one', 1.2),
    ('verbs, one way, 64 B, soft RoCE', ['libexs'], DEVICE, 1 / 1.15),
    ('verbs, one way, 64 B, soft iWARP', ['libexs'], DEVICE, 1 / 1.2),
    ('verbs, stream of 1 MiB, soft iWARP', ['libexs'], DEVICE, 0.97),
    ('verbs, 8 receivers, soft RoCE', ['libexs, zero copy'], 'copying', 10),
    ('verbs, 8 receivers, soft iWARP', ['libexs, zero copy'], 'copying', 10),
)
TAILS = ('p99', 'p99'), ('p999', 'p99.9')
# What a program is, its case, and ours among its sides.
KINDS = (
    ('idle daemon, 1 connection', 'idle connections, 1 connection', SHIM),
    ('idle daemon, 100 connections', 'idle connections, 100 connections', SHIM),
    ('idle daemon, 1000 connections', 'idle connections, 1000 connections',
     SHIM),
    ('latency server, 8 B', 'round trip, 8 B', SHIM + EPOLL),
    ('redis GET, one client', 'redis, GET, 1 client', SHIM),
    ('redis GET, 50 clients', 'redis, GET, 50 clients', SHIM),
    ('pipe, 8 B', 'a pipe, 8 B', SHIM),
    ('pipe, 64 KiB', 'a pipe, 64 KiB', SHIM),
    ('two ends on one CPU, 8 B', 'round trip on one CPU, 8 B', SHIM),
    ('8 processes on 2 CPUs', 'processes, round trips, 4 pairs', SHIM),
    ('16 processes on 2 CPUs', 'processes, round trips, 8 pairs', SHIM),
    ('a busy host, 100 B', 'busy host, loops', SHIM + EPOLL),
    ('9000 connections', 'connections at once, 9000', SHIM),
)


def fair(kept, side, others, key):
    """Of the rounds that compare one machine with itself."""
    return results.ratios(kept, side, others, key) or \
        results.ratios(kept, side, others, key, True)


def row(case, way, peer, goal, v, bare):
    return [case, way, peer, '%.2f' % goal, '%.2f' % median(v), '%.2f' % min(v),
            'yes' if median(v) >= goal else 'no',
            '%d of %d' % (sum(x >= goal for x in v), len(v)),
            '%.2f' % median(bare) if bare and peer == UCX else '']


def goal_rows(kept):
    for case, ways, peer, goal in GOALS:
        k = kept.cases.get(case)
        if not k:
            continue
        others = dict(GROUPS[k['group']].times)[peer]
        for way in ways:
            v = fair(k, way, others, k['key'])
            if v:
                yield row(case, way, peer, goal, v,
                          fair(k, BARE, others, k['key']))
    case = 'round trip, 8 B'
    k = kept.cases.get(case)
    for key, word in TAILS if k else ():
        for way in SYNC, ASYNC:
            v = fair(k, way, dict(GROUPS['round trip'].times)[UCX],
                     key)
            if v:
                yield row('%s, %s' % (case, word), way, UCX, 1, v,
                          fair(k, BARE, [UCX + ', stream', UCX + ', tag'], key))


def goals(kept):
    rows = list(goal_rows(kept))
    if rows:
        yield ('goals: times as fast as the peer in the same round',
               ['case', 'libexs', 'peer', 'goal', 'median', 'worst', 'met',
                'rounds that met it', 'bare memory'], rows)


def shown(v, unit):
    return '%s %s' % (number(median(v) * results.SCALES.get(unit, 1)), unit) \
        if v else ''


def default_rows(kept):
    for what, case, ours in KINDS:
        k = kept.cases.get(case)
        if not k:
            continue
        native = ['TCP of ' + ours, PIPE if k['group'] == 'a pipe' else TCP]
        group = GROUPS.get(k['group'])
        unit = group.unit if group else 'ns'
        if k['group'] == 'idle connections':
            unit = 'wake-ups/s'
        cells = [what]
        for names in native, [UNIX], [ours]:
            v = [x for n in names for x in results.values(k, n, k['key'])]
            cells.append(shown(v, unit))
        for names in native, [UNIX]:
            v = fair(k, ours, names, k['key'])
            cells.append('%.2f (%.2f)' % (median(v), min(v)) if v else '')
        yield cells


def defaults(kept):
    rows = list(default_rows(kept))
    if rows:
        yield ('default settings: median; times as fast, median (worst round)',
               ['a program', 'native', 'UNIX socket', SHIM, 'times native',
                'times UNIX'], rows)


def parts(kept):
    return {name: results.shown(tables) for name, tables in (
        ('goals', goals(kept)), ('defaults', defaults(kept)))}
