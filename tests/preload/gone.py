#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Peers that were killed with full rings: a call for which their connections go to
TCP does not copy what they left, however many they are, and nobody loses a byte of
it. Usage: gone.py EXS [PEERS]"""

import os
import resource
import signal
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             '../../scripts'))
import stuck  # noqa: E402

from moved import MOVED  # noqa: E402

TIMEOUT = 100

COMMON = """
import array, ctypes, hashlib, os, socket, sys, time
exs = ctypes.CDLL('libexs.so.1')
exs.exs_init(1)
"""

VICTIM = COMMON + MOVED + """
case, n = sys.argv[1], int(sys.argv[2])
with socket.create_server(('127.0.0.1', 0), backlog=n) as listener:
    print(listener.getsockname()[1], flush=True)
    socks = [listener.accept()[0] for _ in range(n)]

def turn(s):
    s.sendall(b'.' * 100)
    assert s.recv(100, socket.MSG_WAITALL) == b'.' * 100

all_moved(socks, turn)
for s in socks:
    s.sendall(b'!' * 100)
print('moved', flush=True)
sys.stdin.readline()
for s in socks:
    s.set_inheritable(True)

def spawn():
    os.waitpid(os.posix_spawn('/bin/true', ['true'], os.environ), 0)

# One message has at most 253.
def pass_on():
    a, b = socket.socketpair()
    for i in range(0, n, 250):
        fds = array.array('i', [s.fileno() for s in socks[i:i + 250]])
        a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])

def say(start):
    print('%.3f %.3f' % tuple(b - a for a, b in zip(start, now())), flush=True)

def now():
    return time.monotonic(), time.thread_time()

READ = '''
import hashlib, socket, sys
for s in [socket.socket(fileno=int(fd)) for fd in sys.argv[1:]]:
    h, n = hashlib.sha256(), 0
    for data in iter(lambda: s.recv(1 << 20), b''):
        h.update(data)
        n += len(data)
    print(n, h.hexdigest())
'''
reader = ['-c', READ, *(str(s.fileno()) for s in socks)]
start = now()
if case == 'exec':
    # A program that exists is asked for, and cannot be executed.
    try:
        os.execv('/dev/null', ['null'])
    except OSError:
        pass
else:
    {'spawn': spawn, 'pass': pass_on}[case]()
say(start)
os.execv(sys.executable, [sys.executable, *reader])
"""

PEER = COMMON + """
port, n = map(int, sys.argv[1:])
socks = [socket.create_connection(('127.0.0.1', port)) for _ in range(n)]
kept = []
while len(kept) < n:
    for s in socks:
        if s in kept:
            continue
        got = s.recv(100, socket.MSG_WAITALL)
        if got == b'!' * 100:
            kept.append(s)
        else:
            s.sendall(got)
for i, s in enumerate(socks):
    s.setblocking(False)
    data = bytes(range(i % 5, 251)) * 250
    h, sent = hashlib.sha256(), 0
    try:
        while True:
            k = s.send(data)
            h.update(data[:k])
            sent += k
    except BlockingIOError:
        pass
    print(sent, h.hexdigest(), flush=True)
print('full', flush=True)
sys.stdin.readline()
"""


def start(exs, text, *args):
    return subprocess.Popen(
        [exs, 'run', sys.executable, '-c', text, *args], text=True,
        env=dict(os.environ, EXS_UPGRADE='connect'),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def measure(exs, case, n):
    """Seconds, and those of CPU, that the call took with so many of them."""
    victim = start(exs, VICTIM, case, str(n))
    peer = start(exs, PEER, victim.stdout.readline().strip(), str(n))
    assert victim.stdout.readline() == 'moved\n'
    left = [peer.stdout.readline() for _ in range(n)]
    assert peer.stdout.readline() == 'full\n'
    peer.send_signal(signal.SIGKILL)
    peer.wait()
    said = stuck.communicate(victim, TIMEOUT, 'go\n')[0].splitlines(True)
    assert victim.returncode == 0, 'it ended with %d' % victim.returncode
    assert min(int(line.split()[0]) for line in left) > 2000000, left
    if said[1:] != left:
        sys.exit('%s: %s arrived as %s' % (case, left, said[1:]))
    return tuple(map(float, said[0].split()))


def main():
    exs, n = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 24
    # The library takes a quarter for links.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    slow = float(os.environ.get('T_SLOW') or 1)
    failed = False
    for case in ('spawn', 'exec', 'pass'):
        wall, cpu = measure(exs, case, n)
        print('%s with %d gone peers: %.3f s, %.3f of CPU' %
              (case, n, wall, cpu), flush=True)
        # The rest of a second is for the host.
        failed = failed or cpu > .15 * slow * max(1, n / 100)
    if failed:
        sys.exit('too long')


main()
