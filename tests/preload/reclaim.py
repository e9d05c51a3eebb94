#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Where descriptors run out the library gives its own back, first those of
connections that were not used lately. Usage: reclaim.py EXS"""

import os
import subprocess
import sys
import time

# Both ends of its connections are its own.
PROGRAM = """
import ctypes, errno, fcntl, os, resource, socket, sys, time

# At most SOME ends of connections are given back at a time.
SOFT, SOME, PAIRS = 4096, 16, 100
resource.setrlimit(resource.RLIMIT_NOFILE,
                   (SOFT, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
libc = ctypes.CDLL(None)

def say(pair):
    for a, b in (pair, pair[::-1]):
        a.sendall(bytes(2000))
        assert len(b.recv(2000, socket.MSG_WAITALL)) == 2000

# What the library says of a socket begins with its two fabrics.
def moved(pair):
    for s in pair:
        info = ctypes.create_string_buffer(4096)
        assert libc.exs_x_sockinfo(s.fileno(), info) == 0
        if info.raw.count(b'shm\\0', 0, 32) != 2:
            return False
    return True

# Makes a descriptor where no number is left: the numbers are taken by a call that
# the library does not see. A call that has waited in vain for connections to be
# given back says nothing: the host is busy.
def make(call):
    taken = []
    try:
        while True:
            taken.append(os.open('/dev/null', os.O_RDONLY))
    except OSError as e:
        assert e.errno == errno.EMFILE
    start = time.monotonic()
    try:
        taken.append(call())
    except OSError as e:
        if e.errno != errno.EMFILE or time.monotonic() - start < 0.045:
            raise
    if time.monotonic() - start > 0.045:
        sys.exit(77)
    for fd in taken:
        os.close(fd)

pairs = []
with socket.create_server(('127.0.0.1', 0)) as listener:
    for _ in range(PAIRS):
        s = socket.create_connection(listener.getsockname())
        pairs.append((s, listener.accept()[0]))
end = time.monotonic() + 60
while not all(map(moved, pairs)):
    assert time.monotonic() < end, 'connections stay on TCP'
    for p in pairs:
        say(p)

# The library knows of no connection yet that it is idle, and gives any back.
make(lambda: os.dup(0))
# The library looks at the oldest first. More connections are idle than leave in two calls.
used, idle = pairs[:PAIRS // 2], pairs[PAIRS // 2:]
for _ in range(2):
    for p in used:
        say(p)
    make(lambda: fcntl.fcntl(0, fcntl.F_DUPFD, 0))
while sum(map(moved, idle)) > len(idle) - SOME // 2:
    assert time.monotonic() < end, 'no idle connections were given back'
left = sum(map(moved, used))
assert left >= len(used) - SOME, '%d in use are left' % left
for p in pairs:
    say(p)
"""


def main():
    for v in [v for v in os.environ if v.startswith('EXS_')]:
        del os.environ[v]
    end = time.monotonic() + 200
    while True:
        r = subprocess.run([sys.argv[1], 'run', sys.executable, '-c', PROGRAM],
                           stdin=subprocess.DEVNULL, timeout=100, check=False)
        if r.returncode != 77 or time.monotonic() > end:
            break
    sys.exit(r.returncode and 1)


main()
