#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Two ends with other settings of memory: unfit.py EXS. Every byte comes, and who
has no memory left to read a grown ring takes the connection to TCP."""

import os
import re
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             '../../scripts'))
import stuck  # noqa: E402

SIZE = 16 << 20
TIMEOUT = 60

# The last byte may be on TCP before the ends have met.
TRIES = 20

COMMON = """
import hashlib, select, socket, sys
SIZE = %d
BLOCK = bytes(range(256)) * 1024
""" % SIZE

SENDS = COMMON + """
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
s.sendall(b'x' * 4000)
s.recv(1)
for i in range(SIZE // len(BLOCK)):
    s.sendall(BLOCK[i % 256:] + BLOCK[:i % 256])
s.shutdown(socket.SHUT_WR)
print(s.recv(100).decode())
"""

READS = COMMON + """
how = sys.argv[1]
server = socket.create_server(('127.0.0.1', 0))
print(server.getsockname()[1], flush=True)
s = server.accept()[0]
s.recv(4000, socket.MSG_WAITALL)
s.send(b'y')
if how != 'block':
    s.setblocking(False)
if how == 'edge':
    e = select.epoll()
    e.register(s, select.EPOLLIN | select.EPOLLET)
elif how == 'poll':
    e = select.poll()
    e.register(s, select.POLLIN)
h = hashlib.sha256()
n = 0
more = True
while more:
    if how != 'block':
        e.poll()
    while True:
        try:
            if how == 'poll':
                s.recv(1 << 19, socket.MSG_PEEK)
            data = s.recv(1 << 20)
        except BlockingIOError:
            break
        more = bool(data)
        if not more:
            break
        h.update(data)
        n += len(data)
good = hashlib.sha256()
for i in range(SIZE // len(BLOCK)):
    good.update(BLOCK[i % 256:] + BLOCK[:i % 256])
s.setblocking(True)
s.sendall(b'%d %d' % (n, h.digest() == good.digest()))
"""


def run(exs, how, reads, sends):
    env = {k: v for k, v in os.environ.items() if not k.startswith('EXS_')}
    env.update(EXS_LOG='debug', EXS_PROVIDER='shm,tcp')
    reader = subprocess.Popen(
        [exs, 'run', sys.executable, '-c', READS, how], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=dict(env, **reads))
    port = reader.stdout.readline().strip()
    sender = subprocess.Popen(
        [exs, 'run', sys.executable, '-c', SENDS, port], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=dict(env, **sends))
    heard = stuck.communicate(sender, TIMEOUT)
    log = stuck.communicate(reader, TIMEOUT)[1]
    if heard[0].strip() != '%d 1' % SIZE:
        sys.exit('%s, %s: %s\n%s\n%s' % (how, reads, heard[0], heard[1], log))
    return (bool(re.search(r'sends on shm', heard[1])),
            bool(re.search(r'descriptor \d+(?: \(.*\))?: memory$', log, re.M)))


def main(exs):
    for how in ('block', 'poll', 'edge'):
        for reads, sends, want in [
                ({'EXS_MEMORY_LIMIT_MB': '1'}, {}, (True, True)),
                ({}, {'EXS_MEMORY_LIMIT_MB': '1'}, (True, False)),
                ({'EXS_RING_KB': '16'}, {'EXS_RING_KB': '8192'},
                 (True, False)),
                ({'EXS_RING_KB': '4096'}, {'EXS_RING_KB': '64'},
                 (True, False))]:
            for _ in range(TRIES):
                got = run(exs, how, reads, sends)
                if got == want or got[0]:
                    break
            if got != want:
                sys.exit('%s, reader %s, sender %s: %s' %
                         (how, reads, sends, got))
    return 0


if __name__ == '__main__':
    sys.exit(main(os.path.abspath(sys.argv[1])))
