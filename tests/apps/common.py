# SPDX-License-Identifier: BSD-2-Clause
"""What the tests of programs share: starting them, with and without the shim,
waiting for them, and reading what they report."""

import difflib
import os
import pprint
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, '../../scripts'))
from ports import free_port  # noqa: E402, F401
import stuck  # noqa: E402

TIMEOUT = 100
HOST = os.environ.get('T_ADDRESS', '127.0.0.1')

# Set by apps.py before a test begins.
exs = None     # the command
folder = None  # of this test, gone after it


def fail(text):
    print('apps: ' + text, file=sys.stderr)
    sys.exit(1)


def skip(text):
    print('apps: ' + text, file=sys.stderr)
    sys.exit(77)


def need(*programs):
    for p in programs:
        if not shutil.which(p):
            skip('%s is not installed' % p)


def sbin(name):
    """A program that may be where only root's PATH has it."""
    path = shutil.which(name) or shutil.which(name, path='/usr/sbin:/sbin')
    return path or skip('%s is not installed' % name)


def until(what, condition, timeout=TIMEOUT):
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            fail('waited in vain for ' + what)
        time.sleep(0.02)


def listens(port):
    """Nobody knocks: some servers serve one client."""
    for name in ('/proc/net/tcp', '/proc/net/tcp6'):
        with open(name) as f:
            if any(re.search(r':%04X 0+:0000 0A' % port, line) for line in f):
                return True
    return False


def path(*names):
    return os.path.join(folder, *names)


def write(name, text):
    with open(path(name), 'w') as f:
        f.write(text)
    return path(name)


def blob(name, megabytes):
    """A file of random bytes. 60 MB are past the last point where a stream
    that never pauses looks for its peer's library."""
    with open(path(name), 'wb') as f:
        for _ in range(megabytes):
            f.write(os.urandom(1000000))
    return path(name)


def same(one, other):
    output(['cmp', one, other])


# --- how programs are started ------------------------------------------------

def native(*args):
    return list(args)


class Shim:
    """Programs under exs run, and what they report at their ends."""

    def __init__(self, name):
        self.name = name
        self.report = path('report-' + name.replace(' ', '-'))
        open(self.report, 'w').close()
        os.chmod(self.report, 0o666)

    def command(self, *args):
        return [exs, 'run', '--report=' + self.report, *args]

    def lines(self, program):
        with open(self.report) as f:
            return [line for line in f if
                    re.match(r'exs run: %s[^\n[]*\[' % re.escape(program),
                             line)]

    def complain(self, program, what):
        with open(self.report) as f:
            fail('%s, %s: %s; the reports are:\n%s' %
                 (self.name, program, what, f.read()))

    def moved(self, program):
        """At least one connection of the program was on a fabric."""
        moved = r'\]: [1-9]\d* connections? on a fabric, [1-9]'
        return any(re.search(moved, line) for line in self.lines(program))

    def on_fabric(self, program):
        if not self.moved(program):
            self.complain(program, 'was not on a fabric')

    def on_tcp(self, program, reason, bytes_before=0):
        """All connections of the program were, but for so many bytes at first,
        at least one for the reason."""
        lines = self.lines(program)
        if any(int(re.search(r'on a fabric, (\d+) of', line)[1]) > bytes_before
               or not bytes_before and ']: 0 connections on' not in line
               for line in lines):
            self.complain(program, 'was on a fabric')
        if not any('on TCP (%s)' % reason in line for line in lines):
            self.complain(program, 'does not say ' + reason)

    def seen(self, program):
        """The program had connections under the shim, on whatever fabric."""
        if not self.lines(program):
            self.complain(program, 'does not report')


def check(shim, said, want):
    if said != want:
        lines = difflib.unified_diff(pprint.pformat(want).splitlines(),
                                     pprint.pformat(said).splitlines(),
                                     'without the shim', 'with it', n=1)
        fail('%s: it says other things than without the shim:\n%.4000s' %
             (shim.name, '\n'.join(lines)))


def both_ends(run, programs, both=Shim.on_fabric):
    """As everywhere(), without one end alone. Returns what they said."""
    want = run(native, native)
    shim = Shim('both ends')
    check(shim, run(shim.command, shim.command), want)
    for program in programs:
        both(shim, program)
    return want


def everywhere(run, servers, clients, both=Shim.on_fabric):
    """run(server, client) starts programs by these two and returns what they
    said: the same without the shim, with it at both ends, where the programs
    named have to be on a fabric (or as `both` says), and with it at one end,
    where they have to say why they are not."""
    want = both_ends(run, servers + clients, both)
    shim = Shim('server')
    check(shim, run(shim.command, native), want)
    for program in servers:
        shim.on_tcp(program, 'plain-peer')
    shim = Shim('client')
    check(shim, run(native, shim.command), want)
    for program in clients:
        shim.on_tcp(program, 'plain-peer')


def output(command, status=0, **kw):
    kw.setdefault('stdin', subprocess.DEVNULL)
    if 'input' in kw:
        del kw['stdin']
    try:
        r = stuck.run(command, TIMEOUT, stderr=subprocess.STDOUT, **kw)
    except stuck.Stuck as e:
        fail('%s does not end; it said:\n%s\n%s' %
             (' '.join(command), (e.stdout or b'').decode(errors='replace'),
              e.where))
    if status is not None and r.returncode != status:
        fail('%s: status %d\n%s' % (' '.join(command), r.returncode,
                                    r.stdout.decode(errors='replace')))
    return r.stdout


class Server:
    """A program that runs meanwhile: from when it listens on the port, if one
    is given, to the end of the block. What it says is kept for failures."""

    def __init__(self, command, port=None, stop=signal.SIGTERM, **kw):
        self.port, self.stop = port, stop
        self.log = open(path('log'), 'ab')
        kw.setdefault('stdin', subprocess.DEVNULL)
        kw.setdefault('stdout', self.log)
        kw.setdefault('stderr', self.log)
        self.command = command
        self.process = subprocess.Popen(command, **kw)

    def __enter__(self):
        try:
            if self.port:
                until('port %d of %s' % (self.port, ' '.join(self.command)),
                      self.listens)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def listens(self):
        if self.process.poll() is not None:
            fail('%s ends at once' % ' '.join(self.command))
        return listens(self.port)

    def wait(self):
        """The program ends by itself, with success."""
        try:
            status = self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            fail('%s does not end\n%s' % (' '.join(self.command),
                                          stuck.tell()))
        if status:
            fail('%s: status %d' % (' '.join(self.command), status))

    def __exit__(self, kind, *rest):
        if self.process.poll() is None:
            self.process.send_signal(self.stop)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            where = stuck.tell(self.process.pid)
            self.process.kill()
            self.process.wait()
            if not kind:
                fail('%s does not end\n%s' % (' '.join(self.command), where))
        self.log.close()
        # By the signal that ended it, or as it likes, but not by another.
        if not kind and self.process.returncode < 0 and \
                -self.process.returncode != self.stop:
            fail('%s ends by signal %d' % (' '.join(self.command),
                                           -self.process.returncode))
        if kind:
            with open(self.log.name, errors='replace') as f:
                sys.stderr.write(f.read()[-4000:])
