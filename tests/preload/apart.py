#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A forked process that is a stranger's by now writes into all memory that it shares with
anybody. The other one does not notice: neither at connections that the stranger has closed
or kept, nor at a listener that both have, and at what is accepted there later. The
stranger is the child or the parent, and has given up its user by each call that does so.
Usage: apart.py EXS."""

import os
import signal
import subprocess
import sys

EXS = os.path.abspath(sys.argv[1])
TIMEOUT = 30

COMMON = '''
import ctypes, os, socket, sys
def moved(s):
    info = ctypes.create_string_buffer(1024)
    assert ctypes.CDLL('libexs.so.1').exs_x_sockinfo(s.fileno(), info) == 0
    return info.raw[:32] == b'shm'.ljust(16, bytes(1)) * 2
'''

SERVER = '''
import ctypes, os, socket, threading
l = socket.create_server(('127.0.0.1', 0))
print(l.getsockname()[1], flush=True)
serving = []
def answer(s):
    while m := s.recv(200):
        s.sendall(m)
def serve(s):
    serving.append(threading.Thread(target=answer, args=[s]))
    serving[-1].start()
a = l.accept()[0]
serve(a)
b = l.accept()[0]  # a has moved
done, over = os.pipe(), os.pipe()
if not os.fork():
    os.close(over[1])
    for s in a, b:
        s.close()
    if not os.getuid():
        os.setgid(65534)
        os.setuid(65534)
    with open('/proc/self/maps') as f:
        maps = [line.split() for line in f]
    for m in maps:
        if m[1] == 'rw-s':
            at, end = (int(x, 16) for x in m[0].split('-'))
            ctypes.memset(at, 0xff, end - at)
    os.write(done[1], b'x')
    os.read(over[0], 1)
    os._exit(0)
os.close(over[0])
assert os.read(done[0], 1)
serve(b)
serve(l.accept()[0])
l.close()
for t in serving:
    t.join()
os.close(over[1])
os.wait()
'''

CLIENT = '''
import ctypes, socket, sys
to = ('127.0.0.1', int(sys.argv[1]))
def ask(s):
    s.sendall(bytes(200))
    assert s.recv(200, socket.MSG_WAITALL) == bytes(200)
def moved(s):
    info = ctypes.create_string_buffer(1024)
    assert ctypes.CDLL('libexs.so.1').exs_x_sockinfo(s.fileno(), info) == 0
    return info.raw[:32] == b'shm'.ljust(16, bytes(1)) * 2
def meet():
    s = socket.create_connection(to)
    while True:
        yield s
        while not moved(s):
            ask(s)
all = [meet() for _ in range(3)]
next(all[0])
next(all[0])
for s in all[1:]:
    next(s)
for m in all:
    s = next(m)
    for _ in range(100):
        ask(s)
    s.close()
'''

# Both processes keep the connection. The client says when they part.
KEPT = '''
import ctypes, os, platform, signal, socket, sys
who, how = sys.argv[1:]
NOBODY = 65534
l = socket.create_server(('127.0.0.1', 0))
print(l.getsockname()[1], flush=True)
def answer(s):
    while m := s.recv(200, socket.MSG_WAITALL):
        s.sendall(m)
        if m[:1] == b'p':
            return
def by_number(*users):
    number = {'x86_64': 117, 'aarch64': 147}[platform.machine()]  # SYS_setresuid
    assert ctypes.CDLL(None).syscall(number, *users) == 0
def seteuid(user):
    os.setresuid(user, 0, user)
    os.seteuid(user)
a = l.accept()[0]
answer(a)
done, over = os.pipe(), os.pipe()
child = os.fork()
if (who == 'child') == (not child):
    os.close(over[1])
    {'setuid': lambda: os.setuid(NOBODY),
     'seteuid': lambda: seteuid(NOBODY),
     'setreuid': lambda: os.setreuid(NOBODY, NOBODY),
     'setresuid': lambda: os.setresuid(NOBODY, NOBODY, NOBODY),
     'syscall': lambda: by_number(NOBODY, NOBODY, NOBODY)}[how]()
    with open('/proc/thread-self/maps') as f:
        maps = [line.split() for line in f]
    for m in maps:
        if m[1] == 'rw-s':
            at, end = (int(x, 16) for x in m[0].split('-'))
            ctypes.memset(at, 0xff, end - at)
    os.write(done[1], b'x')
    os.read(over[0], 1)
    os.kill(os.getpid(), signal.SIGKILL)
os.close(over[0])
assert os.read(done[0], 1)
answer(a)
answer(l.accept()[0])
os.close(over[1])
'''

# What a child accepts that has given up root moves.
ACCEPTS = '''
import os, socket
l = socket.create_server(('127.0.0.1', 0))
print(l.getsockname()[1], flush=True)
if not os.fork():
    if not os.getuid():
        os.setuid(65534)
    s = l.accept()[0]
    while m := s.recv(200):
        s.sendall(m)
    os._exit(0)
os.wait()
'''

MEET = '''
import ctypes, socket, sys
to = ('127.0.0.1', int(sys.argv[1]))
def ask(s, what=b'a'):
    s.sendall(what * 200)
    assert s.recv(200, socket.MSG_WAITALL) == what * 200
def moved(s):
    info = ctypes.create_string_buffer(1024)
    assert ctypes.CDLL('libexs.so.1').exs_x_sockinfo(s.fileno(), info) == 0
    return info.raw[:32] == b'shm'.ljust(16, bytes(1)) * 2
def meet():
    s = socket.create_connection(to)
    while not moved(s):
        ask(s)
    return s
'''

KEPT_CLIENT = MEET + '''
s = meet()
ask(s, b'p')
for _ in range(100):
    ask(s)
ask(s, b'p')
s = meet()
for _ in range(100):
    ask(s)
ask(s, b'p')
'''


def run(server, client, args, status):
    server = subprocess.Popen([EXS, 'run', sys.executable, '-c', server, *args],
                              stdout=subprocess.PIPE, text=True)
    port = server.stdout.readline().strip()
    try:
        subprocess.run([EXS, 'run', sys.executable, '-c', client, port], check=True,
                       timeout=TIMEOUT)
        assert server.wait(TIMEOUT) == status, server.returncode
    finally:
        server.kill()
        server.stdout.close()
        server.wait()


def main():
    run(SERVER, CLIENT, [], 0)
    run(ACCEPTS, MEET + 'meet()', [], 0)
    if os.getuid():
        print('only root can give up its user: no connections that are kept')
        return
    for how in 'setuid', 'seteuid', 'setreuid', 'setresuid', 'syscall':
        run(KEPT, KEPT_CLIENT, ['child', how], 0)
    run(KEPT, KEPT_CLIENT, ['parent', 'setuid'], -signal.SIGKILL)


main()
