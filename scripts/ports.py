# SPDX-License-Identifier: BSD-2-Clause
"""A port for a server that cannot choose its own."""
import contextlib
import random
import socket

RANGE = '/proc/sys/net/ipv4/ip_local_port_range'


def free_port():
    """None that the kernel gives to clients: one of these might have it before the
    server listens."""
    with open(RANGE) as f:
        low, high = map(int, f.read().split())
    ports = [*range(5000, low), *range(high + 1, 65536)]
    for port in random.sample(ports or range(5000, 65536), 100):
        with contextlib.suppress(OSError), socket.socket() as s:
            s.bind(('', port))
            return port
    raise OSError('no port is free')
