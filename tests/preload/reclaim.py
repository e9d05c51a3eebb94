#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Where descriptors run out the library gives its own back, first those of
connections that were not used lately. Usage: reclaim.py EXS"""

import os
import subprocess
import sys

# Both ends of its connections are its own.
PROGRAM = """
import ctypes, errno, fcntl, os, resource, socket, time

SOFT, PAIRS = 1024, 24
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

# Makes a descriptor where no number is left: they are taken by a call that
# nobody takes over.
def make(call):
    taken = []
    try:
        while True:
            taken.append(os.open('/dev/null', os.O_RDONLY))
    except OSError as e:
        assert e.errno == errno.EMFILE
    taken.append(call())
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

# What a call gives back it does not wait for.
def at_most(n, these):
    end = time.monotonic() + 60
    while sum(map(moved, these)) > n:
        assert time.monotonic() < end, 'they were not given back'

make(lambda: os.dup(0))
at_most(PAIRS - 8, pairs) # of sixteen ends
left = list(filter(moved, pairs))
assert 2 <= len(left) < PAIRS, '%d were left' % len(left)
for p in left[::2]:
    say(p)
make(lambda: fcntl.fcntl(0, fcntl.F_DUPFD, 0))
at_most(0, left[1::2])
assert all(map(moved, left[::2])), 'connections in use were given back'
for p in pairs:
    say(p)
"""


def main():
    for v in [v for v in os.environ if v.startswith('EXS_')]:
        del os.environ[v]
    r = subprocess.run([sys.argv[1], 'run', sys.executable, '-c', PROGRAM],
                       stdin=subprocess.DEVNULL, timeout=100, check=False)
    sys.exit(r.returncode)


main()
