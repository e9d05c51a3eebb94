#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A peer is stopped (SIGSTOP) before it meets, amid the meeting, when the connection
has moved, and while bytes go back to TCP: how long each kind of call
takes at the other end, over TCP and over UNIX sockets. Each kind has a connection of
its own; what the caller waited for a CPU does not count. Prints the table of
docs/design/security.md. Usage: silence.py EXS"""

import json
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

TIMEOUT = 110
STATES = 'before', 'amid', 'moved', 'back'

COMMON = """
import array, ctypes, fcntl, json, os, select, signal, socket, struct, sys, time
exs = ctypes.CDLL('libexs.so.1')
exs.exs_init(1)
state, path, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
unix = path.startswith('/')

def family():
    return socket.AF_UNIX if unix else socket.AF_INET
""" + MOVED

# It makes all connections, and is stopped where the state says.
PEER = COMMON + """
import threading
at = path if unix else ('127.0.0.1', int(path))
socks = [socket.socket(family()) for _ in range(n)]
for s in socks:
    if state == 'back' and not unix:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(at)
if state in ('moved', 'back'):
    while not all(map(moved, socks)):
        for s in socks:
            s.sendall(bytes(100))
        for s in socks:
            s.recv(100, socket.MSG_WAITALL)
    for s in socks:
        s.sendall(b'!' * 100)
if state == 'back':
    sys.stdin.readline()  # the rings are full
    threads = [threading.Thread(target=exs.exs_x_downgrade, args=[s.fileno()])
               for s in socks]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
os.kill(os.getpid(), signal.SIGSTOP)
"""

# Its end of each connection is stopped, and knows nothing of what follows.
VICTIM = COMMON + """
account = '/proc/thread-self/schedstat'
account = os.open(account if os.path.exists(account) else '/dev/null', os.O_RDONLY)

def waited_ns():
    return int((os.pread(account, 99, 0).split() or [0, 0])[1])

def child(call):
    pid = os.fork()
    if not pid:
        call()
        os._exit(0)
    os.waitpid(pid, 0)

def pass_it(s):
    a, b = socket.socketpair()
    a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                        array.array('i', [s.fileno()]))])

def spawn(s):
    s.set_inheritable(True)
    os.waitpid(os.posix_spawn('/bin/true', ['true'], os.environ), 0)
    s.set_inheritable(False)

def execute(s):
    s.set_inheritable(True)
    child(lambda: os.execv('/bin/true', ['true']))
    s.set_inheritable(False)

def linger(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 5))
    s.close()

def watch(s):
    with select.epoll() as e:
        e.register(s, select.EPOLLIN | select.EPOLLOUT)
        e.poll(0)

def accept(s):
    with socket.create_server(('127.0.0.1', 0)) as l:
        with socket.create_connection(l.getsockname()) as a:
            b = l.accept()[0]
            a.sendall(bytes(5000))
            b.recv(5000, socket.MSG_WAITALL)
            b.close()

def over(s):
    null = os.open('/dev/null', os.O_RDONLY)
    os.dup2(null, s.fileno())
    os.close(null)

def forked_user(s):
    def give_up():
        if not os.getuid():
            os.setuid(65534)
    child(give_up)

SO_TIMESTAMP = 29
now = socket.MSG_DONTWAIT
# Those that never wait, those that need TCP, and those that concern all.
never = {
    'send': lambda s: s.send(b'x', now),
    'recv': lambda s: s.recv(10, now),
    'peek': lambda s: s.recv(10, now | socket.MSG_PEEK),
    'poll': lambda s: select.select([s], [s], [], 0),
    'epoll': watch,
    'getsockopt': lambda s: s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR),
    'FIONREAD': lambda s: fcntl.ioctl(s, 0x541b, bytes(4)),
    'sendfile': lambda s: (s.setblocking(False),
                           os.sendfile(s.fileno(), 0, 0, 100)),
    'dup': lambda s: os.close(os.dup(s.fileno())),
    'dup2 over it': over,
    'shutdown, one way': lambda s: s.shutdown(socket.SHUT_WR),
    'close': lambda s: s.close(),
    'connect, accept': accept,
}
needs_tcp = {
    'shutdown, both ways': lambda s: s.shutdown(socket.SHUT_RDWR),
    'option': lambda s: s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMP, 1),
    'O_ASYNC': lambda s: fcntl.fcntl(
        s, fcntl.F_SETFL, fcntl.fcntl(s, fcntl.F_GETFL) | os.O_ASYNC),
    'urgent data': lambda s: s.send(b'x', now | socket.MSG_OOB),
    'passing it': pass_it,
    'dup2 to stdin': lambda s: os.dup2(s.fileno(), 0),
    'exs_x_downgrade': lambda s: exs.exs_x_downgrade(s.fileno()),
    'exs_x_adopt': lambda s: exs.exs_x_adopt(s.fileno()),
    'posix_spawn': spawn,
    'fork, exec': execute,
}
if unix:
    needs_tcp['passing by it'] = lambda s: s.sendmsg([b'x'], [
        (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [account]))], now)
if state != 'back':  # where TCP waits, too
    never['close, lingering'] = linger
of_all = {'fork': lambda s: child(lambda: None), 'fork, setuid': forked_user}
signal.signal(signal.SIGIO, signal.SIG_IGN)

listener = socket.socket(family())
listener.bind(path if unix else ('127.0.0.1', 0))
listener.listen(100)
calls = {**never, **needs_tcp, **of_all}
print(len(calls), path if unix else listener.getsockname()[1], flush=True)
def stopped():
    print('stop', flush=True)
    assert sys.stdin.readline()

def full(s):
    try:
        while True:
            s.send(bytes(1 << 20), now)
    except BlockingIOError:
        pass

if state == 'amid':  # nothing answers
    stopped()
socks = [listener.accept()[0] for _ in calls]
while state in ('moved', 'back'):
    heard = [(s, s.recv(100, socket.MSG_WAITALL)) for s in socks]
    for s, got in heard:
        s.sendall(got)
    if heard[0][1][:1] == b'!':
        break
if state == 'back':
    for s in socks:
        full(s)
    print('full', flush=True)
if state != 'amid':
    stopped()
took = {}
for (name, call), s in zip(calls.items(), socks):
    start = time.monotonic_ns() - waited_ns()
    try:
        call(s)
    except OSError:
        pass
    took[name] = (time.monotonic_ns() - waited_ns() - start) / 1e9
print(json.dumps([took, [*needs_tcp, *of_all]]), flush=True)
"""


def start(exs, text, *args, state):
    env = dict(os.environ, EXS_LOG='off', EXS_UPGRADE='connect')
    if state == 'before':
        del env['EXS_UPGRADE']
    return subprocess.Popen(
        [exs, 'run', sys.executable, '-c', text, state, *args], text=True,
        env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def measure(exs, state, path):
    victim = start(exs, VICTIM, path, '0', state=state)
    n, at = victim.stdout.readline().split()
    peer = start(exs, PEER, at, n, state=state)
    if state == 'back':
        assert victim.stdout.readline() == 'full\n'
        peer.stdin.write('go\n')
        peer.stdin.flush()
    assert victim.stdout.readline() == 'stop\n', 'it did not come so far'
    os.waitid(os.P_PID, peer.pid, os.WSTOPPED | os.WNOWAIT)
    said = stuck.communicate(victim, TIMEOUT, 'go\n')[0]
    peer.kill()
    peer.wait()
    assert victim.returncode == 0, 'it ended with %d' % victim.returncode
    return json.loads(said)


def main():
    exs, slow = sys.argv[1], float(os.environ.get('T_SLOW') or 1)
    table, wait, failed = {}, set(), []

    def run(state, unix, folder):
        failed.append((state, unix))  # unless it comes to the end
        path = os.path.join(folder, state) if unix else 'tcp'
        took, needs_tcp = measure(exs, state, path)
        wait.update(needs_tcp)
        for name, t in took.items():
            table.setdefault(name, {})[state, unix] = t
        failed.remove((state, unix))

    with tempfile.TemporaryDirectory() as folder:
        threads = [threading.Thread(target=run, args=(s, u, folder))
                   for s in STATES for u in (False, True)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    if failed:
        sys.exit('not to the end: %r' % failed)
    columns = [(s, u) for u in (False, True) for s in STATES]
    print('| call |', ' | '.join(s + (', UNIX' if u else '') for s, u in columns),
          '|')
    print('|---' * (len(columns) + 1) + '|')
    for name, row in table.items():
        print('| %s |' % name, ' | '.join(
            '%.2f' % row[c] if c in row else '' for c in columns), '|')
        # A second, and what a busy host adds.
        bound = (2 if name in wait else 0.9) * slow
        failed += [(name, *c) for c, t in row.items() if t >= bound]
    if failed:
        sys.exit('too long: %r' % failed)


main()
