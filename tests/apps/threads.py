# SPDX-License-Identifier: BSD-2-Clause
"""Blocking sockets, a thread for each end, and a forked child."""
import hashlib
import os
import socket
import threading

SIZE = 8 << 20


def echo(s):
    while True:
        data = s.recv(65536)
        if not data:
            break
        s.sendall(data)
    s.close()


def talk(address, who, results):
    s = socket.create_connection(address)
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


listener = socket.create_server(('127.0.0.1', 0))
child = os.fork()
if child == 0:
    workers = []
    for _ in range(4):
        conn, _peer = listener.accept()
        workers.append(threading.Thread(target=echo, args=(conn,)))
        workers[-1].start()
    for w in workers:
        w.join()
    os._exit(0)
address = listener.getsockname()
listener.close()
results = {}
clients = [threading.Thread(target=talk, args=(address, i, results))
           for i in range(4)]
for c in clients:
    c.start()
for c in clients:
    c.join()
print([results[i] for i in range(4)], os.waitpid(child, 0)[1])
