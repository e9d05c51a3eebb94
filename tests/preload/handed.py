#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Descriptors that one program hands to another, by exec, spawn or SCM_RIGHTS. A listener
serves as one that the program made: what it accepts moves to shared memory. A
connection that has moved goes back to TCP before: nothing is lost, whoever gets it. It
moves again when only the program that got it has it, and runs under the shim; else the
reason is told.
Usage: handed.py EXS."""

import os
import re
import signal
import subprocess
import sys
import tempfile

EXS = os.path.abspath(sys.argv[1])
TIMEOUT = 30
bad = 0

COMMON = '''
import ctypes, os, select, socket, subprocess, sys, threading, time
end = time.monotonic() + 20

def on_shm(s):
    assert time.monotonic() < end, 'not in time'
    info = ctypes.create_string_buffer(1024)
    assert ctypes.CDLL('libexs.so.1').exs_x_sockinfo(s.fileno(), info) == 0
    return info.raw[:32] == b'shm'.ljust(16, bytes(1)) * 2

# As a call does that waits for an epoll set, or nothing. The set that is waited for
# hears the peer's bell itself: beside the connection it has the link, and the shim's
# own descriptor.
def waits(s, by_set):
    e = select.epoll()
    if not by_set:
        return lambda: None
    e.register(s.fileno(), select.EPOLLIN)
    def wait(to_hear=False):
        got = e.poll(20)
        with open('/proc/self/fdinfo/%d' % e.fileno()) as f:
            has = f.read().count('tfd:')
        assert has >= 3 or not to_hear, 'the set does not hear the link'
        return got
    return wait

def answer(s, last, wait=lambda: None):
    wait()
    m = s.recv(64, socket.MSG_WAITALL)
    s.sendall(m[:63] + last if m else m)
    return m
'''

# Serves the listener or the connection of a number; or of one that comes over the
# UNIX socket of a number. Its answers end with R.
SERVER = COMMON + '''
what, n = sys.argv[1], int(sys.argv[2])

# A whole program is spawned between the begin of the call that receives the connection
# and its end.
def receive_meanwhile(by):
    got = []
    t = threading.Thread(target=lambda: got.extend(socket.recv_fds(by, 1, 1)[1]))
    t.start()
    while open('/proc/self/task/%d/syscall' % t.native_id).read().split()[0] not in (
            '47', '212'): # recvmsg, of the machines
        assert time.monotonic() < end, 'not in time'
    libc, pid = ctypes.CDLL(None), ctypes.c_int()
    argv, env = (ctypes.c_char_p * 2)(b'true', None), (ctypes.c_char_p * 1)(None)
    assert libc.posix_spawnp(ctypes.byref(pid), b'true', None, None, argv, env) == 0
    assert os.waitpid(pid.value, 0)[1] == 0
    by.send(b'x')
    t.join()
    return got[0]

if what.startswith('passed '):
    by = socket.socket(fileno=n)
    if 'forwarded' in what:
        a, b = socket.socketpair()
        third = subprocess.Popen([sys.executable, '-c', sys.orig_argv[2],
                                  'passed connection', str(b.fileno())],
                                 pass_fds=[b.fileno()])
    n = receive_meanwhile(by) if 'meanwhile received' in what else \
        socket.recv_fds(by, 1, 1)[1][0]
    if 'returned' in what:
        socket.send_fds(by, [b'x'], [n])
        os.close(n)
        n = socket.recv_fds(by, 1, 1)[1][0]
    if 'forwarded' in what:
        socket.send_fds(a, [b'x'], [n])
        os.close(n)
        sys.exit(third.wait())
s = socket.socket(fileno=n)
if what.endswith('listener'):
    s = s.accept()[0]
wait = waits(s, 'set' in what.split())
while answer(s, b'R', wait):
    pass
'''

# A program is being spawned: it has what this one has, until the FIFO is opened.
SPAWN = '''
def children():
    found = []
    for t in os.listdir('/proc/self/task'):
        with open('/proc/self/task/%s/children' % t) as f:
            found += f.read().split()
    return found

def spawn(fifo):
    libc = ctypes.CDLL(None)
    actions, pid = ctypes.create_string_buffer(1024), ctypes.c_int()
    argv, env = (ctypes.c_char_p * 2)(b'true', None), (ctypes.c_char_p * 1)(None)
    os.mkfifo(fifo)
    libc.posix_spawn_file_actions_init(actions)
    libc.posix_spawn_file_actions_addopen(actions, 0, fifo.encode(), os.O_RDONLY, 0)
    before = children()
    t = threading.Thread(target=libc.posix_spawnp, args=(
        ctypes.byref(pid), b'true', actions, None, argv, env))
    t.start()
    while children() == before:
        assert time.monotonic() < end, 'not in time'
    return t
'''

# A shell that is started by the C library has what this process has, and so has what
# it leaves in the background.
SHELL = '''
def start_shell(how):
    libc = ctypes.CDLL(None)
    command = b'sleep 30 >/dev/null 2>&1 & echo $! >"$FOLDER/pid"'
    if how == 'system':
        assert libc.system(command) == 0
    elif how == 'popen':
        libc.popen.restype = ctypes.c_void_p
        f = libc.popen(command, b'r')
        assert libc.pclose(ctypes.c_void_p(f)) == 0
    else:
        words = ctypes.create_string_buffer(64)
        assert libc.wordexp(b'$(' + command + b')', words, 0) == 0
'''

# A manager that hands on: its listener, or a connection that has moved, or that it has
# not read from (a new one), perhaps soon, which is amid its handshake; keeps it, or
# passes it twice. The command follows the two words.
MANAGER = COMMON + SPAWN + SHELL + '''
how, what, *command = sys.argv[1:]
s = socket.create_server(('127.0.0.1', 0))

def serve():
    a, b = socket.socketpair()
    return a, subprocess.Popen([*command, 'passed ' + what, str(b.fileno())],
                               pass_fds=[b.fileno()])

print(s.getsockname()[1], flush=True)
if 'soon' in what.split():
    a, server = serve()
if what.endswith('connection'):
    if what == 'meanwhile accepted connection':
        fifo = os.path.join(os.environ['FOLDER'], 'meanwhile')
        spawned = spawn(fifo)
    s = s.accept()[0]
    if what == 'meanwhile accepted connection':
        with open(fifo, 'w'):
            spawned.join()
    while 'new' not in what.split() and not on_shm(s):
        answer(s, b'M')
    for _ in range(50 if 'new' not in what.split() else 0):
        answer(s, b'M')
if how == 'exec':
    s.set_inheritable(True)
    os.execvp(command[0], [*command, what, str(s.fileno())])
if how.startswith('spawn'):
    s.set_inheritable(True)
    pid = os.posix_spawnp(command[0], [*command, what, str(s.fileno())], os.environ)
    if how.endswith('close'):
        s.close()
    sys.exit(os.waitpid(pid, 0)[1] != 0)
if how.startswith('fork'):
    # The parent closes before its child is another program, or after that, or not; or
    # has a stream on it, so that its library does not see it any more.
    go, gone = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        os.close(go[1])
        if how == 'fork, stream': # the first to use it
            answer(s, b'M')
            os.write(gone[1], b'x')
        if how != 'fork, late close':
            os.read(go[0], 1)
        s.set_inheritable(True)
        os.execvp(command[0], [*command, what, str(s.fileno())])
    os.close(gone[1])
    if how in ('fork, late close', 'fork, stream'):
        os.read(gone[0], 1)
    if how.endswith('close'):
        s.close()
    elif how == 'fork, stream':
        ctypes.CDLL(None).fdopen(s.fileno(), b'r')
    os.close(go[1])
    status = os.waitpid(pid, 0)[1]
    sys.exit(status != 0)
if 'soon' not in what.split():
    a, server = serve()
if what.split()[0].rstrip(',') in ('system', 'popen', 'wordexp'):
    s.set_inheritable('closed' not in what)
    start_shell(what.split()[0].rstrip(','))
    s.set_inheritable(False)
if what == 'spawned connection':
    fifo = os.path.join(os.environ['FOLDER'], 'fifo')
    spawned = spawn(fifo)
if 'meanwhile received' in what:
    a.recv(1)
socket.send_fds(a, [b'x'], [s.fileno()])
if what == 'twice passed connection':
    socket.send_fds(a, [b'x'], [s.fileno()])
if 'kept' not in what.split():
    s.close()
if what == 'returned connection':
    kept = socket.recv_fds(a, 1, 1)[1][0]
    socket.send_fds(a, [b'x'], [kept])
status = server.wait()
if what == 'spawned connection':
    with open(fifo, 'w'):
        spawned.join()
sys.exit(status)
'''

# Until the receiver has answered often, since the connection moved if it is to.
CLIENT = COMMON + '''
moves = sys.argv[2] == 'True'
hears = moves and sys.argv[3] == 'True'
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
wait = waits(s, sys.argv[3] == 'True')
n = i = 0
ready = not moves
while n < 500:
    m = bytes([i % 256]) * 63
    s.sendall(m + b'C')
    wait(n > 100) if hears else wait()
    got = s.recv(64, socket.MSG_WAITALL)
    assert got[:63] == m, (i, got)
    if got[63:] == b'R':
        ready = ready or on_shm(s)
        n += ready
    i += 1
'''


def check(what, good, *seen):
    global bad
    if not good:
        print(what + ':', *seen)
        bad = 1


def read(path):
    with open(path) as f:
        return f.read()


def hands(folder, how, what, manager, server, moves):
    """The reports of the manager's side and of the client. moves: what the server
    gets moves to shared memory."""
    reports = [tempfile.mktemp(dir=folder) for _ in range(2)]
    shim = [EXS, 'run', '--report=' + reports[0]]
    # A program that gets no LD_PRELOAD has no shim.
    start = [] if server else ['env', '-u', 'LD_PRELOAD']
    if server and not manager:
        start = shim
    p = subprocess.Popen(
        [*(shim if manager else []), sys.executable, '-c', MANAGER, how, what, *start,
         sys.executable, '-c', SERVER], stdout=subprocess.PIPE, text=True,
        env=dict(os.environ, FOLDER=folder))
    port = p.stdout.readline().strip()
    c = subprocess.run([EXS, 'run', '--report=' + reports[1], sys.executable, '-c',
                        CLIENT, port, str(moves), str('set' in what.split())], timeout=TIMEOUT, check=False,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check('%s of a %s, client' % (how, what), c.returncode == 0, c.stdout)
    check('%s of a %s, server' % (how, what), p.wait(TIMEOUT) == 0, p.returncode)
    p.stdout.close()
    return [read(r) if os.path.exists(r) else '' for r in reports]


def moved(said):
    return re.search(r'on a fabric, [1-9]', said)


# Where the library cannot start, the list must not reach what the program starts.
def unusable():
    shim = os.path.join(os.path.dirname(EXS), '../preload/libexs-preload.so')
    r = subprocess.run([sys.executable, '-c', 'import os; '
                        'print(os.environ.get("LIBEXS_HANDED"))'],
                       env=dict(os.environ, LD_PRELOAD=os.path.normpath(shim),
                                LIBEXS_HANDED='1 3:1', EXS_UPGRADE='nonsense'),
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                       timeout=TIMEOUT, check=False)
    check('a library that cannot start', r.stdout == 'None\n' and
          'nonsense' in r.stderr, r.stdout, r.stderr)


def main():
    unusable()
    with tempfile.TemporaryDirectory(prefix='exs-') as folder:
        for how in 'exec', 'pass':
            for manager in False, True:
                said = hands(folder, how, 'listener', manager, True, True)
                check('%s of a listener' % how, moved(said[0]) and moved(said[1]),
                      manager, *said)
            reason = 'exec' if how == 'exec' else 'passed'
            said = hands(folder, how, 'connection', True, False, False)
            check('%s of a connection' % how, '(%s)' % reason in said[0] and
                  '(peer-request)' in said[1] and moved(said[0]) and moved(said[1]), *said)
            for what in 'connection', 'new connection', 'set connection':
                said = hands(folder, how, what, True, True, True)
                check('%s of a %s' % (how, what), moved(said[0]) and moved(said[1]), *said)
        # Amid its handshake, more often than not.
        os.environ['EXS_UPGRADE'] = 'connect'
        for _ in range(4):
            said = hands(folder, 'pass', 'new soon connection', True, True, True)
            check('pass of a connection that meets', moved(said[0]) and moved(said[1]),
                  *said)
        del os.environ['EXS_UPGRADE']
        for how, what in (('early', 'new'), ('late', 'new'), ('late', 'set')):
            said = hands(folder, 'fork, %s close' % how, what + ' connection', True, True,
                         True)
            check('fork, %s close of a %s connection' % (how, what),
                  moved(said[0]) and moved(said[1]), *said)
        for what in 'connection', 'new connection', 'set connection':
            said = hands(folder, 'spawn, close', what, True, True, True)
            check('spawn, close of a %s' % what, moved(said[0]) and moved(said[1]),
                  *said)
        said = hands(folder, 'spawn, close', 'connection', True, False, False)
        check('spawn of a plain program', '(exec)' in said[0] and
              '(peer-request)' in said[1], *said)
        # The parent uses it still, as far as anybody knows.
        for how in 'fork, kept', 'fork, stream', 'spawn, kept':
            said = hands(folder, how, 'new connection', True, True, False)
            check('%s connection' % how, not moved(said[0]) and
                  ('(shared)' in said[0] and '(shared)' in said[1] or
                   'stream' in how), *said)
        # The receiver cannot know that nobody else uses it, and says so to a client
        # that waits.
        for what in ('kept connection', 'kept new connection',
                     'twice passed connection', 'spawned connection',
                     'meanwhile accepted connection'):
            said = hands(folder, 'pass', what, True, True, False)
            new = 'new' in what.split()
            check('a %s' % what, said[0].count('(passed)') == (4 if new else 3) and
                  (not new or '(passed)' in said[1]), *said)
        # The second receiver knows it of the first, who has passed it on, but whose
        # child may have it.
        for what in 'forwarded connection', 'meanwhile received forwarded connection':
            said = hands(folder, 'pass', what, True, True, what.startswith('forwarded'))
            check('a %s' % what, bool(moved(said[0])) and bool(re.search(
                'connection, shm', said[1])) == what.startswith('forwarded'), *said)
        # A child has it that no hook of a fork saw; or one where it was closed.
        for how in 'system', 'popen', 'wordexp':
            for closed in (False, True) if how == 'system' else (False,):
                what = how + (', closed' if closed else '') + ' connection'
                said = hands(folder, 'pass', what, True, True, closed)
                with open(os.path.join(folder, 'pid')) as f:
                    os.kill(int(f.read()), signal.SIGKILL)
                check('a %s' % what, moved(said[0]) and moved(said[1]) if closed
                      else said[0].count('(passed)') == 3, *said)
        # That it was closed before says nothing of the second time.
        said = hands(folder, 'pass', 'returned connection', True, True, False)
        check('a returned connection', '(passed)' in said[0] and
              not re.search('connection, shm', said[0] + said[1]), *said)
        said = hands(folder, 'pass', 'new connection', False, True, False)
        # It costs the receiver nothing, either.
        check('a connection of a plain giver', not said[0] and
              '(plain-peer)' in said[1], *said)
    sys.exit(bad)


main()
