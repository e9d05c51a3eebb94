#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Programs in two network namespaces meet in EXS_MEET_DIR if they hold one key, and
else stay in the kernel for the reason that is true, over TCP and over a UNIX socket
whose path both see. Names of killed processes, a directory
that cannot be written, and a process in a third namespace that has the directory and
not the key. Needs root: meetdir.py EXS [all]."""

import array
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

EXS = os.path.abspath(sys.argv[1])
ROUNDS = 300
TIMEOUT = 30
bad = 0
started = []

# Both programs say with each message whether they use shared memory.
COMMON = '''
import ctypes, os, socket, sys, time
exs = ctypes.CDLL('libexs.so.1')

# 1: it uses shared memory. 2: it never will, for its peer is out of reach.
def fast(s):
    info = ctypes.create_string_buffer(1024)
    assert exs.exs_x_sockinfo(s.fileno(), info) == 0
    remote = info.raw[32:36] == (6).to_bytes(4, sys.byteorder)
    return 2 if remote else info.raw[:32] == b'shm'.ljust(16, bytes(1)) * 2

def within(end):
    assert time.monotonic() < end, 'not in time'
    return True

end = time.monotonic() + 20
path = os.environ.get('TALK_PATH')
'''

SERVER = COMMON + '''
ready, wait = sys.argv[1:]
if path:
    l = socket.socket(socket.AF_UNIX)
    l.bind(path)
    l.listen()
else:
    l = socket.create_server(('10.77.0.2', 7700))
open(ready, 'w').close()
s = l.accept()[0]
if path and wait: # by this call its end has the sign that says where it is
    fast(s)
    open(path + '.seen', 'w').close()
while wait and not os.path.exists(wait) and within(end):
    time.sleep(0.001)
while m := s.recv(64, socket.MSG_WAITALL):
    s.sendall(bytes([fast(s)]) + m[1:])
'''

# It talks until both ends use shared memory, or a file is there, if it is to.
CLIENT = COMMON + '''
rounds, until = int(sys.argv[1]), sys.argv[2]
if path:
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    while os.path.exists(path + '.seen') < ('over' in until) and within(end):
        time.sleep(0.001)
else:
    s = socket.create_connection(('10.77.0.2', 7700), timeout=20)
    s.settimeout(None)
asked = heard = 0
done = not until
while heard < asked or heard < rounds or not done and within(end):
    more = asked < rounds or not done
    while more and asked < heard + 100:
        s.sendall(bytes([asked % 256]) * 64)
        asked += 1
    m = s.recv(64, socket.MSG_WAITALL)
    assert m == bytes([m[0]]) + bytes([heard % 256]) * 63, (heard, m)
    heard += 1
    done = done or os.path.exists(until) or \
        until == 'shm' and m[0] == 1 and fast(s) == 1
if m[0] == 2:
    sys.stderr.write('the server decided')
'''


# A server that does not accept, and a client that ends while it waits to be met.
SILENT = '''
import os, socket, sys, time
s = socket.create_server(('10.77.0.2', 7711))
open(sys.argv[1], 'w').close()
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
'''
LEAVES = '''
import os, socket, sys, time
end = time.monotonic() + 20
s = socket.create_connection(('10.77.0.2', 7711))
s.sendall(bytes(4096))
while not any(n.startswith('exs-m-') for n in os.listdir(sys.argv[1])):
    assert time.monotonic() < end, 'not in time'
os._exit(0)
'''


def check(what, good, *seen):
    global bad
    if not good:
        print(what, *seen)
        bad = 1


def popen(args, **kwargs):
    started.append(subprocess.Popen(args, text=True, **kwargs))
    return started[-1]


def until(what, condition):
    end = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > end:
            sys.exit('not in time: ' + what)
        time.sleep(0.002)


def put(path, text):
    with open(path, 'w', encoding='ascii') as f:
        f.write(text)


class Namespace:
    """A network namespace, which lasts as long as a process that only waits."""

    def __init__(self):
        self.holder = popen(
            ['unshare', '-n', 'sh', '-c', 'echo; read x'],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.holder.stdout.readline()

    def inside(self, *args):
        return ['nsenter', f'--net=/proc/{self.holder.pid}/ns/net', *args]


def pods():
    a, b = Namespace(), Namespace()
    subprocess.run(['ip', 'link', 'add', 'pod', 'netns', str(a.holder.pid), 'type',
                    'veth', 'peer', 'name', 'pod', 'netns', str(b.holder.pid)],
                   check=True)
    for i, ns in enumerate((a, b)):
        subprocess.run(ns.inside('ip', 'addr', 'add', f'10.77.0.{i + 1}/24', 'dev',
                                 'pod'), check=True)
        subprocess.run(ns.inside('ip', 'link', 'set', 'pod', 'up'), check=True)
    return a, b


class Talk:
    """A client in one namespace and a server in the other."""

    def __init__(self, tmp, a, b):
        self.tmp, self.a, self.b = tmp, a, b
        self.env = {k: v for k, v in os.environ.items() if not k.startswith('EXS_')}
        self.env.update(EXS_PROVIDER='shm,tcp', EXS_MEET_DIR=tmp + '/meet',
                        EXS_KEY_FILE=tmp + '/key')

    def start(self, ns, env, report, code, *args, before=()):
        return popen(
            ns.inside(*before, EXS, 'run', '--report=' + report, sys.executable,
                      '-c', code, *args), env=dict(self.env, **env),
            stderr=subprocess.PIPE)

    def run(self, client=None, server=None, lasts='', wait='', before=(), then=None):
        """Both reports, and what the client wrote to standard error. lasts: both
        use that fabric, or there is that file. then: before the client starts."""
        reports = self.tmp + '/client', self.tmp + '/server'
        ready = self.tmp + '/ready'
        for path in (*reports, ready, self.env.get('TALK_PATH', '')):
            if os.path.exists(path):
                os.unlink(path)
        serves = self.start(self.b, server or {}, reports[1], SERVER, ready, wait)
        until('the server', lambda: os.path.exists(ready))
        if then:
            then()
        asks = self.start(self.a, client or {}, reports[0], CLIENT, str(ROUNDS),
                          lasts, before=before)
        said = [p.communicate(timeout=TIMEOUT)[1] for p in (asks, serves)]
        check('status', asks.returncode == serves.returncode == 0, *said)
        texts = []
        for path in reports:
            with open(path, encoding='ascii') as f:
                texts.append(f.read())
        return texts, said[0]


def reason(report):
    found = re.search(r'on TCP \(([a-z-]+)\)', report)
    return found.group(1) if found else None


class Relay(threading.Thread):
    """A process that has the directory: it takes the name of the first meeting that
    it sees for itself, and passes on whatever both ends say, with descriptors."""

    def __init__(self, folder, ready, kind):
        super().__init__()
        self.folder, self.ready, self.kind = folder, ready, kind
        self.packets, self.fds, self.name = [0, 0], 0, None

    def run(self):
        def there():
            names = [n for n in os.listdir(self.folder) if n.startswith(self.kind)]
            self.name = names and os.path.join(self.folder, names[0])
            return names
        until('a meeting', there)
        os.rename(self.name, self.folder + '/moved')
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as at, \
                socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as a:
            at.bind(self.name)
            at.listen()
            os.chmod(self.name, 0o666)
            # Refused: A has not called listen yet.
            until('a listener',
                  lambda: a.connect_ex(self.folder + '/moved') == 0)
            open(self.ready, 'w', encoding='ascii').close()
            at.settimeout(TIMEOUT)
            with at.accept()[0] as b:
                both = [threading.Thread(target=self.forward, args=x)
                        for x in ((a, b, 0), (b, a, 1))]
                for t in both:
                    t.start()
                for t in both:
                    t.join()

    def forward(self, one, other, i):
        while True:
            try:
                data, anc, *_ = one.recvmsg(4096, socket.CMSG_SPACE(64))
            except OSError:
                break
            if not data:
                break
            self.packets[i] += 1
            for level, kind, body in anc:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    self.fds += len(array.array('i', body[:len(body) // 4 * 4]))
            try:
                other.sendmsg([data], anc)
            except OSError:
                break
        for s in (one, other):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def relayed(folder, ready, over, kind):
    """In a process of its own, in a third namespace: how many packets it passed on
    each way, and how many descriptors it got."""
    r = Relay(folder, ready, kind)
    r.start()
    r.join()
    open(over, 'w', encoding='ascii').close()
    print(*r.packets, r.fds)


def relay(t, kind):
    """A relay gets what both say, and neither believes it."""
    between, over = t.tmp + '/between' + kind, t.tmp + '/over' + kind
    stranger = popen(
        ['unshare', '-n', sys.executable, os.path.abspath(__file__), EXS, 'relay',
         t.env['EXS_MEET_DIR'], between, over, kind], stdout=subprocess.PIPE)
    texts, _ = t.run(wait=between, lasts=over)
    heard = stranger.communicate(timeout=TIMEOUT)[0].split()
    check(kind + 'relay', heard and int(heard[0]) > 0 and int(heard[1]) > 0 and
          heard[2] == '0', heard)
    check(kind + 'relay, in the kernel',
          all('0 connections on a fabric' in x for x in texts), *texts)
    check(kind + 'relay, why', reason(texts[1]) == 'refused', *texts)


def over_unix(t, whole):
    """The same, over a path: the accepted end is of the client's namespace."""
    meet = t.env['EXS_MEET_DIR']
    t.env['TALK_PATH'] = t.tmp + '/path'
    alone = 'unshare', '-p', '-f', '--kill-child', '--mount-proc'
    # What a killed process left is gone when the server listens.
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.bind(meet + '/exs-u-' + '0' * 32)
    for upgrade, before in ('auto', ()), ('connect', alone):
        texts, said = t.run({'EXS_UPGRADE': upgrade}, {'EXS_UPGRADE': upgrade},
                            lasts='shm', before=before)
        check('unix, with the key', all('1 connection on a fabric' in x and
                                        ', shm' in x for x in texts), *texts, said)
        check('unix, names', not os.listdir(meet), os.listdir(meet))
    no_key, none = {'EXS_KEY_FILE': t.tmp + '/none'}, {'EXS_MEET_DIR': ''}
    cases = [('no key', no_key, no_key, ['no-key', 'no-key']),
             ('no directory at A', none, {}, ['remote', 'remote'])]
    if whole:
        cases += [('no key at A', no_key, {}, ['no-key', 'remote']),
                  ('no key at B', {}, no_key, [None, 'no-key']),
                  ('no directory', none, none, ['remote', 'remote']),
                  ('no directory at B', {}, none, [None, 'remote'])]
    for what, client, server, told in cases:
        texts, _ = t.run(client, server)
        found = [reason(x) for x in texts]
        check('unix, ' + what, told[0] in (None, found[0]) and found[1] == told[1],
              *texts)
        check('unix, ' + what + ', in the kernel',
              all('0 connections on a fabric' in x for x in texts), *texts)
    texts, _ = t.run({'EXS_KEY_FILE': t.tmp + '/other'})
    check('unix, another key', all('0 connections on a fabric' in x for x in texts),
          *texts)
    # A process that ends while it waits leaves no name.
    check('unix, names after the end', not os.listdir(meet), os.listdir(meet))
    relay(t, 'exs-u-')


def main():
    if os.getuid() != 0 or not shutil.which('ip'):
        return 77
    a, b = pods()
    with tempfile.TemporaryDirectory() as tmp:
        meet = tmp + '/meet'
        os.mkdir(meet)
        os.chmod(tmp, 0o755)
        for name in 'key', 'other':
            subprocess.run([EXS, 'key', 'make'], check=True,
                           env={**os.environ, 'EXS_KEY_FILE': tmp + '/' + name},
                           stdout=subprocess.DEVNULL)
        t = Talk(tmp, a, b)

        # The second client is in a PID namespace, too, as in a container.
        alone = 'unshare', '-p', '-f', '--kill-child', '--mount-proc'
        for upgrade, before in ('auto', ()), ('connect', alone):
            texts, said = t.run({'EXS_UPGRADE': upgrade}, {'EXS_UPGRADE': upgrade},
                                lasts='shm', before=before)
            check('with the key', all('1 connection on a fabric' in x and ', shm' in x
                                      for x in texts), *texts, said)
            check('names', not os.listdir(meet), os.listdir(meet))

        no_key = {'EXS_KEY_FILE': tmp + '/none'}
        texts, said = t.run(no_key, no_key)
        check('no key', [reason(x) for x in texts] == ['no-key', 'no-key'], *texts)
        check('no key, said', 'EXS_MEET_DIR' in said, said)
        texts, _ = t.run(no_key)
        check('no key at A', reason(texts[0]) == 'no-key', *texts)
        texts, _ = t.run({'EXS_KEY_FILE': tmp + '/other'})
        check('another key', reason(texts[0]) == 'remote', *texts)
        texts, said = t.run({'EXS_MEET_DIR': ''}, {'EXS_MEET_DIR': ''})
        check('no directory', [reason(x) for x in texts] == ['remote'] * 2, *texts)
        check('out of reach', said.endswith('the server decided'), said)
        none = {'EXS_MEET_DIR': tmp + '/none'}
        texts, said = t.run(none)
        check('not there', reason(texts[0]) == 'remote' and
              f'EXS_MEET_DIR={tmp}/none: ' in said and 'No such file' in said,
              *texts, said)
        texts, said = t.run(before=(
            'unshare', '-m', 'sh', '-c', 'mount --bind "$0" "$0" && '
            'mount -o remount,ro,bind "$0" && exec "$@"', meet))
        check('read-only', reason(texts[0]) == 'remote' and
              'Read-only' in said, *texts, said)

        # A process that ends leaves no name.
        ready, over = tmp + '/ready3', tmp + '/over3'
        silent = t.start(b, {}, tmp + '/silent', SILENT, ready, over)
        until('the silent server', lambda: os.path.exists(ready))
        before = os.listdir(meet)
        leaves = t.start(a, {'EXS_UPGRADE': 'connect'}, tmp + '/leaves', LEAVES, meet)
        said = leaves.communicate(timeout=TIMEOUT)[1]
        check('a name after the end', leaves.returncode == 0 and
              os.listdir(meet) == before, said, os.listdir(meet))
        open(over, 'w', encoding='ascii').close()
        silent.communicate(timeout=TIMEOUT)

        # The name of a process that was killed is another's.
        ready = tmp + '/ready2'
        killed = t.start(b, {}, tmp + '/killed', SERVER, ready, '')
        until('the first server', lambda: os.path.exists(ready))
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        check('left', len(os.listdir(meet)) == 1, os.listdir(meet))
        texts, _ = t.run(lasts='shm')
        check('after a kill', all(', shm' in x for x in texts), *texts)
        check('swept', not os.listdir(meet), os.listdir(meet))

        # Nobody is led elsewhere by a symbolic link.
        def lead():
            [name] = os.listdir(meet)
            os.rename(f'{meet}/{name}', tmp + '/elsewhere')
            os.symlink(tmp + '/elsewhere', f'{meet}/{name}')
        texts, _ = t.run(then=lead)
        check('a symbolic link', reason(texts[0]) == 'remote', *texts)
        # Nor by what is mounted there, which could be a file system that never answers.
        texts, _ = t.run(before=(
            'unshare', '-m', 'sh', '-c', 'mv "$0"/exs-p-* "$0/../elsewhere2" && '
            'n=$(cat "$0/../name") && : >"$0/$n" && '
            'mount --bind "$0/../elsewhere2" "$0/$n" && exec "$@"', meet),
            then=lambda: put(tmp + '/name', os.listdir(meet)[0]))
        check('a mount', reason(texts[0]) == 'remote', *texts)

        relay(t, 'exs-m-')
        # The relay's name, and the one that it moved.
        for name in os.listdir(meet):
            os.unlink(f'{meet}/{name}')
        over_unix(t, whole=sys.argv[2:] == ['all'])
    return bad


if __name__ == '__main__':
    if sys.argv[2:3] == ['relay']:
        relayed(*sys.argv[3:])
    else:
        try:
            sys.exit(main())
        finally:
            for p in started:
                p.kill()
                p.wait()
