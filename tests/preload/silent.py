#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Peers that are stopped answer nothing: a call for which their connections must go
to TCP takes a second longer than on TCP, however many they are, and an honest peer's
beside them goes on. Usage: silent.py EXS"""

import os
import signal
import subprocess
import sys
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

# Both ends of the honest one are its own.
VICTIM = COMMON + MOVED + """
case, n = sys.argv[1], int(sys.argv[2])
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
print('moved', flush=True)
sys.stdin.readline()

def took(call):
    start = time.monotonic()
    call()
    print('%.3f' % (time.monotonic() - start), flush=True)

def spawn():
    for s in all_given:
        s.set_inheritable(True)
    os.waitpid(os.posix_spawn('/bin/true', ['true'], os.environ), 0)

# One message has at most 253.
def pass_on():
    a, b = socket.socketpair()
    fds = array.array('i', [s.fileno() for s in all_given])
    a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])

# What follows says the time that it took to come there.
def become():
    for s in all_given:
        s.set_inheritable(True)
    os.execv('/bin/sh', ['sh', '-c', 'date +%s.%N'])

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

if case == 'exec':
    print('%.9f' % time.time(), flush=True)
    become()
elif case == 'accept':
    accept()
else:
    took({'spawn': spawn, 'pass': pass_on,
          'close': lambda: os.closerange(3, 4096)}[case])
if case in ('spawn', 'pass'):
    for a, b in (honest, honest[::-1]):
        say(a)
        hear(b)
"""

PEER = COMMON + """
port, n = map(int, sys.argv[1:])
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
"""


def start(exs, text, *args):
    return subprocess.Popen(
        [exs, 'run', sys.executable, '-c', text, *args], text=True,
        env=dict(os.environ, EXS_UPGRADE='connect', EXS_LOG='off'),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def measure(exs, case, n):
    """Seconds that the call took with so many silent peers."""
    victim = start(exs, VICTIM, case, str(n))
    peer = start(exs, PEER, victim.stdout.readline().strip(), str(n))
    for p in (victim, peer):
        assert p.stdout.readline() == 'moved\n', 'it did not move'
    peer.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, peer.pid, os.WSTOPPED | os.WNOWAIT)
    said = stuck.communicate(victim, TIMEOUT, 'go\n')[0].split()
    peer.kill()
    peer.wait()
    assert victim.returncode == 0, 'it ended with %d' % victim.returncode
    times = [float(t) for t in said]
    return times[-1] - (times[0] if case == 'exec' else 0)


def main():
    exs, at_most = sys.argv[1], 2 * float(os.environ.get('T_SLOW') or 1)
    cases = [('spawn', 5), ('spawn', 60), ('exec', 60), ('pass', 60),
             ('close', 60), ('accept', 60)]
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
