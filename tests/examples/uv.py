# SPDX-License-Identifier: BSD-2-Clause
"""The loop serves a client and its timer.

uv.py PROGRAM
"""
import os
import socket
import sys

import ends


def main():
    server, port = ends.start([sys.argv[1], "0"])
    want = os.urandom(2000000)
    got = b""
    with socket.create_connection(("::1", int(port))) as s:
        s.settimeout(ends.DEADLINE)
        for at in range(0, len(want), 50000):
            s.sendall(want[at:at + 50000])
            while len(got) < at + 50000:
                got += s.recv(65536)
    said = ends.finish(server)
    ends.check(got == want, "something else came back")
    ends.check(said == [f"{len(want)} bytes, and it ticked"],
               f"the server said {said}")


main()
