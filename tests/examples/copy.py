# SPDX-License-Identifier: BSD-2-Clause
"""A copied file has the same bytes, and both ends print their checksum.

copy.py PROGRAM
"""
import hashlib
import os
import random
import sys
import tempfile

import ends

SIZES = [0, 1, 1000, 65537, 4 * 1024 * 1024, 50 * 1000 * 1000 + 7]


def copy(program, directory, size, provider):
    there = os.path.join(directory, "there")
    here = os.path.join(directory, "here")
    data = random.Random(size).randbytes(size)
    with open(here, "wb") as f:
        f.write(data)
    receiver, port = ends.start([program, "recv", there, "0"], provider)
    sent = ends.run([program, "send", here, "127.0.0.1", port], provider)
    received = ends.finish(receiver)
    want = hashlib.sha256(data).hexdigest()
    ends.check(sent[0] == want, f"{size} bytes: the sender's sum is wrong")
    ends.check(received[0] == want,
               f"{size} bytes: the receiver's sum is wrong")
    with open(there, "rb") as f:
        ends.check(f.read() == data, f"{size} bytes: the files differ")
    os.unlink(there)
    print(f"{provider}: {received[1]}")
    return received[1]


def main():
    with tempfile.TemporaryDirectory() as directory:
        for provider in ("tcp", "shm,tcp"):
            for size in SIZES:
                last = copy(sys.argv[1], directory, size, provider)
            if provider == "tcp":
                ends.check(" over tcp " in last, f"not over tcp: {last}")


main()
