#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""exs stat says of running processes what they did, beside what the kernel says of
the same sockets: while they hang, after they died or forked, to their own user only,
and whatever a page of counters has in it: stat.py EXS."""

import json
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from common import DEADLINE, check, environment, result, wait_for

EXS = sys.argv[1]
SETTINGS = {'EXS_LOG': 'off', 'EXS_UPGRADE': 'auto'}
ROUNDS, MORE, SIZE, MANY = 40, 5, 8192, 8

SERVER = """
import os, socket, sys, threading
s = socket.create_server(('127.0.0.1', 0), backlog=64)
print(s.getsockname()[1], flush=True)
def serve(c):
    while True:
        got = c.recv(65536)
        if not got:
            break
        c.sendall(got)
while True:
    c, _ = s.accept()
    threading.Thread(target=serve, args=(c,), daemon=True).start()
"""

CLIENT = f"""
import os, signal, socket, sys
def ask(c, n):
    for i in range(n):
        c.sendall(bytes({SIZE}))
        got = 0
        while got < {SIZE}:
            got += len(c.recv(65536))
at = ('127.0.0.1', int(sys.argv[1]))
socks = [socket.create_connection(at) for i in range({MANY})]
for c in socks:
    ask(c, {ROUNDS})
young = socket.create_connection(at)
print('ready', flush=True)
for line in sys.stdin:
    if line == 'fork\\n':
        r, w = os.pipe()
        if os.fork() == 0:
            ask(socks[0], 3)
            os.write(w, str(os.getpid()).encode() + b'\\n')
            signal.pause()
        os.close(w)
        print(os.read(r, 32).decode().strip(), flush=True)
    if line == 'more\\n':
        for c in socks:
            ask(c, {MORE})
        print('done', flush=True)
    if line == 'again\\n':
        for c in socks:
            ask(c, 1)
        print('done', flush=True)
    if line == 'close\\n':
        socks.pop().close()
        print('closed', flush=True)
"""


def program(text, *args, more=None):
    return subprocess.Popen([EXS, 'run', sys.executable, '-c', text, *args],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                            env=environment(SETTINGS, more))


# Both ends of UNIX sockets, by a path and by a name that would confuse a terminal: a
# child asks as often as it is told, and its parent answers.
UNIX = f"""
import os, socket, sys, threading
def listener(at):
    s = socket.socket(socket.AF_UNIX)
    s.bind(at)
    s.listen(8)
    return s
names = sys.argv[1], chr(0) + sys.argv[2] + chr(27) + '[2J'
listeners = [listener(n) for n in names]
child = os.fork()
if child == 0:
    socks = [socket.socket(socket.AF_UNIX) for n in names]
    for s, n in zip(socks, names):
        s.connect(n)
    print(os.getpid(), flush=True)
    for line in sys.stdin:
        for s in socks:
            s.sendall(bytes({SIZE}))
            s.recv({SIZE}, socket.MSG_WAITALL)
        print('done', flush=True)
    sys.exit()
def answer(s):
    while data := s.recv(65536):
        s.sendall(data)
for s in listeners:
    threading.Thread(target=answer, args=(s.accept()[0],), daemon=True).start()
os.wait()
"""


def stat(*args, user=None):
    def become():
        os.setgid(user)
        os.setuid(user)
    p = subprocess.run([EXS, 'stat', *args], capture_output=True, text=True, timeout=60,
                       env=environment(SETTINGS), preexec_fn=become if user else None)
    return p.returncode, p.stdout, p.stderr


def connections(pid):
    status, out, err = stat('--json', str(pid))
    check(status == 0, 'exs stat --json', pid, err)
    return json.loads(out)['connections'] if status == 0 else []


def kernel(pid):
    """The sockets of a process as the kernel has them: fd -> (local, peer)."""
    rows = {}
    for line in open('/proc/net/tcp'):
        f = line.split()
        if f[0] != 'sl':
            def at(text):
                a, p = text.split(':')
                a = socket.inet_ntoa(struct.pack('=I', int(a, 16)))
                return f'{a}:{int(p, 16)}'
            rows[f[9]] = (at(f[1]), at(f[2]), f[3])
    found = {}
    for fd in os.listdir(f'/proc/{pid}/fd'):
        try:
            to = os.readlink(f'/proc/{pid}/fd/{fd}')
        except FileNotFoundError:
            continue  # closed meanwhile
        row = rows.get(to[8:-1]) if to.startswith('socket:[') else None
        if row and row[2] == '01':
            found[int(fd)] = row[:2]
    return found


def moved(client, p):
    """Whether all are on shm; if not, as on a busy host, they carry a little more."""
    global ROUNDS
    if all(c['sends']['fabric'] == c['receives']['fabric'] == 'shm'
           for c in connections(client) if not c['young']):
        return True
    check(ask(p, 'again') == 'done', 'the client goes on, too')
    ROUNDS += 1
    return False


def same_as_kernel_and_program(client, server, p):
    old = [c for c in connections(client) if not c['young']]
    wait_for('all on shm', lambda: moved(client, p))
    n = (ROUNDS + MORE) * SIZE
    check(ask(p, 'more') == 'done', 'the client goes on')
    for pid in client, server:
        seen = connections(pid)
        check({c['fd']: (c['local'], c['peer']) for c in seen} == kernel(pid),
              'addresses of', pid, seen)
        for c in seen:
            want = 0 if c['local'] in young(client) or c['peer'] in young(client) else n
            check(c['sends']['bytes'] == want and c['receives']['bytes'] == want,
                  'bytes', pid, c)
            if want:
                check(c['reason'] == 'none' and c['sends']['fabric_bytes'] >= MORE * SIZE, c)
                check(c['sends']['transfers'] >= ROUNDS, c)
                check(c['sends']['ring_holds'] == 0, c)
                check(c['other_end']['pid'] == (server if pid == client else client), c)
    check(len(old) == MANY, 'so many connections', len(old))


def young(client):
    return [c['local'] for c in connections(client) if c['young']]


def stopped(client):
    before = connections(client)
    os.kill(client, signal.SIGSTOP)
    after = connections(client)
    os.kill(client, signal.SIGCONT)
    keep = ('fd', 'local', 'peer', 'reason')
    check([[c[k] for k in keep] + [c['sends']['bytes']] for c in before] ==
          [[c[k] for k in keep] + [c['sends']['bytes']] for c in after],
          'a stopped process is seen as it was')
    check(len(after) == MANY + 1, 'stopped', after)


def ask(p, word):
    p.stdin.write(word + '\n')
    p.stdin.flush()
    return p.stdout.readline().strip()


def forked(client, p):
    child = int(ask(p, 'fork'))
    mine = connections(child)
    check(len(mine) == 1 and mine[0]['sends']['bytes'] == (ROUNDS + MORE + 3) * SIZE,
          'a child has a page of its own, with what it uses', mine)
    check(len(connections(client)) == MANY + 1, 'its parent keeps all')
    os.kill(child, signal.SIGKILL)


def ended(client, p):
    ask(p, 'close')
    check(len(connections(client)) == MANY, 'a closed connection is gone')
    out = json.loads(stat('--json', str(client))[1])
    check([x['ended'] for x in out['processes']] == [1], 'and counted', out['processes'])
    text = stat('--prometheus')[1]
    sums = {}
    for line in text.splitlines():
        if not line.startswith('#') and f'pid="{client}"' in line:
            name, value = line.rsplit(' ', 1)
            sums[name.split('{')[0]] = sums.get(name.split('{')[0], 0) + int(value)
    check(sums['exs_bytes_total'] == 2 * (MANY * (ROUNDS + MORE) + 3) * SIZE or
          sums['exs_bytes_total'] == 2 * MANY * (ROUNDS + MORE) * SIZE, 'sums', sums)
    check(sums['exs_connections'] == MANY, 'sums', sums)


def options(client, port):
    all_of = stat('-x', str(client))[1]
    check(all_of.count('\nESTAB') == MANY + 1, 'the list', all_of)
    check('undecided: 1 connection:' in all_of and 'to do: send more' in all_of, all_of)
    check(stat('--fabric', 'tcp', str(client))[1].count('\nESTAB') == 1, '--fabric')
    check(stat('--reason', 'undecided', str(client))[1].count('\nESTAB') == 1, '--reason')
    check(stat('--port', str(port), str(client))[1].count('\nESTAB') == MANY + 1, '--port')
    check(stat('--port', '1', str(client))[1].count('\nESTAB') == 0, '--port')
    again = stat('--watch=0.05', '--times', '2', str(client))
    check('Sent/s' in again[1], '--watch', again)
    check(stat('--reason', 'nonsense')[0] == 2, 'no such reason')
    check(stat('--fabric', 'nonsense')[0] == 2, 'no such fabric')
    check(stat('--fabric', 'UNIX', str(client))[0] == 0, 'a fabric without connections')
    status, out, err = stat('nobody-has-this-name')
    check(status == 1 and not out and '"nobody-has-this-name"' in err, 'no such process')
    check(stat('--watch=0.01', '--times', '2', 'nobody-has-this-name')[0] == 0, 'may yet come')
    check(f'/{client}' in stat('-s')[1], '--summary')


def another_user(client):
    if os.getuid():
        return
    status, out, err = stat(str(client), user=65534)
    check(status == 1 and 'another user' in err and not out, 'another user', out, err)
    status, out, err = stat(user=65534)
    check(status == 0 and 'ESTAB' not in out and 'are not shown' in err, out, err)


# Asks without an end, so that all that is counted changes all the time.
LOAD = """
import socket, sys, threading
def ask():
    c = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
    while True:
        c.sendall(bytes(3000))
        c.recv(3000, socket.MSG_WAITALL)
threads = [threading.Thread(target=ask) for _ in range(3)]
for t in threads:
    t.start()
"""


def by_ss():
    """(local, peer) -> bytes acknowledged and received, as ss has them."""
    found, ends = {}, None
    for line in subprocess.run(['ss', '-tinH', 'state', 'established'],
                               capture_output=True, text=True).stdout.splitlines():
        if not line.startswith(('\t', '      ')):
            ends = tuple(line.split()[2:4])
            continue
        counts = dict(f.split(':', 1) for f in line.split() if ':' in f)
        found[ends] = [int(counts.get(k, 0)) for k in ('bytes_acked', 'bytes_received')]
    return found


def beside_ss():
    """Under load: what ss says is between what exs stat says before and after."""
    server = program(SERVER, more={'EXS_UPGRADE': 'never'})
    load = program(LOAD, server.stdout.readline().strip(), more={'EXS_UPGRADE': 'never'})
    try:
        def busy():
            status, out, _ = stat('--json', str(load.pid))
            return status == 0 and 3 == len(
                [c for c in json.loads(out)['connections'] if c['receives']['bytes']])
        wait_for('three connections', busy)
        for _ in range(5):
            first, ss, last = (f() for f in (lambda: connections(load.pid), by_ss,
                                             lambda: connections(load.pid)))
            check(len(first) == len(last) == 3, 'connections', first, last)
            for a, b in zip(first, last):
                ends = (a['local'], a['peer'])
                check(ends == (b['local'], b['peer']) and ends in ss, 'addresses', ends, ss)
                acked, received = ss.get(ends, (0, 0))
                # What the program has not read yet, exs stat does not count.
                check(a['receives']['bytes'] <= received <= b['receives']['bytes'] + 6000,
                      'received', a, received, b)
                # What is sent, and not acknowledged, exs stat counts, too.
                check(acked - 1 <= b['sends']['bytes'] and
                      a['sends']['bytes'] <= acked - 1 + 6000, 'sent', a, acked, b)
    finally:
        for p in load, server:
            p.kill()
            p.wait()


def unix_streams():
    """With their names and inodes, their peers, and what carries them."""
    with tempfile.TemporaryDirectory() as d:
        path, name = os.path.join(d, 'socket'), 'exs-' + os.path.basename(d)
        p = program(UNIX, path, name)
        try:
            child, asked = int(p.stdout.readline()), 0

            def ends():
                nonlocal asked
                check(ask(p, 'again') == 'done', 'UNIX sockets carry bytes')
                asked += 1
                return connections(p.pid) + connections(child)
            wait_for('UNIX connections move', lambda: [
                c[w]['fabric'] for c in ends() for w in ('sends', 'receives')
                if not c['young']] == 8 * ['shm'])
            all_ends = ends()
            check(len(all_ends) == 4, 'UNIX connections', all_ends)
            for c in all_ends:
                mine = c['pid'] == p.pid
                check(c['local'].endswith(f':{c["inode"]}'), 'the inode', c)
                bound, free = (c[k] for k in (('local', 'peer') if mine else
                                              ('peer', 'local')))
                check(bound.rsplit(':', 1)[0] in (path[:39], f'@{name}?[2J'[:39]) and
                      free.startswith('*:'), 'names', c)
                check(c['other_end']['pid'] == (child if mine else p.pid), 'the peer', c)
                check([x for x in all_ends if (x['peer'], x['local']) ==
                       (c['local'], c['peer'])], 'both ends', c)
                for way in 'sends', 'receives':
                    check(c[way]['bytes'] == asked * SIZE, way, asked, c)
        finally:
            p.stdin.close()
            try:
                check(p.wait(DEADLINE) == 0, 'its end')
            finally:
                p.kill()


def switched_off():
    s = program(SERVER, more={'EXS_STATS': 'off'})
    s.stdout.readline()
    status, _, err = stat(str(s.pid))
    check(status == 1 and 'EXS_STATS is off' in err, 'without a page', err)
    s.kill()
    s.wait()


def page(pid, socks, rnd):
    """A page as a hostile program may make it; entries that lie about sockets."""
    head = struct.pack('=QIIiIQQQQ', 0x5354415453584531, 1, 240, pid, 256, 4096 + 65536,
                       4096, 65536, 0)
    head += struct.pack('=IIIIQ', rnd.choice([0, 5, 4096, 1 << 31, 0xffffffff]),
                        rnd.choice([0, 40, 0xffffffff]), 7, 1 << 21, 1024)
    head += struct.pack('=16Q', *[rnd.getrandbits(64) for _ in range(16)])
    head += b'\x1b[2J\xff"\n' * 5
    body = bytearray(4096 + 65536 + 64 * 256)
    body[:len(head)] = head
    for fd in range(64):
        body[4096 + fd] = rnd.randrange(256)
        at = 4096 + 65536 + 256 * fd
        body[at:at + 256] = rnd.randbytes(256)
        struct.pack_into('=Ii', body, at, rnd.choice([2, 3, 0]),
                         rnd.choice(socks + [-1, 0, 1 << 30]))
    for _ in range(rnd.randrange(4)):  # and anything in its head
        body[rnd.randrange(200)] = rnd.randrange(256)
    return bytes(body)


def hostile():
    rnd = random.Random(1)
    s = socket.create_server(('127.0.0.1', 0))
    mine = [socket.create_connection(s.getsockname()) for _ in range(3)]
    for i in range(40):
        fd = os.memfd_create('libexs-stats')
        os.write(fd, page(os.getpid(), [c.fileno() for c in mine], rnd))
        if i % 4 == 0:
            os.ftruncate(fd, rnd.choice([0, 100, 4096, 70000, 1 << 40]))
        status, out, err = stat('-x', str(os.getpid()))
        check(status in (0, 1), 'a hostile page', i, status, out, err)
        check('\x1b' not in out + err and out.count('\n') < 40, 'no forged lines', out)
        os.close(fd)
    for text in '/memfd:libexs-stats (deleted)', 'libexs-stats':
        with tempfile.TemporaryDirectory() as d:  # a pipe that nobody writes
            at = os.path.join(d, text.strip('/'))
            os.mkfifo(at)
            fd = os.open(at, os.O_RDWR)
            check(stat(str(os.getpid()))[0] == 1, 'a pipe is no page')
            os.close(fd)


def holes():
    """A page of a million entries that are holes, but for a page in each four MiB: it
    costs its owner 4 MB, and must not cost the reader 12 GB."""
    def area(n, at):
        fd = os.memfd_create('libexs-stats')
        os.ftruncate(fd, at + n * 4096)
        for entry in range(0, n, 1024):
            os.pwrite(fd, b'\0', at + entry * 4096)
        return fd
    fds = [area(4096, 4096)] + [area(4096 << i, 0) for i in range(8)]
    head = struct.pack('=QIIiIQQQQ', 0x5354415453584531, 1, 240, os.getpid(), 4096, 4096,
                       4096, 0, 0)
    head += struct.pack('=IIIIQ', 1 << 20, 0, 0, 1 << 21, 1024)
    head += struct.pack('=16Q', 0, *[os.fstat(fd).st_ino for fd in fds[1:]], *[0] * 7)
    os.pwrite(fds[0], head, 0)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    status, out, err = stat(str(os.getpid()))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    check(status == 0 and used < 0.5, 'holes', status, used, out, err)
    for fd in fds:
        os.close(fd)


def hand_made(fds, more=b''):
    """The page of this process, made by hand: young connections at these descriptors."""
    fd = os.memfd_create('libexs-stats')
    top = max(fds, default=0) + 1
    os.write(fd, struct.pack('=QIIiIQQQQ', 0x5354415453584531, 1, 240, os.getpid(), 256,
                             4096, 1 << 21, top, 0) +
             struct.pack('=IIIIQ', 4097, top, 0, 1 << 21, 1024) + more)
    os.ftruncate(fd, (1 << 21) + top)
    for at in fds:
        os.pwrite(fd, b'\2', (1 << 21) + at)
    return fd


def numbers():
    """A socket with many numbers costs its owner nothing for each, and its reader neither."""
    with socket.create_server(('127.0.0.1', 0)) as s, \
            socket.create_connection(s.getsockname()) as c:
        fds = [c.fileno()] + [os.dup(c.fileno()) for _ in range(500)]
        fds.append(hand_made(fds))
        found = connections(os.getpid())
        check(len(found) == 1 and found[0]['fd'] in fds, 'a socket is listed once', len(found))
        for fd in fds[1:]:
            os.close(fd)


# In another network namespace: names that end their lines of /proc/net/unix, and begin
# others, which say that the socket of this inode is a UNIX socket there.
FORGER = """
import os, socket, struct, sys
fd = os.memfd_create('libexs-stats')
os.write(fd, struct.pack('=QIIiIQQQQIIIIQ', 0x5354415453584531, 1, 240, os.getpid(), 256, 4096,
                         4096, 0, 0, 0, 0, 0, 0, 0).ljust(4096, bytes(1)))
lines = [chr(10) + f'{i:016x}: 00000002 00000000 00000000 0001 03 {sys.argv[1]} forged'
         for i in range(20)]
socks = [socket.socket(socket.AF_UNIX) for _ in lines]
for s, line in zip(socks, lines):
    s.bind(chr(0) + line)
print('ready', flush=True)
sys.stdin.read()
"""


def forged():
    """The kernel's own word counts, and no line that a stranger's name forges."""
    if os.getuid() != 0:
        return
    with socket.create_server(('127.0.0.1', 0)) as s, \
            socket.create_connection(s.getsockname()) as c:
        p = subprocess.Popen(['unshare', '-n', sys.executable, '-c', FORGER,
                              str(os.fstat(c.fileno()).st_ino)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
        check(p.stdout.readline() == 'ready\n', 'names')
        r, w = os.pipe()
        child = os.fork()  # is looked at behind the one that forges
        if child == 0:
            hand_made([c.fileno()])
            os.write(w, b'x')
            while True:
                signal.pause()
        os.read(r, 1)
        out = json.loads(stat('--json')[1])
        check(p.pid in [x['pid'] for x in out['processes']], 'its page', out)
        check(['127.0.0.1:%d' % c.getsockname()[1]] ==
              [x['local'] for x in out['connections'] if x['pid'] == child],
              'a forged line', out)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        p.stdin.close()
        p.wait()
        p.stdout.close()
        for fd in r, w:
            os.close(fd)


def shared():
    """Nor does a file of entries that many processes name."""
    with socket.create_server(('127.0.0.1', 0)) as s, \
            socket.create_connection(s.getsockname()) as c:
        area = os.memfd_create('libexs-stats')
        os.write(area, struct.pack('=Iii', 2, c.fileno(), 1).ljust(256, b'\0'))
        r, w = os.pipe()
        children = []
        while len(children) < 4 and 0 not in children:
            children.append(os.fork())
        if 0 in children:
            hand_made([], struct.pack('=16Q', 0, os.fstat(area).st_ino, *[0] * 14))
            os.write(w, b'x')
            while True:
                signal.pause()
        for _ in children:
            os.read(r, 1)
        out = json.loads(stat('--json')[1])
        check(sum(x['pid'] in children for x in out['processes']) == 4, 'their pages', out)
        check(sum(x['pid'] in children for x in out['connections']) == 1, 'one file', out)
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for fd in area, r, w:
            os.close(fd)


def children(pid):
    with open('/proc/%d/task/%d/children' % (pid, pid)) as f:
        return [int(n) for n in f.read().split()]


def gone(pid):
    try:
        with open('/proc/%d/stat' % pid) as f:
            return f.read().rpartition(')')[2].split()[0] == 'Z'
    except (FileNotFoundError, ProcessLookupError):
        return True


def asleep(pid):
    with open('/proc/%d/stat' % pid) as f:
        return f.read().rpartition(')')[2].split()[0] == 'S'


def reader_killed():
    """exs stat is killed while the process that asks for it has more to send than
    the socket between them holds."""
    with socket.create_server(('127.0.0.1', 0), backlog=4096) as listener:
        socks = [socket.create_connection(listener.getsockname()) for _ in range(700)]
        page = hand_made([socks[0].fileno()])
        for _ in range(50):
            p = subprocess.Popen([EXS, 'stat'], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
            asker = []
            while not asker and not gone(p.pid):
                asker = children(p.pid)
            p.send_signal(signal.SIGSTOP)
            if asker:
                wait_for('its messages are sent, or wait',
                         lambda: gone(asker[0]) or asleep(asker[0]))
            struck = asker and not gone(asker[0])
            p.kill()
            p.wait()
            if struck:
                break
        check(struck, 'exs stat is stopped before it has read all')
        if struck:
            wait_for('the process that asked has ended', lambda: gone(asker[0]))
        os.close(page)
        for s in socks:
            s.close()


def main():
    server = program(SERVER)
    port = server.stdout.readline().strip()
    client = program(CLIENT, port)
    try:
        all_rows(server, client, port)
    finally:
        for p in client, server:
            p.kill()
            p.wait()
    unix_streams()
    switched_off()
    beside_ss()
    hostile()
    holes()
    numbers()
    forged()
    shared()
    reader_killed()
    return result()


def all_rows(server, client, port):
    check(client.stdout.readline() == 'ready\n', 'the client')
    same_as_kernel_and_program(client.pid, server.pid, client)
    options(client.pid, port)
    stopped(client.pid)
    another_user(client.pid)
    forked(client.pid, client)
    ended(client.pid, client)
    client.kill()
    client.wait()
    wait_for('the server sees it', lambda: all(c['state'] == 'CLOSE-WAIT' for c in
                                               connections(server.pid)))
    check(stat(str(client.pid))[0] == 1, 'nothing is left of a killed process')


sys.exit(main())
