#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Running programs are asked from outside: their connections go to TCP and leave it
again, without a byte lost, their log's level changes, and they report; a stranger's
bytes, another user and a forked child do nothing: control.py EXS ASKS."""

import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile

from common import DEADLINE, check, environment, result, wait_for

EXS, ASKS = (os.path.abspath(a) for a in sys.argv[1:3])
SETTINGS = {'EXS_LOG': 'warn'}
COMMANDS = 'downgrade', 'upgrade', 'log', 'report'

SERVER = """
import socket, threading
s = socket.create_server(('127.0.0.1', 0), backlog=64)
print(s.getsockname()[1], flush=True)
def serve(c):
    try:
        while True:
            got = c.recv(65536)
            if not got:
                break
            c.sendall(got)
    except ConnectionError:
        pass  # the client was killed
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""

# Asks without an end, and compares every byte; says how often when it is asked.
CLIENT = """
import os, random, socket, sys, threading
at = ('127.0.0.1', int(sys.argv[1]))
n = 0
def ask(seed):
    global n
    rnd = random.Random(seed)
    c = socket.create_connection(at)
    while True:
        want = rnd.randbytes(rnd.randrange(1, 20000))
        c.sendall(want)
        got = b''
        while len(got) < len(want):
            part = c.recv(65536)
            if not part:
                os._exit(3)
            got += part
        if got != want:
            os._exit(4)
        n += 1
def brief():
    with socket.create_connection(at) as c:
        c.sendall(b'brief')
        return len(c.recv(5, socket.MSG_WAITALL))
for i in range(3):
    threading.Thread(target=ask, args=(i,), daemon=True).start()
for line in sys.stdin:
    if line == 'fork\\n':
        child = os.fork()
        if child == 0:
            while True:
                threading.Event().wait()
        print(child, flush=True)
    elif line == 'brief\\n':
        print(brief(), flush=True)
    else:
        print(n, flush=True)
"""


def program(*args, more=None):
    return subprocess.Popen([EXS, 'run', *map(str, args)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True, env=environment(SETTINGS, more))


def tool(*args, user=None):
    def become():
        os.setgid(user)
        os.setuid(user)
    p = subprocess.run([EXS, *map(str, args)], capture_output=True, text=True,
                       timeout=DEADLINE, env=environment(SETTINGS),
                       preexec_fn=become if user else None)
    return p.returncode, p.stdout, p.stderr


def connections(pid):
    status, out, _ = tool('stat', '--json', pid)
    return json.loads(out)['connections'] if status == 0 else []


def ask(p, word='count'):
    p.stdin.write(word + '\n')
    p.stdin.flush()
    return int(p.stdout.readline() or -1)


def goes_on(p):
    before = ask(p)
    return wait_for('the client goes on', lambda: ask(p) > before + 20)


def all_on(pid, fabric, reason=None, n=3):
    found = connections(pid)
    return len(found) == n and all(c['sends']['fabric'] == fabric and
                         c['receives']['fabric'] == fabric and
                         (not reason or c['reason'] == reason) for c in found)


def moves(server, client):
    wait_for('all on shm', lambda: all_on(client.pid, 'shm') and
             all_on(server.pid, 'shm'))
    for i in range(3):
        status, out, err = tool('downgrade', client.pid)
        check(status == 0 and out.startswith('3 connections moved to TCP'), out, err)
        check(all_on(client.pid, 'tcp', 'operator'), 'on TCP', connections(client.pid))
        goes_on(client)
        check(all_on(client.pid, 'tcp', 'operator'), 'still', connections(client.pid))
        check(all_on(server.pid, 'tcp', 'peer-request'), 'there', connections(server.pid))
        status, out, err = tool('upgrade', client.pid)
        check(status == 0 and out == '3 connections may leave TCP\n', out, err)
        goes_on(client)
        wait_for('back on shm', lambda: all_on(client.pid, 'shm') and
                 all_on(server.pid, 'shm'))
    # The sockets of the host may be many: exs downgrade does not list them to wait.
    for command, times in ('downgrade', 0), ('upgrade', 0), ('stat', 1):
        out = subprocess.run([EXS, command, str(client.pid)], capture_output=True, text=True,
                             timeout=DEADLINE, env=environment(SETTINGS, {'LD_PRELOAD': ASKS}))
        # Who is not root is also told that other users' processes are not shown.
        asked = re.search(r'^asked (\d+) times\n\Z', out.stderr, re.M)
        check(asked and (int(asked.group(1)) > 0) == times, command, out)
    # A command that cannot look does not say that they have moved.
    for room in range(5):
        out = subprocess.run([EXS, 'downgrade', str(client.pid)], capture_output=True, text=True,
                             timeout=DEADLINE, env=environment(SETTINGS, {
                                 'LD_PRELOAD': ASKS, 'ASKS_ROOM': str(room)}))
        check(out.returncode == 1 and not out.stdout and
              'cannot be read: Too many open files' in out.stderr, 'no room', room, out)
    tool('upgrade', client.pid)
    goes_on(client)
    wait_for('back on shm', lambda: all_on(client.pid, 'shm') and
             all_on(server.pid, 'shm'))
    fd = connections(client.pid)[1]['fd']
    status, out, err = tool('downgrade', client.pid, fd)
    check(status == 0 and out.startswith('1 connection moved'), out, err)
    check([c['fd'] for c in connections(client.pid) if c['reason'] == 'operator'] == [fd],
          'one descriptor', connections(client.pid))
    check(tool('upgrade', server.pid)[1] == '0 connections may leave TCP\n',
          'the other end does not undo it')
    check(tool('upgrade', client.pid, fd)[1].startswith('1 connection may'), 'one')
    wait_for('back on shm', lambda: all_on(client.pid, 'shm'))


def logs(client, log):
    check(tool('log', client.pid)[1] == 'warn\n', 'the level')
    check(tool('log', client.pid, 'debug')[1] == 'debug\n', 'set')
    check(tool('log', client.pid)[1] == 'debug\n', 'it stays')
    before = os.path.getsize(log)
    tool('downgrade', client.pid)
    tool('upgrade', client.pid)
    with open(log) as f:
        f.seek(before)
        lines = f.read().splitlines()
    for c in connections(client.pid):
        # Both processes write here; the addresses say whose connection it is.
        name = (f'libexs[{client.pid}] debug: descriptor {c["fd"]} '
                f'(local {c["local"]}, peer {c["peer"]}): operator')
        check(lines.count(name) == 1, 'a line says which connection, once', name, lines)
    check(tool('log', client.pid, 'warn')[1] == 'warn\n', 'and back')
    check(tool('log', client.pid, 'loud')[0] == 2, 'no such level')


REPORT = re.compile(r'exs run: (.*)\[(\d+)\]: (\d+) connections? on a fabric, '
                    r'(\d+) of (\d+) bytes, \d+ bells?((?:; \d+ on TCP \([a-z-]+\))*)\n')


def report(pid):
    """The numbers of a report, its lines, and what is not counted."""
    status, out, err = tool('report', pid)
    first = REPORT.match(out)
    check(status == 0 and first and first.group(2) == str(pid), 'a report', out, err)
    if not first:
        return 0, 0, 0, '', ''
    fast, moved, every = (int(first.group(i)) for i in (3, 4, 5))
    check(0 < moved <= every, 'bytes', out)
    return (fast + sum(map(int, re.findall(r'; (\d+)', first.group(6)))), fast, every, out,
            ''.join(line for line in out.splitlines() if 'not counted' in line))


def reports(client, port):
    n, fast, every, out, left = report(client.pid)
    check(n == fast == 3 and f'  to 127.0.0.1 port {port}: 3 connections, shm, ' in out and
          'that ended before 20' in left, 'the client', out)
    check(ask(client, 'brief') == 5, 'a connection that ends')
    again = report(client.pid)
    check(again[0] == 4 and again[1] == 3 and again[2] > every and again[4] == left,
          'what has ended is in it', again)
    # Each of several that ask at once gets it all.
    asked = [subprocess.Popen([EXS, 'report', str(client.pid)], stdout=subprocess.PIPE,
                              text=True, env=environment(SETTINGS)) for _ in range(4)]
    for p in asked:
        out = p.communicate(timeout=DEADLINE)[0]
        check(REPORT.match(out) and out.endswith(left + '\n'), 'at once', out)
    check(tool('report', client.pid, '1')[0] == 2, 'usage')


def reports_twice(port, folder):
    """A program that reports at its end, and whose name is made to deceive."""
    path, log = os.path.join(folder, 'a\033[31m'), os.path.join(folder, 'report')
    os.symlink(sys.executable, path)
    p = program(path, '-c', CLIENT, port, more={'EXS_REPORT': log})
    try:
        wait_for('all on shm', lambda: all_on(p.pid, 'shm'))
        check(ask(p, 'brief') == 5, 'a connection that ends')
        n, _, every, out, left = report(p.pid)
        check(n == 4 and not left and out.startswith('exs run: a?[31m['), 'as it ends', out)
        p.terminate()
        p.wait(DEADLINE)
        with open(log) as f:
            last = REPORT.match(f.read())
        check(last and last.group(3) == '3' and int(last.group(5)) >= every,
              'the last report has all, too', last)
    finally:
        p.kill()
        p.communicate()


def reports_none():
    """A program that uses the calls of the library itself."""
    p = subprocess.Popen([EXS, 'perf', '--pair', '--seconds', str(2 * DEADLINE)],
                         stdout=subprocess.DEVNULL, env=environment(SETTINGS))
    try:
        wait_for('it is connected', lambda: all_on(p.pid, 'shm', n=1))
        status, out, err = tool('report', p.pid)
        check(status == 1 and 'not started by exs run' in err and not out, 'none', out, err)
    finally:
        p.kill()
        p.wait()


def pipes(pid):
    """The pipes of the process that only it has open, for both ways."""
    found = {}
    for fd in os.listdir(f'/proc/{pid}/fd'):
        try:
            to = os.readlink(f'/proc/{pid}/fd/{fd}')
            with open(f'/proc/{pid}/fdinfo/{fd}') as f:
                flags = int(f.read().split('flags:')[1].split()[0], 8)
        except FileNotFoundError:
            continue  # closed meanwhile
        if to.startswith('pipe:') and flags & os.O_ACCMODE == os.O_RDWR:
            found[to] = fd
    return found


def strangers(client):
    [(name, fd)] = pipes(client.pid).items()
    check(os.stat(f'/proc/{client.pid}/fd/{fd}').st_mode & 0o777 == 0o600, 'the mode')
    for junk in b'x', bytes(64), b'EXSASK' * 1000, b'\xff' * 63, bytes(65536):
        with open(f'/proc/{client.pid}/fd/{fd}', 'wb', buffering=0,
                  opener=lambda p, f: os.open(p, f | os.O_NONBLOCK)) as f:
            try:
                f.write(junk)
            except BlockingIOError:
                pass
        check(tool('log', client.pid)[1] == 'warn\n', 'after', junk[:10])
    goes_on(client)
    child = ask(client, 'fork')
    try:
        wait_for('a child has no part of it', lambda: name not in pipes(child))
    finally:
        os.kill(child, 9)
    if os.getuid() == 0:
        for command in COMMANDS:
            status, out, err = tool(command, client.pid, user=65534)
            check(status == 1 and "another user's" in err and not out, command, err)


def nobody():
    for command in COMMANDS:
        check(tool(command, os.getpid())[0] == 1, 'a program without the library')
        check('there is no process' in tool(command, 2 ** 22 + 1)[2], 'no process')
        check(tool(command, 'x')[0] == 2 and tool(command)[0] == 2, 'usage')


def borrowed():
    """Nothing is written into a pipe of root's, which a page by a stranger names, and of
    which the stranger has the end to read."""
    if os.getuid() != 0:
        return
    r, w = os.pipe()
    ready, begun = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setgid(65534)
        os.setuid(65534)
        fd = os.memfd_create('libexs-stats')
        os.ftruncate(fd, 8192)
        os.pwrite(fd, struct.pack('=QIIiIQ', 0x5354415453584531, 1, 4096, os.getpid(),
                                  256, 4096), 0)
        os.pwrite(fd, struct.pack('=Q', os.fstat(r).st_ino), 296)
        os.close(w)
        os.write(begun, b'x')
        signal.pause()
    os.read(ready, 1)
    status, out, err = tool('log', pid)
    check(status == 1 and 'no control channel' in err, 'a borrowed pipe', out, err)
    check(not select.select([r], [], [], 0)[0], 'bytes in a borrowed pipe')
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    for fd in r, w, ready, begun:
        os.close(fd)


# Answers each request with its next number, as the process of this page.
LIAR = """
import os, struct, sys
fd = os.memfd_create('libexs-stats')
os.ftruncate(fd, 8192)
os.pwrite(fd, struct.pack('=QIIiIQ', 0x5354415453584531, 1, 4096, os.getpid(), 256, 4096), 0)
r, w = os.pipe()
os.pwrite(fd, struct.pack('=Q', os.fstat(r).st_ino), 296)
print('ready', flush=True)
for n in sys.argv[1:]:
    token = os.read(r, 64)[8:16]
    os.pwrite(fd, struct.pack('=q', int(n)), 312)
    os.pwrite(fd, token, 304)
"""


def liars():
    """An answer that is no count, no text and no error is told as that."""
    for n in -4000, -1 << 32, -1 << 63:
        for command in 'downgrade', 'log', 'trace':
            p = subprocess.Popen([sys.executable, '-c', LIAR, str(n)],
                                 stdout=subprocess.PIPE, text=True)
            p.stdout.readline()
            status, out, err = tool(command, p.pid)
            check(status == 1 and not out and 'answers with nonsense' in err, command, n,
                  status, out, err)
            p.kill()
            p.communicate()


def capture(port, n):
    """n packets with bytes of the port, as a capture sees them."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800)) as s:
        s.bind(('lo', 0x0800))
        s.settimeout(DEADLINE)
        seen = 0
        while seen < n:
            p = s.recv(65536)
            at = (p[0] & 15) * 4
            ports = (int.from_bytes(p[at:at + 2], 'big'),
                     int.from_bytes(p[at + 2:at + 4], 'big'))
            head = (p[at + 12] >> 4) * 4 if len(p) > at + 12 else 0
            seen += p[9] == 6 and port in ports and len(p) > at + head
    return seen


def redis():
    """Under load, to TCP and back, and no client sees an error."""
    if not shutil.which('redis-server') or not shutil.which('redis-benchmark'):
        return
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        port = s.getsockname()[1]
    server = program('redis-server', '--port', port, '--save', '', '--bind', '127.0.0.1',
                     '--loglevel', 'warning')
    load = None
    try:
        def answers():
            try:
                socket.create_connection(('127.0.0.1', port)).close()
                return True
            except OSError:
                return False
        wait_for('redis', answers)
        load = subprocess.Popen([EXS, 'run', 'redis-benchmark', '-p', str(port), '-c', '8',
                                 '-n', '100000000', '-t', 'set', '-P', '4'],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                env=environment(SETTINGS))

        def on(fabric):
            found = [c for c in connections(server.pid) if not c['young']]
            return len(found) == 8 and all(c['sends']['fabric'] == fabric for c in found)
        wait_for('redis on shm', lambda: on('shm'))
        for _ in range(3):
            status, out, err = tool('downgrade', server.pid)
            check(status == 0 and on('tcp'), 'redis on TCP', out, err)
            if os.getuid() == 0:
                check(capture(port, 50) >= 50, 'a capture sees the stream')
            check(tool('upgrade', server.pid)[0] == 0, 'upgrade')
            wait_for('redis on shm again', lambda: on('shm'))
        check(load.poll() is None, 'the load goes on')
        load.terminate()
        said = load.communicate()[0]
        check(b'rror' not in said, 'no error at the client', said[-300:])
    finally:
        for p in load, server:
            if p:
                p.kill()
                p.wait()


def main():
    nobody()
    borrowed()
    liars()
    with tempfile.NamedTemporaryFile() as log, tempfile.TemporaryDirectory() as folder:
        more = {'EXS_LOG_FILE': log.name}
        server = program(sys.executable, '-c', SERVER, more=more)
        port = server.stdout.readline().strip()
        client = program(sys.executable, '-c', CLIENT, port, more=more)
        try:
            moves(server, client)
            reports(client, port)
            reports_twice(port, folder)
            logs(client, log.name)
            strangers(client)
            check(client.poll() is None, 'the client is right to the end')
        finally:
            for p in client, server:
                p.kill()
                p.communicate()
    reports_none()
    redis()
    return result()


sys.exit(main())
