#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Captures of running programs have every byte of the streams, also where the connection
moves; the program waits for no reader, and another user gets nothing:
trace.py EXS [tshark | ofi]. With tshark, that reads the captures, too; with ofi the
connections move to that fabric."""

import inspect
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

import pcapng
from common import DEADLINE, check, environment, result, wait_for

EXS = os.path.abspath(sys.argv[1])
TSHARK, OFI = ([word] == sys.argv[2:] for word in ('tshark', 'ofi'))
FABRIC = 'ofi' if OFI else 'shm'
SETTINGS = {'EXS_LOG': 'warn'}
if OFI:
    SETTINGS |= {'EXS_PROVIDER': 'ofi,tcp', 'EXS_OFI_PROVIDER': 'tcp', 'EXS_TRUST': 'hosts',
                 'EXS_UPGRADE': 'bytes:64', 'EXS_OFI_PORT_OFFSET': '32768'}
LEAST = 256 << 10  # the smallest ring

OTHER = bytes(255 - i for i in range(256))


def chunks(seed):
    """What a client sends that has this port."""
    rnd = random.Random(seed)
    while True:
        yield rnd.randbytes(rnd.randrange(1, 20000))


SERVER = """
import socket, sys, threading
s = socket.create_server(('127.0.0.1', 0), backlog=64)
print(s.getsockname()[1], flush=True)
def serve(c):
    while got := c.recv(65536):
        c.sendall(got.translate(bytes(255 - i for i in range(256))))
    c.close()
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""

CLIENT = inspect.getsource(chunks) + """
import os, random, socket, sys, threading
at = ('127.0.0.1', int(sys.argv[1]))
known = {}
for line in sys.stdin:
    word, *more = line.split()
    n = int(more[-1]) if more else 0
    if word == 'open':
        c = socket.create_connection(at)
        port = c.getsockname()[1]
        known[port] = [c, chunks(port), 0]
        print(port, flush=True)
    elif word == 'talk':
        it = known[int(more[0])]
        for _ in range(n):
            want = next(it[1])
            it[0].sendall(want)
            got = b''
            while len(got) < len(want):
                got += it[0].recv(len(want) - len(got))
            it[2] += len(want)
            if got.translate(bytes(255 - i for i in range(256))) != want:
                os._exit(4)
        print(it[2], flush=True)
    elif word == 'number':
        print(known[n][0].fileno(), flush=True)
    elif word == 'close':
        c = known.pop(n)[0]
        c.shutdown(socket.SHUT_WR)
        left = len(c.recv(1))
        c.close()
        print(left, flush=True)
    elif word == 'fork':
        child = os.fork()
        while child == 0:
            threading.Event().wait()
        print(child, flush=True)
"""


class Program:
    def __init__(self, *args):
        self.p = subprocess.Popen([EXS, 'run', sys.executable, '-c', *map(str, args)],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                  env=environment(SETTINGS))
        self.pid = self.p.pid

    def ask(self, *words):
        self.p.stdin.write(' '.join(map(str, words)) + '\n')
        self.p.stdin.flush()
        return int(self.p.stdout.readline() or -1)

    def end(self):
        self.p.kill()
        self.p.communicate()


def captured(pid):
    """Whether the process has the ring of a capture."""
    found = []
    for fd in os.listdir(f'/proc/{pid}/fd'):
        try:
            found.append(os.readlink(f'/proc/{pid}/fd/{fd}'))
        except FileNotFoundError:
            pass
    return any('libexs-capture' in name for name in found)


class Trace:
    def __init__(self, pid, path, *args, **more):
        self.pid, self.path = pid, path
        self.p = subprocess.Popen([EXS, 'trace', '-w', path, *map(str, args), str(pid)],
                                  stderr=subprocess.PIPE, text=True,
                                  env=environment(SETTINGS), **more)
        # The head of the file is there when the capture has begun.
        wait_for('the capture', lambda: self.p.poll() is not None or
                 (os.path.exists(path) and os.path.getsize(path)))

    def end(self, sign=signal.SIGINT):
        self.p.send_signal(sign)
        err = self.p.communicate(timeout=DEADLINE)[1]
        check(self.p.returncode == 0, 'exs trace', err)
        wait_for('the capture ends', lambda: not os.path.exists(f'/proc/{self.pid}/fd') or
                 not captured(self.pid))
        return pcapng.read(self.path)


def tool(*args, user=None):
    def become():
        os.setgid(user)
        os.setuid(user)
    p = subprocess.run([EXS, *map(str, args)], capture_output=True, timeout=DEADLINE,
                       env=environment(SETTINGS), preexec_fn=become if user else None)
    return p.returncode, p.stdout, p.stderr.decode()


def fabric(pid, port):
    out = tool('stat', '--json', pid)[1]
    for c in json.loads(out)['connections'] if out else []:
        if c['local'].endswith(f':{port}') or c['peer'].endswith(f':{port}'):
            return c['sends']['fabric'], c['receives']['fabric']
    return None


def expected(port, n):
    """The first n bytes that the client sent, at least."""
    found = bytearray()
    for part in chunks(port):
        if len(found) >= n:
            return bytes(found)
        found += part


def right(name, packets, server, port, n, from_first=True):
    """The capture has the n bytes of each direction, and nothing else."""
    want = expected(port, n)
    check(len(want) == n, 'as many as the client said')
    have = pcapng.streams(packets)
    for key, all_of_it in ((port, server), want), ((server, port), want.translate(OTHER)):
        parts = have.get(key, [])
        check(len(parts) == 1, name, key, 'in one piece', [(a, len(p)) for a, p in parts])
        for at, part in parts:
            check(bytes(part) == all_of_it[at:at + len(part)], name, key, 'other bytes')
            check(at + len(part) == n, name, key, 'the end', at, len(part), n)
            check(not from_first or at == 0, name, key, 'the beginning', at)


def by_tshark(path, server, port, n):
    """tshark puts it together, too."""
    out = subprocess.run(['tshark', '-r', path, '-q', '-z', f'follow,tcp,raw,127.0.0.1:{port},127.0.0.1:{server}'], text=True,
                         capture_output=True, timeout=DEADLINE, check=True).stdout
    lines = [line for line in out.splitlines() if not line.strip('\t').strip('0123456789abcdef')]
    first, other = (bytes.fromhex(''.join(x.strip() for x in lines if x.startswith('\t') == side))
                    for side in (False, True))
    want = expected(port, n)
    if f'Node 0: 127.0.0.1:{server}' in out:
        first, other = other, first
    check(first == want and other == want.translate(OTHER), 'tshark', len(first), len(other), n)


def moving(client, server, at, folder):
    """From the first byte to the last, at both ends, to the fabric and to TCP and back."""
    traces = [Trace(p.pid, f'{folder}/{name}') for p, name in
              ((client, 'client'), (server, 'server'))]
    port = client.ask('open')
    client.ask('talk', port, 5)
    wait_for('on the fabric', lambda: client.ask('talk', port, 1) and
             fabric(client.pid, port) == (FABRIC, FABRIC))
    for pid in client.pid, server.pid:
        check(tool('downgrade', pid)[0] == 0, 'downgrade')
        client.ask('talk', port, 3)
        check(tool('upgrade', pid)[0] == 0, 'upgrade')
        wait_for('on the fabric again', lambda: client.ask('talk', port, 1) and
                 fabric(client.pid, port) == (FABRIC, FABRIC))
    n = client.ask('talk', port, 5)
    check(client.ask('close', port) == 0, 'close')
    for name, t in zip(('client', 'server'), traces):
        packets, lost = t.end()
        ours = [p for p in packets if port in (p.ends[0][1], p.ends[1][1])]
        check(lost == 0 and not any(p.lost for p in packets), 'nothing is lost')
        right(name, ours, at, port, n)
        check({p.interface for p in ours} == {'tcp', FABRIC}, 'interfaces')
        check([p.flags for p in ours[:3]] == [2, 18, 16] and ours[0].ends[0][1] == port,
              'a handshake', [p.flags for p in ours[:3]])
        check(sum(p.flags & 1 for p in ours) == 2 and ours[-1].flags & 1, name, 'each FIN')
        check(all(p.incoming == (p.ends[1][1] == (port if name == 'client' else at))
                  for p in ours), 'directions')
        said = [p.comment for p in ours if p.comment]
        pid = (client if name == 'client' else server).pid
        check(all(f'[{pid}] fd ' in s for s in said) and
              any(s.endswith(f'sends by {FABRIC}') for s in said) and
              any('tcp: operator' in s for s in said) and
              any('tcp: peer-request' in s for s in said) and 'closes' in said[-1],
              'comments', said)
        check(all(a.ns <= b.ns for a, b in zip(ours, ours[1:])), 'in the order of time')
        if TSHARK:
            by_tshark(t.path, at, port, n)


def late(client, at, port, folder):
    """It begins in mid-stream, and ends there; of one descriptor, or of one port."""
    other = client.ask('open')
    for args, seen in ((), {port, other}), (('-f', client.ask('number', port)), {port}), \
            (('-p', port), {port}), (('-p', at), {port, other}), (('-p', 1), set()):
        t = Trace(client.pid, f'{folder}/late', *args)
        n = {p: client.ask('talk', p, 2) for p in (port, other)}
        packets = t.end()[0]
        check({e for p in packets for _, e in p.ends} - {at} == seen, 'which', args)
        for p in seen:
            right('late', [x for x in packets if p in (x.ends[0][1], x.ends[1][1])], at, p, n[p],
                  False)
        os.unlink(t.path)
    t = Trace(client.pid, f'{folder}/short', '-s', 16, '-c', 20)
    client.ask('talk', port, 30)
    check(t.p.wait(DEADLINE) == 0, 'it ends when it has enough')
    packets = t.end(0)[0]
    check(len(packets) == 20 and all(len(p.bytes) == min(p.length, 16) for p in packets) and
          any(p.length > 16 for p in packets), 'cut')
    client.ask('close', other)


def slow(client, at, port, folder):
    """A reader that is stopped misses packets, which are counted, and the program goes on."""
    t = Trace(client.pid, f'{folder}/slow', '-b', '256k')
    t.p.send_signal(signal.SIGSTOP)
    n, begun = 0, client.ask('talk', port, 1)
    while n < begun + 4 * LEAST:
        n = client.ask('talk', port, 10)
    t.p.send_signal(signal.SIGCONT)
    n = client.ask('talk', port, 1)
    packets, lost = t.end()
    check(lost and lost == sum(p.lost for p in packets), 'lost', lost)
    want = expected(port, n)
    for (sender, _), parts in pcapng.streams(packets).items():
        ours = want if sender == port else want.translate(OTHER)
        check(all(bytes(b) == ours[a:a + len(b)] for a, b in parts), 'what is there is right')
        check(parts[-1][0] + len(parts[-1][1]) == n, 'the last')


def gone(client, at, port, folder):
    """The program does not notice that its reader is killed, or stops to read."""
    t = Trace(client.pid, f'{folder}/gone')
    t.p.kill()
    t.p.communicate()
    client.ask('talk', port, 2)
    wait_for('it ends with its reader', lambda: not captured(client.pid))
    # A reader whose own reader is gone.
    r, w = os.pipe()
    p = subprocess.Popen([EXS, 'trace', str(client.pid)], stdout=w, stderr=subprocess.DEVNULL,
                         env=environment(SETTINGS))
    os.close(w)
    check(os.read(r, 4) == b'\x0a\x0d\x0d\x0a', 'a head')
    os.close(r)
    while p.poll() is None:
        client.ask('talk', port, 1)
    check(p.returncode == 0, 'that is no failure')
    wait_for('it ends', lambda: not captured(client.pid))
    # Nobody reads the pipe: the reader waits, and the program does not.
    r, w = os.pipe()
    p = subprocess.Popen([EXS, 'trace', '-b', '256k', str(client.pid)], stdout=w,
                         stderr=subprocess.PIPE, text=True, env=environment(SETTINGS))
    os.close(w)
    wait_for('it begins', lambda: captured(client.pid))
    before = client.ask('talk', port, 1)
    while client.ask('talk', port, 10) < before + 4 * LEAST:
        pass
    p.terminate()
    check('packets' in p.communicate(timeout=DEADLINE)[1] and p.returncode == 0, 'full pipe')
    os.close(r)


def strangers(client, folder):
    t = Trace(client.pid, f'{folder}/first')
    status, out, err = tool('trace', client.pid)
    check(status == 1 and 'has another exs trace' in err, 'a second one', err)
    child = client.ask('fork')
    wait_for('a child has no part of it', lambda: not captured(child))
    os.kill(child, signal.SIGKILL)
    # The child had the pipe for a moment, and keeps no capture alive.
    t.end()
    check(os.stat(t.path).st_mode & 0o777 == 0o600, 'the file is private')
    link = f'{folder}/link'
    os.symlink(f'{folder}/elsewhere', link)
    status, out, err = tool('trace', '-w', link, client.pid)
    check(status == 1 and not os.path.exists(f'{folder}/elsewhere'), 'a link', err)
    if os.getuid() == 0:
        status, out, err = tool('trace', client.pid, user=65534)
        check(status == 1 and "another user's" in err and not captured(client.pid), 'refused',
              err)
    check(tool('trace', os.getpid())[0] == 1, 'a program without the library')
    for args in (), ('x',), ('-b', '1', client.pid), ('-p', '0', client.pid), \
            ('-p', '65536', client.pid), (client.pid, 1):
        check(tool('trace', *args)[0] == 2, 'usage', args)
    status, out, err = tool('trace', '-w', f'{folder}/nowhere/file', client.pid)
    check(status == 1 and 'No such file' in err, 'a folder that is not there', err)


def killed(client, at, port, folder):
    """What was captured is there when the program is killed."""
    t = Trace(client.pid, f'{folder}/killed')
    n = client.ask('talk', port, 3)
    client.p.kill()
    check(t.p.wait(DEADLINE) == 0, 'it ends with the program')
    packets = pcapng.read(t.path)[0]
    right('killed', packets, at, port, n, False)
    t.p.communicate()


# The page, pipes and ring of a program, made by hand: the ring has records from end to
# end, and more than anybody can read.
ENDLESS = """
import os, struct, time
def memfd(name, *parts):
    fd = os.memfd_create(name)
    for at, data in parts:
        os.pwrite(fd, data, at)
    return fd
record = struct.pack('=4I4Q4I', 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1).ljust(128, bytes(1))
ring = memfd('libexs-capture', (0, struct.pack('=QIiQQQ', 0x5041435453584531, 1, os.getpid(),
                                               1 << 20, 0, 1 << 62)),
             (4096, record * 8192))
asks, _ = os.pipe()
life, _ = os.pipe()
page = memfd('libexs-stats', (8191, bytes(1)),
             (0, struct.pack('=QIIiIQ', 0x5354415453584531, 1, 4096, os.getpid(), 256, 4096)),
             (296, struct.pack('=Q', os.fstat(asks).st_ino)))
print('ready', flush=True)
for answer in 3, os.fstat(life).st_ino, os.fstat(ring).st_ino:
    token = os.read(asks, 64)[8:16]
    os.pwrite(page, struct.pack('=q', answer), 312)
    os.pwrite(page, token, 304)
print('begun', flush=True)
time.sleep(1000)
"""


def endless():
    """An interrupt ends it where the ring is never empty."""
    program = subprocess.Popen([sys.executable, '-c', ENDLESS], stdout=subprocess.PIPE,
                               text=True)
    check(program.stdout.readline() == 'ready\n', 'it is ready')
    p = subprocess.Popen([EXS, 'trace', str(program.pid)], stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE, text=True, env=environment(SETTINGS))
    try:
        wait_for('it begins', lambda: select.select([program.stdout], [], [], 0)[0])
        p.send_signal(signal.SIGINT)
        err = p.communicate(timeout=DEADLINE)[1]
        check(p.returncode == 0 and ' packets' in err, 'the end', err)
    except subprocess.TimeoutExpired:
        check(False, 'no end')
    finally:
        for one in p, program:
            one.kill()
            one.communicate()


def live(client, at, port):
    """Into tshark."""
    p = subprocess.Popen([EXS, 'trace', '-d', '3', str(client.pid)], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, env=environment(SETTINGS))
    seen = subprocess.Popen(['tshark', '-r', '-', '-T', 'fields', '-e', 'tcp.len', '-e',
                             'frame.interface_name'], stdin=p.stdout, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True)
    p.stdout.close()
    wait_for('it begins', lambda: captured(client.pid))
    before = client.ask('talk', port, 1)
    n = client.ask('talk', port, 20)
    lines = [x.split('\t') for x in seen.communicate(timeout=DEADLINE)[0].splitlines()]
    check(p.wait(DEADLINE) == 0 and sum(int(x[0]) for x in lines) >= 2 * (n - before), 'live')


def main():
    if TSHARK and not shutil.which('tshark'):
        return 77
    server = Program(SERVER)
    at = int(server.p.stdout.readline())
    client = Program(CLIENT, at)
    try:
        with tempfile.TemporaryDirectory() as folder:
            port = client.ask('open')
            wait_for('on the fabric', lambda: client.ask('talk', port, 1) and
                     fabric(client.pid, port) == (FABRIC, FABRIC))
            moving(client, server, at, folder)
            late(client, at, port, folder)
            if OFI:
                return result()
            slow(client, at, port, folder)
            gone(client, at, port, folder)
            strangers(client, folder)
            if TSHARK:
                live(client, at, port)
            check(client.p.poll() is None and server.p.poll() is None, 'right to the end')
            killed(client, at, port, folder)
    finally:
        client.end()
        server.end()
    endless()
    return result()


sys.exit(main())
