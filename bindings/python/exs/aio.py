# SPDX-License-Identifier: BSD-2-Clause
"""Event queues in asyncio: a transfer, an accept and a connect that can be awaited.

    async with exs.aio.Queue() as q:
        await q.connect(s, ("localhost", 7000))
        await q.send(s, b"hello")
        answer = await q.recv(s, 100)

An operation that is cancelled (by asyncio.wait_for(), for one) is cancelled in the library, too;
bytes that it had received before are lost to the program.
"""
import asyncio
import errno
import os
import socket
from typing import Any, Callable, Optional

import exs

__all__ = ["Queue"]


class Queue:
    """An event queue of the running loop. At most depth operations are outstanding; others wait for
    their turn."""

    def __init__(self, depth: int = 64) -> None:
        self._queue = exs.Queue(depth)
        self._slots = asyncio.Semaphore(depth)
        self._loop = asyncio.get_running_loop()
        self._outstanding = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._loop.add_reader(self._queue.fileno(), self._take)

    def _take(self) -> None:
        for event in self._queue.dequeue(self._queue.depth, 0):
            self._slots.release()
            self._outstanding -= 1
            if not self._outstanding:
                self._idle.set()
            waiter = event.handle
            if waiter.done():  # cancelled meanwhile
                self._drop(event)
            elif event.errno:
                waiter.set_exception(OSError(event.errno, os.strerror(event.errno)))
            else:
                waiter.set_result(event)

    async def _run(self, s: exs.Socket, submit: Callable[..., Any]) -> exs.Event:
        await self._slots.acquire()
        waiter = self._loop.create_future()
        try:
            submit(queue=self._queue, handle=waiter)
        except BaseException:
            self._slots.release()
            raise
        self._outstanding += 1
        self._idle.clear()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                if s.fd >= 0:
                    s.cancel(waiter)
            elif not waiter.exception():
                self._drop(waiter.result())
            raise

    @staticmethod
    def _drop(event: exs.Event) -> None:
        """Nobody takes this event: the connection that it has ends."""
        if event.newfd >= 0:
            exs.Socket(fd=event.newfd).close()

    async def connect(self, s: exs.Socket, address: exs.Address) -> None:
        await self._run(s, lambda **how: s.connect(address, **how))

    async def accept(self, s: exs.Socket) -> exs.Socket:
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
        """How many bytes came; 0 at the end of the stream."""
        return (await self._run(
            s, lambda **how: s.recv_into(buffer, flags, memory=memory, **how))).length

    async def recv(self, s: exs.Socket, length: int, flags: int = 0) -> bytes:
        buffer = bytearray(length)
        return bytes(memoryview(buffer)[:await self.recv_into(s, buffer, flags)])

    async def close(self) -> None:
        """Waits until nothing is outstanding; cancel or close the sockets before."""
        await self._idle.wait()
        self._loop.remove_reader(self._queue.fileno())
        self._queue.delete()

    async def __aenter__(self) -> "Queue":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
