#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""By which name and reasons exs run --report tells. Usage: tell.py EXS"""

import os
import re
import socket
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             '../../scripts'))
import stuck  # noqa: E402

TIMEOUT = 60

# A program with a connection to itself, over which 4000 bytes went each way.
PAIR = """
import os, socket, sys
listener = socket.create_server(('127.0.0.1', 0))
one = socket.create_connection(listener.getsockname())
other = listener.accept()[0]
def say(a, b, n):
    a.sendall(bytes(n))
    b.recv(n, socket.MSG_WAITALL)
say(one, other, 4000)
say(other, one, 4000)
one.close()
other.close()
"""

# More of it, until it has moved.
MANY = PAIR.replace('say(one, other, 4000)',
                    'for i in range(10000): '
                    'say(one, other, 40), say(other, one, 40)')

# What it says is little, and what it hears is 8 MB.
DOWNLOAD = PAIR.replace('say(one, other, 4000)',
                        'for i in range(2000): say(other, one, 4000)')

TITLE = """
import ctypes
name = ctypes.c_void_p.in_dll(ctypes.CDLL(None),
                              'program_invocation_short_name')
ctypes.memset(name, ord('x'), 3)
"""

FORK = """
child = os.fork()
if child:
    sys.exit(os.waitpid(child, 0)[1] != 0)
"""

SERVER = """
import socket
with socket.create_server(('127.0.0.1', 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    s = listener.accept()[0]
    s.sendall(s.recv(int(input()), socket.MSG_WAITALL))
    s.close()
"""


# Hundreds of reads of what a plain client sends, each answered by half; then the
# number is a file's, then a connection's that moves to a fabric.
SETTLED = """
import os, socket
with socket.create_server(('127.0.0.1', 0)) as door:
    print(door.getsockname()[1], flush=True)
    s = door.accept()[0]
    number = s.fileno()
    while data := s.recv(64):
        s.sendall(data[:32])
    s.close()
files = [os.open('/dev/zero', os.O_RDONLY) for _ in range(3)]
assert number in files and all(os.read(f, 9) == bytes(9) for f in files)
for f in files:
    os.close(f)
""" + MANY

# Listens, and becomes a program without the library, which serves what comes.
BECOMES_PLAIN = """
import os, socket, sys
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
listener.set_inheritable(True)
plain = """ + repr("""
import socket, sys
s = socket.socket(fileno=int(sys.argv[1])).accept()[0]
while data := s.recv(4000):
    s.sendall(data)
""") + """
os.execve(sys.executable, [sys.executable, '-c', plain, str(listener.fileno())],
          {k: v for k, v in os.environ.items() if k != 'LD_PRELOAD'})
"""

# So many bytes that a peer with the library would have come.
# For longer than a peer that has the library may be held up.
ASKS = """
import socket, time
with socket.create_connection(('127.0.0.1', int(input()))) as s:
    end = time.monotonic() + 0.4
    rounds = 0
    while rounds < 40 or time.monotonic() < end:
        s.sendall(bytes(4000))
        s.recv(4000, socket.MSG_WAITALL)
        rounds += 1
"""

# The connection has the number of stdio, which leaves it to TCP.
AS_STDIN = """
import os, socket, time
port = int(input())
os.close(0)
with socket.create_connection(('127.0.0.1', port)) as s:
    # By then the server has looked for this end, also on a busy host.
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        s.sendall(bytes(4000))
        s.recv(4000, socket.MSG_WAITALL)
"""

ECHO = """
import socket
with socket.create_server(('127.0.0.1', 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    s = listener.accept()[0]
while data := s.recv(4000):
    s.sendall(data)
"""

# It sends all and closes before its client reads.
SENDS = """
import socket, sys
with socket.create_server(('127.0.0.1', 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    with listener.accept()[0] as s:
        s.sendall(bytes(400000))
    print('closed', flush=True)
    sys.stdin.read()
"""

# For long after it could wait for its peer.
READS = """
import socket, sys, time
with socket.create_connection(('127.0.0.1', int(input()))) as s:
    input()
    s.recv(300000, socket.MSG_WAITALL)
    end = time.monotonic() + 0.4
    while time.monotonic() < end:
        s.recv(100)
    s.recv(400000, socket.MSG_WAITALL)
"""

PIECES = 2000


def under(exs, text, **kw):
    return subprocess.Popen([exs, 'run', '--report', sys.executable, '-c',
                             text], stderr=subprocess.PIPE, text=True, **kw)


def lines(process, tell=None):
    said = stuck.communicate(process, TIMEOUT, tell)[1]
    if process.returncode:
        sys.exit('status %d: %s' % (process.returncode, said))
    return said.splitlines()


def groups(said):
    """What a report says by peer, with names for the ports."""
    found = [re.fullmatch(r'  (to|at) (127.0.0.1 )?port (\d+)( from 127.0.0.1)?: '
                          r'(.*)', s) for s in said[1:]]
    if not all(found) or len({m.group(3) for m in found}) != 1:
        sys.exit('the report is %r' % (said,))
    return sorted(m.group(1) + ' ' + re.sub(r'\d+ bells?', 'B', m.group(5))
                  for m in found)


def expect(said, *patterns):
    said = [s for s in said if not s.startswith('  ')]
    if len(said) != len(patterns) or not all(
            re.fullmatch('exs run: ' + p, s) for p, s in zip(patterns, said)):
        sys.exit('the report is %r, not %r' % (said, patterns))


def plain_client(exs, size):
    """What a server says of a client without the library that sent so much."""
    server = under(exs, SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    port = int(server.stdout.readline())
    with socket.create_connection(('127.0.0.1', port), TIMEOUT) as s:
        s.sendall(bytes(size))
        return lines(server, '%d\n' % size)


def client_of_a_plain_heir(exs):
    """What a client says of a server without the library, whose listener has
    the sign of one with it."""
    server = under(exs, BECOMES_PLAIN, stdout=subprocess.PIPE)
    client = under(exs, ASKS, stdin=subprocess.PIPE)
    said = lines(client, server.stdout.readline())
    lines(server)
    return said


def both_of_stdin(exs, upgrade):
    """What a client says whose connection has the number 0, and its server."""
    env = dict(os.environ) | ({'EXS_UPGRADE': upgrade} if upgrade else {})
    server = under(exs, ECHO, stdout=subprocess.PIPE, env=env)
    client = under(exs, AS_STDIN, stdin=subprocess.PIPE, env=env)
    said = lines(client, server.stdout.readline())
    return said, lines(server)


def client_of_a_gone_server(exs):
    """What a client says of a server that sent much, and had closed before the
    client could wait for it."""
    server = under(exs, SENDS, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    client = under(exs, READS, stdin=subprocess.PIPE)
    client.stdin.write(server.stdout.readline())
    client.stdin.flush()
    said = lines(client, server.stdout.readline())
    lines(server, '')
    return said


def settled(exs):
    """What a server says that reads much from a plain client: to the byte,
    though the library sees no call of it after the first ones."""
    server = under(exs, SETTLED, stdout=subprocess.PIPE)
    port = int(server.stdout.readline())
    with socket.create_connection(('127.0.0.1', port), TIMEOUT) as s:
        for _ in range(PIECES):
            s.sendall(bytes(64))
            got = 0
            while got < 32:
                got += len(s.recv(32 - got))
        s.shutdown(socket.SHUT_WR)
        while s.recv(32):
            pass
        said = lines(server)
    want = (r'  at port \d+ from .*: 1 connection, tcp \(plain-peer\), '
            r'%d bytes in, %d out, 0 bells' % (PIECES * 64, PIECES * 32))
    moved = [s for s in said if re.fullmatch(
        r'  (at|to) .*: 1 connection, shm, 40\d000 bytes in, 40\d000 out, .*', s)]
    if len(moved) != 2 or not any(re.fullmatch(want, s) for s in said):
        sys.exit('the report is %r' % (said,))


def main():
    exs = sys.argv[1]
    for v in [v for v in os.environ if v.startswith('EXS_')]:
        del os.environ[v]
    mine = os.path.basename(os.path.realpath(sys.executable))
    name = r'(%s|%s)\[\d+\]: ' % (re.escape(mine),
                                  os.path.basename(sys.executable))

    # A program that writes over its arguments keeps its name.
    expect(lines(under(exs, TITLE + PAIR)), name + '.*')
    # Each connection is told of.
    early = dict(os.environ, EXS_UPGRADE='connect')
    seen = groups(lines(under(exs, MANY, env=early)))
    want = ['at 1 connection, shm, 400000 bytes in, 404000 out, B',
            'to 1 connection, shm, 404000 bytes in, 400000 out, B']
    if seen != want:
        sys.exit('the report says %r, not %r' % (seen, want))
    # A download waits as long as the settings say.
    for wanted, where in ('100000000', r'0 .*; 2 on TCP \(undecided\)'), ('50000', '2 .*'):
        late = dict(os.environ, EXS_UPGRADE='bytes:' + wanted)
        expect(lines(under(exs, DOWNLOAD, env=late)), name + where)
    # What a process counted is not its children's.
    expect(lines(under(exs, PAIR + FORK)), name + '.*')
    # Little says nothing of a peer; more does, when nobody waits for us.
    expect(plain_client(exs, 100), name + r'0 .*; 1 on TCP \(undecided\)')
    expect(plain_client(exs, 4000), name + r'0 .*; 1 on TCP \(plain-peer\)')
    expect(client_of_a_plain_heir(exs), name + r'0 .*; 1 on TCP \(plain-peer\)')
    expect(client_of_a_gone_server(exs), name + r'0 .*; 1 on TCP \(undecided\)')
    # Who leaves before the other has come says so.
    for upgrade in None, 'connect':
        client, server = both_of_stdin(exs, upgrade)
        expect(client, name + r'0 .*; 1 on TCP \(stdio\)')
        expect(server, name + r'0 .*; 1 on TCP \(peer-request\)')
    settled(exs)


main()
