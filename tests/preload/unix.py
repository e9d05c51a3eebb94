#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""UNIX stream connections between two programs under exs run: unix.py EXS. What
calls say is the business of differ.py --unix; this is about which connections
move, and whose. The script is also the programs that it starts."""

import array
import ctypes
import fcntl
import json
import os
import pwd
import re
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

SELF = os.path.abspath(__file__)
SIZE = 65536
ROUNDS = 40
SO_PASSCRED = 16
STOLEN = b'stolen'
ONE_WAY = 'up', 'down'
STRANGERS = 'squatter', 'relay'
ROOM = {'small': 100000, 'large': 900000}  # SO_SNDBUF
PIDFD_GETFD = 438
MESSAGE_NO = 12
CLOSE = 3 if os.uname().machine == 'x86_64' else 57


room = 0  # for what comes beside the bytes of each receive
given = 0  # descriptors that a stranger got


def receive(s, n):
    data = b''
    while len(data) < n:
        more = s.recvmsg(n - len(data), room)[0]
        if not more:
            raise SystemExit('an end after %d of %d bytes' % (len(data), n))
        data += more
    return data


def credentials(s):
    return struct.unpack('3i', s.getsockopt(socket.SOL_SOCKET,
                                            socket.SO_PEERCRED, 12))


def size_of(s):
    return s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def receive_file(s):
    """What is in the file that comes with the next byte."""
    room = socket.CMSG_LEN(array.array('i').itemsize)
    data, control, _, _ = s.recvmsg(1, room)
    if data != b'F' or len(control) != 1:
        raise SystemExit('no descriptor: %r %r' % (data, control))
    fd = struct.unpack('i', control[0][2][:4])[0]
    text = os.pread(fd, 64, 0)
    os.close(fd)
    return text


def echo(s):
    """Bytes and orders: b means answer, f means that a descriptor follows, e the
    end."""
    while True:
        order = s.recv(1)
        if order == b'b':
            s.sendall(receive(s, SIZE))
        elif order == b'f':
            text = receive_file(s)
            s.sendall(struct.pack('I', len(text)) + text)
        elif order == b'w':
            sys.stdin.readline()
            while s.recv(SIZE):
                pass
        elif order == b'u':
            while s.recv(SIZE):
                pass
        elif order == b'd':
            while not select.select([s], [], [], 0)[0]:
                s.sendall(bytes(SIZE))
        else:
            return


def pressure(s):
    """How much of 4 KiB each goes in while the peer does not read."""
    n = 0
    s.setblocking(False)
    try:
        while True:
            n += s.send(bytes(4096))
    except BlockingIOError:
        return n


def told():
    return select.select([sys.stdin], [], [], 0)[0]


def one_way(s, what):
    """Bytes in one direction until told."""
    s.sendall(what[:1].encode())
    while not told():
        if what == 'up':
            s.sendall(bytes(SIZE))
        else:
            receive(s, SIZE)
    s.shutdown(socket.SHUT_WR)
    while s.recv(SIZE):
        pass


def pattern(at, n):
    """Bytes of a stream that say where they are."""
    first = at // 4
    words = struct.pack('<%dI' % (n // 4 + 2), *range(first, first + n // 4 + 2))
    return words[at % 4:at % 4 + n]


def fill(s):
    """All that there is room for, and the room must not come back."""
    n = 0
    while True:
        try:
            n += s.send(pattern(n, SIZE))
        except BlockingIOError:
            return n


def full(s):
    """More than the kernel has room for lies in both rings, and both ends send
    a descriptor behind it, which goes through the kernel: neither waits."""
    s.setblocking(False)
    sent, got, texts, marks = fill(s), 0, [], b''
    print('full', flush=True)
    sys.stdin.readline()
    fd = os.memfd_create('text')
    os.write(fd, b'a file')
    wants, end = select.POLLIN | select.POLLOUT, False
    poll = select.poll()
    poll.register(s, wants)
    while not end or wants & select.POLLOUT:
        happened = dict(poll.poll(30000))
        if not happened:
            raise SystemExit('nothing moves: %d sent, %d got' % (sent, got))
        events = happened[s.fileno()]
        if wants & events & select.POLLOUT:
            try:
                socket.send_fds(s, [b'F'], [fd])
                s.shutdown(socket.SHUT_WR)
                wants = select.POLLIN
                poll.modify(s, wants)
            except BlockingIOError:
                pass
        if events & (select.POLLIN | select.POLLHUP):
            try:
                data, control, _, _ = s.recvmsg(SIZE, socket.CMSG_LEN(4))
            except BlockingIOError:
                continue
            for _, _, number in control:
                copy, = struct.unpack('i', number)
                texts.append(os.pread(copy, 64, 0).decode())
                os.close(copy)
            end = not data
            if control:
                data, marks = data[:-1], marks + data[-1:]
            if data != pattern(got, len(data)):
                raise SystemExit('other bytes after %d' % got)
            got += len(data)
    return {'sent': sent, 'got': got, 'texts': texts, 'marks': marks.decode()}


def serve(name, what):
    """The first connection; then its facts."""
    global room
    room = 64 if what == 'room' else 0
    if what == 'full':
        become_nobody()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(name)
    if not name.startswith('\0'):
        os.chmod(name, 0o777)
    listener.listen(8)
    if what == 'number':  # another one, as php-fpm's workers have
        listener = listener.dup()
    if what == 'given':
        become_nobody()
    print('listens', flush=True)
    s, _ = listener.accept()
    if what == 'stolen':
        print(s.fileno(), flush=True)
        sys.stdin.readline()
    if what in STRANGERS:
        print(os.fstat(s.fileno()).st_ino, flush=True)
        sys.stdin.readline()
    echo(s)
    if what == 'full':
        print(json.dumps(full(s)))
        return
    print(json.dumps({'peer': credentials(s), 'size': size_of(s),
                      'usual': size_of(listener)}))


def call(name, what):
    global room
    room = 64 if what == 'room' else 0
    if what in ('nobody', 'full'):
        become_nobody()
    s = socket.socket(socket.AF_UNIX)
    if what == 'bytes':
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 50000)
    if what in ROOM:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM[what])
    usual = size_of(s)
    s.connect(name)
    if what == 'stolen':
        s.sendall(STOLEN)
        sys.stdin.readline()
    if what in STRANGERS:
        print(os.fstat(s.fileno()).st_ino, flush=True)
        sys.stdin.readline()
    i, left = 0, ROUNDS
    if what in ONE_WAY:
        one_way(s, what)
        left = 0
    while left:
        # Round for round until the connection has moved, or cannot.
        over = left < ROUNDS or told()
        left -= bool(over)
        i += 1
        data = bytes([i % 256]) * SIZE
        s.sendall(b'b' + data)
        if receive(s, SIZE) != data:
            raise SystemExit('round %d: other bytes' % i)
        if what == 'relay' and i == 1:
            sys.stdin.readline()
        if what == 'files' and over and left % 8 == 4:
            text = b'file %d' % i
            fd = os.memfd_create('text')
            os.write(fd, text)
            s.sendall(b'f')
            socket.send_fds(s, [b'F'], [fd])
            os.close(fd)
            n, = struct.unpack('I', receive(s, 4))
            if receive(s, n) != text:
                raise SystemExit('round %d: another file' % i)
        if what == 'credentials' and left == ROUNDS // 2:
            s.setsockopt(socket.SOL_SOCKET, SO_PASSCRED, 1)
    if what == 'full':
        s.sendall(b'e')
        print(json.dumps(full(s)))
        return
    if what == 'usual' or what in ROOM:
        s.sendall(b'w')
        print(json.dumps({'held': pressure(s)}))
        return
    print(json.dumps({'peer': credentials(s), 'size': size_of(s),
                      'usual': usual}))
    if what not in ONE_WAY:
        s.sendall(b'e')


def become_nobody():
    user = pwd.getpwnam('nobody')
    os.setgroups([])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)


def environment(unix, what):
    env = {k: v for k, v in os.environ.items() if not k.startswith('EXS_')}
    if what not in ('stolen', 'later') + ONE_WAY + STRANGERS:
        env['EXS_UPGRADE'] = 'connect'
    if what == 'full':
        # Twice what a send buffer may be without privilege.
        with open('/proc/sys/net/core/wmem_max') as f:
            env['EXS_RING_KB'] = str(4 * int(f.read()) // 1024)
    if unix:
        env['EXS_UNIX'] = unix
    return env


def on_fabric(report):
    """The connections of a report that were on a fabric, and its bytes there."""
    found = re.search(r'(\d+) connections? on a fabric, (\d+) of (\d+)', report)
    return [int(g) for g in found.groups()] if found else [0, 0, 0]


def report_of(exs, pid):
    return subprocess.run([exs, 'report', str(pid)], text=True, check=False,
                          stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL).stdout


def moved(exs, pid):
    """Both directions of the program's connection are on a fabric: each round
    has as many bytes here as there."""
    _, there, of = on_fabric(report_of(exs, pid))
    return there > of * 0.6


def steal(server, client):
    """Reads what came first, by another process's copy of the server's end; then
    both may go on."""
    there = int(server.stdout.readline())
    with copy_of(server.pid, there) as s:
        if receive(s, len(STOLEN)) != STOLEN:
            raise SystemExit('it was not what came first')
    go(server, client)


def meet_full(server, client):
    """Until both ends have nowhere to put more."""
    client.stdin.write('go\n')
    client.stdin.flush()
    for p in server, client:
        if p.stdout.readline() != 'full\n':
            raise SystemExit('an end did not fill its ring')
    server.stdin.write('go\n')
    server.stdin.flush()


def meeting(ends):
    return '\0libexs/1/meet/%032x:0/%032x:0' % tuple(ends)


def go(*programs):
    for p in programs:
        p.stdin.write('go\n')
        p.stdin.flush()


def of_use(fd):
    """Something that a stranger should not be given: it can be read or
    written."""
    return not fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_PATH


def pass_on(one, other):
    """A packet, with its descriptors; false at the end. How many of these were of
    use is added to `given`."""
    global given
    data, fds, _, _ = socket.recv_fds(one, 4096, 8)
    given += sum(map(of_use, fds))
    try:
        if data:
            socket.send_fds(other, [data], fds)
    except BrokenPipeError:
        data = b''
    for fd in fds:
        os.close(fd)
    return bool(data)


def reach(name, seconds):
    """Whoever waits there; none."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            s.connect(name)
            return s
        except OSError:
            s.close()
            time.sleep(0.001)
    return None


def stranger(what, ends):
    """Another user has the meeting name of two ends before their A, and answers
    B as A would (squatter); or lets go of it, and passes on what each says to the
    other (relay)."""
    become_nobody()
    name = meeting(ends)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(name)
    listener.listen(8)
    listener.settimeout(30)
    print('waits', flush=True)
    b, _ = listener.accept()
    b.settimeout(30)
    a = b  # his own words
    if what == 'relay':
        listener.close()
        print('free', flush=True)
        a = reach(name, 30)
    while a:
        ready, _, _ = select.select([a, b], [], [], 30)
        if not all(pass_on(s, a if s is b else b) for s in ready):
            break
    print(given, flush=True)
    sys.stdin.readline()


def be_strange(what, server, client):
    """The stranger, when neither end has anything to hope for from him."""
    ends = [p.stdout.readline().strip() for p in (client, server)]
    thief = subprocess.Popen(
        [sys.executable, SELF, '--stranger', what] + ends, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if thief.stdout.readline() != 'waits\n':
        raise SystemExit('the stranger does not get the name')
    go(server, client)
    if what == 'relay' and thief.stdout.readline() == 'free\n':
        go(client)  # its library binds the name at the next round
    told = thief.stdout.readline().strip()
    check(what + ' is given nothing', told == '0', told)
    return thief


def pair(exs, name, what='bytes', unix=None, plain=False, moves=True,
         wanted=None):
    """Both ends' facts and reports; the server's first. They go on until they
    move or, if they do not, until the server reports what is wanted."""
    with tempfile.TemporaryDirectory() as d:
        os.chmod(d, 0o777)
        path = '\0' + os.path.basename(d) if name == 'abstract' else d + '/s'
        reports = [d + '/server', d + '/client']
        run = [[exs, 'run', '--report=' + r] for r in reports]
        if plain:
            run[0] = []
        shown = path.replace('\0', '@')
        server = subprocess.Popen(
            run[0] + [sys.executable, SELF, '--serve', shown, what], text=True,
            env=environment(unix, what), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE)
        facts, client, thief = [{}, {}], None, None
        try:
            if server.stdout.readline() != 'listens\n':
                raise SystemExit('the server does not listen')
            env = environment(unix, what)
            if what == 'relay':  # after the first round, after which B looks
                env['EXS_UPGRADE'] = 'bytes:200000'
            client = subprocess.Popen(
                run[1] + [sys.executable, SELF, '--call', shown, what],
                env=env, text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE)
            if what == 'stolen':
                steal(server, client)
            if what in STRANGERS:
                thief = be_strange(what, server, client)
            end = time.monotonic() + 30
            while not (moved(exs, client.pid) if moves else
                       not wanted or wanted in report_of(exs, server.pid)):
                if time.monotonic() > end:
                    raise SystemExit('%s, %s: it does not move, or no %s' %
                                     (name, what, wanted))
            if what == 'full':
                meet_full(server, client)
            facts[1] = json.loads(client.communicate('go\n', timeout=60)[0])
            facts[0] = json.loads(server.communicate(timeout=60)[0])
        finally:
            for p in server, client, thief:
                if p:
                    p.kill()
                    p.wait()
        facts[0]['pid'] = server.pid
        for f, report in zip(facts, reports):
            f['report'] = open(report).read() if os.path.exists(report) else ''
    return facts


def slow_socket(seconds):
    """A socket of TCP whose last close takes so long, or until the other one,
    the second, is closed."""
    with socket.create_server(('127.0.0.1', 0)) as listener:
        far = socket.create_connection(listener.getsockname())
        near, _ = listener.accept()
    near.setblocking(False)
    try:
        while True:
            near.send(bytes(SIZE))
    except BlockingIOError:
        pass
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                    struct.pack('ii', 1, seconds))
    return near, far


def closer(name):
    """Closes its connection while something is unread there."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen(8)
        print('listens', flush=True)
        s, _ = listener.accept()
    echo(s)
    sys.stdin.readline()
    t = threading.Thread(target=s.close)
    t.start()
    print('closes', flush=True)
    sys.stdin.readline()
    print('closed' if not t.is_alive() else 'waits', flush=True)
    t.join()


def stay(name):
    """A client that does nothing when its connection has moved."""
    s = socket.socket(socket.AF_UNIX)
    s.connect(name)
    while not told():
        s.sendall(b'b' + bytes(SIZE))
        receive(s, SIZE)
    sys.stdin.readline()
    s.sendall(b'e')
    print(s.fileno(), flush=True)
    sys.stdin.readline()


def copy_of(pid, fd):
    pidfd = os.pidfd_open(pid)
    try:
        copy = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, pidfd,
                                                         fd, 0)
        if copy < 0:
            raise OSError(ctypes.get_errno(), 'pidfd_getfd')
        return socket.socket(fileno=copy)
    finally:
        os.close(pidfd)


def wait_for_close(pid):
    """Until a thread of the process is in close(2)."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        for task in os.listdir('/proc/%d/task' % pid):
            try:
                with open('/proc/%d/task/%s/syscall' % (pid, task)) as f:
                    if f.read().split()[0] == str(CLOSE):
                        return
            except OSError:
                pass  # it has ended
    raise SystemExit('slow close: no thread closes')


def tell(p):
    """The program's answer to its next order."""
    p.stdin.write('go\n')
    p.stdin.flush()
    return p.stdout.readline().strip()


def slow_close(exs):
    """A peer's descriptor in the queue makes a close slow: the service of that
    process answers others meanwhile, whatever comes over the link."""
    run = [exs, 'run', sys.executable, SELF]
    env = environment('on', 'bytes')
    pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'text': True}
    near, far = slow_socket(60)
    with tempfile.TemporaryDirectory() as d:
        path = d + '/s'
        server = subprocess.Popen(run + ['--closer', path], env=env, **pipes)
        client = None
        try:
            server.stdout.readline()
            client = subprocess.Popen(run + ['--stay', path], env=env, **pipes)
            end = time.monotonic() + 30
            while not moved(exs, client.pid):
                if time.monotonic() > end:
                    raise SystemExit('slow close: it does not move')
            fd = int(tell(client))
            subprocess.run([exs, 'downgrade', str(client.pid)], check=True,
                           stdout=subprocess.DEVNULL)
            # Past the client's library, which would end the link.
            with copy_of(client.pid, fd) as s:
                socket.send_fds(s, [b'F'], [near.fileno()])
            near.close()
            tell(server)
            wait_for_close(server.pid)
            subprocess.run([exs, 'upgrade', str(client.pid)], check=True,
                           stdout=subprocess.DEVNULL)
            asked = subprocess.run([exs, 'log', str(server.pid)], text=True,
                                   check=False, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
            check('slow close', asked.returncode == 0, asked.stdout)
            check('slow close', tell(server) == 'waits',
                  'it was not slow')
        finally:
            far.close()
            for p in server, client:
                if p:
                    p.kill()
                    p.wait()


def quiet(name):
    """A client without the library, which has given up root: no other process
    of its user may touch it (PR_GET_DUMPABLE)."""
    become_nobody()
    s = socket.socket(socket.AF_UNIX)
    s.connect(name)
    s.sendall(b'hello')
    print(os.fstat(s.fileno()).st_ino, flush=True)
    print(len(receive(s, 5 * SIZE)), flush=True)
    sys.stdin.readline()


def talk(name):
    """A server under exs run that sends something to its client."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        os.chmod(name, 0o777)
        listener.listen(8)
        print('listens', flush=True)
        s, _ = listener.accept()
    print(os.fstat(s.fileno()).st_ino, flush=True)
    receive(s, 5)
    sys.stdin.readline()
    for _ in range(5):
        s.sendall(bytes(SIZE))
    sys.stdin.readline()


def guest(ends):
    """Waits at the meeting name of two ends as their A would, and says of which
    type the first message is (wire-shm.md, section 2)."""
    become_nobody()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(meeting(ends))
    listener.listen(8)
    print('waits', flush=True)
    s, _ = listener.accept()
    print(struct.unpack('H', s.recv(4096)[6:8])[0], flush=True)


def namesake(exs):
    """A process of the client's user, which the kernel keeps from the client,
    does not become its server's peer."""
    python = [sys.executable, SELF]
    env = environment('on', 'bytes')
    pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'text': True,
             'env': env}
    with tempfile.TemporaryDirectory() as d:
        os.chmod(d, 0o777)
        path = d + '/s'
        all_ = [subprocess.Popen([exs, 'run', '--report=' + d + '/server'] +
                                 python + ['--talk', path], **pipes)]
        try:
            server = all_[0]
            server.stdout.readline()
            client = subprocess.Popen(python + ['--quiet', path], **pipes)
            all_.append(client)
            ends = [p.stdout.readline().strip() for p in (client, server)]
            thief = subprocess.Popen(python + ['--guest'] + ends, **pipes)
            all_.append(thief)
            thief.stdout.readline()
            server.stdin.write('go\n')
            server.stdin.flush()
            told = thief.stdout.readline().strip()
            check('a namesake is told no', told == str(MESSAGE_NO), told)
            got = client.stdout.readline().strip()
            check('what its client gets', got == str(5 * SIZE), got)
            server.communicate('go\n', timeout=60)
            with open(d + '/server') as f:
                report = f.read()
            check('a namesake', on_fabric(report)[0] == 0, report)
        finally:
            for p in all_:
                p.kill()
                p.wait()


bad = 0


def check(what, holds, seen):
    global bad
    if not holds:
        bad += 1
        print('%s: %s' % (what, seen))


def main(exs):
    for name in 'path', 'abstract':
        server, client = pair(exs, name)
        for f in server, client:
            n, there, _ = on_fabric(f['report'])
            check(name, n == 1 and there, f['report'])
            check(name + ', the sign is not seen', f['size'] == f['usual'], f)
        check(name + ', the user', client['peer'][1] == os.getuid() and
              server['peer'][1] == os.getuid(), (server, client))
    # The sign comes with the bytes: until the peer has it, an end looks again.
    for what in ('later',) + ONE_WAY:
        for f in pair(exs, 'path', what):
            check(what, on_fabric(f['report'])[0] == 1, f['report'])
            check(what + ', the sign is not seen', f['size'] == f['usual'], f)
    # A sender is held up about where the kernel holds it up.
    for what in ['usual'] + list(ROOM):
        ends = socket.socketpair()
        if what in ROOM:
            ends[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM[what])
        native = pressure(ends[0])
        held = pair(exs, 'path', what)[1]['held']
        check(what, native * 0.9 < held < native * 2.5, (held, native))
        for s in ends:
            s.close()
    for what in 'room', 'number':
        for f in pair(exs, 'path', what):
            check(what, on_fabric(f['report'])[0] == 1 and
                  'ancillary' not in f['report'], f['report'])
    for what in 'files', 'credentials':
        server, client = pair(exs, 'path', what)
        for f in server, client:
            check(what, re.search(r'\((ancillary|peer-request)\)', f['report']),
                  f['report'])
        check(what, 'ancillary' in client['report'], client['report'])
    server, client = pair(exs, 'path', 'stolen', moves=False,
                          wanted='(unseen-wait)')
    check('a byte read unseen', '(unseen-wait)' in server['report'],
          server['report'])
    server, client = pair(exs, 'path', 'full')
    for f, other in (server, client), (client, server):
        check('full', f['got'] == other['sent'] and f['texts'] == ['a file'] and
              f['marks'] == 'F' and
              re.search(r'\((ancillary|peer-request)\)', f['report']), f)
    slow_close(exs)
    server, client = pair(exs, 'path', plain=True, moves=False)
    check('a plain server', on_fabric(client['report'])[0] == 0,
          client['report'])
    for f in pair(exs, 'path', unix='off', moves=False):
        check('EXS_UNIX=off', on_fabric(f['report'])[0] == 0 and
              'ancillary' not in f['report'], f['report'])
    if os.getuid() == 0:
        namesake(exs)
        for what in STRANGERS:
            server, client = pair(exs, 'path', what, moves=False)
            check(what, '(no-proof)' in server['report'], server['report'])
            for f in server, client:
                check(what, on_fabric(f['report'])[0] == 0, f['report'])
        # Who made an end, opened it, and is at the link's end is one, or not.
        for what, n in ('nobody', 1), ('given', 1):
            server, client = pair(exs, 'path', what, moves=n == 1)
            for f in server, client:
                check(what, on_fabric(f['report'])[0] == n, f['report'])
            check(what, (server['peer'][1] != client['peer'][1]) ==
                  (what == 'nobody'), (server, client))
    print('%d failed' % bad)
    return 1 if bad else 0


if __name__ == '__main__':
    if sys.argv[1] == '--serve':
        serve(sys.argv[2].replace('@', '\0'), sys.argv[3])
    elif sys.argv[1] == '--closer':
        closer(sys.argv[2])
    elif sys.argv[1] == '--stay':
        stay(sys.argv[2])
    elif sys.argv[1] == '--quiet':
        quiet(sys.argv[2])
    elif sys.argv[1] == '--talk':
        talk(sys.argv[2])
    elif sys.argv[1] == '--guest':
        guest(map(int, sys.argv[2:]))
    elif sys.argv[1] == '--stranger':
        stranger(sys.argv[2], map(int, sys.argv[3:]))
    elif sys.argv[1] == '--call':
        call(sys.argv[2].replace('@', '\0'), sys.argv[3])
    else:
        sys.exit(main(os.path.abspath(sys.argv[1])))
