#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A connection must go to TCP while its peer is stopped: it is reset, for what
lies in the rings would be a hole in the stream. And who was stopped while its
peer came to meet it and left again, or was held, is told; as is who comes to meet a
peer that another program has by then, or that stays on TCP, until both ask for the
connection again. Usage: stopped.py EXS"""

import os
import signal
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             '../../scripts'))
import stuck  # noqa: E402

TIMEOUT = 60

SERVER = """
import os, signal, socket, sys
with socket.create_server(('127.0.0.1', 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    s = listener.accept()[0]
got = b''
while got[:1] != b'!':
    got = s.recv(100, socket.MSG_WAITALL)
    s.sendall(got)
s.sendall(b'unread')
print('stops', flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
try:
    got = b''
    while True:
        more = s.recv(100)
        if not more:
            break
        got += more
    print('end after', got)
except ConnectionResetError:
    print('reset')
"""

# The library that the shim has loaded tells when both directions are on shm.
CLIENT = """
import ctypes, os, socket, sys, time
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
exs = ctypes.CDLL('libexs.so.1')
exs.exs_init(1)
info = ctypes.create_string_buffer(1024)
end = time.monotonic() + 30
while info.raw[:32].count(b'shm') < 2 and time.monotonic() < end:
    s.sendall(bytes(100))
    s.recv(100, socket.MSG_WAITALL)
    exs.exs_x_sockinfo(s.fileno(), info)
s.sendall(b'!' * 100)
s.recv(100, socket.MSG_WAITALL)
print('warm', flush=True)
sys.stdin.readline()
os.dup2(s.fileno(), 0)
s.settimeout(5)
try:
    print('got', s.recv(100))
except TimeoutError:
    print('nothing')
except ConnectionResetError:
    print('reset')
"""

# Comes while the other is stopped, and is stdio's, or has an option that keeps it
# on TCP, before it goes on.
LEAVER = """
import os, socket, sys
SO_TIMESTAMP = 29
with socket.create_server(('127.0.0.1', 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    sys.stdin.readline()
    s = listener.accept()[0]
if sys.argv[1] == 'stdio':
    os.dup2(s.fileno(), 0)
else:
    s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMP, 1)
print('left', flush=True)
s.recv(1)
"""

STOPPED = """
import ctypes, os, signal, socket, sys, time
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
os.kill(os.getpid(), signal.SIGSTOP)
exs = ctypes.CDLL('libexs.so.1')
exs.exs_x_reason_name.restype = ctypes.c_char_p
exs.exs_init(1)
info = (ctypes.c_int * 64)()
name, end = b'undecided', time.monotonic() + 30
while name == b'undecided' and time.monotonic() < end:
    exs.exs_x_sockinfo(s.fileno(), info)
    name = exs.exs_x_reason_name(info[8])
print(name.decode())
"""

# As inetd serves, from the process that accepts or from a child of it.
INETD = """
import os, socket, sys
with socket.create_server(('127.0.0.1', 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    s = listener.accept()[0]
if sys.argv[1] == 'child' and os.fork():
    s.close()
    sys.exit(os.WEXITSTATUS(os.wait()[1]))
os.dup2(s.fileno(), 0)
os.dup2(s.fileno(), 1)
s.close()
os.execvp('cat', ['cat'])
"""

# The other program has the connection when the first answer is here.
COMER = """
import ctypes, socket, sys, time
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
exs = ctypes.CDLL('libexs.so.1')
exs.exs_x_reason_name.restype = ctypes.c_char_p
exs.exs_init(1)
info = (ctypes.c_int * 64)()
name, end = b'undecided', time.monotonic() + 30
while name == b'undecided' and time.monotonic() < end:
    s.sendall(bytes(500))
    s.recv(500, socket.MSG_WAITALL)
    exs.exs_x_sockinfo(s.fileno(), info)
    name = exs.exs_x_reason_name(info[8])
print(name.decode())
"""


# Keeps what it accepts on TCP before anybody has met, until a byte says that it
# asks for it again, before or after its client.
ASKS_AGAIN = """
import ctypes, socket, sys
exs = ctypes.CDLL('libexs.so.1')
exs.exs_init(1)
with socket.create_server(('127.0.0.1', 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    s = listener.accept()[0]
assert exs.exs_x_downgrade(s.fileno()) == 0
while data := s.recv(500):
    if data[:1] == b'a':
        assert exs.exs_x_adopt(s.fileno()) == 0
    s.sendall(data)
"""

COMES_AGAIN = COMER + """
if sys.argv[2] == 'first':
    assert exs.exs_x_adopt(s.fileno()) == 0
s.sendall(b'a')
s.recv(1)
if sys.argv[2] == 'then':
    assert exs.exs_x_adopt(s.fileno()) == 0
end = time.monotonic() + 30
while bytes(info)[:32].count(b'shm') < 2 and time.monotonic() < end:
    s.sendall(bytes(100))
    s.recv(100, socket.MSG_WAITALL)
    exs.exs_x_sockinfo(s.fileno(), info)
print(bytes(info)[:32].count(b'shm'))
"""


def start(exs, text, *args, **more):
    return subprocess.Popen(
        [exs, 'run', sys.executable, '-c', text, *args], text=True,
        env=dict(os.environ, EXS_UPGRADE='connect', EXS_LOG='off') | more,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def stopped(process):
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def meets_in_vain(exs, how):
    leaver = start(exs, LEAVER, how)
    client = start(exs, STOPPED, leaver.stdout.readline().strip())
    stopped(client)
    leaver.stdin.write('go\n')
    leaver.stdin.flush()
    said = [leaver.stdout.readline()]
    client.send_signal(signal.SIGCONT)
    said += [stuck.communicate(client, TIMEOUT)[0],
             stuck.communicate(leaver, TIMEOUT)[0]]
    # The service thread may see the option before its end is left.
    reasons = ['peer-request'] + (['timestamps'] if how == 'option' else [])
    want = [['left\n', reason + '\n', ''] for reason in reasons]
    if said not in want:
        sys.exit('%s: it went %r, not %r' % (how, said, want))


def comes_late(exs, by, upgrade):
    server = start(exs, INETD, by, EXS_UPGRADE=upgrade)
    client = start(exs, COMER, server.stdout.readline().strip(),
                   EXS_UPGRADE=upgrade)
    said = [stuck.communicate(client, TIMEOUT)[0],
            stuck.communicate(server, TIMEOUT)[0]]
    want = ['peer-request\n', '']
    if said != want:
        sys.exit('%s, %s: it went %r, not %r' % (by, upgrade, said, want))


def asks_again(exs, when, upgrade):
    server = start(exs, ASKS_AGAIN, EXS_UPGRADE=upgrade)
    client = start(exs, COMES_AGAIN, server.stdout.readline().strip(), when,
                   EXS_UPGRADE=upgrade)
    said = [stuck.communicate(client, TIMEOUT)[0],
            stuck.communicate(server, TIMEOUT)[0]]
    if said != ['peer-request\n2\n', '']:
        sys.exit('asks again, %s, %s: it went %r' % (when, upgrade, said))


def main():
    exs = sys.argv[1]
    for when in 'first', 'then':
        for upgrade in 'connect', 'bytes:1024':
            asks_again(exs, when, upgrade)
    for upgrade in 'connect', 'bytes:1024':
        comes_late(exs, 'the process', upgrade)
        comes_late(exs, 'child', upgrade)
    meets_in_vain(exs, 'stdio')
    meets_in_vain(exs, 'option')
    server = start(exs, SERVER)
    client = start(exs, CLIENT, server.stdout.readline().strip())
    said = [client.stdout.readline(), server.stdout.readline()]
    stopped(server)
    said.append(stuck.communicate(client, TIMEOUT, 'go\n')[0])
    server.send_signal(signal.SIGCONT)
    said.append(stuck.communicate(server, TIMEOUT)[0])
    want = ['warm\n', 'stops\n', 'reset\n', 'reset\n']
    if said != want:
        sys.exit('it went %r, not %r' % (said, want))


main()
