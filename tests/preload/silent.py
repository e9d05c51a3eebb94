#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Peers that are stopped answer nothing: a call for which their connections must go
to TCP takes a second longer than on TCP, however many they are, and an honest peer's
beside them goes on. The same of peers that run, and do not read what the call has to
move: they receive all of it, or a reset, and the log names the cause. What the caller
waited for a CPU does not count. Usage: silent.py EXS"""

import collections
import os
import signal
import subprocess
import sys
import tempfile
import threading

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             '../../scripts'))
import stuck  # noqa: E402

from moved import MOVED  # noqa: E402

TIMEOUT = 100

COMMON = """
import array, ctypes, os, resource, socket, sys, time
exs = ctypes.CDLL('libexs.so.1')
exs.exs_init(1)

def say(s, what=b'.'):
    s.sendall(what * 100)

def hear(s):
    got = s.recv(100, socket.MSG_WAITALL)
    assert len(got) == 100
    return got[:1]
"""

# Before there are threads: the buffers of TCP grow as far as the system lets
# anybody enlarge them.
NO_NET_ADMIN = """
import ctypes
libc = ctypes.CDLL(None)
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
caps = (ctypes.c_uint32 * 6)()
assert libc.capget(header, caps) == 0
caps[0] &= ~(1 << 12)
assert libc.capset(header, caps) == 0
"""

# Both ends of the honest one are its own.
VICTIM = COMMON + MOVED + """
case, n = sys.argv[1], int(sys.argv[2])
# How long this thread could run and had no CPU, where the kernel counts it.
account = '/proc/thread-self/schedstat'
account = os.open(account if os.path.exists(account) else '/dev/null', os.O_RDONLY)

def waited_ns():
    return int((os.pread(account, 99, 0).split() or [0, 0])[1])

with socket.create_server(('127.0.0.1', 0), backlog=n + 1) as listener:
    print(listener.getsockname()[1], flush=True)
    silent = [listener.accept()[0] for _ in range(n)]
    honest = [socket.create_connection(listener.getsockname())]
    honest.append(listener.accept()[0])

all_moved(silent, lambda s: (say(s), hear(s)))
all_moved(honest, lambda s: [(say(a), hear(b)) for a, b in
                             (honest, honest[::-1])])
for s in silent:
    say(s, b'!')
all_given = silent + honest

def fill(s):
    sent, data = 0, bytes(1 << 20)
    s.setblocking(False)
    try:
        while True:
            sent += s.send(data)
    except BlockingIOError:
        return sent

if case.startswith('full'):
    print(*map(fill, silent), flush=True)
print('moved', flush=True)
sys.stdin.readline()

def took(call):
    start = time.monotonic_ns() - waited_ns()
    call()
    print((time.monotonic_ns() - waited_ns() - start) / 1e9, flush=True)

def spawn():
    for s in all_given:
        s.set_inheritable(True)
    os.waitpid(os.posix_spawn('/bin/true', ['true'], os.environ), 0)

# One message has at most 253.
def pass_on():
    a, b = socket.socketpair()
    fds = array.array('i', [s.fileno() for s in all_given])
    a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])

# What follows says when it came there, and what the process had waited until then.
def become():
    for s in all_given:
        s.set_inheritable(True)
    print(time.time_ns(), waited_ns(), flush=True)
    os.execv('/bin/sh', ['sh', '-c',
             'waited=0; read ran waited rest </proc/self/schedstat; '
             'exec date "+%s%N $waited"'])

# By calls that nobody takes over, until none is left.
def accept():
    taken = []
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    with socket.create_server(('127.0.0.1', 0)) as listener:
        with socket.create_connection(listener.getsockname()):
            try:
                while True:
                    taken.append(os.open('/dev/null', os.O_RDONLY))
            except OSError:
                pass
            took(lambda: listener.accept()[0].close())

if case == 'exec' or case.startswith('full'):
    become()
elif case == 'accept':
    accept()
else:
    took({'spawn': spawn, 'pass': pass_on,
          'close': lambda: os.closerange(account + 1, 4096)}[case])
if case in ('spawn', 'pass'):
    for a, b in (honest, honest[::-1]):
        say(a)
        hear(b)
"""

PEER = COMMON + """
port, n = map(int, sys.argv[1:3])
socks = [socket.create_connection(('127.0.0.1', port)) for _ in range(n)]
kept = []
while socks:
    for s in socks[:]:
        if hear(s) == b'!':
            socks.remove(s)
            kept.append(s)
        else:
            say(s)
print('moved', flush=True)
sys.stdin.readline()

# How many bytes come before the end, or that they do not.
def rest(s):
    n = 0
    try:
        for got in iter(lambda: s.recv(1 << 20), b''):
            n += len(got)
        return n
    except ConnectionResetError:
        return 'reset'

print(*map(rest, kept))
"""

# More than TCP has room for.
LARGE_RING = '16384'


def start(exs, text, *args, log=None):
    env = dict(os.environ, EXS_UPGRADE='connect', EXS_LOG='error' if log else 'off')
    if 'full large' in args:
        env['EXS_RING_KB'] = LARGE_RING
        text = NO_NET_ADMIN + text
    return subprocess.Popen(
        [exs, 'run', sys.executable, '-c', text, *args], text=True, env=env,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)


def measure(exs, case, n):
    """Seconds that the call took with so many silent peers."""
    runs = case.startswith('full')
    log = tempfile.TemporaryFile('w+') if runs else None
    victim = start(exs, VICTIM, case, str(n), log=log)
    peer = start(exs, PEER, victim.stdout.readline().strip(), str(n), case)
    sent = victim.stdout.readline().split() if runs else []
    for p in (victim, peer):
        assert p.stdout.readline() == 'moved\n', 'it did not move'
    if not runs:
        peer.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, peer.pid, os.WSTOPPED | os.WNOWAIT)
    said = stuck.communicate(victim, TIMEOUT, 'go\n')[0].split()
    if runs:
        got = stuck.communicate(peer, TIMEOUT, 'go\n')[0].split()
        print('%s: %d of %d were reset' % (case, got.count('reset'), n))
        assert len(got) == n, got
        assert not collections.Counter(got) - collections.Counter(
            sent + ['reset'] * n), (sent, got)
        log.seek(0)
        lines = log.readlines()
        # All share the second: the last may have had no time to be answered.
        known = 'TCP has no room for what', 'did not answer in time'
        assert len(lines) == got.count('reset') and all(
            any(text in line for text in known) for line in lines), lines
        assert not lines or known[0] in lines[0], lines
        log.close()
    peer.kill()
    peer.wait()
    assert victim.returncode == 0, 'it ended with %d' % victim.returncode
    if case != 'exec' and not runs:
        return float(said[0])
    began, waited, ended, waited_then = map(int, said)
    return (ended - waited_then - (began - waited)) / 1e9


def main():
    exs, at_most = sys.argv[1], 2 * float(os.environ.get('T_SLOW') or 1)
    cases = [('spawn', 5), ('spawn', 60), ('exec', 60), ('pass', 60),
             ('close', 60), ('accept', 60), ('full', 24), ('full large', 2)]
    failed = []

    def run(case, n):
        failed.append((case, n)) # unless it comes to the end
        t = measure(exs, case, n)
        print('%s with %d silent peers: %.2f s' % (case, n, t), flush=True)
        if t < (at_most / 2.2 if case in ('close', 'accept') else at_most):
            failed.remove((case, n))

    threads = [threading.Thread(target=run, args=c) for c in cases]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failed:
        sys.exit('too long, or worse: %r' % failed)


main()
