#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A server that forks for each connection keeps nothing of those whose children
have ended, by themselves or killed. Usage: forked.py EXS"""

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


def main():
    for v in [v for v in os.environ if v.startswith('EXS_')]:
        del os.environ[v]
    r = subprocess.run([sys.argv[1], 'run', sys.executable, '-c', PROGRAM],
                       stdin=subprocess.DEVNULL, timeout=100, check=False)
    sys.exit(r.returncode)


main()
