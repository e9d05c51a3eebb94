#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""libexs against plain programs: both directions at once, compared byte by
byte. Usage: interop.py PEER SCENARIO; exits with 77 when a program that the
scenario needs is not installed."""

import hashlib
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             '../../scripts'))
import stuck  # noqa: E402

TIMEOUT = 60
HOST = os.environ.get('T_ADDRESS', '127.0.0.1')

# Around the points where the library looks for a peer, and past the last.
SIZES = [(0, 0), (1, 0), (0, 1), (1024, 1025), (1025, 64 * 1024 + 1),
         (40000, 2 << 20), (20 << 20, 20 << 20)]

peer_path = None
folder = None


def fail(text):
    print('interop: ' + text, file=sys.stderr)
    sys.exit(1)


def digest(data):
    return '%d bytes, sha256 %s' % (len(data),
                                    hashlib.sha256(data).hexdigest())


def same(what, got, wanted):
    if got == wanted:
        return
    at = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b),
              min(len(got), len(wanted)))
    fail('%s: %s, wanted %s, differ from byte %d on' %
         (what, digest(got), digest(wanted), at))


class Peer:
    """The libexs end: a process, its files, and what it says."""

    count = 0

    def __init__(self, data, *args):
        Peer.count += 1
        self.source = os.path.join(folder, 'peer-in-%d' % Peer.count)
        self.target = os.path.join(folder, 'peer-out-%d' % Peer.count)
        with open(self.source, 'wb') as f:
            f.write(data)
        flags = [a for a in args if a.startswith('-')]
        rest = [a for a in args if not a.startswith('-')]
        self.process = subprocess.Popen(
            [peer_path] + flags + rest + [self.source, self.target],
            stdout=subprocess.PIPE, text=True)
        if rest == ['serve']:
            self.port = int(self.process.stdout.readline().split()[1])

    def finish(self, fabric='tcp'):
        said, _ = stuck.communicate(self.process, TIMEOUT)
        if self.process.returncode != 0:
            fail('peer exits with %d' % self.process.returncode)
        words = said.split()
        if fabric and words[-3:-1] != [fabric, fabric]:
            fail('the connection went over ' + ' '.join(words))
        with open(self.target, 'rb') as f:
            return f.read(), words[-1]


def exchange(connection, data):
    """Sends data and half-closes, while it receives to the end."""
    def send():
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=send)
    thread.start()
    parts = []
    while True:
        part = connection.recv(50000)
        if not part:
            break
        parts.append(part)
    thread.join()
    connection.close()
    return b''.join(parts)


def listener():
    s = socket.create_server((HOST, 0))
    s.settimeout(TIMEOUT)
    return s


def accept(s):
    connection, _ = s.accept()
    connection.settimeout(TIMEOUT)
    s.close()
    return connection


def connect(port):
    return socket.create_connection((HOST, port), TIMEOUT)


class Proxy(threading.Thread):
    """Between two ends; keeps what it got from each. Urgent bytes count."""

    def __init__(self, port):
        super().__init__()
        self.listener = listener()
        self.port = self.listener.getsockname()[1]
        self.target = port
        self.heard = {'client': bytearray(), 'server': bytearray()}
        self.start()

    def pump(self, name, source, sink):
        while True:
            part = source.recv(7000)
            if not part:
                break
            self.heard[name] += part
            sink.sendall(part)
        sink.shutdown(socket.SHUT_WR)

    def run(self):
        client = accept(self.listener)
        server = connect(self.target)
        for s in client, server:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
        back = threading.Thread(target=self.pump,
                                args=('server', server, client))
        back.start()
        self.pump('client', client, server)
        back.join()
        client.close()
        server.close()


class Plain(threading.Thread):
    """A plain server for one client."""

    def __init__(self, data):
        super().__init__()
        self.listener = listener()
        self.port = self.listener.getsockname()[1]
        self.data = data
        self.got = None
        self.start()

    def run(self):
        self.got = exchange(accept(self.listener), self.data)


def port_of(process):
    """The port on which a program listens, as the kernel tells."""
    while process.poll() is None:
        inodes = set()
        for fd in os.listdir('/proc/%d/fd' % process.pid):
            try:
                link = os.readlink('/proc/%d/fd/%s' % (process.pid, fd))
            except OSError:
                continue
            if link.startswith('socket:['):
                inodes.add(link[8:-1])
        with open('/proc/net/tcp') as table:
            for row in table.readlines()[1:]:
                word = row.split()
                if word[3] == '0A' and word[9] in inodes:
                    return int(word[1].split(':')[1], 16)
    return fail('%s does not listen' % process.args[0])


def program(data, *args):
    """A plain program with files for input and output."""
    with open(os.path.join(folder, 'in'), 'wb') as f:
        f.write(data)
    with open(os.path.join(folder, 'in'), 'rb') as source, \
            open(os.path.join(folder, 'out'), 'wb') as target:
        return subprocess.Popen(args, stdin=source, stdout=target)


def output_of(process):
    stuck.communicate(process, TIMEOUT)
    if process.returncode != 0:
        fail('%s exits with %d' % (process.args[0], process.returncode))
    with open(os.path.join(folder, 'out'), 'rb') as f:
        return f.read()


def reason_is(reason, sent):
    """A client that has sent enough knows that its server is plain."""
    if sent > 1024 and reason != 'plain-peer':
        fail('after %d bytes the reason is %s' % (sent, reason))


def python_server(up, down, mode):
    server = Plain(down)
    peer = Peer(up, *mode, 'connect', HOST, str(server.port))
    got, reason = peer.finish()
    server.join()
    same('at the server', server.got, up)
    same('at the client', got, down)
    reason_is(reason, len(up))


def python_client(up, down, mode):
    peer = Peer(down, *mode, 'serve')
    got = exchange(connect(peer.port), up)
    same('at the client', got, down)
    same('at the server', peer.finish()[0], up)


def nc_server(up, down, mode):
    """nc stops when it hears the end, so the peer ends last."""
    server = program(down, 'nc', '-N', '-l', HOST, '0')
    peer = Peer(up, *mode, '-w', 'connect', HOST, str(port_of(server)))
    same('at the client', peer.finish()[0], down)
    same('at the server', output_of(server), up)


def nc_client(up, down, mode):
    peer = Peer(down, *mode, '-w', 'serve')
    client = program(up, 'nc', '-N', HOST, str(peer.port))
    same('at the server', peer.finish()[0], up)
    same('at the client', output_of(client), down)


HEAD = b'HTTP/1.0 200 OK\r\nContent-Type: application/octet-stream\r\n' \
    b'Content-Length: %d\r\n\r\n'


def body(message):
    return message.split(b'\r\n\r\n', 1)[1]


def curl_get(_, down, mode):
    peer = Peer(HEAD % len(down) + down, *mode, '-r', 'serve')
    client = program(b'', 'curl', '-sS', '-m', str(TIMEOUT),
                     'http://%s:%d/' % (HOST, peer.port))
    request, _ = peer.finish()
    same('at the client', output_of(client), down)
    if not request.startswith(b'GET / HTTP/1.1\r\n'):
        fail('the request is %r' % request)


def curl_put(up, down, mode):
    peer = Peer(HEAD % len(down) + down, *mode, '-r', 'serve')
    client = program(up, 'curl', '-sS', '-m', str(TIMEOUT), '-T',
                     os.path.join(folder, 'in'), '-H', 'Expect:',
                     'http://%s:%d/x' % (HOST, peer.port))
    request, _ = peer.finish()
    same('at the client', output_of(client), down)
    same('at the server', body(request), up)


def http_server(_, down, mode):
    """python3's own server of files."""
    with open(os.path.join(folder, 'file'), 'wb') as f:
        f.write(down)
    server = subprocess.Popen(
        [sys.executable, '-m', 'http.server', '--bind', HOST, '0'],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        peer = Peer(b'GET /file HTTP/1.0\r\n\r\n', *mode, 'connect', HOST,
                    str(port_of(server)))
        same('at the client', body(peer.finish()[0]), down)
    finally:
        server.terminate()
        server.wait()


def proxied_client(up, down, mode):
    server = Plain(down)
    proxy = Proxy(server.port)
    peer = Peer(up, *mode, 'connect', HOST, str(proxy.port))
    got, _ = peer.finish()
    proxy.join()
    server.join()
    same('on the wire from the client', bytes(proxy.heard['client']), up)
    same('at the server', server.got, up)
    same('at the client', got, down)


def proxied_server(up, down, mode):
    peer = Peer(down, *mode, 'serve')
    proxy = Proxy(peer.port)
    got = exchange(connect(proxy.port), up)
    proxy.join()
    same('on the wire from the server', bytes(proxy.heard['server']), down)
    same('at the client', got, down)
    same('at the server', peer.finish()[0], up)


def proxied_both(up, down, mode):
    """Both ends run libexs, and each has a plain peer: the proxy."""
    server = Peer(down, *mode, 'serve')
    proxy = Proxy(server.port)
    client = Peer(up, *mode, 'connect', HOST, str(proxy.port))
    got, _ = client.finish()
    proxy.join()
    same('at the server', server.finish()[0], up)
    same('at the client', got, down)
    same('on the wire from the client', bytes(proxy.heard['client']), up)
    same('on the wire from the server', bytes(proxy.heard['server']), down)


SCENARIOS = {
    'python-server': (python_server, None),
    'python-client': (python_client, None),
    'nc-server': (nc_server, 'nc'),
    'nc-client': (nc_client, 'nc'),
    'curl-get': (curl_get, 'curl'),
    'curl-put': (curl_put, 'curl'),
    'http-server': (http_server, None),
    'proxied-client': (proxied_client, None),
    'proxied-server': (proxied_server, None),
    'proxied-both': (proxied_both, None),
}


def main():
    global peer_path, folder
    if len(sys.argv) != 3 or sys.argv[2] not in SCENARIOS:
        print('usage: interop.py PEER ' + '|'.join(SCENARIOS))
        return 2
    peer_path = sys.argv[1]
    scenario, needs = SCENARIOS[sys.argv[2]]
    if needs and not shutil.which(needs):
        print(needs + ' is not installed')
        return 77
    source = random.Random(1)
    for up, down in SIZES:
        for mode in [], ['-a']:
            with tempfile.TemporaryDirectory() as folder:
                scenario(source.randbytes(up), source.randbytes(down), mode)
            print('%d up, %d down, %s: equal' %
                  (up, down, 'asynchronous' if mode else 'synchronous'))
    return 0


if __name__ == '__main__':
    sys.exit(main())
