# SPDX-License-Identifier: BSD-2-Clause
"""What bench/compare measures: each side of a case is a call that measures once
and returns figures, under these names:

  p50 p75 p90 p99 p999 p9999 max   round trips, ns
  mean                             of round trips, ns
  rate                             messages, round trips or connections, 1/s
  bytes                            of one direction, 1/s
  cpu_message, cpu_gb              CPU time of both ends, s for a million
                                   messages, and for 10^9 bytes
  bells                            wake-ups for each message
  calls                            system calls for each message
  memory                           bytes for each connection
  runs, cpu                        how often the threads of both ends ran, and
                                   their CPU seconds, 1/s
  user                             user's CPU time of a receiver, s for 10^9
                                   bytes
  others                           share of the CPUs that other programs used
"""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time

import redis_pair
from bench import (HOST, Failed, Missing, Native, Shim, free_port, listens,
                   stuck)

QUANTILES = 'p50', 'p75', 'p90', 'p99', 'p999', 'p9999', 'max'
UCX_ENV = {'UCX_LOG_LEVEL': 'error', 'UCX_WARN_UNUSED_ENV_VARS': 'n'}
# Programs of the peers, and Debian's packages of them.
PACKAGES = {'ucx_perftest': 'ucx-utils', 'fi_pingpong': 'libfabric-bin',
            'strace': 'strace', 'gnuplot': 'gnuplot-nox'}


def need(program):
    if not shutil.which(program):
        raise Missing('%s (Debian\'s package %s)' %
                      (program, PACKAGES[program]))


def common(said, size, a_message):
    """Figures of a result with the names of exs perf's JSON; a_message: how many
    iterations are a message."""
    f = {q: said['rtt_ns'][q] for q in QUANTILES
         if said['rtt_ns'] and said['rtt_ns'].get(q)}
    rate = said['msgs_per_s']
    if rate:
        f['rate'] = rate
    if said['rtt_ns'] and rate:
        f['mean'] = 1e9 * said.get('connections', 1) / rate
    if said['bytes_per_s']:
        f['bytes'] = said['bytes_per_s']
    cpu = sum(said['cpu_s'].values())
    f['cpu_message'] = 1e6 * cpu / (said['iters'] * a_message)
    if said['bytes_per_s']:
        f['cpu_gb'] = 1e9 * cpu / (said['iters'] * size)
    return f


class Sides:
    def __init__(self, bench, cpus):
        self.bench, self.cpus = bench, cpus
        self.pin = '%d,%d' % cpus
        self.redis_clients = {}

    # --- exs perf ------------------------------------------------------------

    def command(self, test, size, *args, shim=False, pin=None):
        exs = self.bench.exs
        sized = ['--size', str(size)] if size else []
        return [*([exs, 'run'] if shim else []), exs, 'perf', '--pair',
                '--json', '--pin', pin or self.pin, '--test', test, *sized,
                *args]

    def told(self, said, on):
        if on and said['fabric'] != on:
            raise Failed('on %s (%s), not on %s' % (said['fabric'],
                                                    said['reason'], on))
        f = common(said, said['size'], 2 if said['test'] == 'lat' else 1)
        if said['conns_per_s']:
            f['rate'] = said['conns_per_s']
        if said['bells_per_message'] is not None:
            f['bells'] = said['bells_per_message']
        if said['others'] is not None:
            f['others'] = said['others']
        return f

    def perf(self, test, size, *args, shim=False, on=None, pin=None, **kw):
        # The connection has moved after a megabyte, whatever a message is.
        few = [] if '--warmup' in args or not size or size <= 1 << 16 else \
            ['--warmup', str(max(3, (1 << 26) // size))]
        said = json.loads(self.bench.run(
            self.command(test, size, '--seconds', str(self.bench.seconds),
                         *few, *args, shim=shim, pin=pin), **kw))
        return self.told(said, on)

    def bare(self, test, size):
        return self.perf(test, size, '--api', 'raw')

    def line(self):
        """A short look at how far the CPUs are from each other."""
        return json.loads(self.bench.run(self.command(
            'lat', 8, '--api', 'raw', '--seconds', '0.02')))['rtt_ns']['p50']

    def unix(self, test, size, *args, **kw):
        return self.perf(test, size, '--api', 'unix', *args, **kw)

    def tcp(self, test, size, *args, **kw):
        return self.perf(test, size, '--api', 'sock', *args, **kw)

    def exs(self, test, size, *args, **kw):
        return self.perf(test, size, '--api', 'exs', *args, on='shm', **kw)

    def shim(self, test, size, *args, api='sock', **kw):
        return self.perf(test, size, '--api', api, *args, shim=True, on='shm',
                         **kw)

    def conn(self, *args, shim=False):
        """Connections that carry one request are not meant to move."""
        return self.perf('conn', None, *args, shim=shim)

    def epoll(self, connections, shim=False):
        # Of this size a few messages move a connection.
        return self.perf('lat', 512, '--api', 'epoll', '--connections',
                         str(connections), '--warmup', '100', shim=shim,
                         on='shm' if shim else None)

    # --- the programs of this folder -------------------------------------------

    def limits(self, what, size, shim=False):
        said = json.loads(self.bench.run(
            [*([self.bench.exs, 'run'] if shim else []),
             os.path.join(self.bench.build, 'bench/limits'), what, str(size),
             str(self.bench.seconds), *map(str, self.cpus)]))
        f = common(said, size, 1 if what == 'pipe-bw' else 2)
        if what != 'pipe-bw':
            f.pop('bytes', None)
            f.pop('cpu_gb', None)
        return f

    def idle(self, kind, connections, shim=False):
        """Natively a connection is idle after few trips as after many."""
        trips = max(100, 20000 // connections) if shim else 10
        way = Shim(self.bench) if shim else Native()
        # What a connection no longer needs is given back in the first second.
        settle = min(1.5, 15 * self.bench.seconds)
        runs, ms = map(float, self.bench.run(way.command(
            os.path.join(self.bench.build, 'bench/idle'), kind,
            str(connections), str(trips), str(settle),
            str(min(1, 10 * self.bench.seconds)))).split())
        moved = way.connections() if shim else connections
        if moved < 0.9 * connections:
            raise Failed('%d of %d connections are on a fabric' %
                         (moved, connections))
        return {'runs': runs, 'cpu': ms / 1e3}

    def loans(self, how, size):
        megabytes = max(8, int(2000 * self.bench.seconds))
        return {'bytes': 1e6 * float(self.bench.run(
            [os.path.join(self.bench.build, 'bench/loans'), how, str(size),
             str(megabytes)]))}

    def threads(self, n, queue):
        return {'rate': float(self.bench.run(
            [os.path.join(self.bench.build, 'bench/threads'), str(n), queue,
             str(self.bench.seconds)]))}

    # --- redis --------------------------------------------------------------------

    def redis(self, clients, shim=False):
        """Both ends the same way. The first run finds the rate. Where nothing is pinned,
        it takes a while until each end has a CPU."""
        way = Shim(self.bench) if shim else Native()
        client = self.redis_clients.setdefault(clients, redis_pair.Client(
            self.bench, 'get', clients, 5 * self.bench.seconds))
        with redis_pair.server(self.bench, way) as port:
            if way.name not in client.rates:
                client.measure(way, port)
            rate, _ = client.measure(way, port)
        if shim:
            on_fabric, total, _ = way.reported()
            if not on_fabric:
                raise Failed('none of %d bytes are on a fabric' % total)
        return {'rate': rate}

    # --- several pairs at once --------------------------------------------------

    def together(self, n, test, *args, shim=False, on=None):
        command = self.command(test, None, '--seconds',
                               str(self.bench.seconds), *args, shim=shim,
                               pin='none')
        pairs = []
        try:
            for _ in range(n):
                pairs.append(subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    text=True))
            said = [stuck.communicate(p, 60 + 20 * self.bench.seconds)[0]
                    for p in pairs]
        except stuck.Stuck as e:
            raise Failed('%s: no end\n%s' % (' '.join(command),
                                             e.where)) from None
        finally:
            for p in pairs:
                if p.poll() is None:
                    p.kill()
                p.wait()
                p.stdout.close()
        if any(p.returncode for p in pairs):
            raise Failed('%s: status %s' % (' '.join(command),
                                            [p.returncode for p in pairs]))
        all_of = [self.told(json.loads(s), on) for s in said]
        return {name: sum(f[name] for f in all_of)
                for name in ('rate', 'bytes') if name in all_of[0]}

    # --- system calls, memory ---------------------------------------------------

    def calls(self, test, size, *args, n=2000, shim=False):
        """By a run and one of three times as many messages; what the difference
        has is theirs."""
        need('strace')
        counts = []
        for iters in (n, 3 * n):
            log = os.path.join(self.bench.folder, 'strace')
            self.bench.run(
                ['strace', '-f', '-c', '-qq', '-o', log,
                 *self.command(test, size, '--iters', str(iters), *args,
                               shim=shim)])
            with open(log) as f:
                # Of parts of a second, microseconds, calls, errors, name.
                counts.append(sum(int(m.group(1)) for m in re.finditer(
                    r'^ *\S+ +\S+ +\d+ +(\d+) +(?:\d+ +)?(?!total)\w+$',
                    f.read(), re.M)))
        messages = (2 if test == 'lat' else 1) * 2 * n
        return {'calls': max(0, counts[1] - counts[0]) / messages}

    def proportional(self, pid):
        """Bytes of a process and its children: shared ones are divided."""
        total = 0
        for p in stuck.children(pid):
            try:
                with open('/proc/%d/smaps_rollup' % p) as f:
                    total += 1024 * int(re.search(r'^Pss: +(\d+)', f.read(),
                                                  re.M).group(1))
            except (OSError, AttributeError):
                pass
        return total

    def memory(self, shim=False, few=10, many=1000):
        """Of a connection that was used: what more of them need at most."""
        most = []
        for n in (few, many):
            command = self.command(
                'lat', 64, '--api', 'epoll', '--connections', str(n),
                '--seconds', '0.2', '--warmup', '100', shim=shim)
            peak = 0
            with subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, text=True) as p:
                while p.poll() is None:
                    peak = max(peak, self.proportional(p.pid))
                    time.sleep(0.01)
                said = p.stdout.read()
            if p.returncode:
                raise Failed('%s: status %d' % (' '.join(command),
                                                p.returncode))
            self.told(json.loads(said), 'shm' if shim else None)
            most.append(peak)
        return {'memory': (most[1] - most[0]) / (many - few)}

    # --- peers -------------------------------------------------------------------

    def pinned(self, end, command):
        return ['taskset', '-c', str(self.cpus[end]), *command]

    def served(self, server, client, port=None, env=None):
        """What the client says. Without a port: it tries until it is served."""
        env = {**os.environ, **(env or {})}
        limit = 60 + 20 * self.bench.seconds
        s = subprocess.Popen(self.pinned(1, server), env=env,
                             stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
        try:
            last = time.monotonic() + 20
            while port and not listens(port):
                if s.poll() is not None or time.monotonic() > last:
                    raise Failed('%s does not listen' % ' '.join(server))
                time.sleep(0.005)
            while True:
                c = stuck.run(self.pinned(0, client), limit, env=env,
                              stdin=subprocess.DEVNULL, text=True)
                if c.returncode == 0:
                    return c.stdout
                if port or s.poll() is not None or time.monotonic() > last:
                    raise Failed('%s: status %d\n%s' % (
                        ' '.join(client), c.returncode,
                        (c.stdout + c.stderr)[-500:]))
                time.sleep(0.02)
        except stuck.Stuck as e:
            raise Failed('%s: no end\n%s' % (' '.join(client),
                                             e.where)) from None
        finally:
            if s.poll() is None:
                s.send_signal(signal.SIGTERM)
            s.wait()

    def as_many(self, ns):
        """As fit, if one takes so long."""
        return max(20, int(1e9 * self.bench.seconds / ns))

    def ucx(self, test, size, transports='posix,sysv,self', quantile=None):
        """A latency test has halves of round trips. Its quantiles are of the
        last iterations, and one in each run."""
        need('ucx_perftest')
        lat = test.endswith('_lat')
        n = self.as_many((600 + size / 2) if lat else (100 + size / 5))
        port = free_port()
        command = ['ucx_perftest', '-p', str(port)]
        said = self.served(
            command, [*command, HOST, '-t', test, '-s', str(size), '-n',
                      str(n), '-w', str(max(10, n // 10)), '-f', '-v',
                      *(['-R', str(quantile)] if quantile else [])],
            port, {**UCX_ENV, 'UCX_TLS': transports})
        found = re.findall(r'^ *(\d+(?:,[\d.]+)+)$', said, re.M)
        if not found:
            raise Failed('no result in\n%s' % said[-500:])
        # iterations, quantile, average, overall (us), MB/s of two, messages/s
        v = [float(x) for x in found[-1].split(',')]
        if not lat:
            return {'bytes': v[7] * size, 'rate': v[7]}
        if quantile:
            return 2000 * v[1]
        return {'p50': 2000 * v[1], 'mean': 2000 * v[3], 'rate': 5e5 / v[3]}

    def ucx_lat(self, kind, size, tails, transports='posix,sysv,self'):
        f = self.ucx(kind + '_lat', size, transports)
        for name, part in (('p99', 99), ('p999', 99.9)) if tails else ():
            f[name] = self.ucx(kind + '_lat', size, transports, part)
        return f

    def pingpong(self, size):
        """Its mean only: half of it is what it prints."""
        need('fi_pingpong')
        port = str(free_port())
        common_args = ['-p', 'shm', '-e', 'rdm', '-S', str(size), '-I',
                       str(self.as_many(1000 + size / 2))]
        said = self.served(
            ['fi_pingpong', *common_args, '-B', port],
            ['fi_pingpong', *common_args, '-P', port, HOST])
        found = re.search(r'(\S+) +\S+ *$', said.strip())
        if not found:
            raise Failed('no result in\n%s' % said)
        us = 2 * float(found.group(1))
        return {'p50': 1000 * us, 'mean': 1000 * us, 'rate': 1e6 / us}


def many_descriptors():
    """As many connections as the system lets this user have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
