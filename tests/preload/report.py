#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Each process says at its end, however it ends, what became of connections
that it used: report.py BEHAVE EXS. Usage of the rows is in behave.c."""

import os
import re
import signal
import subprocess
import sys
import tempfile

LINE = re.compile(r'exs run: behave\[(\d+)\]: (\d+) connections? on a fabric, '
                  r'(\d+) of (\d+) bytes, \d+ bells?((?:; \d+ on TCP '
                  r'\([a-z-]+\))*)$')

# How many connections each process of a row reports, sorted. An end counts where it
# was used last, and in a child that used it, too.
ROWS = {
    'end_by_exit': [1, 2],
    'end_by__exit': [1, 2],
    'end_by__Exit': [1, 2],
    'end_by_quick_exit': [1, 2],
    'end_by_number': [1, 2],
    'end_in_malloc': 12 * [1] + [24],
    # A child that only inherits says nothing.
    'fork_exit_does_not_close': [2],
    'system_and_popen': [2],
    # Gone to TCP for good, or to another program, or under a filter.
    'stdio_both_ways': [2],
    'stdio_number_of_stdin': [2],
    'spawn_inherits_number': [2],
    'confine_filter': [2],
    'confine_strict': [2],
}


def told(behave, exs, row):
    env = {k: v for k, v in os.environ.items() if not k.startswith('EXS_')}
    env.update(EXS_UPGRADE='connect')
    with tempfile.NamedTemporaryFile('r') as f:
        subprocess.run([exs, 'run', '--report=' + f.name, behave, row],
                       env=env, stdout=subprocess.DEVNULL, check=True)
        lines = [s for s in f.read().splitlines() if not s.startswith('  ')]
    found = [LINE.match(line) for line in lines]
    if not all(found):
        return lines
    return sorted(int(m.group(2)) + sum(map(int, re.findall(r'; (\d+)', m.group(5))))
                  for m in found)


def unwritable(behave, exs, row):
    """The message when the report cannot be written: no such file, a full disk."""
    env = {k: v for k, v in os.environ.items() if not k.startswith('EXS_')}
    for name, why in ('/dev/null/none', 'Not a directory'), ('/dev/full', 'No space left'):
        done = subprocess.run([exs, 'run', behave, row], env={**env, 'EXS_REPORT': name},
                              text=True, timeout=60, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE)
        if f'EXS_REPORT: cannot write to "{name}": {why}' not in done.stderr:
            return False
    return True


def planted(behave, exs, row):
    """In a directory such as /tmp, neither another user's file is written, nor one
    that has a second name, nor what is mounted there: that may be a file system
    that never answers."""
    env = {k: v for k, v in os.environ.items() if not k.startswith('EXS_')}
    with tempfile.TemporaryDirectory() as d:
        folder = d + '/all'
        os.mkdir(folder)
        os.chmod(folder, 0o1777)
        names = ['own', 'linked']
        for name in names:
            open(f'{folder}/{name}', 'x', encoding='ascii').close()
        os.link(folder + '/linked', d + '/second')
        if os.getuid() == 0:
            names.append('theirs')
            open(folder + '/theirs', 'x', encoding='ascii').close()
            os.chmod(folder + '/theirs', 0o666)
            os.chown(folder + '/theirs', 65534, 65534)
            names.append('mounted')
            open(folder + '/mounted', 'x', encoding='ascii').close()
            open(d + '/elsewhere', 'x', encoding='ascii').close()
        mount = ['unshare', '-m', 'sh', '-c', 'mount --bind "$0/elsewhere" '
                 '"$0/all/mounted" && "$@"; test ! -s "$0/elsewhere"', d]
        for name in names:
            before = mount if name == 'mounted' else []
            done = subprocess.run([*before, exs, 'run', f'--report={folder}/{name}', behave,
                                   row], env=env, text=True, timeout=60,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            good = name == 'own'
            if (os.stat(f'{folder}/{name}').st_size > 0) != good or \
                    (re.search('another user may have put it there|perhaps by another user',
                               done.stderr) is None) != good:
                return False
            if before and done.returncode:
                return False
    return True


def fifo_and_link(behave, exs, row):
    """Neither holds the program up or is followed, and it says so."""
    env = {k: v for k, v in os.environ.items() if not k.startswith('EXS_')}
    with tempfile.TemporaryDirectory() as d:
        os.mkfifo(d + '/fifo')
        os.symlink(d + '/target', d + '/link')
        for name, why in ('fifo', 'FIFO without a reader'), ('link', 'symbolic link'):
            done = subprocess.run([exs, 'run', f'--report={d}/{name}', behave, row],
                                  env=env, text=True, timeout=60,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            if why not in done.stderr:
                return False
        return not os.path.exists(d + '/target')


TALK = """
import signal, socket
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
server = socket.create_server(('127.0.0.1', 0))
a = socket.create_connection(server.getsockname())
b = server.accept()[0]
a.send(b'x')
b.recv(1)
raise SystemExit(3)
"""


def after(exs, change):
    """The number of reports of a program that then cannot reach the file."""
    with tempfile.TemporaryDirectory() as d:
        name = d + '/report'
        subprocess.run([exs, 'run', '--report=' + name, sys.executable, '-c',
                        TALK.replace('a.send', 'import os, resource\n' + change.format(name)
                                     + '\na.send')], check=False)
        if not os.path.exists(name):
            return 0
        with open(name, encoding='ascii') as f:
            return f.read().count('exs run: ')


# What a program may do between its start and its end; {} is the report's file.
CHANGES = {
    'nothing': '',
    'no descriptors': 'resource.setrlimit(resource.RLIMIT_NOFILE, (9, 9))',
    'a removed file': 'os.unlink("{}")',
}
if os.getuid() == 0:
    CHANGES['another root'] = 'os.mkdir("{0}.d"); os.chroot("{0}.d")'
    CHANGES['another user'] = 'os.setresuid(65534, 65534, 65534)'


# One call sends it all, and its peer is met meanwhile.
SENDS_A_FILE = """
import mmap, os, socket, tempfile, threading
SIZE = 256 << 20
server = socket.create_server(('127.0.0.1', 0))
def serve():
    with tempfile.TemporaryFile() as f:
        f.truncate(SIZE)
        to = server.accept()[0]
        %s
        to.close()
thread = threading.Thread(target=serve)
thread.start()
client = socket.create_connection(server.getsockname())
got = 0
while True:
    part = client.recv(1 << 16)
    if not part:
        break
    got += len(part)
thread.join()
client.close()
raise SystemExit(got != SIZE)
"""
CALLS = ('assert os.sendfile(to.fileno(), f.fileno(), 0, SIZE) == SIZE',
         'assert os.write(to.fileno(), mmap.mmap(-1, SIZE)) == SIZE')


def is_moved(exs, call):
    env = {k: v for k, v in os.environ.items() if not k.startswith('EXS_')}
    with tempfile.NamedTemporaryFile('r') as f:
        subprocess.run([exs, 'run', '--report=' + f.name, sys.executable, '-c',
                        SENDS_A_FILE % call], env=env, check=True)
        return '2 connections on a fabric' in f.read()


def unheard(exs, *args, **env):
    """How a program ends whose report, or log, nobody reads."""
    r, w = os.pipe()
    os.close(r)
    done = subprocess.run([exs, 'run', *args, sys.executable, '-c', TALK],
                          stderr=w, env=os.environ | env)
    os.close(w)
    return done.returncode


def limited(exs, where):
    """How a program ends that may write to no file, nor may the library."""
    with tempfile.NamedTemporaryFile() as f:
        args = ['--report=' + f.name] if where == 'report' else []
        env = {'EXS_LOG': 'trace', 'EXS_LOG_FILE': f.name if where == 'log' else ''}
        return subprocess.run(
            [exs, 'run', *args, 'prlimit', '--fsize=0:0', sys.executable, '-c', TALK],
            stderr=f if where == 'stderr' else subprocess.DEVNULL,
            env=os.environ | env).returncode


def unread(exs):
    """How a program ends whose log has no room."""
    r, w = os.pipe()
    os.set_blocking(w, False)
    for size in 4096, 1:
        try:
            while True:
                os.write(w, bytes(size))
        except BlockingIOError:
            pass
    os.set_blocking(w, True)
    try:
        return subprocess.run([exs, 'run', sys.executable, '-c', TALK], stderr=w,
                              env=os.environ | {'EXS_LOG': 'trace'},
                              timeout=20).returncode
    except subprocess.TimeoutExpired:
        return 'not at all'
    finally:
        os.close(r)
        os.close(w)


# Ends by a signal, in the midst of calls; what it sees of its own dispositions.
SERVICE = """
import os, signal, socket, sys
which = getattr(signal, sys.argv[1])
if sys.argv[2] == 'own':
    signal.signal(which, lambda *_: sys.exit(7))
else:
    assert signal.getsignal(which) in (signal.SIG_DFL, signal.default_int_handler)
    if sys.argv[2] == 'again':
        signal.signal(which, signal.SIG_IGN)
    signal.signal(which, signal.SIG_DFL)
    assert signal.getsignal(which) == signal.SIG_DFL
server = socket.create_server(('127.0.0.1', 0))
a = socket.create_connection(server.getsockname())
b = server.accept()[0]
print('ready', flush=True)
while True:
    a.sendall(bytes(4096))
    b.recv(4096, socket.MSG_WAITALL)
"""


# Its handler is for one signal, and raises the next, as that of Node.js.
ONCE = """
use POSIX; use Socket; $| = 1;
my $sig = POSIX->can(shift)->();
POSIX::sigaction($sig, POSIX::SigAction->new(sub { kill $sig, $$ }, undef, SA_RESETHAND));
my ($l, $c, $s);
socket($l, PF_INET, SOCK_STREAM, 0) && bind($l, sockaddr_in(0, INADDR_LOOPBACK)) or die;
listen($l, 1) && socket($c, PF_INET, SOCK_STREAM, 0) or die;
connect($c, getsockname($l)) && accept($s, $l) or die;
syswrite($c, 'x' x 100) && sysread($s, my $got, 100) or die;
print "ready\n";
sleep 1 while 1;
"""


def ended_by(exs, name, how):
    """The status of a service that a signal ends, and whether it reported once."""
    program = ['perl', '-e', ONCE, name] if how == 'once' else [
        sys.executable, '-c', SERVICE, name, how]
    with tempfile.NamedTemporaryFile('r') as f:
        p = subprocess.Popen([exs, 'run', '--report=' + f.name, *program],
                             stdout=subprocess.PIPE, text=True)
        p.stdout.readline()
        p.send_signal(getattr(signal, name))
        p.communicate(timeout=60)
        return p.returncode, f.read().count(f'[{p.pid}]: ')


# The kernel forgets the address of a connection that the peer has reset.
RESET = """
import socket
server = socket.create_server(('127.0.0.1', 0))
a = socket.create_connection(server.getsockname())
b = server.accept()[0]
for _ in range(2000):
    a.sendall(bytes(4096))
    b.recv(4096, socket.MSG_WAITALL)
b.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
b.close()
try:
    a.recv(1)
    a.getpeername()
except OSError:
    print(server.getsockname()[1])
a.close()
"""


def names_gone_peer(exs):
    p = subprocess.run([exs, 'run', '--report', sys.executable, '-c', RESET], text=True,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=True)
    return f'to 127.0.0.1 port {int(p.stdout)}: 1 connection' in p.stderr or print(p.stderr)


def main():
    behave, exs = (os.path.abspath(a) for a in sys.argv[1:3])
    good = True
    for row, want in ROWS.items():
        seen = told(behave, exs, row)
        if seen != want:
            print('%s: %s, not %s' % (row, seen, want))
            good = False
    for row in ('end_by_exit', 'end_in_malloc'):
        if not unwritable(behave, exs, row):
            print('%s: nothing is said of a report that cannot be written' % row)
            good = False
    if not planted(behave, exs, 'end_by_exit'):
        print('a report is written to a file that a stranger may have put there')
        good = False
    if not fifo_and_link(behave, exs, 'end_by_exit'):
        print('a report at a FIFO or a link is not refused in words')
        good = False
    if unheard(exs, '--report') != 3:
        print('a report that nobody reads changes how the program ends')
        good = False
    for how, seen in (('nobody', unheard(exs, EXS_LOG='trace')),
                      ('no more', unread(exs))):
        if seen != 3:
            print('a log that is read by %s: the program ends: %s' % (how, seen))
            good = False
    for where in 'report', 'log', 'stderr':
        seen = limited(exs, where)
        if seen != 3:
            print(f'{where}, where no file may grow: the program ends: {seen}')
            good = False
    for name, change in CHANGES.items():
        seen = after(exs, change)
        if seen != 1:
            print(f'{name}: {seen} reports')
            good = False
    for name in 'SIGTERM', 'SIGINT', 'SIGHUP':
        # Whoever started this may ignore it, as nohup(1) does.
        signal.signal(getattr(signal, name), signal.SIG_DFL)
        for how, want in (('default', -getattr(signal, name)),
                          ('again', -getattr(signal, name)), ('own', 7),
                          ('once', -getattr(signal, name))):
            seen = ended_by(exs, name, how)
            if seen != (want, 1):
                print(f'{name}, {how}: status and reports {seen}')
                good = False
    # The connection may end before the ends have met, when others have the CPUs.
    if not any(names_gone_peer(exs) for _ in range(5)):
        print('the report does not name a peer that reset the connection')
        good = False
    for call in CALLS:
        # The call may end before the move, when others have the CPUs.
        if not any(is_moved(exs, call) for _ in range(5)):
            print('never moved: %s' % call)
            good = False
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main())
