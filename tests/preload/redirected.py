#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Connections that a packet filter redirects (REDIRECT, DNAT): each end sees other
addresses than its peer. They work, stay on TCP and say why; and nobody becomes the
peer of such a connection who has only the addresses that its server sees. Other
connections of the same server use shared memory. Needs root: redirected.py EXS."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

EXS = os.path.abspath(sys.argv[1])
TIMEOUT = 30
PYTHON = '/usr/bin/python3'  # which every user can start
IP_LOCAL_PORT_RANGE = 51
RULES = '''
table ip n {
    chain o {
        type nat hook output priority -100
        ip daddr 127.0.0.1 tcp dport 7000 redirect to :7001
        ip daddr 10.98.0.1 tcp dport 7000 dnat to 10.99.0.2:7001
    }
}
table ip6 n {
    chain o {
        type nat hook output priority -100
        tcp dport 7000 redirect to :7001
    }
}
'''
bad = 0

# Answers each message of 64 bytes of each client, with the fabric of what comes in
# the first byte, until its standard input ends.
SERVER = '''
import ctypes, select, socket, sys
exs = ctypes.CDLL('libexs.so.1')

def on_shm(s):
    info = ctypes.create_string_buffer(1024)
    assert exs.exs_x_sockinfo(s.fileno(), info) == 0
    return info.raw[16:32] == b'shm'.ljust(16, bytes(1))

listeners = [socket.create_server(('0.0.0.0', 7001)),
             socket.create_server(('::1', 7001), family=socket.AF_INET6)]
print(flush=True)
p = select.epoll()
open_ = {}
for s in [sys.stdin, *listeners]:
    p.register(s, select.EPOLLIN)
while True:
    for fd, _ in p.poll():
        if fd == sys.stdin.fileno():
            sys.exit()
        ready = [l for l in listeners if l.fileno() == fd]
        if ready:
            s = ready[0].accept()[0]
            open_[s.fileno()] = s
            p.register(s, select.EPOLLIN)
            continue
        s = open_[fd]
        m = s.recv(64, socket.MSG_WAITALL)
        if not m:
            p.unregister(s)
            open_.pop(fd).close()
            continue
        s.sendall(bytes([on_shm(s)]) + m[1:])
'''

# Sends so many messages, or if 0 until 100 go over shared memory, for 20 s at most;
# reads the answers, and says whether the server got any over shared memory. Its port is to be the third number, unless that is 0. It waits for a line
# of standard input before it sends, or before it ends, if it is to.
CLIENT = '''
import socket, sys, time
host, wait = sys.argv[1:3]
port, count, own = map(int, sys.argv[3:])

def pause(when):
    if wait == when:
        print(flush=True)
        sys.stdin.readline()

s = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET)
if own:
    s.setsockopt(socket.IPPROTO_IP, %d,
                 (own | own << 16).to_bytes(4, sys.byteorder))
s.settimeout(20)
s.connect((host, port))
s.settimeout(None)
pause('before')
moved = i = 0
end = time.monotonic() + 20
while i < count or not (count or moved > 100 or time.monotonic() > end):
    s.sendall(bytes([i %% 256]) * 64)
    m = s.recv(64, socket.MSG_WAITALL)
    assert m[1:] == bytes([i %% 256]) * 63, (i, m)
    moved += m[0]
    i += 1
pause('after')
print('shm' if moved else 'tcp')
''' % IP_LOCAL_PORT_RANGE


def check(what, good, *seen):
    global bad
    if not good:
        print(what, *seen)
        bad = 1


class Served:
    """A server under exs run, and what it reports in the end."""

    def __init__(self, folder):
        self.folder, self.n = folder, 0

    def __enter__(self):
        self.n += 1
        self.report = '%s/server-%d' % (self.folder, self.n)
        self.process = subprocess.Popen(
            [EXS, 'run', '--report=' + self.report, PYTHON, '-c', SERVER],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.process.stdout.readline()
        return self

    def __exit__(self, *what):
        self.process.stdin.close()
        self.process.stdout.close()
        check('server', self.process.wait(TIMEOUT) == 0, self.process.returncode)
        with open(self.report) as f:
            self.said = f.read()


def reasons(said):
    return re.findall(r'on TCP \(([a-z-]+)\)', said)


def start(host, port, *under, count=300, wait='', own=0, **kw):
    return subprocess.Popen(
        [*under, PYTHON, '-c', CLIENT, host, wait, str(port), str(count), str(own)],
        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, **kw)


def talks(served, host, port, fabric, here, there):
    """A client under exs run says at its end and the server's which fabric it used,
    and why not shared memory."""
    report = served.folder + '/client'
    if os.path.exists(report):
        os.unlink(report)
    with served:
        said = start(host, port, EXS, 'run', '--report=' + report,
                     count=0 if fabric == 'shm' else 300).communicate(timeout=TIMEOUT)[0]
    with open(report) as f:
        mine = f.read()
    what = '%s port %d:' % (host, port)
    check(what, said == fabric + '\n', said)
    check(what + ' client', reasons(mine) == here, mine)
    check(what + ' server', reasons(served.said) == there, served.said)


def stranger(served):
    """A user connects to the server itself from the address and port of a client
    whose connection is redirected. The kernel changes that port, so that the server
    has two clients, and one has the addresses of the stranger's socket."""
    # Neither is bound to the port: then both can have it, for two destinations.
    with open('/proc/sys/net/ipv4/ip_local_port_range') as f:
        own = int(f.read().split()[0])
    with served:
        victim = start('127.0.0.1', 7000, wait='before', own=own)
        check('the client connects', victim.stdout.readline() == '\n')
        thief = start('127.0.0.1', 7001, EXS, 'run', wait='after', own=own,
                      user=65534, group=65534, extra_groups=[])
        check('the stranger talks', thief.stdout.readline() == '\n')
        said = victim.communicate('\n', timeout=TIMEOUT)[0]
        check('a stranger is the client', said == 'tcp\n', said)
        said = thief.communicate('\n', timeout=TIMEOUT)[0]
        check('the stranger is a client, too', said == 'tcp\n', said)


def main():
    subprocess.run(['ip', 'link', 'set', 'lo', 'up'], check=True)
    subprocess.run(['ip', 'addr', 'add', '10.99.0.2', 'dev', 'lo'], check=True)
    # This one, as that of a service, is nobody's.
    subprocess.run(['ip', 'route', 'add', '10.98.0.1', 'dev', 'lo', 'src',
                    '10.99.0.2'], check=True)
    if subprocess.run(['nft', '-f', '-'], input=RULES, text=True,
                      check=False).returncode:
        sys.exit('nft refuses the rules')
    with tempfile.TemporaryDirectory(prefix='exs-') as folder:
        os.chmod(folder, 0o711)
        served = Served(folder)
        talks(served, '127.0.0.1', 7001, 'shm', [], [])
        talks(served, '127.0.0.1', 7000, 'tcp', ['redirected'],
              ['redirected'])
        talks(served, '::1', 7000, 'tcp', ['redirected'], ['redirected'])
        talks(served, '10.98.0.1', 7000, 'tcp', ['remote'], ['redirected'])
        stranger(served)
    sys.exit(bad)


if os.getuid() or not shutil.which('nft', path=os.environ['PATH'] + ':/usr/sbin'):
    print('it needs root and nft')
    sys.exit(77)
if '--inside' not in sys.argv:
    os.execvp('unshare', ['unshare', '-n', sys.executable, *sys.argv, '--inside'])
main()
