# SPDX-License-Identifier: BSD-2-Clause
"""The cases of bench/compare: what is compared with what."""

import contextlib
import os
import subprocess
import tempfile

QUICK_SIZES = [8, 1 << 10, 64 << 10, 1 << 20]
SIZES = [1, 8, 64, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20,
         64 << 20]
QUICK_CONNECTIONS = [1, 10, 100, 1000]
CONNECTIONS = [1, 10, 100, 1000, 3000, 9000]
UNIX, TCP, SHIM = 'UNIX socket', 'TCP', 'exs run'
BARE, PIPE, EVENTFD = 'bare memory', 'pipe', 'eventfd'
SYNC, ASYNC = 'libexs, sync', 'libexs, async'
EPOLL = ', epoll server'
PINGPONG = 'fi_pingpong shm, mean'


def text_of(n):
    for unit, word in (1 << 20, 'MiB'), (1 << 10, 'KiB'):
        if n >= unit and n % unit == 0:
            return '%d %s' % (n // unit, word)
    return '%d B' % n


class Case:
    """sides: a name and the call that measures it, in the order of a round."""
    around = contextlib.nullcontext

    def __init__(self, group, x, label, sides):
        self.group, self.x, self.label = group, x, label
        self.sides = dict(sides)

    @property
    def name(self):
        return '%s, %s' % (self.group.title, self.label)


class Group:
    """Cases with one table. key: the figure that is compared; times: sides that
    others are compared with, the best of those where they are several."""

    def __init__(self, title, key, unit, times=(), less=False, once=False):
        self.title, self.key, self.unit = title, key, unit
        self.times, self.less, self.once = times, less, once


UCX = 'UCX', ['UCX, stream', 'UCX, tag', 'UCX, tag, cma']
SOCKETS = 'UNIX', [UNIX]
KERNEL = 'TCP', [TCP]
DEVICE = 'perftest', ['ib_send_lat', 'ib_write_bw']
RSOCKETS = 'rsockets', ['rsockets']
GROUPS = {g.title: g for g in (
    Group('round trip', 'p50', 'ns', [('line', [BARE]), UCX, SOCKETS], True),
    Group('stream', 'bytes', 'MB/s', [UCX, SOCKETS]),
    Group('round trip on one CPU', 'p50', 'ns', [SOCKETS], True),
    Group('redis', 'rate', '1/s', [KERNEL]),
    Group('connect, request, close', 'rate', '1/s', [KERNEL]),
    Group('connections at once', 'rate', '1/s', [KERNEL]),
    Group('threads', 'rate', '1/s', [('one', ['1, own queue'])]),
    Group('processes, round trips', 'rate', '1/s', [SOCKETS]),
    Group('processes, streams', 'bytes', 'MB/s', [SOCKETS]),
    Group('loans', 'bytes', 'MB/s', [('plain', ['plain calls'])]),
    Group('idle connections', 'runs', 'wake-ups of both ends, 1/s', [], True,
          True),
    Group('a pipe', 'p50', 'ns', [('native', [PIPE])], True),
    Group('verbs, one way, 64 B', 'p50', 'ns', [DEVICE, RSOCKETS], True),
    Group('verbs, stream of 1 MiB', 'bytes', 'MB/s', [DEVICE, RSOCKETS]),
    Group('verbs, 8 receivers', 'user', 'CPU seconds for 10^9 bytes',
          [('copying', ['copying'])], True),
    Group('system calls for a message', 'calls', '', [], True, True),
    Group('memory for a connection', 'memory', 'KiB', [], True, True),
)}


def is_once(title):
    return title in GROUPS and GROUPS[title].once


def round_trips(s, sizes):
    for size in sizes:
        large = size >= 64 << 10
        # As the peers' programs do; a received buffer that is sent back is
        # in the other CPU's cache.
        own = ['--own'] if size > 64 else []
        yield Case(GROUPS['round trip'], size, text_of(size), [
            (BARE, lambda z=size: s.bare('lat', z)),
            *([(EVENTFD, lambda: s.limits('eventfd', 8))] if size == 8
              else []),
            (PIPE, lambda z=size: s.limits('pipe-lat', z)),
            (UNIX, lambda z=size, o=own: s.unix('lat', z, *o)),
            (TCP, lambda z=size, o=own: s.tcp('lat', z, *o)),
            ('UCX, stream',
             lambda z=size: s.ucx_lat('stream', z, z == 8)),
            ('UCX, tag', lambda z=size: s.ucx_lat('tag', z, z == 8)),
            *([('UCX, tag, cma', lambda z=size: s.ucx_lat(
                'tag', z, False, 'posix,sysv,cma,self'))] if large else []),
            (PINGPONG, lambda z=size: s.pingpong(z)),
            (SYNC, lambda z=size, o=own: s.exs('lat', z, *o)),
            (ASYNC, lambda z=size, o=own: s.exs('lat', z, '--async', *o)),
            (SHIM, lambda z=size, o=own: s.shim('lat', z, *o)),
            (SHIM + EPOLL, lambda z=size: s.shim('lat', z, api='epoll')),
        ])


def redis(s):
    """A program that knows nothing of libexs, as its users run it: not pinned."""
    for clients in 1, 50:
        yield Case(GROUPS['redis'], clients, 'GET, %d client%s' % (
            clients, 's' * (clients > 1)), [
            (TCP, lambda n=clients: s.redis(n)),
            (SHIM, lambda n=clients: s.redis(n, True))])


def one_cpu(s):
    """Neither end can move while the other one waits for it."""
    pin = '%d,%d' % (s.cpus[0], s.cpus[0])
    for size in 8, 64 << 10:
        yield Case(GROUPS['round trip on one CPU'], size, text_of(size), [
            (UNIX, lambda z=size: s.unix('lat', z, pin=pin)),
            (TCP, lambda z=size: s.tcp('lat', z, pin=pin)),
            (SYNC, lambda z=size: s.exs('lat', z, pin=pin)),
            (ASYNC, lambda z=size: s.exs('lat', z, '--async', pin=pin)),
            (SHIM, lambda z=size: s.shim('lat', z, pin=pin)),
            (SHIM + EPOLL, lambda z=size: s.shim('lat', z, api='epoll',
                                                 pin=pin)),
        ])


def streams(s, sizes):
    for size in sizes:
        large = size >= 64 << 10
        yield Case(GROUPS['stream'], size, text_of(size), [
            (BARE, lambda z=size: s.bare('bw', z)),
            (PIPE, lambda z=size: s.limits('pipe-bw', z)),
            (UNIX, lambda z=size: s.unix('bw', z)),
            (TCP, lambda z=size: s.tcp('bw', z)),
            ('UCX, stream', lambda z=size: s.ucx('stream_bw', z)),
            ('UCX, tag', lambda z=size: s.ucx('tag_bw', z)),
            *([('UCX, tag, cma', lambda z=size: s.ucx(
                'tag_bw', z, 'posix,sysv,cma,self'))] if large else []),
            (SYNC, lambda z=size: s.exs('bw', z, '--sync')),
            *(('%s, %d deep' % (ASYNC, d),
               lambda z=size, d=d: s.exs('bw', z, '--depth', str(d)))
              for d in (4, 16, 64)),
            # As UCX receives: 64 MiB of buffers fit into no cache.
            *([(ASYNC + ', 64 deep, one buffer', lambda z=size: s.exs(
                'bw', z, '--depth', '64', '--own'))] if size >= 1 << 20
              else []),
            (SHIM, lambda z=size: s.shim('bw', z)),
        ])


def connections(s, counts):
    yield Case(GROUPS['connect, request, close'], 64, '64 B', [
        (TCP, lambda: s.conn('--api', 'sock')),
        (SYNC, lambda: s.conn('--api', 'exs')),
        (SHIM, lambda: s.conn('--api', 'sock', shim=True)),
    ])
    for n in counts:
        yield Case(GROUPS['connections at once'], n, str(n), [
            (TCP, lambda n=n: s.epoll(n)),
            (SHIM, lambda n=n: s.epoll(n, True)),
        ])


def parallel(s):
    yield Case(GROUPS['threads'], 1, '8 B, 64 deep', [
        ('%d, %s queue' % (n, q), lambda n=n, q=q: s.threads(n, q))
        for q in ('own', 'shared') for n in (1, 2, 4)])
    for n in (1, 2, 4, 8):
        for group, test in (('processes, round trips', 'lat'),
                            ('processes, streams', 'bw')):
            yield Case(GROUPS[group], n, '%d pair%s' % (n, 's' * (n > 1)), [
                (UNIX, lambda n=n, t=test: s.together(n, t, '--api', 'unix')),
                *([(TCP, lambda n=n, t=test: s.together(n, t, '--api',
                                                        'sock'))]
                  if test == 'lat' else []),
                (SYNC, lambda n=n, t=test: s.together(
                    n, t, '--api', 'exs', '--sync', on='shm')),
                (SHIM, lambda n=n, t=test: s.together(
                    n, t, '--api', 'sock', shim=True, on='shm')),
                (SHIM + EPOLL, lambda n=n, t=test: s.together(
                    n, t, '--api', 'epoll', shim=True, on='shm')),
            ])


def defaults(s, counts):
    """What has no other case: programs that do nothing, or not with sockets."""
    for n in counts:
        yield Case(GROUPS['idle connections'], n,
                   '%d connection%s' % (n, 's' * (n > 1)), [
            (UNIX, lambda n=n: s.idle('unix', n)),
            (TCP, lambda n=n: s.idle('tcp', n)),
            (SHIM, lambda n=n: s.idle('tcp', n, True))])
    for size in 8, 64 << 10:
        yield Case(GROUPS['a pipe'], size, text_of(size), [
            (PIPE, lambda z=size: s.limits('pipe-lat', z)),
            (SHIM, lambda z=size: s.limits('pipe-lat', z, True))])


def loans(s):
    for size in (4 << 10, 64 << 10, 1 << 20):
        yield Case(GROUPS['loans'], size, text_of(size), [
            ('plain calls', lambda z=size: s.loans('plain', z)),
            ('loans', lambda z=size: s.loans('loaned', z)),
        ])


def costs(s):
    for test, size, n in ('lat', 8, 2000), ('bw', 64 << 10, 1000):
        what = 'round trips' if test == 'lat' else 'streams'
        yield Case(GROUPS['system calls for a message'], size,
                   '%s, %s' % (what, text_of(size)), [
            (name, lambda a=args, kw=kw, t=test, z=size, n=n: s.calls(
                t, z, *a, n=n, **kw)) for name, args, kw in (
                (UNIX, ['--api', 'unix'], {}), (TCP, ['--api', 'sock'], {}),
                (SYNC, ['--api', 'exs', '--sync'], {}),
                (ASYNC, ['--api', 'exs', '--async'], {}),
                (SHIM, ['--api', 'sock'], {'shim': True}),
                (SHIM + EPOLL, ['--api', 'epoll'], {'shim': True}))])
    yield Case(GROUPS['memory for a connection'], 1, 'both ends', [
        (TCP, lambda: s.memory()), (SHIM, lambda: s.memory(True))])


def cases(s, quick):
    sizes = QUICK_SIZES if quick else SIZES
    return [*round_trips(s, sizes), *redis(s), *streams(s, sizes), *one_cpu(s),
            *connections(s, QUICK_CONNECTIONS if quick else CONNECTIONS),
            *parallel(s), *loans(s),
            *defaults(s, [100] if quick else [1, 100, 1000]), *costs(s)]


# --- a host that is busy -------------------------------------------------------

HOSTS = {
    # the command of two endless loops on each CPU, where the ends are, pairs
    'loops': ([], (0, 1), 1),
    'quiet': (None, (0, 1), 1),
    'nice': (['nice', '-n', '19'], (0, 1), 1),
    'idle': (['chrt', '-i', '0'], (0, 1), 1),
    'one': ([], (0, 0), 1),
    'unpinned': ([], None, 1),
    'quota': (None, (0, 1), 1),
    'pairs': (None, None, 8),
}
HOST_WORDS = {
    'loops': 'two endless loops on each CPU',
    'quiet': 'nothing else runs',
    'nice': 'the same loops at nice 19',
    'idle': 'the same loops in SCHED_IDLE',
    'one': 'both ends on one CPU, with two endless loops',
    'unpinned': 'endless loops, and the ends wherever the system puts them',
    'quota': 'both ends in a control group that may use half a CPU',
    'pairs': 'eight pairs at once, nothing pinned',
}
QUOTA_V1 = '/sys/fs/cgroup/cpu'
QUOTA_V2 = '/sys/fs/cgroup'


@contextlib.contextmanager
def hogs(how, cpus):
    """Two endless loops on each CPU; they end with the block, or with this
    process."""
    loops = []
    try:
        for cpu in cpus if how is not None else ():
            for _ in range(2):
                loops.append(subprocess.Popen(
                    ['setpriv', '--pdeathsig', 'KILL', 'taskset', '-c',
                     str(cpu), *how, 'sh', '-c', 'while :; do :; done']))
        yield
    finally:
        for p in loops:
            p.kill()
        for p in loops:
            p.wait()


class HalfACpu:
    """A control group with that limit, into which a process can go."""

    def __init__(self):
        v1 = os.path.isdir(QUOTA_V1)
        self.group = tempfile.mkdtemp(prefix='exs-busy-',
                                      dir=QUOTA_V1 if v1 else QUOTA_V2)
        for name, value in ((('cpu.cfs_period_us', '100000'),
                             ('cpu.cfs_quota_us', '50000')) if v1 else
                            (('cpu.max', '50000 100000'),)):
            with open(os.path.join(self.group, name), 'w') as f:
                f.write(value)

    def join(self):
        with open(os.path.join(self.group, 'cgroup.procs'), 'w') as f:
            f.write(str(os.getpid()))

    def remove(self):
        os.rmdir(self.group)


FIGURES = 'p50', 'p99', 'mean', 'rate'
FACES = {'block': SHIM + ', read', 'poll': SHIM + ', poll',
         'select': SHIM + ', select', 'epoll': SHIM + EPOLL,
         'et': SHIM + ', epoll, edges'}


class Busy:
    """Round trips of 100 bytes on a host of some kind: each side is measured
    beside native TCP's same calls."""

    def __init__(self, sides, kind, pause):
        self.s, self.kind, self.pause = sides, kind, pause
        self.how, ends, self.pairs = HOSTS[kind]
        self.cpus = tuple(sides.cpus[i] for i in ends) if ends else (-1, -1)
        self.join = None

    @contextlib.contextmanager
    def around(self):
        quota = HalfACpu() if self.kind == 'quota' else None
        self.join = quota.join if quota else None
        try:
            with hogs(self.how, self.s.cpus):
                yield
        finally:
            if quota:
                quota.remove()

    def plain(self, face, shim):
        bench = self.s.bench
        command = [os.path.join(bench.build, 'bench/echo'), face,
                   *map(str, self.cpus), str(bench.seconds), '100',
                   str(self.pairs), str(self.pause)]
        said = bench.run([bench.exs, 'run', *command] if shim else command,
                         preexec_fn=self.join).split()
        p50, p99, mean, rate = map(float, said)
        return {'p50': 1e3 * p50, 'p99': 1e3 * p99, 'mean': 1e3 * mean,
                'rate': rate}

    def perf(self, api, *args):
        call = self.s.exs if api == 'exs' else self.s.perf
        f = call('lat', 100, '--api', api, '--warmup', '300', '--connections',
                 str(self.pairs), *args, preexec_fn=self.join,
                 pin='none' if self.cpus[0] < 0 else '%d,%d' % self.cpus)
        f['mean'] = 1e9 * self.pairs / f['rate']
        return f

    def sides(self):
        for face, name in FACES.items():
            yield 'TCP of ' + name, lambda face=face: self.plain(face, False)
            yield name, lambda face=face: self.plain(face, True)
        for name, how in (SYNC, '--sync'), (ASYNC, '--async'):
            yield 'TCP of ' + name, lambda: self.perf('sock')
            yield name, lambda how=how: self.perf('exs', how)
        yield 'TCP of TCP again', lambda: self.plain('block', False)
        yield 'TCP again', lambda: self.plain('block', False)

    def case(self):
        kind = Group('busy host', 'mean', 'ns', [], True)
        case = Case(kind, self.pause, self.kind, self.sides())
        case.around = self.around
        return case
