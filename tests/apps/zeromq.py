# SPDX-License-Identifier: BSD-2-Clause
"""ZeroMQ, a question and an answer at a time. Usage: zeromq.py serve|talk PORT|ADDRESS"""
import hashlib
import signal
import sys

import zmq


def serve(at):
    over = False

    def stop(*_):
        nonlocal over
        over = True

    signal.signal(signal.SIGTERM, stop)
    with zmq.Context() as context, context.socket(zmq.REP) as s:
        s.bind(at)
        s.rcvtimeo = 100
        while not over:
            try:
                s.send(s.recv())
            except zmq.Again:
                pass


def talk(at):
    said = hashlib.sha256()
    with zmq.Context() as context, context.socket(zmq.REQ) as s:
        s.rcvtimeo = 20000
        s.connect(at)
        for i in range(2000):
            s.send(b'%d' % i)
            said.update(s.recv())
        for i in range(8):
            s.send(bytes([i]) * (1 << 20))
            said.update(s.recv())
    print(said.hexdigest())


address = sys.argv[2]
{'serve': serve, 'talk': talk}[sys.argv[1]](
    address if ':' in address else 'tcp://127.0.0.1:' + address)
