#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A server that forks for each connection keeps nothing of those whose children
have ended, by themselves or killed. A child whose parent had not met the peer yet
meets it. Usage: forked.py EXS"""

import os
import subprocess
import sys

PROGRAM = """
import os, signal, socket

# Memory that the library shares with children is mapped for 64 connections.
def mapped():
    with open('/proc/self/maps') as f:
        return sum('/dev/zero' in line for line in f)

def serve(s, client):
    client.close()
    while s.recv(4096):
        s.sendall(b'y')
    os._exit(0)

with socket.create_server(('127.0.0.1', 0)) as listener:
    for i in range(400):
        client = socket.create_connection(listener.getsockname())
        s = listener.accept()[0]
        pid = os.fork()
        if pid == 0:
            serve(s, client)
        s.close()
        client.sendall(bytes(4096))
        assert client.recv(1) == b'y'
        if i % 2:
            os.kill(pid, signal.SIGKILL)
        else:
            client.shutdown(socket.SHUT_WR)
        assert os.waitpid(pid, 0)[0] == pid
        client.close()
        if i == 99:
            before = mapped()
assert before, 'nothing is shared: the test looks for the wrong thing'
assert mapped() == before, '%d, after 100 connections %d' % (mapped(), before)
"""

# The parent looks for a peer that does not wait to meet yet, and goes on looking
# only less often. It closes the connection, or leaves it to the child while it has
# it, too.
FORKS = """
import os, socket, sys
with socket.create_server(('127.0.0.1', 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    s = listener.accept()[0]
s.sendall(s.recv(1))
child = os.fork()
if child == 0:
    got = True
    while got:
        got = s.recv(4096)
        s.sendall(got)
    os._exit(0)
if sys.argv[1] == 'closes':
    s.close()
os.waitpid(child, 0)
"""

WAITS = """
import ctypes, socket, sys, time
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
s.sendall(b'!')
s.recv(1)
exs = ctypes.CDLL('libexs.so.1')
exs.exs_x_reason_name.restype = ctypes.c_char_p
exs.exs_init(1)
info = ctypes.create_string_buffer(1024)
end = time.monotonic() + 60
while info.raw[:32].count(b'shm') < 2:
    assert time.monotonic() < end, exs.exs_x_reason_name(info.raw[32])
    s.sendall(bytes(1000))
    s.recv(1000, socket.MSG_WAITALL)
    exs.exs_x_sockinfo(s.fileno(), info)
"""


def start(text, upgrade, *args):
    return subprocess.Popen([sys.argv[1], 'run', sys.executable, '-c', text, *args],
                            env=dict(os.environ, EXS_UPGRADE=upgrade),
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


def meets(parent):
    server = start(FORKS, 'connect', parent)
    client = start(WAITS, 'bytes:50000', server.stdout.readline().strip())
    results = client.wait(100), server.wait(100)
    if results != (0, 0):
        sys.exit(f'a parent that {parent}: client, server ended with {results}')


def main():
    for v in [v for v in os.environ if v.startswith('EXS_')]:
        del os.environ[v]
    r = subprocess.run([sys.argv[1], 'run', sys.executable, '-c', PROGRAM],
                       stdin=subprocess.DEVNULL, timeout=100, check=False)
    if r.returncode:
        sys.exit(r.returncode)
    meets('closes')
    meets('stays')


main()
