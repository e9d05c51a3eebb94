#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A forked child that is a stranger's by now writes into all memory that it shares with
anybody. Its parent does not notice: neither at connections that the child has closed, nor
at a listener that both have, and at what the parent accepts there later.
Usage: apart.py EXS."""

import os
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


def main():
    server = subprocess.Popen([EXS, 'run', sys.executable, '-c', SERVER],
                              stdout=subprocess.PIPE, text=True)
    port = server.stdout.readline().strip()
    try:
        subprocess.run([EXS, 'run', sys.executable, '-c', CLIENT, port], check=True,
                       timeout=TIMEOUT)
        assert server.wait(TIMEOUT) == 0
    finally:
        server.kill()
        server.stdout.close()
        server.wait()


main()
