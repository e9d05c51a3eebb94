# SPDX-License-Identifier: BSD-2-Clause
"""gRPC of bytes, without protobuf. Usage: rpc.py serve|talk PORT"""
import hashlib
import signal
import sys
import threading
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


{'serve': serve, 'talk': talk}[sys.argv[1]](int(sys.argv[2]))
