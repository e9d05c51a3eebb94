# SPDX-License-Identifier: BSD-2-Clause
"""Every client gets the file, whatever its size.

sendfile.py PROGRAM
"""
import os
import sys
import tempfile
import threading
import urllib.request

import ends

SIZES = (0, 1, 5000, 3000000)
CLIENTS = 5


def fetch(port, want, bad):
    with urllib.request.urlopen(f"http://[::1]:{port}/",
                                timeout=ends.DEADLINE) as answer:
        if answer.read() != want:
            bad.append(answer.status)


def main():
    for size in SIZES:
        with tempfile.NamedTemporaryFile() as f:
            want = os.urandom(size)
            f.write(want)
            f.flush()
            server, port = ends.start([sys.argv[1], f.name, "0", str(CLIENTS)])
            bad = []
            threads = [threading.Thread(target=fetch, args=(port, want, bad))
                       for _ in range(CLIENTS)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            ends.finish(server)
            ends.check(not bad, f"{len(bad)} of {CLIENTS} got something else")


main()
