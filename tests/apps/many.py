# SPDX-License-Identifier: BSD-2-Clause
"""Many connections to one epoll server that sends back what it gets. Usage:
many.py serve PORT, or many.py fill PORT COUNT, which says how many it got."""
import errno
import select
import signal
import socket
import sys

SIZE = 2000


class Server:
    """The first connection is told when no more can be accepted."""

    def __init__(self, port):
        self.listener = socket.create_server(('127.0.0.1', port), backlog=4096)
        self.listener.setblocking(False)
        self.connections = {}
        self.first = None
        self.epoll = select.epoll()
        self.epoll.register(self.listener, select.EPOLLIN)

    def accept(self):
        """A server opens files, too."""
        try:
            s, _ = self.listener.accept()
            for f in [open('/dev/null', 'rb') for _ in range(8)]:
                f.close()
        except BlockingIOError:
            return
        except OSError as e:
            if e.errno != errno.EMFILE:
                raise
            self.epoll.unregister(self.listener)
            self.first.sendall(b'!')
            return
        s.setblocking(False)
        self.first = self.first or s
        self.connections[s.fileno()] = s
        self.epoll.register(s, select.EPOLLIN)

    def echo(self, fd):
        data = self.connections[fd].recv(SIZE)
        if data:
            self.connections[fd].sendall(data)
        else:
            self.connections.pop(fd).close()

    def run(self):
        while True:
            for fd, _ in self.epoll.poll():
                if fd == self.listener.fileno():
                    self.accept()
                else:
                    self.echo(fd)


def connect(port):
    return socket.create_connection(('127.0.0.1', port))


def say(s, who, turn):
    s.sendall(b'%04d%06d' % (turn, who) * (SIZE // 10))


def hear(s, who, turn):
    got = s.recv(SIZE, socket.MSG_WAITALL)
    assert got == b'%04d%06d' % (turn, who) * (SIZE // 10), (who, turn, got)


def fill(port, count):
    first = connect(port)
    full = select.poll()
    full.register(first, select.POLLIN)
    connections = []
    while len(connections) < count:
        i = len(connections)
        s = connect(port)
        full.register(s, select.POLLIN)
        say(s, i, 0)
        if first.fileno() in dict(full.poll()):
            first.recv(1)
            break
        hear(s, i, 0)
        full.unregister(s)
        connections.append(s)
        # One that has been there for a while.
        say(connections[i // 2], i // 2, 1)
        hear(connections[i // 2], i // 2, 1)
        # One that is busy, for as long as a meeting takes.
        for turn in range(3000 if i == 100 else 0):
            say(connections[0], 0, turn)
            hear(connections[0], 0, turn)
    # All at once, and nothing is another's.
    for turn in range(3):
        for i, s in enumerate(connections):
            say(s, i, turn)
        for i, s in enumerate(connections):
            hear(s, i, turn)
    print(len(connections))


if sys.argv[1] == 'serve':
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    Server(int(sys.argv[2])).run()
else:
    fill(int(sys.argv[2]), int(sys.argv[3]))
