# SPDX-License-Identifier: BSD-2-Clause
"""gRPC of bytes, without protobuf. Usage: rpc.py serve|talk PORT, or rpc.py time
PORT BYTES SECONDS, which prints the median of a call's time in us, and how many
calls it made."""
import hashlib
import signal
import statistics
import sys
import threading
import time
from concurrent import futures

import grpc

LARGE = 1 << 20
# A message of LARGE bytes and what is around it.
OPTIONS = [('grpc.max_receive_message_length', 2 * LARGE),
           ('grpc.so_reuseport', 0)]


class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method == '/Echo/Once':
            return grpc.unary_unary_rpc_method_handler(lambda m, _: m)
        return grpc.stream_stream_rpc_method_handler(lambda all, _: all)


def serve(port):
    server = grpc.server(futures.ThreadPoolExecutor(4), options=OPTIONS)
    server.add_generic_rpc_handlers((Echo(),))
    server.add_insecure_port('127.0.0.1:%d' % port)
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    server.start()
    over.wait()
    server.stop(5).wait()


def talk(port):
    said = hashlib.sha256()
    with grpc.insecure_channel('127.0.0.1:%d' % port, OPTIONS) as channel:
        once = channel.unary_unary('/Echo/Once')
        for i in range(300):
            said.update(once(b'%d' % i, timeout=20))
        for i in range(8):
            said.update(once(bytes([i]) * LARGE, timeout=20))
        stream = channel.stream_stream('/Echo/Stream')
        for part in stream((bytes([i]) * 9000 for i in range(200)),
                           timeout=20):
            said.update(part)
    print(said.hexdigest())


def time_calls(port, size, seconds):
    body = b'x' * int(size)
    times = []
    with grpc.insecure_channel('127.0.0.1:%d' % port, OPTIONS) as channel:
        once = channel.unary_unary('/Echo/Once')
        once(body, timeout=20)  # connects
        begin = now = time.perf_counter()
        while now - begin < float(seconds):
            last = now
            once(body, timeout=20)
            now = time.perf_counter()
            times.append(now - last)
    print('%.3f %d' % (statistics.median(times) * 1e6, len(times)))


{'serve': serve, 'talk': talk, 'time': time_calls}[sys.argv[1]](
    int(sys.argv[2]), *sys.argv[3:])
