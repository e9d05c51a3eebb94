# SPDX-License-Identifier: BSD-2-Clause
"""A client of echo servers: talk.py PORT. Pieces of all sizes, over connections that
live at the same time; a stream that is written while its echo is read; and an end
that the server has to notice. Prints what came back."""

import hashlib
import random
import socket
import sys
import threading


def pieces(seed, total):
    r = random.Random(seed)
    while total:
        n = min(total, r.choice((1, 7, 100, 4096, 20000, 70000)))
        yield r.randbytes(n)
        total -= n


def read(s, n):
    got = b''
    while len(got) < n:
        more = s.recv(n - len(got))
        if not more:
            raise EOFError('the server ended the connection')
        got += more
    return got


def turns(s, seed):
    h = hashlib.sha256()
    for piece in pieces(seed, 3000000):
        s.sendall(piece)
        h.update(read(s, len(piece)))
    return h.hexdigest()


def stream(s, seed):
    def write():
        for piece in pieces(seed, 20000000):
            s.sendall(piece)
        s.shutdown(socket.SHUT_WR)

    t = threading.Thread(target=write)
    h, n = hashlib.sha256(), 0
    t.start()
    while n < 20000000:
        got = s.recv(65536)
        if not got:
            raise EOFError('the stream ended after %d bytes' % n)
        h.update(got)
        n += len(got)
    t.join()
    return h.hexdigest()


def main():
    address = '127.0.0.1', int(sys.argv[1])
    said = {}

    def one(seed):
        with socket.create_connection(address) as s:
            s.settimeout(60)
            said[seed] = turns(s, seed) + ' ' + stream(s, seed + 100)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for seed in sorted(said):
        print(seed, said[seed])
    if len(said) != 4:
        sys.exit(1)


main()
