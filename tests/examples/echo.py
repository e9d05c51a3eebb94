# SPDX-License-Identifier: BSD-2-Clause
"""A thousand clients at once get back what each of them sent.

echo.py PROGRAM
"""
import resource
import socket
import sys

import ends

CLIENTS = 1000


def client(port, number):
    s = socket.create_connection(("::1", int(port)))
    s.settimeout(ends.DEADLINE)
    s.sendall(b"%d!" % number * 10)
    return s


def main():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < CLIENTS + 100:
        resource.setrlimit(resource.RLIMIT_NOFILE, (CLIENTS + 100, hard))
    server, port = ends.start([sys.argv[1], "0", str(CLIENTS)])
    clients = [client(port, i) for i in range(CLIENTS)]
    total = 0
    for i, s in enumerate(clients):
        want = b"%d!" % i * 10
        got = b""
        while len(got) < len(want):
            more = s.recv(len(want) - len(got))
            ends.check(more, f"client {i} got {got!r} and the end")
            got += more
        ends.check(got == want, f"client {i} got {got!r}")
        total += len(got)
    for s in clients:
        s.close()
    said = ends.finish(server)
    ends.check(said == [f"{total} bytes, {CLIENTS} clients at once"],
               f"the server said {said}")


main()
