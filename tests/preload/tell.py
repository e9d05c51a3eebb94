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
    # What a process counted is not its children's.
    expect(lines(under(exs, PAIR + FORK)), name + '.*')
    # Little says nothing of a peer; more does, when nobody waits for us.
    expect(plain_client(exs, 100), name + r'0 .*; 1 on TCP \(undecided\)')
    expect(plain_client(exs, 4000), name + r'0 .*; 1 on TCP \(plain-peer\)')


main()
