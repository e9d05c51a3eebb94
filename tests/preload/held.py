#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A stranger keeps the locks of a TCP socket and of an epoll set: a thread of his sends
from memory that never comes, another one gets events there. The library and the
commands wait for no such lock: a program under the shim receives both in a message, and
serves a client, spawns and forks, and exs stat looks at all sockets, while the locks are
kept; and at a page of counters, whose lock a thread keeps that writes there likewise. The
message comes from the stranger's socket, or on a pair that root made before the stranger
gave up root.
Usage: held.py EXS."""

import ctypes
import fcntl
import mmap
import os
import platform
import select
import socket
import struct
import subprocess
import sys
import threading

EXS = os.path.abspath(sys.argv[1])
TIMEOUT = 30
NOBODY = 65534
UFFD = {'x86_64': 323, 'aarch64': 282}
UFFDIO_API, UFFDIO_REGISTER = 0xc018aa3f, 0xc020aa00
MISSING = 1
FAULT = 0x12

VICTIM = '''
import os, select, socket, subprocess, sys
if sys.argv[1].isdigit():
    by = socket.socket(fileno=int(sys.argv[1]))
else:
    l = socket.socket(socket.AF_UNIX)
    l.bind('\\0' + sys.argv[1])
    l.listen()
served = socket.create_server(('127.0.0.1', 0))
pair = socket.create_connection(served.getsockname()), served.accept()[0]
print(served.getsockname()[1], flush=True)
if not sys.argv[1].isdigit():
    by = l.accept()[0]
fds = socket.recv_fds(by, 1, 2)[1]
print('has received', len(fds), flush=True)
# As natively, none of these waits.
subprocess.run(['/bin/true'], check=True)
os.posix_spawn('/bin/true', ['true'], {})
if not os.fork():
    os._exit(0)
e = select.epoll()
e.register(fds[0], select.EPOLLIN)
# On its way to shared memory, and there, the library searches for waits for it.
c = served.accept()[0]
while True:
    b = c.recv(1000, socket.MSG_WAITALL)
    if not b:
        break
    c.sendall(b)
sys.stdin.read()
'''

CLIENT = '''
import ctypes, socket, sys
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
def moved():
    info = ctypes.create_string_buffer(1024)
    assert ctypes.CDLL('libexs.so.1').exs_x_sockinfo(s.fileno(), info) == 0
    return info.raw[:32] == b'shm'.ljust(16, bytes(1)) * 2
n = 0
while n < 100:
    s.sendall(bytes(1000))
    assert len(s.recv(1000, socket.MSG_WAITALL)) == 1000
    n += moved()
'''


def faults():
    """A descriptor that tells of threads that wait for memory, the memory, and its
    address; none where the kernel does not let us."""
    fd = ctypes.CDLL(None).syscall(UFFD[platform.machine()], os.O_CLOEXEC)
    if fd < 0:
        return None, None, None
    size = 20 * mmap.PAGESIZE
    fcntl.ioctl(fd, UFFDIO_API, bytearray(struct.pack('QQQ', 0xaa, 0, 0)))
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    fcntl.ioctl(fd, UFFDIO_REGISTER,
                bytearray(struct.pack('QQQQ', at, size, MISSING, 0)))
    return fd, memory, at


def holder(to, ready, over):
    """As nobody: keeps the locks of a connection and of a set, passes both by the socket
    or to the name, and ends with what ends the pipe `over'."""
    fd, memory, at = faults()
    libc = ctypes.CDLL(None)
    served = socket.create_server(('127.0.0.1', 0))
    s = socket.create_connection(served.getsockname())
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    # As the library's own.
    s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
    s.setsockopt(socket.IPPROTO_IP, 49, 0)  # IP_MULTICAST_ALL
    e = select.epoll()
    e.register(served, select.EPOLLOUT | select.EPOLLIN)
    e.register(s, select.EPOLLOUT)
    here, there = ctypes.c_void_p(at), ctypes.c_void_p(at + mmap.PAGESIZE)
    for call in (lambda: libc.send(s.fileno(), here, 1, 0),
                 lambda: libc.epoll_wait(e.fileno(), there, 4, -1)):
        threading.Thread(target=call, daemon=True).start()
        assert os.read(fd, 32)[0] == FAULT  # waits until the thread does
    if isinstance(to, str):
        name, to = to, socket.socket(socket.AF_UNIX)
        to.connect('\0' + name)
    socket.send_fds(to, [b'x'], [s.fileno(), e.fileno()])
    os.write(ready, b'x')
    os.read(over, 1)
    del memory
    os._exit(0)


def keep_page():
    """Under the shim: a copy of the page of its counters, at a lower number, is taken for
    it. Keeps the copy's lock, by a write to it."""
    fd, memory, at = faults()
    served = socket.create_server(('127.0.0.1', 0))
    kept = socket.create_connection(served.getsockname()), served.accept()[0]
    for n in os.listdir('/proc/self/fd'):
        path = '/proc/self/fd/' + n
        if not os.path.lexists(path) or not os.readlink(path).startswith('/memfd:'):
            continue
        with open(path, 'rb') as f:
            page = f.read(1 << 20)
        to = os.memfd_create(os.readlink(path).split()[0][7:])
        os.write(to, page)
        threading.Thread(target=ctypes.CDLL(None).pwrite, daemon=True,
                         args=(to, ctypes.c_void_p(at), 1, ctypes.c_long(0))).start()
        assert os.read(fd, 32)[0] == FAULT
        at += mmap.PAGESIZE
    print('keeps', flush=True)
    sys.stdin.read()
    del memory, kept
    os._exit(0)


def main():
    if os.getuid() or faults()[0] is None:
        print('it needs root, and userfaultfd(2)')
        return 77
    return holds(None) | holds(socket.socketpair())


def holds(pair):
    """With the message on the pair, or from the stranger's own socket."""
    name = str(pair[0].fileno()) if pair else 'held %d' % os.getpid()
    victim = subprocess.Popen([EXS, 'run', sys.executable, '-c', VICTIM, name],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              pass_fds=[pair[0].fileno()] if pair else [])
    port = victim.stdout.readline().strip()
    keeper = subprocess.Popen([EXS, 'run', sys.executable, __file__, EXS, '--keep'],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert keeper.stdout.readline() == 'keeps\n'
    ready, over = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.close(over[1])
        holder(pair[1] if pair else name, ready[1], over[0])
    bad = 0
    try:
        assert select.select([ready[0]], [], [], TIMEOUT)[0], 'nothing was passed'
        if not select.select([victim.stdout], [], [], TIMEOUT)[0] or \
                victim.stdout.readline() != 'has received 2\n':
            print('a receive waits for the lock of a stranger')
            bad = 1
        try:
            subprocess.run([EXS, 'run', sys.executable, '-c', CLIENT, port], check=True,
                           timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            print('a program waits for the lock of a set that a stranger passed')
            bad = 1
        # With a reader of what it prints, which ends with the last that may print.
        stat = subprocess.Popen([EXS, 'stat'], stdout=subprocess.PIPE)
        try:
            shown = stat.communicate(timeout=TIMEOUT)[0]
            assert b'/%d ' % victim.pid in shown, shown
            assert b'/%d ' % keeper.pid in shown, shown
        except subprocess.TimeoutExpired:
            print('exs stat waits for the lock of a stranger, or of his page')
            bad = 1
    finally:
        os.close(over[1])
        os.waitpid(child, 0)
    keeper.communicate()
    victim.communicate()
    assert victim.returncode == 0
    return bad


if __name__ == '__main__':
    sys.exit(keep_page() if '--keep' in sys.argv else main())
