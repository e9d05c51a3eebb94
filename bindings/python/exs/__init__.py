# SPDX-License-Identifier: BSD-2-Clause
"""The Extended Sockets API in Python, by ctypes: no build step.

Asynchronous calls are given a Queue; those without one wait, and return what their
C namesakes do. Errors are OSError. Buffers are bytes to send, and anything that has
a writable buffer (bytearray, memoryview, mmap, array, numpy) to receive into; they
are kept alive until their event is dequeued. Calls release the interpreter's lock.

    import exs
    q = exs.Queue(16)
    s = exs.Socket()
    s.connect(("127.0.0.1", 7))
    s.send(b"hello", queue=q, handle="greeting")
    [event] = q.dequeue(1)
    assert event.handle == "greeting" and event.length == 5

LIBEXS names the library where the dynamic linker does not find it.
"""
import ctypes
import errno
import os
import socket
import struct
import sys
import threading
from ctypes import POINTER, byref, c_char, c_int, c_long, c_short, c_size_t
from ctypes import c_ssize_t, c_uint64, c_void_p
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

__version__ = "0.1.0"
__all__ = ["Batch", "Event", "Memory", "Queue", "Socket", "library_version", "poll"] + [
    f"{kind}_{name}" for kind, names in (
        ("EVT", "POLL CONNECT ACCEPT SEND RECV SENDMSG RECVMSG SENDFILE SENDTIMEOUT "
                "RECVTIMEOUT SHUTDOWN CLOSE USER"),
        ("QATTR", "DEPTH EVENTS SIGNAL WAIT"), ("WAIT", "ADAPTIVE NOTIFY BUSY_POLL"))
    for name in names.split()] + ["POLLIN", "POLLOUT", "POLLERR", "POLLHUP", "POLLNVAL", "SHUT_WR"]

Buffer = Any  # what memoryview() takes
Address = Union[Tuple[str, int], Tuple[str, int, int, int], str, bytes]
Piece = Union[Buffer, Tuple[Any, int, int]]

VERSION = 1
QHANDLE_INVALID = -1
MHANDLE_UNREGISTERED = 0
QATTR_DEPTH, QATTR_EVENTS, QATTR_SIGNAL, QATTR_WAIT = 1, 2, 3, 4
WAIT_ADAPTIVE, WAIT_NOTIFY, WAIT_BUSY_POLL = 0, 1, 2
MRF_SHARED = 1
CAF_FILDES, CAF_AHANDLE = 1, 2
POLLIN, POLLOUT, POLLERR, POLLHUP, POLLNVAL = 1, 4, 8, 16, 32
SHUT_WR = 0x800000
SIG_DISABLE, SIG_ENABLE = 0, 1
TIMEOUT_ONCE = 1
SO_RCVTIMEO, SO_SNDTIMEO = 20, 21  # which the module socket leaves out
_SO_ASYNC_SEND_TIMEOUT, _SO_ASYNC_RECV_TIMEOUT = 0x45580001, 0x45580002
(EVT_POLL, EVT_CONNECT, EVT_ACCEPT, EVT_SEND, EVT_RECV, EVT_SENDMSG, EVT_RECVMSG,
 EVT_SENDFILE, EVT_SENDTIMEOUT, EVT_RECVTIMEOUT, EVT_SHUTDOWN,
 EVT_CLOSE) = range(1, 13)
EVT_USER = 64
_MULTI, _MORE = 0x2000000, 0x4000000


class _Timeval(ctypes.Structure):
    _fields_ = [("sec", c_long), ("usec", c_long)]


class _Timespec(ctypes.Structure):
    _fields_ = [("sec", c_long), ("nsec", c_long)]


class _Xfer(ctypes.Structure):
    _fields_ = [("buffer", c_void_p), ("length", c_size_t), ("flags", c_int)]


class _Accept(ctypes.Structure):
    _fields_ = [("newfd", c_int), ("flags", c_int), ("addr", c_void_p)]


class _Poll(ctypes.Structure):
    _fields_ = [("fds", c_void_p), ("nfds", c_int), ("ready", c_int)]


class _Arm(ctypes.Union):
    _fields_ = [("xfer", _Xfer), ("accept", _Accept), ("poll", _Poll),
                ("room", c_void_p * 5)]


class _Event(ctypes.Structure):
    _fields_ = [("type", c_int), ("socket", c_int), ("ahandle", c_void_p),
                ("errno", c_int), ("reserved", c_int), ("un", _Arm)]


class _Iovec(ctypes.Structure):
    _fields_ = [("base", c_void_p), ("len", c_size_t), ("mhandle", c_int)]


class _Fdvec(ctypes.Structure):
    _fields_ = [("fildes", c_int), ("offset", c_long), ("len", c_size_t)]


class _Msghdr(ctypes.Structure):
    _fields_ = [("name", c_void_p), ("namelen", c_int), ("iov", POINTER(_Iovec)),
                ("iovlen", c_int), ("control", c_void_p),
                ("controllen", c_size_t), ("flags", c_int)]


class _Pieces(ctypes.Union):
    _fields_ = [("iovec", _Iovec), ("fdvec", _Fdvec)]


class _Xferfile(ctypes.Structure):
    _fields_ = [("type", c_int), ("un", _Pieces)]


class _Pollfd(ctypes.Structure):
    _fields_ = [("fd", c_int), ("events", c_short), ("revents", c_short)]


class _Signal(ctypes.Structure):
    _fields_ = [("enable", c_int), ("signo", c_int)]


class _Timeout(ctypes.Structure):
    _fields_ = [("time", _Timeval), ("flags", c_int), ("queue", c_int),
                ("ahandle", c_void_p)]


class _Op(ctypes.Structure):
    _fields_ = [("type", c_int), ("socket", c_int), ("buffer", c_void_p),
                ("length", c_size_t), ("flags", c_int), ("mhandle", c_int),
                ("ahandle", c_void_p), ("until", POINTER(_Timespec))]


class _Info(ctypes.Structure):
    _fields_ = [("tx_fabric", c_char * 16), ("rx_fabric", c_char * 16),
                ("reason", c_int), ("paired", c_int)] + [
                    (name, c_uint64) for name in (
                        "tx_bytes", "rx_bytes", "tx_fabric_bytes",
                        "rx_fabric_bytes", "bells_sent", "bells_received",
                        "sleeps", "spins", "upgrades", "downgrades",
                        "tx_direct_bytes", "rx_direct_bytes")] + [
                            ("tx_reason", c_int), ("rx_reason", c_int),
                            ("room", c_uint64 * 9)]


try:
    _lib = ctypes.CDLL(os.environ.get("LIBEXS", "libexs.so.1"), use_errno=True)
except OSError as e:
    raise ImportError("libexs cannot be loaded: install it, or name it by the environment "
                      "variable LIBEXS (%s)" % e) from e
_Q, _A, _M = c_int, c_void_p, c_int
_BUF = [c_int, c_void_p, c_size_t, c_int, _Q, _A, _M]
for _name, _result, _arguments in (
        ("init", c_int, [c_int]),
        ("qcreate", c_int, [c_int]),
        ("qdelete", c_int, [_Q]),
        ("qmodify", c_int, [_Q, c_int, c_void_p, c_size_t]),
        ("qstatus", c_int, [_Q, c_int, c_void_p, POINTER(c_size_t)]),
        ("qdequeue", c_int, [_Q, POINTER(_Event), c_int, POINTER(_Timeval)]),
        ("mregister", c_int, [c_void_p, c_size_t, c_int]),
        ("mderegister", c_int, [_M, c_int]),
        ("send", c_ssize_t, _BUF),
        ("recv", c_ssize_t, _BUF),
        ("sendmsg", c_ssize_t, [c_int, POINTER(_Msghdr), c_int, _Q, _A]),
        ("recvmsg", c_ssize_t, [c_int, POINTER(_Msghdr), c_int, _Q, _A]),
        ("sendfile", c_ssize_t,
         [c_int, POINTER(_Xferfile), c_int, c_int, _Q, _A]),
        ("connect", c_int, [c_int, c_void_p, c_int, c_int, _Q, _A]),
        ("accept", c_int, [c_int, c_void_p, c_int, _Q, _A]),
        ("poll", c_int, [POINTER(_Pollfd), c_int, c_int, _Q, _A]),
        ("cancel", c_int, [c_int, _A, c_int]),
        ("shutdown", c_int, [c_int, c_int, _Q, _A]),
        ("close", c_int, [c_int, _Q, _A]),
        ("socket", c_int, [c_int, c_int, c_int]),
        ("bind", c_int, [c_int, c_void_p, c_int]),
        ("listen", c_int, [c_int, c_int]),
        ("setsockopt", c_int, [c_int, c_int, c_int, c_void_p, c_int]),
        ("x_version", c_int, []),
        ("x_post", c_int, [_Q, _A]),
        ("x_provide", c_int, [_Q, c_void_p, c_size_t, c_int]),
        ("x_qfd", c_int, [_Q]),
        ("x_submit", c_int, [_Q, POINTER(_Op), c_int]),
        ("x_adopt", c_int, [c_int]),
        ("x_downgrade", c_int, [c_int]),
        ("x_recv_loan", c_ssize_t, [c_int, POINTER(c_void_p), c_int]),
        ("x_recv_return", c_int, [c_int, c_size_t]),
        ("x_send_loan", c_ssize_t, [c_int, POINTER(c_void_p), c_size_t, c_int]),
        ("x_send_commit", c_int, [c_int, c_size_t, c_int]),
        ("x_sockinfo", c_int, [c_int, POINTER(_Info)]),
        ("x_reason_name", ctypes.c_char_p, [c_int]),
        ("x_reason_text", ctypes.c_char_p, [c_int])):
    _call = getattr(_lib, "exs_" + _name)
    _call.restype, _call.argtypes = _result, _arguments


def _call(name, *arguments):
    result = getattr(_lib, "exs_" + name)(*arguments)
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"exs_{name}: {os.strerror(number)}")
    return result


# The objects of an operation until its event is dequeued, by the number that is its
# handle in C. Numbers are never reused.
_kept = {}
_kept_lock = threading.Lock()
_numbers = iter(range(1, 1 << 62))


def _keep(*things):
    with _kept_lock:
        number = next(_numbers)
        _kept[number] = things
    return number


def _forget(number):
    with _kept_lock:
        return _kept.pop(number, (None,))


def _number_of(handle):
    with _kept_lock:
        return [n for n, things in _kept.items() if things[0] is handle]


def _submit(name, queue, handle, keep, *arguments):
    """Makes a call with its queue and handle; its objects are kept alive while the operation is
    outstanding."""
    if queue is None:
        return _call(name, *arguments, QHANDLE_INVALID, None)
    number = _keep(handle, *keep)
    try:
        return _call(name, *arguments, queue.q, number)
    except OSError:
        _forget(number)
        raise


def _readable(data):
    """An address, a length, and the object that keeps both."""
    view = memoryview(data).cast("B")
    if view.readonly:
        kept = bytes(view) if not isinstance(data, bytes) else data
        return ctypes.cast(ctypes.c_char_p(kept), c_void_p).value, len(kept), kept
    return _writable(data)


def _writable(data):
    view = memoryview(data).cast("B")
    array = (c_char * len(view)).from_buffer(view)
    return ctypes.addressof(array), len(view), array


def _address(address, family):
    """The sockaddr of ("host", port) or ("host", port, flow, scope), with the host's first
    address of the family ("": any address), or of the path or abstract name of a UNIX socket."""
    if family == socket.AF_UNIX:
        path = os.fsencode(address)
        if len(path) > 107 + (path[:1] == b"\0"):
            raise OSError("AF_UNIX path too long")
        return family.to_bytes(2, "little") + path + b"\0" * (path[:1] != b"\0")
    if not isinstance(address, tuple):
        raise TypeError("the address must be a tuple, not %s" % type(address).__name__)
    if isinstance(address[1], int) and not 0 <= address[1] <= 65535:
        raise OverflowError("port must be 0-65535, not %d" % address[1])
    _, _, _, _, full = socket.getaddrinfo(
        address[0] or None, address[1], family, socket.SOCK_STREAM, 0,
        socket.AI_PASSIVE if address[0] == "" else 0)[0]
    head = family.to_bytes(2, "little") + full[1].to_bytes(2, "big")
    packed = socket.inet_pton(family, full[0].split("%")[0])
    if family == socket.AF_INET:
        return head + packed + bytes(8)
    return (head + full[2].to_bytes(4, "big") + packed +
            full[3].to_bytes(4, "little"))


class Event:
    """An event. type; socket: its descriptor; handle; errno (0: none); length of a transfer;
    flags of a receive (MSG_EOR, MSG_TRUNC of messages); newfd of an accept; ready of a poll.
    For an operation with multi also more (more events follow), and data, a memoryview of the
    received bytes, valid until Queue.give_back()."""

    def __init__(self, e):
        self.type, self.socket, self.errno = e.type, e.socket, e.errno
        self.handle = None
        self.length = e.un.xfer.length if e.type in (
            EVT_SEND, EVT_RECV, EVT_SENDMSG, EVT_RECVMSG, EVT_SENDFILE) else 0
        # Where messages have theirs, too.
        self.flags = e.un.xfer.flags if e.type in (EVT_RECV, EVT_RECVMSG) else 0
        self.newfd = e.un.accept.newfd if e.type == EVT_ACCEPT else -1
        self.ready = e.un.poll.ready if e.type == EVT_POLL else 0
        flags = e.un.accept.flags if e.type == EVT_ACCEPT else self.flags
        self.more = bool(flags & _MORE)
        self.flags &= ~_MORE
        self.data: Optional[memoryview] = None
        self._at = e.un.xfer.buffer if e.type == EVT_RECV else None

    def check(self) -> "Event":
        """Raises the OSError of a failed operation; returns the event itself."""
        if self.errno:
            raise OSError(self.errno, os.strerror(self.errno))
        return self

    def __repr__(self):
        return (f"<exs.Event {self.type} of {self.socket}: "
                f"{errno.errorcode.get(self.errno, 'done')}, {self.length}>")


class Queue:
    """An event queue."""

    def __init__(self, depth: int = 64) -> None:
        self.q = _call("qcreate", depth)
        self.depth = depth
        self._timers = {}  # handles of timeouts, which may come again
        self._rooms = {}  # buffers that were provided, by their addresses

    def dequeue(self, count: int = 1, timeout: Optional[float] = None) -> List["Event"]:
        """Returns up to count events; a negative count waits for that many. timeout in seconds."""
        room = (_Event * max(1, abs(count)))()
        time = None
        if timeout is not None:
            us = int(timeout * 1e6)
            time = byref(_Timeval(us // 1000000, us % 1000000))
        n = _call("qdequeue", self.q, room, count, time)
        events = [Event(e) for e in room[:n]]
        for event, e in zip(events, room):
            if event.type in (EVT_SENDTIMEOUT, EVT_RECVTIMEOUT):
                event.handle = self._timers.get(e.ahandle)
            elif event.more:
                with _kept_lock:
                    event.handle = _kept.get(e.ahandle, (None,))[0]
            else:
                event.handle = _forget(e.ahandle)[0]
            if event._at in self._rooms and event.length:
                event.data = self._rooms[event._at][:event.length]
        return events

    def provide(self, buffer: Buffer, size: int) -> None:
        """Cuts a writable buffer into pieces of this size, for Socket.recv_multi()."""
        at, length, kept = _writable(buffer)
        view = memoryview(kept).cast("B")
        for i in range(0, length - size + 1, size):
            self._rooms[at + i] = view[i:i + size]
        _call("x_provide", self.q, at, size, length // size)

    def give_back(self, event: "Event") -> None:
        """Gives the buffer of the event's data back for reuse."""
        if event.data is not None:
            event.data = None
            _call("x_provide", self.q, event._at, len(self._rooms[event._at]), 1)

    def submit(self, batch: "Batch") -> int:
        """Submits the operations of a Batch with one call. Returns how many were accepted:
        fewer if one was refused. The Batch then has the others."""
        n = len(batch._ops)
        numbers = [_keep(handle, *kept) for _, handle, kept in batch._ops]
        ops = (_Op * max(1, n))(*[op for op, _, _ in batch._ops])
        for op, number in zip(ops, numbers):
            op.ahandle = number
        done = 0
        try:
            done = _call("x_submit", self.q, ops, n)
        finally:
            for number in numbers[done:]:
                _forget(number)
        del batch._ops[:done]
        return done

    def post(self, handle: Any = None) -> None:
        """Puts an EVT_USER with the handle into the queue, from any thread."""
        number = _keep(handle)
        try:
            _call("x_post", self.q, number)
        except OSError:
            _forget(number)
            raise

    def signal(self, signo: Optional[int]) -> None:
        """Sets the signal that is raised when an event comes into the empty queue; None: none."""
        what = _Signal(SIG_DISABLE if signo is None else SIG_ENABLE, signo or 0)
        _call("qmodify", self.q, QATTR_SIGNAL, byref(what), ctypes.sizeof(what))

    def status(self, attr: int) -> int:
        """Returns an attribute: QATTR_DEPTH, QATTR_EVENTS or QATTR_WAIT."""
        value, length = c_int(), c_size_t(4)
        _call("qstatus", self.q, attr, byref(value), byref(length))
        return value.value

    def modify(self, attr: int, value: int) -> None:
        """Sets QATTR_DEPTH, or QATTR_WAIT to one of WAIT_*."""
        _call("qmodify", self.q, attr, byref(c_int(value)), 4)

    def fileno(self) -> int:
        """A descriptor that is readable while there are events, for selectors and asyncio. Its
        number is too high for select.select."""
        return _call("x_qfd", self.q)

    def delete(self) -> None:
        """Deletes the queue and its events; OSError (EBUSY) while operations are outstanding."""
        _call("qdelete", self.q)

    def __enter__(self) -> "Queue":
        return self

    def __exit__(self, *_: object) -> None:
        self.delete()


class Batch:
    """Operations for Queue.submit(), in order; arguments as of Socket's calls.

    until is a deadline in the time of time.monotonic(): the operation then ends with
    ETIMEDOUT or, if it is a transfer that has moved bytes, with these.
    """

    def __init__(self):
        self._ops = []

    def __len__(self) -> int:
        return len(self._ops)

    def _add(self, kind, s, piece, flags, handle, memory, until):
        at, length, kept = piece
        time = None
        if until is not None:
            ns = max(0, int(until * 1e9))
            time = ctypes.pointer(_Timespec(ns // 1000000000, ns % 1000000000))
        self._ops.append((_Op(kind, s.fd, at, length, flags, _handle(memory), None, time),
                          handle, (kept, memory, time)))

    def send(self, s: "Socket", data: Buffer, flags: int = socket.MSG_NOSIGNAL,
             handle: Any = None, memory: Optional["Memory"] = None,
             until: Optional[float] = None) -> None:
        """Adds a send of data; until is a time of time.monotonic()."""
        self._add(EVT_SEND, s, _readable(data), flags, handle, memory, until)

    def recv_into(self, s: "Socket", buffer: Buffer, flags: int = 0, handle: Any = None,
                  memory: Optional["Memory"] = None, until: Optional[float] = None) -> None:
        """Adds a receive into a writable buffer."""
        self._add(EVT_RECV, s, _writable(buffer), flags, handle, memory, until)

    def connect(self, s: "Socket", address: Address, handle: Any = None,
                until: Optional[float] = None) -> None:
        """Adds a connect; with until it ends by then, with ETIMEDOUT."""
        packed = ctypes.create_string_buffer(_address(address, s._family()))
        self._add(EVT_CONNECT, s, (ctypes.addressof(packed), len(packed) - 1, packed), 0,
                  handle, None, until)

    def accept(self, s: "Socket", handle: Any = None, until: Optional[float] = None) -> None:
        """The event's newfd is the descriptor of the connection."""
        self._add(EVT_ACCEPT, s, (None, 0, None), socket.SOCK_CLOEXEC, handle, None, until)


class Memory:
    """Registered memory of a writable buffer."""

    def __init__(self, buffer: Buffer, flags: int = 0) -> None:
        at, length, self._kept = _writable(buffer)
        self.m = _call("mregister", at, length, flags)

    def deregister(self) -> None:
        """OSError (EBUSY) while an operation uses it."""
        _call("mderegister", self.m, 0)
        self._kept = None

    def __enter__(self) -> "Memory":
        return self

    def __exit__(self, *_: object) -> None:
        self.deregister()


def _handle(memory):
    return MHANDLE_UNREGISTERED if memory is None else memory.m


class Socket:
    """A socket for the library's calls: a new one, or an existing descriptor."""

    def __init__(self, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM,
                 fd: Optional[int] = None) -> None:
        self.fd = fd
        self._limit: Optional[float] = None  # of settimeout()
        self._lent = {}  # views of what is on loan
        self._receives: Any = None  # exs.aio's
        if fd is None:
            self.fd = _call("socket", family, kind | socket.SOCK_CLOEXEC, 0)

    def __repr__(self) -> str:
        if self.fd is None or self.fd < 0:
            return "<exs.Socket, closed>"
        try:
            return "<exs.Socket fd=%d, %s>" % (self.fd, self.info()["tx_fabric"])
        except OSError:
            return "<exs.Socket fd=%d>" % self.fd

    def fileno(self) -> int:
        """The descriptor, for select() and the like."""
        return self.fd

    def bind(self, address: Address) -> None:
        """As socket.socket's."""
        packed = _address(address, self._family())
        _call("bind", self.fd, packed, len(packed))

    def listen(self, backlog: int = 128) -> None:
        """As socket.socket's. A connection may leave TCP if both ends run the library."""
        _call("listen", self.fd, backlog)

    def getsockname(self) -> Any:
        """As socket.socket's."""
        return self._plain(lambda s: s.getsockname())

    def getpeername(self) -> Any:
        """As socket.socket's."""
        return self._plain(lambda s: s.getpeername())

    def _family(self):
        return self._plain(lambda s: s.family)

    def _plain(self, ask):
        with socket.socket(fileno=os.dup(self.fd)) as s:
            return ask(s)

    def connect(self, address: Address, queue: Optional[Queue] = None,
                handle: Any = None) -> None:
        """Connects to the first address of a (host, port) that is of the socket's family."""
        packed = _address(address, self._family())
        _submit("connect", queue, handle, (packed,), self.fd, packed, len(packed),
                0)

    def accept(self, queue: Optional[Queue] = None, handle: Any = None,
               multi: bool = False) -> Optional["Socket"]:
        """Returns a Socket; with a queue, the event's newfd is its descriptor. With multi there
        is an event for each connection, until an event without more."""
        fd = _submit("accept", queue, handle, (), self.fd, None,
                     socket.SOCK_CLOEXEC | (_MULTI if multi else 0))
        return Socket(fd=fd) if queue is None else None

    def send(self, data: Buffer, flags: int = socket.MSG_NOSIGNAL,
             queue: Optional[Queue] = None, handle: Any = None,
             memory: Optional[Memory] = None) -> int:
        """Returns how many bytes were sent; with a queue 0, and the event has the number."""
        at, length, kept = _readable(data)
        return self._transfer("send", at, length, kept, flags, queue, handle,
                              memory)

    def recv_into(self, buffer: Buffer, flags: int = 0, queue: Optional[Queue] = None,
                  handle: Any = None, memory: Optional[Memory] = None) -> int:
        """Returns how many bytes were received, 0 at the end; with a queue 0, and the event has
        the number."""
        at, length, kept = _writable(buffer)
        return self._transfer("recv", at, length, kept, flags, queue, handle,
                              memory)

    def recv_multi(self, queue: Queue, handle: Any = None) -> None:
        """Yields an event each time that bytes come, with its data in a buffer that the queue
        was given (Queue.provide()); give_back() each. An event without more is the last: the
        stream has ended, there was an error such as ENOBUFS, or the queue was full and the
        receive must be submitted again."""
        self._transfer("recv", None, 0, None, _MULTI, queue, handle, None)

    def sendall(self, data: Buffer, flags: int = socket.MSG_NOSIGNAL) -> None:
        """Waits until all bytes are sent."""
        left = memoryview(data).cast("B")
        while left:
            left = left[self.send(left, flags):]

    def setsockopt(self, level: int, name: int, value: Union[int, bytes]) -> None:
        """As socket.socket's; an option that a fabric cannot serve moves the connection to TCP."""
        value = value.to_bytes(4, sys.byteorder, signed=True) if isinstance(value, int) else value
        _call("setsockopt", self.fd, level, name, value, len(value))

    def getsockopt(self, level: int, name: int, length: int = 0) -> Union[int, bytes]:
        """As socket.socket's."""
        return self._plain(lambda s: s.getsockopt(level, name, *([length] if length else [])))

    def settimeout(self, seconds: Optional[float]) -> None:
        """Sets a time after which calls that wait raise TimeoutError; None: no limit. Calls
        with a queue do not wait: for these see recv_timeout()."""
        if seconds is not None and seconds <= 0:
            raise ValueError("the timeout must be above 0; pass MSG_DONTWAIT not to wait")
        us = 0 if seconds is None else max(1, int(seconds * 1e6))
        packed = struct.pack("ll", us // 1000000, us % 1000000)
        for option in SO_RCVTIMEO, SO_SNDTIMEO:
            self.setsockopt(socket.SOL_SOCKET, option, packed)
        self._limit = seconds

    def gettimeout(self) -> Optional[float]:
        """The time that settimeout() has set, or None."""
        return self._limit

    def _wait(self, name, *arguments):
        try:
            return _call(name, *arguments)
        except BlockingIOError:
            if self._limit is None:
                raise
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None

    def recv(self, length: int, flags: int = 0) -> bytes:
        """Waits, and returns bytes; empty at the end."""
        buffer = bytearray(length)
        return bytes(buffer[:self.recv_into(buffer, flags)])

    def _transfer(self, name, at, length, kept, flags, queue, handle, memory):
        if queue is None:
            return self._wait(name, self.fd, at, length, flags, QHANDLE_INVALID, None,
                              _handle(memory))
        number = _keep(handle, kept, memory)
        try:
            return _call(name, self.fd, at, length, flags, queue.q, number,
                         _handle(memory))
        except OSError:
            _forget(number)
            raise

    def _message(self, name, how, buffers, flags, queue, handle, memory):
        pieces = [how(b) for b in buffers]
        iov = (_Iovec * max(1, len(pieces)))(
            *[_Iovec(at, length, _handle(memory)) for at, length, _ in pieces])
        message = _Msghdr(iov=iov, iovlen=len(pieces))
        return _submit(name, queue, handle, (message, iov, pieces, memory),
                       self.fd, byref(message), flags)

    def sendmsg(self, buffers: Sequence[Buffer], flags: int = socket.MSG_NOSIGNAL,
                queue: Optional[Queue] = None, handle: Any = None,
                memory: Optional[Memory] = None) -> int:
        """Sends several buffers as if they were one."""
        return self._message("sendmsg", _readable, buffers, flags, queue, handle,
                             memory)

    def recvmsg_into(self, buffers: Sequence[Buffer], flags: int = 0,
                     queue: Optional[Queue] = None, handle: Any = None,
                     memory: Optional[Memory] = None) -> int:
        """Fills several buffers, one after the other."""
        return self._message("recvmsg", _writable, buffers, flags, queue, handle,
                             memory)

    def sendfile(self, pieces: Sequence[Piece], flags: int = socket.MSG_NOSIGNAL,
                 queue: Optional[Queue] = None, handle: Any = None) -> int:
        """Sends pieces: bytes, or (file, offset, length); length 0 is the rest of the file."""
        parts, kept = (_Xferfile * max(1, len(pieces)))(), []
        for part, piece in zip(parts, pieces):
            if isinstance(piece, tuple):
                fd = piece[0] if isinstance(piece[0], int) else piece[0].fileno()
                part.type, part.un.fdvec = 2, _Fdvec(fd, *piece[1:])
                kept.append(piece[0])
            else:
                at, length, holder = _readable(piece)
                part.type, part.un.iovec = 1, _Iovec(at, length, 0)
                kept.append(holder)
        return _submit("sendfile", queue, handle, (parts, kept), self.fd, parts,
                       len(pieces), flags)

    def recv_loan(self, flags: int = 0) -> memoryview:
        """Returns the next bytes in place: a read-only memoryview, empty at the end of the
        stream. Do not use it, or a slice of it, after recv_return()."""
        at = c_void_p()
        n = _call("x_recv_loan", self.fd, byref(at), flags)
        if not n:
            return memoryview(b"")
        return self._lend("recv", at, n)

    def recv_return(self, length: int) -> None:
        """Ends the loan: the first length bytes count as received, the others will be received
        again."""
        self._repay("recv", length, "x_recv_return", self.fd, length)

    def send_loan(self, want: int, flags: int = 0) -> memoryview:
        """Returns a memoryview of at most so many bytes, to be filled and then sent by
        send_commit()."""
        at = c_void_p()
        n = _call("x_send_loan", self.fd, byref(at), want, flags)
        return self._lend("send", at, n)

    def send_commit(self, length: int, flags: int = socket.MSG_NOSIGNAL) -> None:
        """Sends the first length bytes of the loan; 0: none."""
        self._repay("send", length, "x_send_commit", self.fd, length, flags)

    def _lend(self, what, at, length):
        view = memoryview((c_char * length).from_address(at.value)).cast("B")
        self._lent[what] = view.toreadonly() if what == "recv" else view
        return self._lent[what]

    def _repay(self, what, length, *call):
        """Raises BufferError while another object uses the view's memory; the loan then
        continues."""
        view = self._lent.pop(what, None)
        try:
            if view is not None and length <= len(view):
                view.release()
            _call(*call)
        except (OSError, BufferError):
            if view is not None:
                self._lent[what] = view
            raise

    def _timeout(self, option, seconds, queue, handle, once):
        us, number = int(seconds * 1e6), next(_numbers)
        queue._timers[number] = handle
        t = _Timeout(_Timeval(us // 1000000, us % 1000000),
                     TIMEOUT_ONCE if once else 0, queue.q, number)
        _call("setsockopt", self.fd, socket.SOL_SOCKET, option, byref(t),
              ctypes.sizeof(t))

    def send_timeout(self, seconds: float, queue: Queue, handle: Any = None,
                     once: bool = False) -> None:
        """Puts an EVT_SENDTIMEOUT into the queue each time a send has waited that long; the
        send continues. 0: turns this off."""
        self._timeout(_SO_ASYNC_SEND_TIMEOUT, seconds, queue, handle, once)

    def recv_timeout(self, seconds: float, queue: Queue, handle: Any = None,
                     once: bool = False) -> None:
        """The same for receives: EVT_RECVTIMEOUT."""
        self._timeout(_SO_ASYNC_RECV_TIMEOUT, seconds, queue, handle, once)

    def cancel(self, handle: Any = None) -> int:
        """Cancels all outstanding operations, or those with this handle; returns how many."""
        if handle is None:
            return _call("cancel", self.fd, None, CAF_FILDES)
        return sum(_call("cancel", self.fd, n, CAF_FILDES | CAF_AHANDLE)
                   for n in _number_of(handle))

    def shutdown(self, how: int, queue: Optional[Queue] = None, handle: Any = None) -> None:
        """Ends a direction: socket.SHUT_RD, SHUT_WR or SHUT_RDWR."""
        _submit("shutdown", queue, handle, (), self.fd, how)

    def close(self, queue: Optional[Queue] = None, handle: Any = None) -> None:
        """Closes the socket. A second call does nothing, because the number may be another
        file's."""
        if self.fd < 0 and queue is None:
            return
        for view in self._lent.values():
            view.release()
        _submit("close", queue, handle, (), self.fd)
        self.fd = -1

    def info(self) -> Dict[str, Any]:
        """Returns the members of exs_x_sockinfo() as a dictionary."""
        info = _Info()
        _call("x_sockinfo", self.fd, byref(info))
        told = {name: getattr(info, name) for name, _ in _Info._fields_[:-1]}
        for name in ("tx_fabric", "rx_fabric"):
            told[name] = told[name].decode()
        for name in ("reason", "tx_reason", "rx_reason"):
            told[name] = _lib.exs_x_reason_name(told[name]).decode()
        return told

    def adopt(self) -> None:
        """Lets a descriptor that plain calls made, or that downgrade() moved back, leave TCP."""
        _call("x_adopt", self.fd)

    def downgrade(self) -> None:
        """Moves the connection back to TCP, so that plain calls are safe."""
        _call("x_downgrade", self.fd)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def poll(asked: Dict[Any, int], queue: Optional[Queue] = None, handle: Any = None
         ) -> Union[Dict[Any, int], Callable[[], Dict[Any, int]]]:
    """asked: {socket: events}. Without a queue, waits and returns {socket: events}. With a
    queue, returns a function that returns the same once the event was dequeued."""
    sockets = list(asked)
    fds = (_Pollfd * max(1, len(sockets)))(
        *[_Pollfd(s if isinstance(s, int) else s.fileno(), asked[s], 0)
          for s in sockets])

    def answer():
        return {s: p.revents for s, p in zip(sockets, fds) if p.revents}

    _submit("poll", queue, handle, (fds,), fds, len(sockets), 0)
    return answer() if queue is None else answer


def library_version() -> Tuple[int, int, int]:
    """The version of the loaded library: (0, 1, 0)."""
    number = _call("x_version")
    return number // 1000000, number // 1000 % 1000, number % 1000


_call("init", VERSION)
