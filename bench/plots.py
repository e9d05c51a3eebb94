# SPDX-License-Identifier: BSD-2-Clause
"""What bench/compare has measured, drawn by gnuplot: SVG and PNG. Lines differ by
their marks and dashes, not by colours alone, and the legend is beside the plot."""

import math
import os
import subprocess

from bench import Failed, median
from cases import (ASYNC, BARE, EPOLL, PINGPONG, PIPE, SHIM, SYNC, TCP, UNIX)
from results import names_of, of_group, values
from sides import need

TERMINALS = {'svg': "svg size 960,560 font 'Helvetica,15' background 'white'",
             'png': "pngcairo size 960,560 font 'sans,12' background 'white'"}
# Colour, dashes, mark, width: what is ours is drawn through.
STYLES = {
    SYNC: ('#000000', 1, 7, 2.5), ASYNC: ('#c00000', 1, 5, 2.5),
    ASYNC + ', 16 deep': ('#c00000', 1, 5, 2.5),
    ASYNC + ', 64 deep': ('#e07000', 1, 9, 2.5),
    SHIM: ('#0050c0', 1, 11, 2.5), SHIM + EPOLL: ('#008080', 1, 13, 2.5),
    'UCX, stream': ('#5a2d82', 2, 4, 1.5), 'UCX, tag': ('#7a5d22', 4, 6, 1.5),
    'UCX, tag, cma': ('#2f6b2f', 5, 12, 1.5),
    PINGPONG: ('#808000', 3, 8, 1.5), UNIX: ('#606060', 2, 10, 1.5),
    TCP: ('#606060', 3, 2, 1.5), PIPE: ('#909090', 5, 1, 1.5),
    BARE: ('#a0a0a0', 4, 3, 1.5),
}
SIZES = ('"1 B" 1, "8 B" 8, "64 B" 64, "1 KiB" 1024, "8 KiB" 8192, '
         '"64 KiB" 65536, "1 MiB" 1048576, "8 MiB" 8388608, '
         '"64 MiB" 67108864')
FOUR = ((TCP, 'TCP'), (UNIX, 'UNIX socket'), (SHIM, 'TCP, under exs run'),
        (BARE, 'bare cache line'))
PARTS = (('p50', 0.5), ('p75', 0.75), ('p90', 0.9), ('p99', 0.99),
         ('p999', 0.999), ('p9999', 0.9999))


def lines(cases, key, scale=1):
    """Of each side with a style: its points."""
    found = {}
    for name in names_of(cases):
        points = [(k['x'], scale * median(values(k, name, key)))
                  for k in cases if values(k, name, key)]
        if name in STYLES and points:
            found[name] = points
    return found


def distribution(cases):
    found = {}
    for kept in cases:
        for name in names_of([kept]) if kept['x'] == 8 else ():
            points = [(-math.log10(1 - part),
                       median(values(kept, name, key)) / 1e3)
                      for key, part in PARTS if values(kept, name, key)]
            if name in STYLES and len(points) > 1:
                found[name] = points
    return found


def script(series, title, x, y, extra, name, kind):
    order = [n for n in STYLES if n in series]
    text = ['set terminal ' + TERMINALS[kind], "set output '%s.%s'" % (name,
                                                                     kind),
            "set encoding utf8", "set title '%s'" % title,
            "set xlabel '%s'" % x, "set ylabel '%s'" % y,
            'set key outside right center vertical Left reverse',
            'set key noenhanced spacing 1.3',
            'set border 3', 'set tics nomirror', "set format y '%.6g'",
            'set grid ytics lt 1 lc rgb "#d0d0d0" lw 0.5',
            'set offsets graph 0.03, graph 0.03, 0, 0', *extra]
    for i, n in enumerate(order):
        text += ['$d%d << end' % i, *('%g %g' % p for p in series[n]), 'end']
    text.append('plot ' + ', '.join(
        "$d%d with linespoints lc rgb '%s' dt %d pt %d ps 0.9 lw %g title '%s'"
        % (i, *STYLES[n], n) for i, n in enumerate(order)))
    return '\n'.join(text) + '\n'


def bars(trips, name, kind):
    """What README shows: four medians, with the lowest and the highest round."""
    [kept] = [k for k in trips if k['x'] == 8]
    rows = []
    for i, (side, text) in enumerate(FOUR):
        found = [v / 1e3 for v in values(kept, side, 'p50')]
        rows.append('%d %.3g %.3g %.3g %d "%s"' % (
            -i, median(found), min(found), max(found),
            int(STYLES[side][0][1:], 16), text))
    ends = 'set xrange [0:%g]' % (1.15 * max(float(r.split()[3])
                                             for r in rows))
    return '\n'.join([
        'set terminal ' + TERMINALS[kind].replace('960,560', '640,300'),
        "set output '%s.%s'" % (name, kind), 'set encoding utf8',
        "set title 'Round trip of 8 bytes: median, lowest and highest round'",
        "set xlabel 'microseconds'", 'unset key', 'set border 1',
        'set xtics nomirror', 'set style fill solid', ends,
        'set yrange [%g:0.6]' % (0.4 - len(rows)),
        '$d << end', *rows, 'end',
        'set grid xtics lt 1 lc rgb "#d0d0d0" lw 0.5', 'unset ytics',
        'set ytics scale 0 (%s)' % ', '.join(
            '"%s" %d' % (text, -i) for i, (_, text) in enumerate(FOUR)),
        'plot $d using (0):1:(0):2:($1-0.3):($1+0.3):5 with boxxyerror '
        "lc rgb variable, '' using 2:1:3:4 with xerrorbars pt 0 lw 1.5 "
        "lc rgb '#000000', '' using 4:1:2 with labels left offset 1,0"]) + '\n'


def plots(kept):
    """Name, series, title, axes, and what else gnuplot is given."""
    trips, streams = of_group(kept, 'round trip'), of_group(kept, 'stream')
    by_size = ['set logscale x 2', 'set logscale y', 'set xtics (%s)' % SIZES,
               'set xtics rotate by -30']
    yield ('latency', lines(trips, 'p50', 1e-3), 'Round trips: median',
           'size of a message', 'round trip, microseconds', by_size)
    yield ('bandwidth', lines(streams, 'bytes', 1e-9), 'One way: throughput',
           'size of a message', 'GB/s', by_size)
    yield ('cpu', lines(streams, 'cpu_gb'), 'One way: CPU time of both ends',
           'size of a message', 'CPU seconds for 10^9 bytes',
           by_size)
    yield ('distribution', distribution(trips),
           'Round trips of 8 bytes: distribution',
           'share of round trips that take at most this long',
           'round trip, microseconds',
           ['set logscale y', 'set xtics (%s)' % ', '.join(
               '"%g %%%%" %g' % (100 * p, -math.log10(1 - p))
               for _, p in PARTS)])
    yield ('connections', lines(of_group(kept, 'connections at once'), 'rate',
                                1e-6),
           'An epoll server: round trips on all connections',
           'connections, a message of 512 bytes on each',
           'million round trips/s',
           ['set logscale x', 'set logscale y'])


def name_it(path, title):
    """A browser shows an SVG's title, and a screen reader reads it."""
    with open(path, encoding='utf-8') as f:
        text = f.read()
    text = text.replace('<title>Gnuplot</title>', '<title>%s</title>' % title)
    with open(path, 'w', encoding='utf-8') as f:
        f.write(text)


def has_four(trips):
    return any(k['x'] == 8 and all(values(k, side, 'p50') for side, _ in FOUR)
               for k in trips)


def gnuplot(text, folder):
    r = subprocess.run(['gnuplot', '-'], text=True, cwd=folder, input=text,
                       capture_output=True,
                       env={**os.environ, 'LC_ALL': 'C.UTF-8'})
    if r.returncode:
        raise Failed('gnuplot: %s' % r.stderr)


def draw(kept, folder):
    """The names of those that have lines."""
    need('gnuplot')
    os.makedirs(folder, exist_ok=True)
    drawn = []
    trips = of_group(kept, 'round trip')
    for name, series, *rest in plots(kept):
        if series:
            for kind in TERMINALS:
                gnuplot(script(series, *rest, name, kind), folder)
            name_it(os.path.join(folder, name + '.svg'), rest[0])
            drawn.append(name)
    if has_four(trips):
        for kind in TERMINALS:
            gnuplot(bars(trips, 'roundtrip', kind), folder)
        name_it(os.path.join(folder, 'roundtrip.svg'), 'Round trip of 8 bytes')
        drawn.append('roundtrip')
    return drawn
