#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A stranger keeps the lock of a TCP socket: a thread of his sends from memory that
never comes. The library and the commands wait for no such lock: a program under the
shim receives the socket in a message, and exs stat looks at all sockets, while the lock
is kept. Usage: held.py EXS."""

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
import os, socket, sys
l = socket.socket(socket.AF_UNIX)
l.bind('\\0' + sys.argv[1])
l.listen()
served = socket.create_server(('127.0.0.1', 0))
pair = socket.create_connection(served.getsockname()), served.accept()[0]
print('listens', flush=True)
fds = socket.recv_fds(l.accept()[0], 1, 1)[1]
os.close(fds[0])
print('has received', len(fds), flush=True)
sys.stdin.read()
'''


def faults():
    """A descriptor that tells of threads that wait for memory, the memory, and its
    address; none where the kernel does not let us."""
    fd = ctypes.CDLL(None).syscall(UFFD[platform.machine()], os.O_CLOEXEC)
    if fd < 0:
        return None, None, None
    fcntl.ioctl(fd, UFFDIO_API, bytearray(struct.pack('QQQ', 0xaa, 0, 0)))
    memory = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    fcntl.ioctl(fd, UFFDIO_REGISTER,
                bytearray(struct.pack('QQQQ', at, mmap.PAGESIZE, MISSING, 0)))
    return fd, memory, at


def holder(name, ready, over):
    """As nobody: keeps the lock of a connection, passes it to the name, and ends with
    what ends the pipe `over'."""
    fd, memory, at = faults()
    served = socket.create_server(('127.0.0.1', 0))
    s = socket.create_connection(served.getsockname())
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    # As the library's own.
    s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
    s.setsockopt(socket.IPPROTO_IP, 49, 0)  # IP_MULTICAST_ALL
    send = ctypes.CDLL(None).send
    threading.Thread(target=send, args=(s.fileno(), ctypes.c_void_p(at), 1, 0),
                     daemon=True).start()
    assert os.read(fd, 32)[0] == FAULT  # waits until the thread does
    to = socket.socket(socket.AF_UNIX)
    to.connect('\0' + name)
    socket.send_fds(to, [b'x'], [s.fileno()])
    os.write(ready, b'x')
    os.read(over, 1)
    del memory
    os._exit(0)


def main():
    if os.getuid() or faults()[0] is None:
        print('it needs root, and userfaultfd(2)')
        return 77
    name = 'held %d' % os.getpid()
    victim = subprocess.Popen([EXS, 'run', sys.executable, '-c', VICTIM, name],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert victim.stdout.readline() == 'listens\n'
    ready, over = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.close(over[1])
        holder(name, ready[1], over[0])
    bad = 0
    try:
        assert select.select([ready[0]], [], [], TIMEOUT)[0], 'nothing was passed'
        if not select.select([victim.stdout], [], [], TIMEOUT)[0] or \
                victim.stdout.readline() != 'has received 1\n':
            print('a receive waits for the lock of a stranger')
            bad = 1
        # With a reader of what it prints, which ends with the last that may print.
        stat = subprocess.Popen([EXS, 'stat'], stdout=subprocess.PIPE)
        try:
            shown = stat.communicate(timeout=TIMEOUT)[0]
            assert b'/%d ' % victim.pid in shown, shown
        except subprocess.TimeoutExpired:
            print('exs stat waits for the lock of a stranger')
            bad = 1
    finally:
        os.close(over[1])
        os.waitpid(child, 0)
    victim.communicate()
    assert victim.returncode == 0
    return bad


if __name__ == '__main__':
    sys.exit(main())
