# SPDX-License-Identifier: BSD-2-Clause
"""The Python binding: its structures and values are the headers', and its calls do
what they say, in both forms.

binding.py API-FOLDER LIBRARY FABRICS
"""
import asyncio
import contextlib
import ctypes
import errno
import gc
import io
import os
import pickle
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
API, LIBRARY, FABRICS = sys.argv[1:4]
os.environ["LIBEXS"], os.environ["EXS_PROVIDER"] = LIBRARY, FABRICS
sys.path.insert(0, os.path.join(SOURCE, "bindings/python"))
import exs  # noqa: E402
import exs.aio  # noqa: E402

STRUCTS = {"_Event": "exs_event_t", "_Xfer": "exs_evt_xfer_t",
           "_Accept": "exs_evt_accept_t", "_Poll": "exs_evt_poll_t",
           "_Iovec": "exs_iovec_t", "_Fdvec": "exs_fdvec_t",
           "_Msghdr": "exs_msghdr_t", "_Xferfile": "exs_xferfile_t",
           "_Pollfd": "exs_pollfd_t", "_Info": "exs_x_sockinfo_t",
           "_Op": "exs_x_op_t", "_Timeout": "exs_timeout_t",
           "_Signal": "exs_signal_t"}
MEMBERS = {"_Event.errno": "exs_errno", "_Event.un": "exs_evt_un",
           "_Msghdr.iov": "exs_msg_iov", "_Msghdr.flags": "exs_msg_flags",
           "_Xferfile.un": "exs_xf_un", "_Iovec.mhandle": "exs_iov_mhandle",
           "_Fdvec.len": "exs_fd_len", "_Info.tx_bytes": "exs_x_tx_bytes",
           "_Timeout.ahandle": "exs_to_ahandle", "_Timeout.queue": "exs_to_queue",
           "_Op.mhandle": "exs_x_mhandle", "_Op.ahandle": "exs_x_ahandle",
           "_Op.length": "exs_x_length", "_Signal.signo": "exs_signo",
           "_Info.room": "exs_x_room", "_Pollfd.revents": "exs_revents"}


def values():
    """Every constant of the module that has a namesake in the headers."""
    with open(os.path.join(API, "sys/exs.h"), encoding="utf-8") as f:
        names = set(re.findall(r"\bEXS_([A-Z_0-9]+)\b", f.read()))
    return sorted(n for n in names if isinstance(getattr(exs, n, None), int))


def ask_compiler(expressions):
    with tempfile.TemporaryDirectory() as d:
        source, program = os.path.join(d, "a.c"), os.path.join(d, "a")
        with open(source, "w", encoding="utf-8") as f:
            f.write("#include <stddef.h>\n#include <stdio.h>\n"
                    "#include <sys/exs_ext.h>\nint main(void)\n{\n" +
                    "".join(f'printf("%ld\\n", (long)({e}));\n'
                            for e in expressions) + "}\n")
        subprocess.run(["gcc", "-Wall", "-Werror", "-I" + API, "-o", program,
                        source], check=True)
        said = subprocess.run([program], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
    return [int(line) for line in said.split()]


def pair(kind=exs.socket.SOCK_STREAM):
    listener = exs.Socket(kind=kind)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    a = exs.Socket(kind=kind)
    a.connect(listener.getsockname())
    b = listener.accept()
    listener.close()
    return a, b


class Binding(unittest.TestCase):
    def setUp(self):
        self.a, self.b = pair()
        self.q = exs.Queue(8)

    def tearDown(self):
        for s in self.a, self.b:
            if s.fd is not None:
                s.close()
        while self.q.dequeue(8, 0):
            pass
        self.q.delete()
        gc.collect()
        self.assertEqual(exs._kept, {})

    def event(self, kind, handle=None):
        [event] = self.q.dequeue(1, 20)
        self.assertEqual((event.type, event.handle), (kind, handle))
        return event

    def test_a_port_is_not_cut_to_sixteen_bits(self):
        with exs.Socket() as s:
            for port in 65536 + 7000, -1:
                with self.assertRaises(OverflowError):
                    s.connect(("127.0.0.1", port))

    def test_structures_are_those_of_the_headers(self):
        want = [ctypes.sizeof(getattr(exs, s)) for s in STRUCTS]
        want += [getattr(getattr(exs, m.split(".")[0]), m.split(".")[1]).offset
                 for m in MEMBERS]
        ask = [f"sizeof({c})" for c in STRUCTS.values()]
        ask += [f"offsetof({STRUCTS[m.split('.')[0]]}, {c})"
                for m, c in MEMBERS.items()]
        self.assertEqual(ask_compiler(ask), want)

    def test_values_are_those_of_the_headers(self):
        names = values()
        self.assertGreater(len(names), 25)
        self.assertEqual(ask_compiler(["EXS_" + n for n in names]),
                         [getattr(exs, n) for n in names])

    def test_the_guides_examples_are_right(self):
        with open(os.path.join(SOURCE, "docs/guide/python.md"),
                  encoding="utf-8") as f:
            pieces = re.findall(r"^```python\n(.*?)^```$", f.read(), re.M | re.S)
        self.assertGreater(len(pieces), 3)
        for piece in pieces:
            compile(piece, "python.md", "exec")
        space = {}
        exec(next(p for p in pieces if "def gather(" in p), space)
        self.a.send(b"gathered")
        with contextlib.redirect_stdout(io.StringIO()) as said:
            space["gather"]([self.b], 100)
        self.assertIn("gathered", said.getvalue())
        exec(next(p for p in pieces if "exs.aio" in p), space)
        port = exs.Socket()
        port.bind(("127.0.0.1", 0))
        number = port.getsockname()[1]
        port.close()

        async def both():
            server = asyncio.create_task(space["serve"](number, 2))
            answers = []
            while len(answers) < 2:  # one after the other
                try:
                    answers.append(await space["ask"](number, b"an echo?"))
                except ConnectionRefusedError:
                    await asyncio.sleep(0)
            await asyncio.wait_for(server, 60)
            return answers

        self.assertEqual(asyncio.run(both()), [b"an echo?"] * 2)
        exec(next(p for p in pieces if "def serve_once(" in p), space)
        server = threading.Thread(target=space["serve_once"], args=(number,))
        server.start()
        self.ask_once(number)
        server.join(60)

    def ask_once(self, port):
        """Once the server listens."""
        deadline = time.monotonic() + 60
        while True:
            with exs.Socket() as s:
                try:
                    s.connect(("127.0.0.1", port))
                except ConnectionRefusedError:
                    self.assertLess(time.monotonic(), deadline)
                    continue
                s.send(b"an echo?")
                self.assertEqual(s.recv(8, exs.socket.MSG_WAITALL), b"an echo?")
                return

    def test_unix_sockets_have_paths_or_abstract_names(self):
        with tempfile.TemporaryDirectory() as d:
            for name in (d + "/here", os.fsencode(d) + b"/there",
                         "\0exs-test-%d" % os.getpid()):
                with contextlib.ExitStack() as stack:
                    kind = exs.socket.AF_UNIX
                    listener = stack.enter_context(exs.Socket(kind))
                    listener.bind(name)
                    listener.listen()
                    self.assertEqual(os.fsencode(listener.getsockname()), os.fsencode(name))
                    a = stack.enter_context(exs.Socket(kind))
                    a.connect(name)
                    b = stack.enter_context(listener.accept())
                    a.send(b"by name")
                    self.assertEqual(b.recv(100), b"by name")
            with exs.Socket(exs.socket.AF_UNIX) as s, self.assertRaises(OSError):
                s.bind("/" * 108)
            with exs.Socket() as s, self.assertRaises(TypeError):
                s.bind(d)

    def test_the_library_is_named_by_who_cannot_load_it(self):
        ran = subprocess.run([sys.executable, "-c", "import exs"], text=True,
                             stderr=subprocess.PIPE, env={
                                 **os.environ, "LIBEXS": "/nowhere/libexs.so.1",
                                 "PYTHONPATH": os.path.join(SOURCE, "bindings/python")})
        self.assertEqual(ran.returncode, 1)
        self.assertIn("LIBEXS", ran.stderr.splitlines()[-1])

    def test_bytes_go_there_and_back(self):
        self.assertEqual(self.a.send(b"there"), 5)
        self.assertEqual(self.b.recv(100), b"there")
        self.b.send(b"and back", queue=self.q, handle="sent")
        self.assertEqual(self.event(exs.EVT_SEND, "sent").length, 8)
        room = bytearray(8)
        self.a.recv_into(room, 0x100, queue=self.q, handle=7)  # MSG_WAITALL
        self.assertEqual(self.event(exs.EVT_RECV, 7).check().length, 8)
        self.assertEqual(room, b"and back")

    def test_an_address_is_of_the_sockets_family(self):
        # No host gives the loopback addresses, ::1 first, as localhost does on many hosts.
        found = exs.socket.getaddrinfo(None, 7, type=exs.socket.SOCK_STREAM)
        self.assertEqual(found[0][0], exs.socket.AF_INET6)
        listener = exs.Socket()
        listener.bind((None, 0))
        listener.listen()
        port = listener.getsockname()[1]
        a = exs.Socket()
        a.connect((None, port))
        b = listener.accept()
        self.assertEqual(a.getpeername(), ("127.0.0.1", port))
        for s in a, b, listener:
            s.close()
        with self.assertRaises(exs.socket.gaierror):
            with exs.Socket() as s:
                s.connect(("::1", port))

    def test_a_batch_is_submitted(self):
        batch, rooms = exs.Batch(), [bytearray(2), bytearray(3)]
        for i, room in enumerate(rooms):
            batch.recv_into(self.b, room, 0x100, handle=i)
        self.assertEqual(self.q.submit(batch), 2)
        self.assertEqual(len(batch), 0)
        for word in b"on", b"e, ", b"two":
            batch.send(self.a, word)
        batch.send(exs.Socket(fd=-1), b"refused")
        self.assertEqual(self.q.submit(batch), 3)
        self.assertEqual(len(batch), 1)
        with self.assertRaises(OSError) as e:
            self.q.submit(batch)
        self.assertEqual(e.exception.errno, errno.EBADF)
        seen = [event.check().handle for event in self.q.dequeue(-5, 20)]
        self.assertEqual([h for h in seen if h is not None], [0, 1])
        self.assertEqual(rooms, [b"on", b"e, "])
        self.assertEqual(self.b.recv(10), b"two")

    def test_a_deadline_ends_an_operation(self):
        batch, room, until = exs.Batch(), bytearray(4), time.monotonic() + 0.01
        batch.recv_into(self.b, room, handle="late", until=until)
        with exs.Socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            batch.accept(listener, handle="nobody", until=until)
            self.assertEqual(self.q.submit(batch), 2)
            events = self.q.dequeue(-2, 20)
            self.assertGreaterEqual(time.monotonic(), until)
            self.assertEqual(sorted(e.handle for e in events), ["late", "nobody"])
            self.assertEqual({e.errno for e in events}, {errno.ETIMEDOUT})
            with exs.Socket() as client:
                batch.connect(client, listener.getsockname(), until=time.monotonic() + 60)
                batch.accept(listener, until=time.monotonic() + 60)
                self.assertEqual(self.q.submit(batch), 2)
                for event in self.q.dequeue(-2, 20):
                    if event.check().type == exs.EVT_ACCEPT:
                        exs.Socket(fd=event.newfd).close()
        self.a.send(b"next")
        self.assertEqual(self.b.recv(4), b"next")

    def test_one_receive_gets_a_stream(self):
        room = bytearray(4 * 8)
        self.q.provide(room, 8)
        self.b.recv_multi(self.q, "goes on")
        got = b""
        for word in b"one", b"two", b"three":
            self.a.send(word)
            [event] = self.q.dequeue(1, 20)
            self.assertEqual(event.check().handle, "goes on")
            self.assertTrue(event.more)
            self.assertIsInstance(event.data, memoryview)
            got += event.data
            self.q.give_back(event)
        self.assertEqual(got, b"onetwothree")
        self.a.shutdown(socket.SHUT_WR)
        [event] = self.q.dequeue(1, 20)
        self.assertEqual((event.check().length, event.more, event.handle), (0, False, "goes on"))
        self.assertIsNone(event.data)

    def test_one_accept_serves_many(self):
        with exs.Socket() as listener, contextlib.ExitStack() as stack:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            listener.accept(self.q, "all", multi=True)
            for _ in range(3):
                stack.enter_context(exs.Socket()).connect(listener.getsockname())
                [event] = self.q.dequeue(1, 20)
                self.assertEqual((event.check().handle, event.more), ("all", True))
                exs.Socket(fd=event.newfd).close()
            listener.cancel("all")
            [event] = self.q.dequeue(1, 20)
            self.assertEqual((event.errno, event.more), (errno.ECANCELED, False))

    def test_time_runs_out(self):
        self.b.recv_timeout(0.01, self.q, "late", once=True)
        self.b.recv_into(bytearray(1), queue=self.q, handle="waits")
        self.event(exs.EVT_RECVTIMEOUT, "late")
        self.a.send(b"x")
        self.event(exs.EVT_RECV, "waits")
        self.b.recv_timeout(0.01, self.q, "again")
        self.b.recv_into(bytearray(1), queue=self.q, handle="waits")
        for _ in range(2):
            self.event(exs.EVT_RECVTIMEOUT, "again")
        self.b.recv_timeout(0, self.q)
        self.a.send(b"x")
        while self.q.dequeue(1, 20)[0].type != exs.EVT_RECV:
            pass

    def test_a_queue_raises_its_signal(self):
        came = threading.Event()
        before = signal.signal(signal.SIGUSR1, lambda *_: came.set())
        try:
            self.q.signal(signal.SIGUSR1)
            self.a.send(b"x", queue=self.q)
            self.assertTrue(came.wait(20))
            self.q.signal(None)
        finally:
            signal.signal(signal.SIGUSR1, before)

    def settle(self):
        fabric = FABRICS.split(",")[0]
        for _ in range(2000):
            self.a.send(bytes(3000))
            self.b.recv_into(bytearray(3000), 0x100)
            self.b.send(bytes(3000))
            self.a.recv_into(bytearray(3000), 0x100)
            if self.a.info()["tx_fabric"] == fabric:
                break

    def test_bytes_are_looked_at_where_they_lie(self):
        self.settle()
        self.a.send(b"look and take")
        seen = self.b.recv_loan()
        self.assertEqual(seen, b"look and take")
        self.assertTrue(seen.readonly)
        with self.assertRaises(OSError) as e:
            self.b.recv_loan()
        self.assertEqual(e.exception.errno, errno.EBUSY)
        with self.assertRaises(OSError) as e:
            self.b.recv_return(14)
        self.assertEqual(e.exception.errno, errno.EINVAL)
        used = io.BytesIO(seen[:4]).getbuffer()  # a copy may be kept
        self.b.recv_return(5)
        self.assertEqual(used, b"look")
        with self.assertRaises(ValueError):
            bytes(seen)
        self.assertEqual(self.b.recv_loan(), b"and take")
        self.b.recv_return(8)
        with self.assertRaises(BlockingIOError):
            self.b.recv_loan(0x40)  # MSG_DONTWAIT
        self.a.shutdown(1)
        self.assertEqual(self.b.recv_loan(), b"")
        with self.assertRaises(OSError):
            self.b.recv_return(0)

    def test_bytes_are_made_where_they_are_sent_from(self):
        self.settle()
        room = self.a.send_loan(100)
        self.assertTrue(0 < len(room) <= 100)
        room[:1] = b"x"
        holder = pickle.PickleBuffer(room)
        with self.assertRaises(BufferError):
            self.a.send_commit(1)
        holder.release()
        self.a.send_commit(1)
        with self.assertRaises(ValueError):
            room[0] = 1
        self.assertEqual(self.b.recv(10), b"x")
        self.a.send_loan(10)
        self.a.send_commit(0)
        room = self.a.send_loan(10)
        self.a.close()
        with self.assertRaises(ValueError):
            room[0] = 1
        self.assertEqual(self.b.recv(10), b"")

    def test_a_socket_prints_where_it_is(self):
        a, b = pair()
        with a:
            self.assertRegex(repr(a), r"^<exs\.Socket fd=%d, \w+>$" % a.fd)
        self.assertEqual(repr(a), "<exs.Socket, closed>")
        b.close()

    def test_a_close_is_done_once(self):
        number = self.a.fd
        self.a.close()
        os.dup2(0, number)
        self.a.close()
        os.close(number)  # it was open
        with self.assertRaises(OSError) as e:
            self.a.send(b"x")
        self.assertEqual(e.exception.errno, errno.EBADF)

    def test_messages_have_flags(self):
        self.a.close()
        self.b.close()
        self.a, self.b = pair(exs.socket.SOCK_SEQPACKET)
        self.b.recv_into(bytearray(3), queue=self.q, handle=1)
        self.b.recvmsg_into([bytearray(3), bytearray(3)], queue=self.q, handle=2)
        self.a.send(b"four")
        self.assertEqual(self.event(exs.EVT_RECV, 1).flags, 0xa0)  # cut off
        self.a.send(b"four")
        self.assertEqual(self.event(exs.EVT_RECVMSG, 2).flags, 0x80)
        self.b.recv_into(bytearray(3), queue=self.q, handle=3)
        self.a.shutdown(1)
        self.assertEqual(self.event(exs.EVT_RECV, 3).flags, 0)

    def test_the_end_is_no_bytes(self):
        self.a.shutdown(1)
        self.assertEqual(self.b.recv(10), b"")

    def test_a_buffer_is_kept_until_its_event(self):
        self.b.recv_into(bytearray(5), queue=self.q, handle="kept")
        gc.collect()
        self.a.send(b"12345")
        self.assertEqual(self.event(exs.EVT_RECV, "kept").length, 5)

    def test_memory_is_registered(self):
        room = bytearray(b"x" * 100000)
        memory = exs.Memory(room)
        half = memoryview(room)[:50000]
        self.a.send(half, queue=self.q, memory=memory)
        got = bytearray()
        while len(got) < 50000:
            got += self.b.recv(65536)
        self.event(exs.EVT_SEND)
        self.assertEqual(got, half)
        half.release()
        memory.deregister()

    def test_several_pieces_are_one(self):
        self.a.sendmsg([b"one ", bytearray(b"two")])
        rooms = [bytearray(4), bytearray(3)]
        self.assertEqual(self.b.recvmsg_into(rooms, 0x100), 7)
        self.assertEqual(rooms, [b"one ", b"two"])

    def test_files_are_sent(self):
        with tempfile.TemporaryFile() as f:
            f.write(b"0123456789")
            f.flush()
            self.a.sendfile([b"<", (f, 2, 5), b">"],
                            0x4000 | exs.SHUT_WR, queue=self.q)
            self.assertEqual(self.event(exs.EVT_SENDFILE).length, 7)
        got = b""
        while more := self.b.recv(100):
            got += more
        self.assertEqual(got, b"<23456>")

    def test_connections_are_events(self):
        listener = exs.Socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.accept(self.q, "in")
        s = exs.Socket()
        s.connect(listener.getsockname(), self.q, "out")
        seen = {e.handle: e.check() for e in self.q.dequeue(-2, 20)}
        self.assertEqual(set(seen), {"in", "out"})
        with exs.Socket(fd=seen["in"].newfd) as other:
            self.assertEqual(other.getpeername(), s.getsockname())
        s.close(self.q, "gone")
        self.event(exs.EVT_CLOSE, "gone")
        listener.close()

    def test_errors_are_raised(self):
        with self.assertRaises(OSError) as e:
            exs.Queue(0)
        self.assertEqual(e.exception.errno, errno.EINVAL)
        with self.assertRaises(OSError) as e:
            exs.Socket(fd=-1).send(b"x", queue=self.q)
        self.assertEqual(e.exception.errno, errno.EBADF)
        self.b.close()
        self.b.fd = None
        self.assertEqual(self.a.recv(1), b"")

    def test_what_waits_is_cancelled(self):
        for handle in "one", "two":
            self.b.recv_into(bytearray(1), queue=self.q, handle=handle)
        self.assertEqual(self.b.cancel("two"), 1)
        event = self.event(exs.EVT_RECV, "two")
        self.assertRaises(OSError, event.check)
        self.assertEqual(event.errno, errno.ECANCELED)
        self.assertEqual(self.b.cancel(), 1)
        self.event(exs.EVT_RECV, "one")

    def test_sockets_are_polled(self):
        answer = exs.poll({self.b: exs.POLLIN}, self.q, "there")
        self.a.send(b"x")
        self.assertEqual(self.event(exs.EVT_POLL, "there").ready, 1)
        self.assertEqual(answer(), {self.b: exs.POLLIN})
        self.assertEqual(exs.poll({self.b: exs.POLLIN}),
                         {self.b: exs.POLLIN})

    def test_a_queue_tells_and_is_told(self):
        self.assertEqual(self.q.status(exs.QATTR_DEPTH), 8)
        self.q.modify(exs.QATTR_WAIT, exs.WAIT_NOTIFY)
        self.assertEqual(self.q.status(exs.QATTR_WAIT), exs.WAIT_NOTIFY)
        self.assertEqual(self.q.dequeue(1, 0), [])

    def test_a_queue_is_selected(self):
        self.b.recv_into(bytearray(1), queue=self.q)
        self.a.send(b"x")
        with selectors.DefaultSelector() as selector:
            selector.register(self.q, selectors.EVENT_READ)
            self.assertEqual(len(selector.select(20)), 1)
        self.event(exs.EVT_RECV)

    def test_a_queue_works_in_asyncio(self):
        async def come():
            loop, there = asyncio.get_running_loop(), asyncio.Event()
            loop.add_reader(self.q.fileno(), there.set)
            self.b.recv_into(bytearray(3), 0x100, queue=self.q, handle="came")
            self.a.send(b"abc")
            events = []
            while not events:
                await asyncio.wait_for(there.wait(), 20)
                there.clear()
                events = self.q.dequeue(4, 0)
            loop.remove_reader(self.q.fileno())
            return events

        [event] = asyncio.run(come())
        self.assertEqual((event.handle, event.length), ("came", 3))

    def test_an_awaited_receive_can_be_cancelled(self):
        async def come():
            async with exs.aio.Queue(1) as q:
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(q.recv(self.b, 3), 0.01)
                # Of two at once the second waits for the only slot.
                first = asyncio.create_task(q.recv(self.b, 3, 0x100))
                second = asyncio.create_task(q.recv(self.b, 3, 0x100))
                await asyncio.sleep(0)
                self.a.sendall(b"abcdef")
                return await asyncio.wait_for(asyncio.gather(first, second), 60)

        self.assertEqual(asyncio.run(come()), [b"abc", b"def"])

    def test_a_cancelled_receive_loses_no_byte(self):
        sent = bytes(range(256)) * 8

        async def come():
            got, n = b"", 0
            async with exs.aio.Queue() as q:
                while len(got) < len(sent):
                    for kind in 0, exs.socket.MSG_WAITALL:
                        task = asyncio.create_task(q.recv(self.b, 7, kind))
                        await asyncio.sleep(0)
                        self.a.sendall(sent[n:n + 5])
                        n += 5
                        # Before its event, with it, or after it: by how many turns of the loop.
                        for _ in range(n % 7):
                            await asyncio.sleep(0)
                        task.cancel()
                        try:
                            got += await task
                        except asyncio.CancelledError:
                            pass
                    if n >= len(sent) > len(got):
                        got += await asyncio.wait_for(q.recv(self.b, 7), 60)
            return got

        self.assertEqual(asyncio.run(come()), sent)

    def test_a_cancelled_receive_leaves_all_of_a_message(self):
        with exs.Socket(kind=exs.socket.SOCK_SEQPACKET) as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            with exs.Socket(kind=exs.socket.SOCK_SEQPACKET) as a:
                a.connect(listener.getsockname())
                with listener.accept() as b:
                    self.assertEqual(asyncio.run(self.messages(a, b)), [b"one", b"tw", b"three"])

    @staticmethod
    async def messages(a, b):
        async with exs.aio.Queue() as q:
            task = asyncio.create_task(q.recv(b, 100))
            await asyncio.sleep(0)
            a.send(b"one", exs.socket.MSG_EOR | exs.socket.MSG_NOSIGNAL)
            a.send(b"two", exs.socket.MSG_EOR | exs.socket.MSG_NOSIGNAL)
            a.send(b"three", exs.socket.MSG_EOR | exs.socket.MSG_NOSIGNAL)
            task.cancel()
            got = []
            for room in 100, 2, 100:
                got.append(await asyncio.wait_for(q.recv(b, room), 60))
            return got

    def test_errors_are_those_of_the_operation(self):
        async def fail():
            async with exs.aio.Queue() as q:
                with exs.Socket() as s, exs.Socket() as taken:
                    taken.bind(("127.0.0.1", 0))
                    with self.assertRaises(ConnectionRefusedError):
                        await q.connect(s, taken.getsockname())

        asyncio.run(fail())

    def test_a_name_is_looked_up_beside_the_loop(self):
        threads = {}
        find = exs.socket.getaddrinfo

        def look(host, *more, **how):
            threads[host] = threading.current_thread()
            return find(host, *more, **how)

        async def meet():
            async with exs.aio.Queue() as q:
                with exs.Socket() as listener, exs.Socket() as s:
                    listener.bind(("127.0.0.1", 0))
                    listener.listen()
                    with unittest.mock.patch("socket.getaddrinfo", look):
                        await q.connect(s, ("localhost", listener.getsockname()[1]))
                    self.assertEqual(s.getpeername(), listener.getsockname())

        asyncio.run(meet())
        self.assertIsNot(threads["localhost"], threading.main_thread())

    def test_a_time_out_ends_a_wait(self):
        self.b.settimeout(0.01)
        self.assertEqual(self.b.gettimeout(), 0.01)
        with self.assertRaises(TimeoutError):
            self.b.recv(1)
        self.b.settimeout(None)
        self.assertIsNone(self.b.gettimeout())
        with self.assertRaises(BlockingIOError):
            self.b.recv(1, exs.socket.MSG_DONTWAIT)
        with self.assertRaises(ValueError):
            self.b.settimeout(0)

    def test_options_are_set(self):
        self.a.setsockopt(exs.socket.IPPROTO_TCP, exs.socket.TCP_NODELAY, 1)
        self.assertTrue(self.a.getsockopt(exs.socket.IPPROTO_TCP, exs.socket.TCP_NODELAY))

    def test_leaving_a_queue_of_asyncio_cancels_what_waits(self):
        async def leave(why):
            async def receive(q):
                try:
                    return await q.recv(self.b, 10)
                except OSError as e:
                    with self.assertRaises(OSError):
                        await q.recv(self.b, 10)
                    return e.errno
            async with exs.aio.Queue() as q:
                tasks = [asyncio.create_task(receive(q)) for _ in range(3)]
                while q._outstanding < 1:
                    await asyncio.sleep(0)
                if why:
                    raise why
            return await asyncio.gather(*tasks)

        async def both(why):
            return await asyncio.wait_for(leave(why), 60)
        self.assertEqual(asyncio.run(both(None)), [errno.ECANCELED] * 3)
        with self.assertRaises(ZeroDivisionError):
            asyncio.run(both(ZeroDivisionError()))

    def test_names_are_exported_and_described(self):
        for name in exs.__all__:
            self.assertTrue(hasattr(exs, name), name)
        self.assertNotIn("ctypes", exs.__all__)
        for kind in exs.Socket, exs.Queue, exs.Batch, exs.Memory, exs.aio.Queue:
            for name, method in vars(kind).items():
                if callable(method) and not name.startswith("_"):
                    self.assertIn("return", method.__annotations__, f"{kind}.{name}")
                    self.assertTrue(method.__doc__, f"{kind}.{name}")
        self.assertTrue(os.path.exists(os.path.join(os.path.dirname(exs.__file__), "py.typed")))

    def test_a_queue_and_memory_end_with_their_block(self):
        with exs.Queue(2) as q, exs.Memory(bytearray(10)) as m:
            self.assertEqual((q.status(exs.QATTR_DEPTH), m.m > 0), (2, True))
        self.assertRaises(OSError, q.post)
        self.assertRaises(OSError, m.deregister)

    def test_a_thread_that_waits_is_woken(self):
        handle = object()
        poster = threading.Thread(target=lambda: self.q.post(handle))
        poster.start()
        [event] = self.q.dequeue(1, 20)
        poster.join(20)
        self.assertEqual((event.type, event.socket), (exs.EVT_USER, -1))
        self.assertIs(event.handle, handle)

    def test_the_version_is_that_of_the_library(self):
        self.assertEqual(".".join(map(str, exs.library_version())), exs.__version__)

    def test_threads_wait_side_by_side(self):
        got = []
        waiter = threading.Thread(target=lambda: got.append(self.b.recv(5)))
        waiter.start()
        self.a.send(b"hello")
        waiter.join(20)
        self.assertEqual(got, [b"hello"])

    def test_a_connection_tells_of_itself(self):
        self.settle()
        info = self.a.info()
        self.assertEqual(info["tx_fabric"], FABRICS.split(",")[0])
        self.assertGreaterEqual(info["tx_bytes"], 3000)
        self.a.downgrade()
        self.assertEqual(self.a.info()["tx_fabric"], "tcp")
        self.a.adopt()


unittest.main(argv=sys.argv[:1], verbosity=1)
