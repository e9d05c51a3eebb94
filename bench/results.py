# SPDX-License-Identifier: BSD-2-Clause
"""What bench/compare has measured, as a file that grows, and as tables."""

import json
import os

from bench import Failed, median, number, table
from cases import BARE, GROUPS, SHIM, TCP

FORMAT = 1
COLUMNS = 4  # of figures in a table
SCALES = {'MB/s': 1e-6, 'KiB': 1 / 1024}
CHANGED = 1.3  # a line that is so many times another is not the same
LESS = {'p50', 'p99', 'p999', 'max', 'mean', 'cpu_message', 'cpu_gb', 'calls',
        'user'}


class Results:
    """A case is found by its name; a round of a case is there or is not: its
    sides were measured one after the other."""

    def __init__(self, path=None):
        self.path = path
        self.data = {'format': FORMAT, 'sessions': [], 'cases': {}}
        if path and os.path.exists(path):
            with open(path) as f:
                self.data = json.load(f)
            if self.data.get('format') != FORMAT:
                raise Failed('%s is not a file of this tool' % path)

    @property
    def cases(self):
        return self.data['cases']

    def begin(self, session):
        self.data['sessions'].append(session)

    def rounds(self, case):
        return len(self.cases.get(case.name, {}).get('rounds', ()))

    def seconds(self, case):
        """That a round takes, or None."""
        known = self.cases.get(case.name, {}).get('seconds')
        return median(known) if known else None

    def add(self, case, figures, seconds, line):
        """figures: of each side, or what went wrong with it; line: the bare
        cache line's round trip before and after them, or None."""
        kept = self.cases.setdefault(case.name, {
            'group': case.group.title, 'key': case.group.key, 'x': case.x,
            'label': case.label, 'rounds': [], 'seconds': []})
        lines = kept.setdefault('lines', [])
        lines += [None] * (len(kept['rounds']) - len(lines))
        lines.append(line)
        kept['rounds'].append(figures)
        kept['seconds'].append(seconds)
        if self.path:
            with open(self.path + '.new', 'w') as f:
                json.dump(self.data, f, indent=1)
            os.replace(self.path + '.new', self.path)


# --- figures -------------------------------------------------------------------

def values(kept, side, key):
    """Of the rounds that have it."""
    return [r[side][key] for r in kept['rounds'] if key in r.get(side, {})]


def sides(kept):
    """In the order of the first round that measured them."""
    return list(dict.fromkeys(
        name for r in kept['rounds'] for name, f in r.items()
        if 'failed' not in f))


def moved(kept, n):
    """Whether the line changed in this round: the host has moved the CPUs
    between one side's measurement and another's."""
    lines = kept.get('lines', [])
    both = lines[n] if n < len(lines) else None
    return bool(both) and max(both) > CHANGED * min(both)


def ratios(kept, side, others, key, of_moved=False):
    """How many times as fast as the best of others in the same round, of the
    rounds in which the line stayed, or of the others."""
    result = []
    for n, r in enumerate(kept['rounds']):
        if moved(kept, n) != of_moved:
            continue
        theirs = [r[o][key] for o in others if key in r.get(o, {})]
        mine = r.get(side, {}).get(key)
        if not theirs or not mine:
            continue
        result.append(min(theirs) / mine if key in LESS else
                      mine / max(theirs))
    return result


def ours(name):
    return name.startswith(('libexs', SHIM))


def of_group(results, title):
    return sorted((k for k in results.cases.values() if k['group'] == title),
                  key=lambda k: k['x'])


# --- tables --------------------------------------------------------------------

def span(v, scale=1):
    """The median, and the rounds' lowest and highest."""
    if not v:
        return ''
    v = [x * scale for x in v]
    middle, low, high = number(median(v)), number(min(v)), number(max(v))
    return middle if low == high else '%s (%s to %s)' % (middle, low, high)


def times(kept, side, others, key):
    """The median and the worst of the rounds in which the line stayed; marked:
    a worse one in which it changed. If it changed in each, all are marked."""
    v, w = (ratios(kept, side, others, key, of_moved)
            for of_moved in (False, True))
    if not v:
        return '%.2f* (%.2f*)' % (median(w), min(w)) if w else ''
    worse = ', %.2f*' % min(w) if w and min(w) < min(v) else ''
    return '%.2f (%.2f%s)' % (median(v), min(v), worse)


def matrix(cases, cell, names):
    """Tables of at most so many columns: a row for each side."""
    for at in range(0, len(cases), COLUMNS):
        some = cases[at:at + COLUMNS]
        rows = [[name, *(cell(k, name) for k in some)] for name in names]
        rows = [r for r in rows if any(r[1:])]
        if rows:
            yield [''] + [k['label'] for k in some], rows


def names_of(cases):
    return list(dict.fromkeys(n for k in cases for n in sides(k)))


def group_tables(results, title):
    """Of (title, head, rows)."""
    group, cases = GROUPS[title], of_group(results, title)
    if not cases:
        return
    names = names_of(cases)
    unit = ', ' + group.unit if group.unit else ''
    scale = SCALES.get(group.unit, 1)
    for head, rows in matrix(cases, lambda k, n: span(
            values(k, n, group.key), scale), names):
        yield title + unit, head, rows
    if title == 'stream':
        small = [k for k in cases if k['x'] < 4096]
        for head, rows in matrix(small, lambda k, n: span(
                values(k, n, 'rate'), 1e-6), names):
            yield 'stream, million messages/s', head, rows
    for word, others in group.times:
        mine = [n for n in names if n not in others and
                (ours(n) or title in ('threads', 'loans'))]
        for head, rows in matrix(cases, lambda k, n: times(
                k, n, others, group.key), mine):
            yield ('%s: times as fast as %s, median (worst round)' %
                   (title, word), head, rows)
    for key, word in (('cpu_gb', 'CPU seconds of both ends for 10^9 bytes'),
                      ('cpu_message',
                       'CPU seconds of both ends for a million messages'),
                      ('bells', 'wake-ups for a message')):
        if key == 'cpu_gb' and title != 'stream' or \
                key != 'cpu_gb' and title != 'round trip':
            continue
        for head, rows in matrix(cases, lambda k, n: span(
                values(k, n, key)), [n for n in names if n != BARE]):
            yield '%s: %s' % (title, word), head, rows


TAILS = (('p50', 'p50'), ('p99', 'p99'), ('p999', 'p99.9'), ('max', 'highest'))


def tails(results):
    for kept in of_group(results, 'round trip'):
        if kept['x'] != 8:
            continue
        yield ('round trip of 8 B: distribution, ns',
               ['', *(word for _, word in TAILS)],
               [[n, *(span(values(kept, n, key)) for key, _ in TAILS)]
                for n in sides(kept)])


BUSY_KEYS = 'p50', 'p99', 'mean', 'rate'


def busy_tables(results):
    """Times as long as native TCP took with the same calls."""
    for kept in of_group(results, 'busy host'):
        rows = []
        for name in sides(kept):
            native = 'TCP of ' + name
            if native not in sides(kept):
                continue
            row = [name]
            for key in BUSY_KEYS:
                scale = 1 if key == 'rate' else 1e-3
                slower = [1 / x for x in ratios(kept, name, [native], key)]
                row.append('%s (%s), %.2f, %.2f' % (
                    number(scale * median(values(kept, name, key))),
                    number(scale * median(values(kept, native, key))),
                    median(slower), max(slower)) if slower else '')
            rows.append(row)
        yield ('busy host, %s: this (TCP), times TCP\'s, worst round; us and '
               '1/s' % kept['label'],
               ['', 'p50', 'p99', 'mean', 'round trips'], rows)


def lost(results):
    """Where a peer was faster than the best of ours, in the median."""
    for title, group in GROUPS.items():
        for kept in of_group(results, title):
            mine = [n for n in sides(kept) if ours(n)]
            for word, others in group.times:
                found = [(ratios(kept, n, others, group.key) or
                          ratios(kept, n, others, group.key, True), n)
                         for n in mine]
                best = max(((median(v), n) for v, n in found if v),
                           default=None)
                if word != 'line' and best and best[0] < 1:
                    yield ['%s, %s' % (title, kept['label']), word, best[1],
                           '%.2f' % best[0]]


def lost_tables(results):
    rows = list(lost(results))
    if rows:
        yield ('lost: the best of libexs, times as fast as the peer',
               ['case', 'peer', 'best of libexs', 'times'], rows)


def all_tables(results):
    for title in GROUPS:
        yield from group_tables(results, title)
        if title == 'round trip':
            yield from tails(results)
    yield from busy_tables(results)
    yield from lost_tables(results)


def failures(results):
    """Sides without a figure, and why: once each."""
    found = {}
    for name, kept in results.cases.items():
        for r in kept['rounds']:
            for side, f in r.items():
                if 'failed' in f:
                    found.setdefault((side, f['failed'].split('\n')[0]),
                                     []).append(name)
    for (side, why), names in found.items():
        names = list(dict.fromkeys(names))
        yield '%s: %s (%s)' % (side, why, names[0] if len(names) == 1 else
                               '%d cases' % len(names))


def line(results):
    """What the machine itself did meanwhile: the bare cache line's round trip."""
    for kept in of_group(results, 'round trip'):
        v = values(kept, BARE, 'p50') if kept['x'] == 8 else []
        if v:
            return ('A cache line goes to the other CPU and back in %s ns, '
                    'lowest %s, highest %s of %d rounds%s.' % (
                        number(median(v)), number(min(v)), number(max(v)),
                        len(v), ': the host has moved the CPUs nearer or '
                        'farther meanwhile, so only ratios of one round count'
                        if max(v) > 1.5 * min(v) else ''))
    return ''


def changed(results):
    """In how many rounds the line was another one afterwards."""
    all_of = [moved(k, n) for k in results.cases.values()
              for n, lines in enumerate(k.get('lines', ())) if lines]
    if not any(all_of):
        return ''
    return ('In %d of %d rounds the cache line took more than %g times as long '
            'before as after it, or the reverse: ratios do not count them, and '
            'a * marks one that was worse than those that count.' %
            (sum(all_of), len(all_of), CHANGED))


def others(results):
    """The most of the CPUs that other programs used beside a measurement."""
    return max((f['others'] for k in results.cases.values()
                if k['group'] != 'busy host'
                for r in k['rounds'] for f in r.values() if 'others' in f),
               default=0)


def shown(tables):
    return '\n\n'.join('%s\n\n%s' % (title, table(head, rows))
                       for title, head, rows in tables)


def text(results):
    return '\n' + shown(all_tables(results))


def parts(results):
    """Tables by what a page calls them."""
    found = {title: group_tables(results, title) for title in GROUPS}
    found.update({'tails': tails(results), 'busy': busy_tables(results),
                  'lost': lost_tables(results)})
    return {name: shown(tables) for name, tables in found.items()}
