# SPDX-License-Identifier: BSD-2-Clause
"""Keepalive beneath ofi, by libfabric's software on this host: it is there while the
connection is, the program sees its own options, and has them afterwards.

keepalive.py EXS
"""
import os
import subprocess
import sys
import tempfile

DEADLINE = 60
EXS = sys.argv[1]
ENV = {"EXS_PROVIDER": "ofi,tcp", "EXS_TRUST": "hosts",
       "EXS_UPGRADE": "connect", "EXS_OFI_PROVIDER": "tcp",
       "EXS_OFI_PORT_OFFSET": "32768", "EXS_LOG": "debug"}

PROGRAM = """
import os, socket, sys, time
from socket import *

def option(s, name):
    level = SOL_SOCKET if name == SO_KEEPALIVE else IPPROTO_TCP
    return s.getsockopt(level, name)

def set(s, name, value):
    level = SOL_SOCKET if name == SO_KEEPALIVE else IPPROTO_TCP
    s.setsockopt(level, name, value)

ALL = SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, TCP_USER_TIMEOUT

def told(s):
    return [option(s, o) for o in ALL]

# Seconds until the kernel's next probe; None.
def probe(s):
    mine = '%08X:%04X' % (int.from_bytes(inet_aton(s.getsockname()[0]),
                                         'little'), s.getsockname()[1])
    theirs = '%04X' % s.getpeername()[1]
    for line in open('/proc/net/tcp'):
        f = line.split()
        if f[1] == mine and f[2].endswith(theirs):
            tr, when = f[5].split(':')
            return int(when, 16) / 100 if tr == '02' else None

def echo(a, b):
    for x, y in ((a, b), (b, a)):
        x.sendall(b'x' * 100)
        y.recv(100, MSG_WAITALL)

def said(what):
    with open(os.environ['EXS_LOG_FILE']) as log:
        return log.read().count(what)

def until(good, work):
    end = time.monotonic() + 30
    while not good():
        work()
        assert time.monotonic() < end, (told(a), told(b), probe(a), probe(b))

listener = create_server(('127.0.0.1', 0))
a = create_connection(listener.getsockname())
b = listener.accept()[0]
set(b, TCP_KEEPIDLE, 5000)
before = told(a), told(b)
assert before[0][0] == 0
until(lambda: said('sends on ofi') == 2, lambda: echo(a, b))
echo(a, b)

for s in a, b:
    until(lambda: probe(s) is not None, lambda: time.sleep(0.01))

# The keepalive is on, and the program cannot see it.
assert (told(a), told(b)) == before, (told(a), told(b), before)
for s in a, b:
    assert 60 < probe(s) <= 120, probe(s)

# What the program sets it sees; what is stricter stands.
set(b, SO_KEEPALIVE, 0)
assert 60 < probe(b) <= 120, probe(b)
set(b, SO_KEEPALIVE, 1)
set(b, TCP_KEEPIDLE, 300)
assert told(b)[:2] == [1, 300] and 60 < probe(b) <= 120, (told(b), probe(b))
set(b, TCP_KEEPIDLE, 30)
assert told(b)[:2] == [1, 30] and 0 < probe(b) <= 30, (told(b), probe(b))
set(b, TCP_KEEPIDLE, 300)
set(b, TCP_USER_TIMEOUT, 5000)
for name, wrong in (TCP_KEEPIDLE, 0), (TCP_KEEPIDLE, 40000), (TCP_KEEPCNT, 128):
    try:
        set(b, name, wrong)
        assert False, (name, wrong)
    except OSError as e:
        assert e.errno == 22, e
want = [1, 300, before[1][2], before[1][3], 5000]
assert told(b) == want, told(b)

# And has it afterwards.
for s in a, b:
    s.setsockopt(SOL_SOCKET, 29, 1) # SO_TIMESTAMP: to TCP
echo(a, b)
until(lambda: probe(a) is None and (probe(b) or 0) > 200,
      lambda: time.sleep(0.01))
assert told(a) == before[0] and told(b) == want, (told(a), told(b))
"""


def main():
    env = {k: v for k, v in os.environ.items() if not k.startswith("EXS_")}
    with tempfile.NamedTemporaryFile() as log:
        subprocess.run([EXS, "run", sys.executable, "-c", PROGRAM],
                       env=env | ENV | {"EXS_LOG_FILE": log.name},
                       timeout=DEADLINE, check=True)


main()
