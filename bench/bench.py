# SPDX-License-Identifier: BSD-2-Clause
"""What the benchmarks share: two ways to run a program, turns, and tables.

Figures of virtual machines drift within minutes, so every round measures each
side once, in changing order, and a ratio is the median of the rounds' ratios.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             '../scripts'))
from ports import free_port  # noqa: E402, F401
import stuck  # noqa: E402

HOST = '127.0.0.1'
# Settings that are not what is measured: which device, and who may.
DEVICES = ('EXS_VERBS_', 'EXS_OFI_', 'EXS_KEY_FILE', 'EXS_TRUST')


class Failed(Exception):
    """Something could not be measured; the text says what."""


class Missing(Exception):
    """A program is not installed."""


# --- statistics --------------------------------------------------------------

def quantile(values, q):
    v = sorted(values)
    at = q * (len(v) - 1)
    low = int(at)
    high = min(low + 1, len(v) - 1)
    return v[low] + (v[high] - v[low]) * (at - low)


def median(values):
    return quantile(values, 0.5)


def spread(values):
    return {'median': median(values), 'q1': quantile(values, 0.25),
            'q3': quantile(values, 0.75), 'min': min(values),
            'max': max(values), 'rounds': list(values)}


# --- tables ------------------------------------------------------------------

def number(v):
    """Three digits that count, and thousands apart."""
    if v >= 1000:
        digits = len(str(int(v)))
        return '{:,}'.format(int(round(v, 3 - digits))).replace(',', ' ')
    return '%.3g' % v


def table(head, rows):
    """Markdown, with columns that a person can read."""
    widths = [max(len(str(r[i])) for r in [head, *rows])
              for i in range(len(head))]

    def line(cells):
        return '| ' + ' | '.join(str(c).ljust(w)
                                 for c, w in zip(cells, widths)) + ' |'
    return '\n'.join([line(head), '|' + '|'.join('-' * (w + 2)
                                                  for w in widths) + '|',
                      *[line(r) for r in rows]])


def congestion_control():
    """TCP's: one that paces, as BBR, keeps streams over loopback slow."""
    try:
        with open('/proc/sys/net/ipv4/tcp_congestion_control') as f:
            return f.read().strip()
    except OSError:
        return 'unknown'


def surroundings(options):
    cpus = sorted(os.sched_getaffinity(0))
    model = re.search(r'model name\s*: (.*)', open('/proc/cpuinfo').read())
    return {'cpus': len(cpus), 'kernel': os.uname().release,
            'model': model.group(1) if model else os.uname().machine,
            'rounds': options.rounds, 'seconds': options.seconds,
            'congestion': congestion_control(), 'load': os.getloadavg()[0]}


def describe(s):
    return ('%d rounds of %g s for each; %d CPU%s (%s), Linux %s, TCP\'s '
            'congestion control %s, load before it %.1f' %
            (s['rounds'], s['seconds'], s['cpus'],
             '' if s['cpus'] == 1 else 's', s['model'], s['kernel'],
             s['congestion'], s['load']))


# --- programs ----------------------------------------------------------------

class Bench:
    """The build that is measured, and a folder that goes with the program."""

    def __init__(self, options):
        self.exs = os.path.abspath(os.path.join(options.build, 'tools/exs'))
        self.build = os.path.abspath(options.build)
        if not os.access(self.exs, os.X_OK):
            sys.exit('%s: %s is not there; give the build folder' %
                     (os.path.basename(sys.argv[0]), self.exs))
        self.seconds = options.seconds
        self.temporary = tempfile.TemporaryDirectory(prefix='exs-bench-')
        self.folder = self.temporary.name
        os.chmod(self.folder, 0o711)

    def run(self, command, **kw):
        """Standard output of a command that ends well."""
        try:
            r = stuck.run(command, 60 + 20 * self.seconds,
                          stdin=subprocess.DEVNULL, text=True, **kw)
        except stuck.Stuck as e:
            raise Failed('%s does not end\n%s' %
                         (' '.join(command), e.where)) from None
        if r.returncode:
            raise Failed('%s: status %d\n%s' %
                         (' '.join(command), r.returncode,
                          (r.stdout + r.stderr)[-2000:]))
        return r.stdout


class Native:
    name = 'native'

    def command(self, *args):
        return list(args)


class Shim:
    """Under exs run, with what it reports."""
    name = 'exs run'

    def __init__(self, bench):
        self.exs = bench.exs
        self.report = tempfile.NamedTemporaryFile(dir=bench.folder)
        os.chmod(self.report.name, 0o666)

    def command(self, *args):
        return [self.exs, 'run', '--report=' + self.report.name, *args]

    def reported(self):
        """Of all processes until now: bytes on a fabric, bytes, bells."""
        with open(self.report.name) as f:
            lines = re.findall(r'on a fabric, (\d+) of (\d+) bytes, '
                               r'(\d+) bells', f.read())
        return [sum(int(x[i]) for x in lines) for i in range(3)]

    def connections(self):
        """On a fabric, of all processes that have ended."""
        with open(self.report.name) as f:
            return sum(map(int, re.findall(r'(\d+) connections? on a fabric',
                                           f.read())))


class Server:
    """Ended, by its number, when the block ends or this process does."""

    def __init__(self, bench, command, port, user=None, end='TERM'):
        self.end = getattr(signal, 'SIG' + end)
        self.log = tempfile.NamedTemporaryFile(dir=bench.folder)
        self.command = command
        self.process = subprocess.Popen(
            [*as_user(user), '--pdeathsig', end, *command],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        try:
            self.until_it_listens(port)
        except BaseException:
            self.stop()
            raise

    def until_it_listens(self, port):
        last = time.monotonic() + 60
        while not listens(port):
            if self.process.poll() is not None:
                raise Failed('%s ended:\n%s' % (' '.join(self.command),
                                                self.said()))
            if time.monotonic() > last:
                raise Failed('%s does not listen' % ' '.join(self.command))
            time.sleep(0.02)

    def said(self):
        with open(self.log.name, errors='replace') as f:
            return f.read()[-2000:]

    def stop(self):
        self.process.send_signal(self.end)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            where = stuck.tell(self.process.pid)
            self.process.kill()
            self.process.wait()
            raise Failed('%s does not end\n%s' %
                         (' '.join(self.command), where)) from None

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.stop()


class Pair:
    """A server that serves one client, and its client: what the client says."""
    patience = 30  # s, beside ten times what a measurement takes

    def __init__(self, bench, address=HOST, env=None):
        self.bench, self.address = bench, address
        self.env = {**os.environ, **(env or {})}

    def talk(self, server, client):
        limit = self.patience + 10 * self.bench.seconds
        s = subprocess.Popen(server, stdin=subprocess.DEVNULL, env=self.env,
                             stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
        try:
            end = time.monotonic() + limit
            # Nothing tells when a server of rdma_cm listens.
            while True:
                c = stuck.run(client, limit, stdin=subprocess.DEVNULL,
                              text=True, env=self.env)
                if c.returncode == 0:
                    return c.stdout
                if s.poll() is not None or time.monotonic() > end:
                    raise Failed('%s: status %d\n%s' % (
                        ' '.join(client), c.returncode,
                        (c.stdout + c.stderr)[-500:]))
                time.sleep(0.05)
        except stuck.Stuck as e:
            raise Failed('%s: no end\n%s' % (' '.join(client),
                                             e.where)) from None
        finally:
            if s.poll() is None:
                s.terminate()
            s.wait()

    def perf(self, *args):
        """The server chooses its port: a free one that is chosen for it may be
        another process's when it listens."""
        command = [self.bench.exs, 'perf', '--server', '--once']
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, env=self.env,
                              stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT) as s:
            try:
                line = s.stdout.readline()
                if not line.startswith('listening on port '):
                    raise Failed('%s: %s' % (' '.join(command), line))
                client = [self.bench.exs, 'perf', self.address, '--port',
                          line.split()[-1], '--json', '--seconds',
                          str(self.bench.seconds), *args]
                return json.loads(self.answer_of(client))
            finally:
                s.terminate()

    def answer_of(self, client):
        limit = 30 + 10 * self.bench.seconds
        try:
            c = stuck.run(client, limit, stdin=subprocess.DEVNULL, text=True,
                          env=self.env)
        except stuck.Stuck as e:
            raise Failed('%s: no end\n%s' % (' '.join(client),
                                             e.where)) from None
        if c.returncode:
            raise Failed('%s: status %d\n%s' % (
                ' '.join(client), c.returncode, (c.stdout + c.stderr)[-500:]))
        return c.stdout

    def on(self, fabric, r):
        if r['fabric'] != fabric:
            raise Failed('on %s (%s), not on %s' % (r['fabric'], r['reason'],
                                                    fabric))
        return r


def as_user(user):
    """setpriv(1), as another user where this one may change."""
    if user is None or os.getuid() != 0:
        return ['setpriv']
    return ['setpriv', '--reuid', user, '--clear-groups']


def listens(port):
    for name in ('/proc/net/tcp', '/proc/net/tcp6'):
        if not os.path.exists(name):
            continue
        with open(name) as f:
            if any(re.search(r':%04X 0+:0000 0A' % port, line) for line in f):
                return True
    return False


# --- turns -------------------------------------------------------------------

def in_turns(rounds, sides, say):
    """Calls each of sides once a round; their values, in order."""
    values = [[] for _ in sides]
    for n in range(rounds):
        order = range(len(sides)) if n % 2 == 0 else \
            reversed(range(len(sides)))
        for i in order:
            say('round %d of %d' % (n + 1, rounds))
            values[i].append(sides[i]())
    return values


def progress(text=''):
    if sys.stderr.isatty() and os.environ.get('TERM', 'dumb') != 'dumb':
        sys.stderr.write('\r\033[K' + text)
        sys.stderr.flush()


# --- the program -------------------------------------------------------------

def parser(doc, rounds, seconds):
    p = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('build', metavar='BUILD', help='the build folder')
    p.add_argument('--rounds', type=int, default=rounds, metavar='N',
                   help='turns that each side takes (%(default)s)')
    p.add_argument('--seconds', type=float, default=seconds, metavar='T',
                   help='how long each measurement takes (%(default)s)')
    p.add_argument('--json', action='store_true',
                   help='one JSON object on standard output')
    return p


def prepare(options):
    """The same for everybody who measures; an end cleans up."""
    if options.rounds < 1 or options.seconds <= 0:
        sys.exit('--rounds and --seconds are above 0')
    for name in list(os.environ):
        if name.startswith('EXS_') and not name.startswith(DEVICES) or \
                name == 'LD_PRELOAD':
            del os.environ[name]
    os.environ['LC_ALL'] = 'C'
    for s in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(s, lambda number, frame: sys.exit(128 + number))
    signal.signal(signal.SIGINT, lambda number, frame: sys.exit(130))


def one_cpu():
    cpu = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})
    return cpu
