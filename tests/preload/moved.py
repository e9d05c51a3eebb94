# SPDX-License-Identifier: BSD-2-Clause
"""A part of programs that run under exs run: whether connections have moved."""

# It needs ctypes, time and exs, the library.
MOVED = """
# What the library says of a socket begins with its two fabrics.
def moved(s):
    info = ctypes.create_string_buffer(4096)
    exs.exs_x_sockinfo(s.fileno(), info)
    return info.raw.count(b'shm\\0', 0, 32) == 2

def all_moved(socks, turn):
    end = time.monotonic() + 60
    while not all(map(moved, socks)):
        assert time.monotonic() < end, 'connections stay on TCP'
        for s in socks:
            turn(s)
"""
