#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What a program sees under exs run and without it: the same. Usage: differ.py
BEHAVE EXS [--quick | OPTION-OF-BEHAVE | PATTERN]...; quick leaves a way out; 1
when a row differs otherwise than the file "differences" has it, or one that it
has does not (but for what differs sometimes), and when a sanitizer reports.
With --unix or --pair connections are of UNIX sockets, by address or by
socketpair, and the file is "differences-unix"; with --packet they are those of
SOCK_SEQPACKET, which the kernel keeps, and the file is "differences-packet";
with --moved, too, they move, and the file is "differences-moved".
With --cold connections move while a row is under way, at a moment that chance
chooses: it must end well."""

import concurrent.futures
import fnmatch
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

# How each run is told from the native one.
WAYS = {
    'connect': {'EXS_UPGRADE': 'connect'},
    'default': {},
    'tcp': {'EXS_PROVIDER': 'tcp'},
}

# Connections are of UNIX sockets in all runs.
KIND = [a for a in ('--unix', '--packet', '--pair') if a in sys.argv]
UNIX = {'EXS_UNIX': 'on'} if KIND else {}
MOVED = '--moved' in sys.argv
if MOVED:
    sys.argv.remove('--moved')
    UNIX['LIBEXS_PACKETS'] = 'on'
DIFFERENCES = ('differences-moved' if MOVED else
               'differences-packet' if '--packet' in KIND else
               'differences-unix' if KIND else 'differences')
# The kernel keeps such connections.
KEPT = '--packet' in KIND and not MOVED

# Rows mostly wait: so many runs at a time, of a part of the rows each.
AT_A_TIME = 12
PARTS = 8

# A row that differs is run again, alone, this often: the kernel's own answers
# vary when a thread gets no CPU for a while.
AGAIN = 5

# Whether a call has waited is told by its time, which on a busy host is anybody's:
# a row that differs in nothing else must do so each time.
PACE = re.compile(r'\((waited|at once)\)')

# What a sanitizer cannot do: by what a program built with it has in it, the
# rows that are left out, and why.
EITHER = {
    'clone_like_vfork exec_* fork_left_unread_exec fork_left_unread_to_stdin '
    'inside_shells names_*_vfork packet_of_another_program pair_exec_* '
    'pair_spawn pass_*exec* spawn_* stdio_of_a_server system_* vfork_exec':
        'the shim cannot be loaded into other programs without the sanitizer',
    'io_bad_memory io_bad_memory_sent packet_bad_memory poll_arguments':
        'a pointer that the kernel refuses ends the program',
}
LEFT_OUT = {
    '__asan_init': {
        **EITHER,
        'jump_out_of_epoll_with_an_event jump_out_of_poll jump_out_of_recv '
        'jump_out_of_recv_all jump_out_of_send':
            'handlers of what a jump leaves are found by their addresses on '
            'the stack; what is watched for use after return is elsewhere',
    },
    '__tsan_init': {
        **EITHER,
        'confine_new_connections confine_strict':
            'now and then it makes a call of its own, which the filter forbids',
        'fork_by__Fork fork_by_number*':
            'a fork that is not seen leaves threads that are none',
        'handlers_* jump_out_of_poll jump_out_of_recv '
        'jump_out_of_recv_all jump_out_of_send within_*':
            'a handler runs in a later call than the one that it interrupts',
        'epoll_closed_beside_a_sleeper epoll_set_closed '
        'life_closed_while_waited_on':
            'a race by intent',
        '*_closed_by_a_handler':
            'a handler gives memory back, when it interrupts a sleep',
        'threads_cancel_epoll':
            'the locks of a thread that is cancelled in a call are forgotten',
    },
}

# A sanitizer's report, whatever became of the process; and the ways that had one.
REPORT = re.compile('SUMMARY: |runtime error: |CHECK failed|FATAL: ')
reported = set()


def left_out(behave):
    """The patterns of rows."""
    with open(behave, 'rb') as f:
        code = f.read()
    return [name for has, rows in LEFT_OUT.items() if has.encode() in code
            for names in rows for name in names.split()]


def matches(name, patterns):
    return any(fnmatch.fnmatchcase(name, p) for p in patterns)


def environment(way):
    env = {k: v for k, v in os.environ.items() if not k.startswith('EXS_')}
    env.update(WAYS.get(way, {}))
    env.update(UNIX)
    return env


def run(behave, exs, way, args, report=None):
    """The lines of a run, by row."""
    command = [behave] + args
    if way != 'native':
        command = [exs, 'run'] + \
            (['--report=' + report] if report else []) + command
    out = subprocess.run(command, env=environment(way), text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         errors='replace', check=False)
    rows = {}
    for line in out.stdout.splitlines():
        name, colon, rest = line.partition(':')
        if colon:
            rows[name] = rest.strip()
    if out.returncode != 0:
        sys.exit('%s: the run ends with %d\n%s' %
                 (way, out.returncode, out.stderr))
    if REPORT.search(out.stderr):
        reported.add(way)
        print('%s, a report: %s' % (way, out.stderr))
        return rows, ''
    return rows, out.stderr.strip()


def parts(flags, rows):
    """Arguments of runs that have all rows between them."""
    return [flags + rows[i::PARTS] for i in range(PARTS) if rows[i::PARTS]]


def differences():
    """By row or pattern of rows: the reason, and what such a row says."""
    ret = {}
    with open(os.path.join(HERE, DIFFERENCES)) as f:
        for line in f:
            if line.startswith('\t'):
                ret[name][1].append(line.strip())
            elif line.strip() and not line.startswith('#'):
                name, _, reason = line.partition(':')
                ret[name] = reason.strip(), []
    return ret


# What is never chance, and never meant.
ENDS = re.compile('HUNG|KILLED|EXITED|CANNOT|nothing')


def not_by_chance(behave, exs, way, rows, native, meant, flags):
    """Of rows that differed once: what they say that the kernel never does.
    What hangs or dies is never chance."""
    ret = {k: v for k, v in rows.items() if ENDS.search(v)}
    if '--cold' in flags:
        return ret
    rest = [k for k in rows if k not in ret]
    answers = {k: {native[k], *meant(k)} for k in rest}
    for _ in range(AGAIN if rest else 0):
        for k, v in run(behave, exs, 'native', flags + rest)[0].items():
            answers[k].add(v)
    paced = dict.fromkeys(rest, 0)
    for _ in range(AGAIN if rest else 0):
        for k, v in run(behave, exs, way, flags + rest)[0].items():
            if v in answers[k]:
                continue
            paced[k] += 1
            if paced[k] == AGAIN or PACE.sub('', v) not in \
                    [PACE.sub('', a) for a in answers[k]]:
                ret[k] = v
    return ret


def show(way, name, want, seen):
    print('%s, %s:' % (name, way))
    print('  - ' + want)
    print('  + ' + seen)


def joined(jobs):
    """The rows and what was said of all runs."""
    rows = {}
    for job in jobs:
        rows.update(job.result()[0])
    return rows, '\n'.join(job.result()[1] for job in jobs).strip()


def shim_is_used(behave, exs, way, row, share):
    """The report of one row says where its connection was, and stayed."""
    with tempfile.NamedTemporaryFile('r') as f:
        run(behave, exs, way, KIND + [row], f.name)
        found = re.search(r'(\d+) connections? on a fabric, (\d+) of (\d+)',
                          f.read())
    n, there, of = (int(g) for g in found.groups()) if found else (0, 0, 0)
    wanted = 0 if way == 'tcp' else 2
    if not found or n != wanted or (wanted and there < of * share):
        print('%s, %s: %d ends of the connection were on a fabric, not %d, '
              'with %d of %d bytes' % (row, way, n, wanted, there, of))
        return False
    return True


def main():
    if len(sys.argv) < 3:
        print('usage: differ.py BEHAVE EXS [OPTION | PATTERN]...')
        return 2
    behave, exs = (os.path.abspath(a) for a in sys.argv[1:3])
    args = sys.argv[3:]
    ways = WAYS
    if '--quick' in args:
        args.remove('--quick')
        ways = {way: WAYS[way] for way in ('connect', 'default')}
    flags = [a for a in args if a.startswith('--')]
    known = differences()
    out = left_out(behave)
    out += [k for k, (why, _) in known.items() if why.startswith('unfit')]
    listed = subprocess.run([behave, '--list'] + args, text=True, check=True,
                            stdout=subprocess.PIPE).stdout.split()
    chosen = [row for row in listed if not matches(row, out)]
    stale = {k for k, (why, _) in known.items()
             if not why.startswith('sometimes') and not matches(k, out)}
    good = KEPT or all([shim_is_used(behave, exs, way, row, share) for way in ways
                        for row, share in (('io_pieces_join', 0),
                                           ('names_stream', 0.8))])
    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        jobs = {way: [pool.submit(run, behave, exs, way, part)
                      for part in parts(flags, chosen)]
                for way in ['native', *ways]}
    native, _ = joined(jobs['native'])
    for name in sorted(k for k in native if 'HUNG' in native[k]):
        print('%s hangs natively: the row is wrong' % name)
        good = False
    counts = {}

    def says_of(name):
        return [says for k in known if fnmatch.fnmatchcase(name, k)
                for says in known[k][1]]

    for way in ways:
        rows, said = joined(jobs[way])
        if said:
            print('%s says: %s' % (way, said[:2000]))
        odd = {k: rows.get(k, 'nothing') for k in native
               if rows.get(k, 'nothing') != native[k]}
        stale -= {k for k in stale for name in odd
                  if fnmatch.fnmatchcase(name, k)}
        meant = {name for name, seen in odd.items() if PACE.sub('', seen) in
                 [PACE.sub('', says) for says in says_of(name)]}
        rest = {k: v for k, v in odd.items() if k not in meant}
        bad = not_by_chance(behave, exs, way, rest, native, says_of, flags)
        for name, seen in bad.items():
            show(way, name, native[name], seen)
        good = good and not bad
        counts[way] = len(bad), len(meant), len(rest) - len(bad)
    for way, (bad, meant, chance) in counts.items():
        print('%s: %d rows, %d differ, %d differ as they should, %d did once' %
              (way, len(native), bad, meant, chance))
    if len(listed) > len(chosen):
        print('%d rows are left out' % (len(listed) - len(chosen)))
    whole = ways is WAYS and not [a for a in args if a not in KIND]
    for name in stale if whole else []:
        print('%s does not differ: take it out of differences' % name)
        good = False
    return 0 if good and not reported else 1


if __name__ == '__main__':
    sys.exit(main())
