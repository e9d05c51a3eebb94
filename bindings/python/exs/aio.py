# SPDX-License-Identifier: BSD-2-Clause
"""Event queues in asyncio: a transfer, an accept and a connect that can be awaited.

    async with exs.aio.Queue() as q:
        await q.connect(s, ("localhost", 7000))
        await q.send(s, b"hello")
        answer = await q.recv(s, 100)

An operation that is cancelled (by asyncio.wait_for(), for one) is cancelled in the library, too.
Bytes that a receive had by then are the first that the socket's next receive of a queue returns.
"""
import asyncio
import collections
import errno
import os
import socket
from typing import Any, Callable, Deque, Dict, Optional

import exs

__all__ = ["Queue"]


class _Receives:
    """The receives of a socket: they take turns, so that the next begins with the bytes that
    one left."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.turn = asyncio.Lock()
        self.last: Optional[asyncio.Future] = None  # done when that one's event was taken
        self.left: Deque[memoryview] = collections.deque()
        self.messages = False  # each of them is one

    def take(self, to: memoryview, flags: int) -> int:
        """Takes bytes that were left, as a receive would."""
        n = 0
        while self.left and n < len(to):
            piece = self.left.popleft()
            part = min(len(to) - n, len(piece))
            to[n:n + part] = piece[:part]
            n += part
            if flags & socket.MSG_PEEK:
                self.left.appendleft(piece)
                break
            if part < len(piece) and not self.messages:
                self.left.appendleft(piece[part:])
            if self.messages:
                break
        return n

    def put_back(self, what: memoryview) -> None:
        self.left.appendleft(memoryview(bytes(what)))

    def leave(self, what: memoryview, event: exs.Event, flags: int) -> None:
        """Keeps the bytes of a cancelled receive."""
        if what and not flags & socket.MSG_PEEK:
            self.messages = bool(event.flags & socket.MSG_EOR)
            self.put_back(what)


def _receives_of(s: exs.Socket) -> _Receives:
    loop = asyncio.get_running_loop()
    before = s._receives
    if before is None or before.loop is not loop:
        s._receives = _Receives(loop)
        if before is not None:
            s._receives.left, s._receives.messages = before.left, before.messages
    return s._receives


class Queue:
    """An event queue of the running loop. At most depth operations are outstanding; others wait for
    their turn: a receive that waits counts, so depth is at least twice the number of connections.

    Leaving "async with" cancels what is outstanding: its tasks get OSError (ECANCELED)."""

    def __init__(self, depth: int = 4096) -> None:
        self._queue = exs.Queue(depth)
        self._slots = asyncio.Semaphore(depth)
        self._loop = asyncio.get_running_loop()
        self._outstanding = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._left = False
        self._sockets: Dict[asyncio.Future, exs.Socket] = {}  # of what is outstanding
        # Functions for events of cancelled operations, and futures that wait for such events.
        self._late: Dict[asyncio.Future, Callable[[exs.Event], None]] = {}
        self._over: Dict[asyncio.Future, asyncio.Future] = {}
        self._loop.add_reader(self._queue.fileno(), self._take)

    def _take(self) -> None:
        for event in self._queue.dequeue(self._queue.depth, 0):
            self._slots.release()
            self._outstanding -= 1
            if not self._outstanding:
                self._idle.set()
            waiter = event.handle
            self._sockets.pop(waiter, None)
            late = self._late.pop(waiter, self._drop)
            if waiter.done():  # cancelled meanwhile
                late(event)
            elif event.errno:
                waiter.set_exception(OSError(event.errno, os.strerror(event.errno)))
            else:
                waiter.set_result(event)
            if waiter in self._over:
                self._over.pop(waiter).set_result(None)

    async def _run(self, s: exs.Socket, submit: Callable[..., Any],
                   late: Optional[Callable[[exs.Event], None]] = None,
                   over: Optional[asyncio.Future] = None) -> exs.Event:
        """Runs an operation. late gets the event if this is cancelled; over is done when the
        event was taken."""
        await self._slots.acquire()
        waiter = self._loop.create_future()
        try:
            if self._left:
                raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
            submit(queue=self._queue, handle=waiter)
        except BaseException:
            self._slots.release()
            raise
        self._outstanding += 1
        self._idle.clear()
        self._sockets[waiter] = s
        self._late[waiter] = late = late or self._drop
        if over is not None:
            self._over[waiter] = over
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                if s.fd >= 0:
                    s.cancel(waiter)
            elif not waiter.exception():
                late(waiter.result())
            raise

    @staticmethod
    def _drop(event: exs.Event) -> None:
        """Drops an event that no call waits for, and closes the connection that it has."""
        if event.newfd >= 0:
            exs.Socket(fd=event.newfd).close()

    async def connect(self, s: exs.Socket, address: exs.Address) -> None:
        """Connects the socket. A thread of the loop looks up the name of a host."""
        if isinstance(address, tuple) and address[0]:
            found = await self._loop.getaddrinfo(*address[:2], family=s._family(),
                                                 type=socket.SOCK_STREAM)
            address = (found[0][4][0], *address[1:])
        await self._run(s, lambda **how: s.connect(address, **how))

    async def accept(self, s: exs.Socket) -> exs.Socket:
        """Waits for a connection, and returns its socket."""
        event = await self._run(s, s.accept)
        return exs.Socket(fd=event.newfd)

    async def send(self, s: exs.Socket, data: exs.Buffer, flags: int = socket.MSG_NOSIGNAL,
                   memory: Optional[exs.Memory] = None) -> None:
        """Sends all of it."""
        event = await self._run(s, lambda **how: s.send(data, flags, memory=memory, **how))
        if event.length < memoryview(data).nbytes:
            raise OSError(errno.EPIPE, os.strerror(errno.EPIPE))

    async def recv_into(self, s: exs.Socket, buffer: exs.Buffer, flags: int = 0,
                        memory: Optional[exs.Memory] = None) -> int:
        """Returns how many bytes came; 0 at the end of the stream. The receives of a socket
        take turns."""
        mine, view = _receives_of(s), memoryview(buffer).cast("B")
        async with mine.turn:
            if mine.last:
                await asyncio.shield(mine.last)  # of one that was cancelled
            n = mine.take(view, flags)
            if n == len(view) > 0 or n and (mine.messages or flags & socket.MSG_PEEK or
                                            not flags & socket.MSG_WAITALL):
                return n
            begun = False

            def submit(**how: Any) -> None:
                nonlocal begun
                s.recv_into(view[n:], flags, memory=memory, **how)
                begun = True
                mine.last = over
            over = self._loop.create_future()
            try:
                event = await self._run(
                    s, submit, lambda event: mine.leave(view[:n + event.length], event, flags),
                    over)
            except BaseException:
                if n and not begun:
                    mine.put_back(view[:n])
                raise
            return n + event.length

    async def recv(self, s: exs.Socket, length: int, flags: int = 0) -> bytes:
        """Waits, and returns bytes; empty at the end."""
        buffer = bytearray(length)
        return bytes(memoryview(buffer)[:await self.recv_into(s, buffer, flags)])

    async def close(self) -> None:
        """Waits until nothing is outstanding; cancel operations or close the sockets before."""
        await self._idle.wait()
        self._loop.remove_reader(self._queue.fileno())
        self._queue.delete()

    async def __aenter__(self) -> "Queue":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._left = True
        for waiter, s in list(self._sockets.items()):
            if s.fd is not None and s.fd >= 0:
                s.cancel(waiter)
        await self.close()
