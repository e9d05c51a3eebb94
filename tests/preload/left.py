#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""More bytes of a gone peer than a UNIX pair has room for go to TCP: a program
that is executed with the connection gets them all, as do a parent and a child
that both have it, and nothing is left behind. Usage: left.py EXS"""

import ctypes
import os
import subprocess
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             '../../scripts'))
import stuck  # noqa: E402

TIMEOUT = 60
PR_SET_CHILD_SUBREAPER = 36

PAIR = """
import ctypes, hashlib, os, select, socket, sys, time
with socket.create_server(('127.0.0.1', 0)) as listener:
    peer = socket.create_connection(listener.getsockname())
    s = listener.accept()[0]
"""

# The library that the shim has loaded tells when both directions are on shm.
# Then a wait is seen, for a connection with unread bytes for which nobody was
# ever seen to wait goes back to TCP after three seconds.
MOVED = """
exs = ctypes.CDLL('libexs.so.1')
exs.exs_init(1)
info = ctypes.create_string_buffer(1024)
end = time.monotonic() + 30
while info.raw[:32].count(b'shm') < 2 and time.monotonic() < end:
    peer.sendall(bytes(100))
    s.recv(100, socket.MSG_WAITALL)
    s.sendall(bytes(100))
    peer.recv(100, socket.MSG_WAITALL)
    exs.exs_x_sockinfo(peer.fileno(), info)
select.select([s], [], [], 0.001)
"""

# Says what the peer wrote before it left, of which nothing was read.
LEFT = """
peer.setblocking(False)
data = bytes(range(251)) * 250
sent = bytearray()
try:
    while len(sent) < 12000000:
        sent += data[:peer.send(data)]
except BlockingIOError:
    pass
peer.close()
print(len(sent), hashlib.sha256(sent).hexdigest(), flush=True)
"""

EXEC = """
os.dup2(s.fileno(), 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""

FORK = """
if os.fork() == 0:
    os.dup2(s.fileno(), 0)
    os.execvp('sha256sum', ['sha256sum'])
os.wait()
h = hashlib.sha256()
while True:
    data = s.recv(1 << 20)
    if not data:
        break
    h.update(data)
print(h.hexdigest() + '  -')
"""


def said(exs, *program):
    p = subprocess.Popen(
        [exs, 'run', sys.executable, '-c', *program],
        stdout=subprocess.PIPE, text=True,
        env=dict(os.environ, EXS_RING_KB='65536', EXS_UPGRADE='connect'))
    out = stuck.communicate(p, TIMEOUT)[0]
    if p.returncode:
        sys.exit('%s ended with %d' % (program[1:], p.returncode))
    return out.split('\n')


# How many processes that were no children of the program have ended: those who
# held bytes for it.
def strangers():
    end = time.monotonic() + TIMEOUT
    n = 0
    while True:
        try:
            n += os.waitpid(-1, os.WNOHANG)[0] != 0
        except ChildProcessError:
            return n
        if time.monotonic() > end:
            sys.exit('one of them is left')
        time.sleep(0.001)


def main(exs):
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # One that is not moved yet has most of them on TCP.
    for least, readers, program in [
            (10000000, 1, [PAIR + MOVED + LEFT + EXEC, 'sha256sum']),
            (10000000, 2, [PAIR + MOVED + LEFT + FORK]),
            (10000000, 0, [PAIR + MOVED + LEFT + EXEC, 'head', '-c', '1']),
            (1000000, 1, [PAIR + LEFT + EXEC, 'sha256sum'])]:
        told = said(exs, *program)
        n, digest = told[0].split()
        if int(n) < least:
            sys.exit('no more than %s bytes had room' % n)
        for line in told[1:1 + readers]:
            if line != digest + '  -':
                sys.exit('%s bytes came to %r as %r' % (n, program[1:], told))
        held = strangers()
        if held != 1 and least == 10000000:
            sys.exit('%d held the bytes for %r' % (held, program[1:]))


main(sys.argv[1])
