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

# At most SOME connections are given back at a time, those made first.
SOFT, SOME, PAIRS = 1024, 16, 40
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

# Makes a descriptor where no number is left, and returns how long that took:
# the numbers are taken by a call that the library does not see.
def make(call):
    taken = []
    try:
        while True:
            taken.append(os.open('/dev/null', os.O_RDONLY))
    except OSError as e:
        assert e.errno == errno.EMFILE
    start = time.monotonic()
    taken.append(call())
    took = time.monotonic() - start
    for fd in taken:
        os.close(fd)
    return took

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

# A call does not wait for the connections that it gives back.
make(lambda: os.dup(0))
end = time.monotonic() + 60
while sum(map(moved, pairs)) > PAIRS - SOME // 2:
    assert time.monotonic() < end, 'no connection was given back'
assert all(map(moved, pairs[SOME:])), 'more were given back than were needed'

idle, used = pairs[SOME::2], pairs[SOME + 1::2]
while any(map(moved, idle)):
    assert time.monotonic() < end, 'idle connections were not given back'
    for p in used:
        say(p)
    # A call that has waited in vain gives back what is in use, too.
    if make(lambda: fcntl.fcntl(0, fcntl.F_DUPFD, 0)) > 0.045:
        sys.exit(77)
assert all(map(moved, used)), 'connections in use were given back'
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
