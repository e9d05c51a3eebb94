#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A server waits by epoll for two peers, of which one writes to its link without end. The
other one is answered meanwhile; after that both are, by doorbells, and by bytes that end a
wait in every place where one can. Usage: flooded.py EXS."""

import os
import socket
import subprocess
import sys

EXS = os.path.abspath(sys.argv[1])
TIMEOUT = 60

SERVER = '''
import select, socket
l = socket.create_server(('127.0.0.1', 0))
print(l.getsockname()[1], flush=True)
ep, by = select.epoll(), {l.fileno(): l}
ep.register(l, select.EPOLLIN)
while by:
    for fd, _ in ep.poll():
        if by[fd] is l:
            s = l.accept()[0]
            by[s.fileno()] = s
            ep.register(s, select.EPOLLIN)
        elif m := by[fd].recv(100):
            by[fd].sendall(m)
        else:  # all end at once
            by.clear()
            break
'''

CLIENT = '''
import ctypes, os, socket, sys, threading
def comes():
    s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
    info = ctypes.create_string_buffer(1024)
    while info.raw[:32] != b'shm'.ljust(16, bytes(1)) * 2:
        ask(s)
        assert ctypes.CDLL('libexs.so.1').exs_x_sockinfo(s.fileno(), info) == 0
    return s
def ask(s):
    s.sendall(b'x')
    assert s.recv(1) == b'x'
def links():
    for n in os.listdir('/proc/self/fd'):
        try:
            s = socket.socket(fileno=os.dup(int(n)))
            if s.family == socket.AF_UNIX and s.type & 15 == socket.SOCK_SEQPACKET:
                s.getpeername()
                yield s
        except OSError:
            pass
hostile = comes()
link, = links()
honest = comes()
stop = False
def flood():
    while not stop:
        try:
            for i in range(100):
                link.send(b'x', socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
for i in range(3):
    stop = False
    t = threading.Thread(target=flood)
    t.start()
    for j in range(30):
        ask(honest)
    for j in range(30):
        ask(hostile)
    stop = True
    t.join()
    for j in range(100):
        ask(honest if j % 2 else hostile)
print('all answered')
'''


def run(text, *args, log=None):
    env = dict(os.environ, EXS_UPGRADE='connect')
    if log:
        env['EXS_LOG'] = 'trace'
    return subprocess.Popen([EXS, 'run', sys.executable, '-c', text, *args], env=env,
                            stdout=subprocess.PIPE, stderr=log, text=True)


def main():
    with open(os.memfd_create('log'), 'w+') as log:
        server = run(SERVER, log=log)
        client = run(CLIENT, server.stdout.readline().strip())
        try:
            out, _ = client.communicate(timeout=TIMEOUT)
            server.wait(TIMEOUT)
        finally:
            client.kill()
            server.kill()
        log.seek(0)
        rests = log.read().count('without end')
    assert out == 'all answered\n', out
    assert server.returncode == 0
    assert rests, 'the link never rested'


main()
