# SPDX-License-Identifier: BSD-2-Clause
"""A client of memcached, in its text protocol. Usage: memcache.py PORT | PATH"""
import socket
import sys

if sys.argv[1].isdigit():
    s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
else:
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
f = s.makefile('rwb', buffering=0)


def line(text):
    f.write(text)
    return f.readline()


for i in range(1000):
    value = b'%d,' % i * (1 + i % 500)
    assert line(b'set k%d 0 0 %d\r\n%s\r\n' %
                (i, len(value), value)) == b'STORED\r\n'
for i in range(1000):
    value = b'%d,' % i * (1 + i % 500)
    head = line(b'get k%d\r\n' % i)
    assert head == b'VALUE k%d 0 %d\r\n' % (i, len(value)), head
    rest = b''
    while len(rest) < len(value) + 7:
        rest += s.recv(len(value) + 7 - len(rest))
    assert rest == value + b'\r\nEND\r\n'
print('ok')
