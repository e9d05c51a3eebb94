# SPDX-License-Identifier: BSD-2-Clause
"""Blocking sockets, in threads, of a process and of its forked children.
Usage: threads.py serve|talk PORT"""
import hashlib
import os
import signal
import socket
import sys
import threading

SIZE = 8 << 20
# On a busy machine a stream of this size may be over before the ends have met,
# unlike so many turns.
TURNS = 2000


def echo(s):
    while True:
        data = s.recv(65536)
        if not data:
            break
        s.sendall(data)
    s.close()


def serve(port):
    """Two workers, forked after the socket listens."""
    listener = socket.create_server(('127.0.0.1', port))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    workers = []
    for _ in range(2):
        workers.append(os.fork())
        if workers[-1] == 0:
            while True:
                s, _peer = listener.accept()
                threading.Thread(target=echo, args=(s,), daemon=True).start()
    try:
        signal.pause()
    finally:
        for w in workers:
            os.kill(w, signal.SIGTERM)
            os.waitpid(w, 0)


def talk_one(address, who, results):
    s = socket.create_connection(address)
    for i in range(TURNS):
        turn = b'%d:%d.' % (who, i)
        s.sendall(turn)
        assert s.recv(len(turn), socket.MSG_WAITALL) == turn
    data = bytes((who * 7 + i * i) & 255 for i in range(4096)) * (SIZE // 4096)
    sender = threading.Thread(target=lambda: (s.sendall(data),
                                              s.shutdown(socket.SHUT_WR)))
    sender.start()
    got = hashlib.sha256()
    while True:
        part = s.recv(100000)
        if not part:
            break
        got.update(part)
    sender.join()
    s.close()
    assert got.digest() == hashlib.sha256(data).digest()
    results[who] = got.hexdigest()


def talk(port):
    results = {}
    clients = [threading.Thread(target=talk_one,
                                args=(('127.0.0.1', port), i, results))
               for i in range(4)]
    for c in clients:
        c.start()
    for c in clients:
        c.join()
    print([results[i] for i in range(4)])


{'serve': serve, 'talk': talk}[sys.argv[1]](int(sys.argv[2]))
