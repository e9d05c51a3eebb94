#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What keeps a connection on TCP is found while the programs run, by exs stat and exs
check alone: the step that fails, the reason, and what to do: check.py EXS DENY
[ofi]. With ofi: what takes long over that fabric."""

import contextlib
import ctypes
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

from common import DEADLINE, check, environment, result, wait_for

EXS, DENY = (os.path.abspath(a) for a in sys.argv[1:3])
SETTINGS = {'EXS_LOG': 'off'}
OFI = {'EXS_PROVIDER': 'ofi,tcp', 'EXS_OFI_PROVIDER': 'tcp', 'EXS_UPGRADE': 'bytes:64',
       'EXS_OFI_PORT_OFFSET': '32768'}
INOTIFY = ctypes.CDLL(None)

# Answers as much as it gets; a second argument is a root directory.
SERVER = """
import os, socket, sys, threading
if 'AS_USER' in os.environ:
    os.setgid(int(os.environ['AS_USER']))
    os.setuid(int(os.environ['AS_USER']))
at = sys.argv[1]
s = socket.create_server((at, 0), backlog=64)
print(s.getsockname()[1], flush=True)
if len(sys.argv) > 2:
    os.chroot(sys.argv[2])
def serve(c):
    while True:
        got = c.recv(65536)
        if not got:
            break
        c.sendall(got)
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""

# Three processes that accept two connections each from one listener.
PREFORKS = """
import os, signal, socket, sys, threading
s = socket.create_server(('127.0.0.1', 0), backlog=64)
workers = [os.getpid()]
while len(workers) < 3:
    pid = os.fork()
    if not pid:
        break
    workers.append(pid)
else:
    print(s.getsockname()[1], *workers, flush=True)
""" + SERVER[SERVER.index('def serve'):].replace('while True:\n    threading', """\
for _ in range(2):
    threading""") + "signal.pause()\n"

# Sends as long as it is told to, and stays.
CLIENT = """
import socket, sys
socks = [socket.create_connection((sys.argv[1], int(sys.argv[2])))
         for _ in range(int(sys.argv[3]))]
print('connected', flush=True)
for line in sys.stdin:
    for c in socks:
        for i in range(20):
            c.sendall(bytes(4096))
            got = 0
            while got < 4096:
                got += len(c.recv(65536))
    print('sent', flush=True)
"""

OVERWRITES = """
import ctypes, socket, sys
at, end = map(int, open('/proc/self/stat').read().rsplit(')')[1].split()[47:49])
ctypes.memset(at, 0, end - at)
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
s.sendall(bytes(5000))
print('sent', flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def program(text, *args, more=None, under=(), plain=False):
    """A program in the background, under exs run or plain; its first line."""
    run = [] if plain else [EXS, 'run']
    p = subprocess.Popen([*under, *run, sys.executable, '-c', text, *map(str, args)],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                         env=environment(SETTINGS, more))
    try:
        yield p, p.stdout.readline().strip()
    finally:
        p.kill()
        p.communicate()


def tool(*args, more=None, under=(), user=None):
    def become():
        if user:
            os.setgid(user)
            os.setuid(user)
    p = subprocess.run([*under, EXS, *map(str, args)], capture_output=True, text=True,
                       timeout=DEADLINE, env=environment(SETTINGS, more), preexec_fn=become)
    return p.returncode, p.stdout, p.stderr


def objects(text):
    decode = json.JSONDecoder()
    found = []
    while text.strip():
        one, at = decode.raw_decode(text.lstrip())
        text = text.lstrip()[at:]
        found.append(one)
    return found


def look(*args, **how):
    status, out, err = tool('check', '--json', *args, **how)
    try:
        found = objects(out)
    except ValueError:
        found = []
    return status, found, out + err


def step_of(one, name):
    return {s['step']: s for s in one['steps']}.get(name, {'state': '', 'text': ''})


def traffic(client):
    client.stdin.write('\n')
    client.stdin.flush()
    check(client.stdout.readline() == 'sent\n', 'the client sends')


def decided(client, pid, reason, under=()):
    """Traffic, until the process has that reason; what exs check says then."""
    deadline = time.monotonic() + DEADLINE
    while True:
        if client:
            traffic(client)
        status, found, said = look('--pid', pid, under=under)
        if any(o['reason'] == reason for o in found):
            return status, [o for o in found if o['reason'] == reason][0], said
        if time.monotonic() > deadline:
            check(False, 'waited in vain for', reason, said)
            return status, None, said
        time.sleep(0.01)


def is_failed(what, one, step, words, cure):
    """The step has failed, none before it, none behind it is good; the words are
    there."""
    if not one:
        return
    states = [s['state'] for s in one['steps']]
    names = [s['step'] for s in one['steps']]
    at = names.index(step) if step in names else -1
    check(at >= 0 and states[at] == 'failed' and states.count('failed') == 1, what, 'step',
          one)
    check('ok' not in states[at + 1:], what, 'later steps', one)
    text = one['verdict'] + ' ' + one['cure'] + ' ' + ' '.join(
        s['text'] for s in one['steps'])
    check(re.search(words, text), what, 'words', words, one)
    check(re.search(cure, one['cure']), what, 'cure', cure, one)
    check(not one['moves'], what, one)


def stat_says(what, pid, reason, cure, under=()):
    status, out, err = tool('stat', pid, under=under)
    check(status == 0 and re.search(reason, out) and re.search(cure, out), what, 'stat', out, err)


def pair(reason, step, words, cure, *, server=None, client=None, under=(), at='127.0.0.1',
         plain=False, whose='client', n=1, client_under=(), server_args=(), stat=None):
    """A server and a client; what is said of one of them."""
    with program(SERVER, at, *server_args, more=server, plain=plain, under=under) as \
            (s, port), program(CLIENT, at, port, n, more=client, under=client_under) as \
            (c, line):
        check(line == 'connected', reason, 'connects')
        pid = c.pid if whose == 'client' else s.pid
        status, one, said = decided(c, pid, reason)
        if sys.argv[3:] == ['ofi']:  # and it stays so
            decided(c, pid, reason)
        what = f'{reason}/{step} at the {whose}'
        check(status == (0 if reason == 'none' else 1), what, 'status', status, said)
        if reason != 'none':
            is_failed(what, one, step, words, cure)
            stat_says(what, pid, *(stat or (reason, cure)))
        return one


def moved():
    with program(SERVER, '127.0.0.1') as (s, port), \
            program(CLIENT, '127.0.0.1', port, 3) as (c, _):
        def accepted():
            return len(look('--pid', c.pid)[1]) == 1
        wait_for('the server accepts them all, so that they are alike', accepted)
        status, found, said = look('--pid', c.pid)
        check(status == 1 and len(found) == 1 and found[0]['alike'] == 2 and
              found[0]['reason'] == 'undecided' and
              step_of(found[0], 'traffic')['state'] == 'failed', 'before any traffic', said)

        def all_moved():
            traffic(c)
            found = look('--pid', c.pid)[1]
            return len(found) == 1 and found[0]['reason'] == 'none'
        wait_for('all of them move', all_moved)
        status, one, said = decided(c, c.pid, 'none')
        check(status == 0 and one and one['moves'] and
              one['verdict'] == 'shm in both directions', 'moved', said)
        check(one and f'[{s.pid}]' in step_of(one, 'peer')['text'], 'the peer', said)
        check(one and all(x['state'] == 'ok' for x in one['steps'] if x['step'] != 'key'),
              'all is well', said)
        fd = int(re.search(r' fd (\d+):', one['connection']).group(1))
        status, found, said = look('--pid', c.pid, '--fd', fd)
        check(status == 0 and len(found) == 1 and not found[0]['alike'], '--fd', said)
        status, _, said = look('--pid', c.pid, '--fd', 9999)
        check(status == 1 and 'descriptor 9999' in said, 'no such descriptor', said)
        status, out, err = tool('check', '--pid', c.pid)
        check(status == 0 and '\nverdict: shm in both directions\n' in out and
              '2 other connections' in out, 'as text', out, err)
        if os.getuid() == 0:
            status, out, err = tool('check', '--pid', c.pid, user=65534)
            check(status == 1 and "another user's" in err and not out, 'another user', err)
        # What the port says, while the server runs.
        status, found, said = look('127.0.0.1', port)
        check(status == 0 and found[0]['moves'] and '1024 B' in
              found[0]['verdict'].replace('1.00 KiB', '1024 B').replace('1 KiB', '1024 B'),
              'the port', said)
        check(step_of(found[0], 'peer')['text'].endswith('uses libexs'), 'the port', said)


def another_user():
    if os.getuid():
        return
    with program(SERVER, '127.0.0.1', more={'AS_USER': '65534'}) as (s, port), \
            program(CLIENT, '127.0.0.1', port, 1) as (c, _):
        _, one, said = decided(c, c.pid, 'none')
        check(one and one['moves'], 'the server is of another user', said)
        status, found, said = look('--pid', s.pid)
        check(status == 0 and 'nobody' in step_of(found[0], 'process')['text'],
              'root sees it', said)


def ports():
    status, found, said = look('127.0.0.1', 1)
    check(status == 1 and step_of(found[0], 'connect')['state'] == 'failed' and
          'start the server' in found[0]['cure'], 'nobody listens', said)
    status, found, said = look('no-such-host.invalid', 80)
    check(status == 1 and step_of(found[0], 'resolve')['state'] == 'failed', said)
    status, found, said = look('127.0.0.1', 'no-such-port')
    check(status == 1 and '/etc/services' in found[0]['cure'], 'no port', said)
    with program(SERVER, '127.0.0.1', plain=True) as (s, port):
        status, found, said = look('127.0.0.1', port)
        is_failed('plain port', found[0], 'peer', 'does not use libexs', 'exs run')
        check(f'[{s.pid}]' in step_of(found[0], 'peer')['text'], 'who it is', said)
        check(f'[{s.pid}] at the other end does not use libexs' in found[0]['verdict'] and
              f'[{s.pid}] with exs run' in found[0]['cure'], 'who must use it', said)
    with program(SERVER, '127.0.0.1', more={'EXS_PROVIDER': 'tcp'}) as (s, port):
        status, found, said = look('127.0.0.1', port)
        is_failed('port on tcp', found[0], 'peer', 'EXS_PROVIDER=tcp', 'exs info')
        check(f'[{s.pid}] uses libexs, but' in found[0]['verdict'], 'it has the library', said)
    with program(SERVER, '127.0.0.1', more={'EXS_UNIX': 'off'}) as (_, port):
        status, found, said = look('127.0.0.1', port)
        check('EXS_UNIX=off' in step_of(found[0], 'peer')['text'], 'its settings', said)
    for under, words in (([DENY, 'netlink'], 'unless the system call filter of '),
                         (few_descriptors(40), 'runs out of its 40 descriptors')):
        with program(SERVER, '127.0.0.1', under=under) as (s, port):
            status, found, said = look('127.0.0.1', port)
            check(words in found[0]['verdict'] and f'[{s.pid}]' in found[0]['verdict'],
                  'a server that may not be able to', said)
    with program(SERVER, '127.0.0.1') as (_, port):
        for settings, step, words, cure in (
                ({'EXS_UPGRADE': 'never'}, 'settings', 'EXS_UPGRADE=never', 'exs info'),
                ({'EXS_PROVIDER': 'tcp'}, 'fabrics', 'none but tcp', 'exs info'),
                ({'EXS_MEMORY_LIMIT_MB': '0'}, 'limits', 'EXS_MEMORY_LIMIT_MB=0',
                 'EXS_MEMORY_LIMIT_MB')):
            status, found, said = look('127.0.0.1', port, more=settings)
            is_failed('our settings', found[0], step, words, cure)
        for limit, words, cure in (('fsize', 'shared memory: File too large', 'ulimit -f'),
                                   ('nofile', 'descriptors: Too many open', 'ulimit -n')):
            status, found, said = look('127.0.0.1', port,
                                       under=['prlimit', f'--{limit}=16:16'])
            is_failed('our limits', found[0], 'system', words, cure)
        status, found, said = look('127.0.0.1', port, more={'EXS_UPGRADE': 'no such'})
        check(status == 1 and step_of(found[0], 'settings')['state'] == 'failed', said)
        for what, words, why in (('netlink', 'AF_NETLINK', 'no-proof'),
                                 ('unix', 'AF_UNIX', 'no-proof'),
                                 ('memfd', 'memfd_create', 'no-provider')):
            status, found, said = look('127.0.0.1', port, under=[DENY, what])
            check(status == 1 and found and
                  step_of(found[0], 'system')['state'] == 'failed' and
                  words in step_of(found[0], 'system')['text'] and
                  found[0]['reason'] == why, 'denied', what, said)


def no_environment():
    """A program that writes over its environment, as some do to change their title."""
    with program(SERVER, '127.0.0.1') as (_, port), \
            program(OVERWRITES, port, more={'EXS_UPGRADE': 'never'}) as (p, line):
        check(line == 'sent', 'the client sends')
        status, found, said = look('--pid', p.pid)
        check(status == 1 and found, 'no environment', said)
        is_failed('no environment', found[0], 'settings', 'overwritten its environment',
                  'exs info')


def few_descriptors(n):
    return ['prlimit', f'--nofile={n}:{n}']


def programs():
    pair('plain-peer', 'peer', 'does not use libexs', 'exs run', plain=True)
    pair('no-provider', 'peer', 'EXS_PROVIDER=tcp', 'exs info',
         server={'EXS_PROVIDER': 'tcp'}, stat=('peer-request', 'the other end'))
    pair('config', 'settings', 'EXS_UPGRADE=never', 'exs info --config',
         client={'EXS_UPGRADE': 'never'})
    pair('no-proof', 'system', r'\] runs in a system call filter', 'exs info',
         client_under=[DENY, 'netlink'])
    pair('descriptors', 'limits', r'\d+ of 130 descriptors', 'ulimit -n', n=60,
         client_under=few_descriptors(130))
    # The client says on its socket that it stays on TCP; the server reads it at a look.
    pair('descriptors', 'peer', 'ulimit -n of 31', 'ulimit -n', whose='server',
         client_under=few_descriptors(31),
         stat=('undecided|peer-request', 'EXS_UPGRADE|the other end'))
    no_environment()
    one = pair('none', '', '', '', client_under=['prlimit', '--memlock=0:0'])
    check(one and 'locked memory 0 bytes' in step_of(one, 'limits')['text'],
          'shared memory needs no memory that is locked', one)
    for under, cure in ((few_descriptors(64), 'ulimit -n'),
                        (['prlimit', '--fsize=4096:4096'], 'ulimit -f')):
        with program(SERVER, '127.0.0.1') as (_, port), \
                program(CLIENT, '127.0.0.1', port, 1, under=under) as (c, _):
            traffic(c)
            status, found, said = look('--pid', c.pid)
            check(status == 1 and cure in said, 'too few for counters', said)
    if os.getuid() == 0:
        with tempfile.TemporaryDirectory() as root:
            one = pair('none', '', '', '', server_args=(root,), whose='server')
            check(one and 'a root directory of its own' in step_of(one, 'process')['text'],
                  'in a root of its own', one)
            other_files(root)


def other_files(root):
    """What the settings of a program in a root of its own name is not opened here."""
    with tempfile.NamedTemporaryFile('w') as conf:
        with program(SERVER, '127.0.0.1', root, more={'EXS_CONFIG': conf.name}) as (s, port), \
                program(CLIENT, '127.0.0.1', port, 1) as (c, _):
            traffic(c)
            # As another file at the same path could be a device, say.
            with open(INOTIFY.inotify_init1(os.O_NONBLOCK), 'rb', buffering=0) as opened:
                check(INOTIFY.inotify_add_watch(opened.fileno(), conf.name.encode(), 0x20) >= 0,
                      'IN_OPEN')
                _, out, err = tool('check', '--pid', s.pid)
                check('whose files are not read' in out and conf.name in out and
                      not opened.read(100), 'its own file, not ours', out, err)


def rules():
    """Rules for ports: for connections to these, at the end that has the file."""
    all_but = 'port = 1, 3-65535\n'
    with tempfile.TemporaryDirectory() as folder:
        conf = {'EXS_CONFIG': os.path.join(folder, 'exs.conf')}
        for rule, ends, reason, step, words in (
                (all_but + 'upgrade = never\n', ['client', 'server'], 'config', 'settings',
                 'EXS_CONFIG='),
                (all_but + 'provider = tcp\n', ['client'], 'no-provider', 'fabrics',
                 'shm is left out by a rule for the port'),
                ('port = 2\nupgrade = never\nprogram = python*\n' + all_but +
                 'upgrade = bytes:64\nprogram = none\n' + all_but + 'upgrade = never\n',
                 ['server'], 'none', '', '')):
            with open(conf['EXS_CONFIG'], 'w') as f:
                f.write('[rule a]\n' + rule)
            for whose in ends:
                pair(reason, step, words, 'exs info --config' if step == 'settings' else '',
                     whose=whose, **{whose: conf})
            with program(SERVER, '127.0.0.1') as (_, port):
                status, found, said = look('127.0.0.1', port, more=conf)
                check(found and found[0]['reason'] == reason and
                      status == (reason != 'none'), 'the port by a rule', said)
        said = tool('info', '--config', more=conf)[1]
        check('EXS_UPGRADE           never                        file, rule a, port 2' in
              said, 'exs info --config', said)


def rules_of_ofi():
    """A rule for ports, at either end: one leaves ofi out, one is for another port."""
    hosts = OFI | {'EXS_TRUST': 'hosts'}
    with tempfile.TemporaryDirectory() as folder:
        conf = {'EXS_CONFIG': os.path.join(folder, 'exs.conf')}
        for ports, whose, reason in (('1, 3-65535', 'client', 'no-provider'),
                                     ('1, 3-65535', 'server', 'no-provider'),
                                     ('2', 'client', 'none')):
            with open(conf['EXS_CONFIG'], 'w') as f:
                f.write(f'provider = ofi, tcp\n[rule a]\nport = {ports}\nprovider = tcp\n')
            ends = {'server': dict(hosts), 'client': dict(hosts)}
            del ends[whose]['EXS_PROVIDER']
            ends[whose] |= conf
            pair(reason, 'fabrics', 'ofi is left out by a rule for the port', '',
                 whose=whose, **ends)


def other_fabrics():
    ofi = OFI
    info = json.loads(tool('info', '--json', more=ofi)[1])
    if not [f for f in info['fabrics'] if f['name'] == 'ofi' and f['built']]:
        return
    pair('remote', 'fabrics', 'ofi is not usable .*none-such', 'ofi: .*none-such',
         server=ofi | {'EXS_TRUST': 'hosts'}, stat=('remote', 'exs-verbs'),
         client=ofi | {'EXS_TRUST': 'hosts', 'EXS_OFI_PROVIDER': 'none-such'})
    with tempfile.TemporaryDirectory() as folder:
        keys = [os.path.join(folder, name) for name in ('a', 'b')]
        for key in keys:
            status, out, err = tool('key', 'make', more={'EXS_KEY_FILE': key})
            check(status == 0, 'a key', err)
        one = pair('key-mismatch', 'key', f'{keys[1]}, ID [0-9a-f]+', 'exs key copy',
                   server=ofi | {'EXS_KEY_FILE': keys[0]},
                   client=ofi | {'EXS_KEY_FILE': keys[1]})
        check(one is not None, 'keys that differ')
        # The server cannot know who came with another key.
        report = os.path.join(folder, 'report')
        with program(SERVER, '127.0.0.1', more=ofi | {
                'EXS_KEY_FILE': keys[0], 'EXS_REPORT': report}) as (s, port):
            with program(CLIENT, '127.0.0.1', port, 1,
                         more=ofi | {'EXS_KEY_FILE': keys[1]}) as (c, _):
                decided(c, c.pid, 'key-mismatch')
                s.terminate()
                s.wait(DEADLINE)
            with open(report, encoding='utf-8') as f:
                said = f.read()
            check('1 connection, tcp (refused)' in said, 'what the server says', said)
        strangers_of_workers(ofi | {'EXS_KEY_FILE': keys[0]}, ofi | {'EXS_KEY_FILE': keys[1]},
                             os.path.join(folder, 'workers'))


def strangers_of_workers(server, client, report):
    """One of the workers is asked for the connections of all."""
    def all_are_refused():
        traffic(c)
        return len(re.findall('% +key-mismatch$', tool('stat', c.pid)[1], re.M)) == 6
    with program(PREFORKS, more=server | {'EXS_REPORT': report}) as (s, line):
        port, *workers = line.split()
        with program(CLIENT, '127.0.0.1', port, 6, more=client) as (c, _):
            wait_for('the client knows', all_are_refused)
            for w in reversed(workers):
                os.kill(int(w), signal.SIGTERM)
            s.wait(DEADLINE)
    wait_for('each process reports', lambda: text_of(report).count('exs run:') == 3)
    here = re.findall(r'(\d+) connections?, tcp \(refused\)', text_of(report))
    check(here == ['2', '2', '2'], 'what the workers say', text_of(report))


def text_of(path):
    with open(path, encoding='utf-8') as f:
        return f.read()


def devices():
    """A device whose name is wrong: the name is said, and what there is."""
    info = json.loads(tool('info', '--json')[1])
    if not [f for f in info['fabrics'] if f['name'] == 'verbs' and f['built']]:
        return
    wrong = {'EXS_PROVIDER': 'verbs,tcp', 'EXS_VERBS_DEVICE': 'none0'}
    words = 'EXS_VERBS_DEVICE is "none0", which this host does not have; it has '
    pair('no-provider', 'fabrics', words, 'verbs: ' + words, client=wrong,
         stat=('no-provider', 'exs info'))
    with program(SERVER, '127.0.0.1') as (_, port):
        status, found, said = look('127.0.0.1', port, more=wrong)
        is_failed('a wrong device', found[0], 'fabrics', words, 'verbs: ' + words)


def no_loopback():
    """In a network namespace whose loopback interface is down."""
    status, found, said = look('127.0.0.1', 1)
    check(status == 1 and 'ip link set lo up' in found[0]['cure'], 'an own address', said)
    tried = {t['name']: t for t in json.loads(tool('info', '--json')[1])['trials']}
    check(not tried['loopback']['works'] and tried['sock_diag']['works'] and
          'ip link set lo up' in tried['loopback']['cure'], 'the interface is down', tried)
    status, out, _ = tool('info')
    check(re.search('shm +not usable +loopback: ', out), 'exs info', out)


def in_a_directory(there):
    """Between two namespaces that share a directory and a key, which needs Linux 6.9."""
    meets = [int(n) for n in os.uname().release.split('.')[:2]] >= [6, 9]
    with tempfile.TemporaryDirectory() as folder:
        conf = {'EXS_MEET_DIR': folder, 'EXS_KEY_FILE': os.path.join(folder, 'key')}
        status, _, err = tool('key', 'make', more=conf)
        check(status == 0, 'a key', err)
        with program(SERVER, '10.77.0.1', more=conf) as (_, port):
            status, found, said = look('10.77.0.1', port, under=there, more=conf)
            if not meets:
                check(status == 1 and not found[0]['moves'], 'no pidfs', said)
                return
            check(status == 0 and found[0]['moves'] and 'EXS_MEET_DIR' in
                  step_of(found[0], 'peer')['text'], 'in a directory', said)
            status, found, said = look('10.77.0.1', port, under=there,
                                       more=conf | {'EXS_MEET_DIR': folder + '/none'})
            check(status == 1 and f'EXS_MEET_DIR={folder}/none: No such file or directory' in
                  step_of(found[0], 'peer')['text'], 'no directory', said)
        pair('none', '', '', '', at='10.77.0.1', client_under=there, server=conf, client=conf)
        other = conf | {'EXS_KEY_FILE': os.path.join(folder, 'other')}
        status, _, err = tool('key', 'make', more=other)
        check(status == 0, 'another key', err)
        pair('remote', 'fabrics', 'is in another network namespace of this host', 'one key',
             at='10.77.0.1', client_under=there, server=conf, client=other)


def two_namespaces():
    """In a network namespace of its own, with another beside it."""
    def ip(*args):
        subprocess.run(['ip', *args], check=True)
    other = subprocess.Popen(['unshare', '-n', 'sh', '-c', 'echo there; exec cat'],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        other.stdout.readline()
        there = ['nsenter', '-t', str(other.pid), '-n']
        ip('link', 'set', 'lo', 'up')
        ip('link', 'add', 'here', 'type', 'veth', 'peer', 'name', 'there')
        ip('link', 'set', 'there', 'netns', str(other.pid))
        ip('addr', 'add', '10.77.0.1/24', 'dev', 'here')
        ip('link', 'set', 'here', 'up')
        subprocess.run([*there, 'ip', 'addr', 'add', '10.77.0.2/24', 'dev', 'there'],
                       check=True)
        subprocess.run([*there, 'ip', 'link', 'set', 'there', 'up'], check=True)
        pair('remote', 'fabrics', 'is in another network namespace of this host',
             'one network namespace', at='10.77.0.1', client_under=there)
        with program(SERVER, '10.77.0.1') as (_, port):
            status, found, said = look('10.77.0.1', port, under=there)
            is_failed('the port of another namespace', found[0], 'fabrics',
                      'another network namespace', 'one network namespace')
            system = step_of(found[0], 'system')['text']
            check(system.startswith('loopback: ') and 'sock_diag' not in system,
                  'the interface is down there', system)
            check(step_of(found[0], 'system')['state'] != 'ok', 'not ok', found)
        if os.geteuid() == 0:  # of the user namespace that owns both
            in_a_directory(there)
    finally:
        other.kill()
        other.communicate()


def main():
    if sys.argv[3:] == ['apart']:
        no_loopback()
        two_namespaces()
    elif sys.argv[3:] == ['ofi']:
        rules_of_ofi()
    else:
        moved()
        another_user()
        ports()
        programs()
        rules()
        other_fabrics()
        devices()
        user = [] if os.getuid() == 0 else ['-U', '-r']
        if user and subprocess.run(['unshare', *user, '-n', 'true'],
                                   stderr=subprocess.DEVNULL).returncode:
            print('two network namespaces: skipped, no namespace of users can be made here')
        else:
            apart = subprocess.run(['unshare', *user, '-n', sys.executable, *sys.argv[:3],
                                    'apart'], timeout=120)
            check(apart.returncode == 0, 'two network namespaces')
    return result()


sys.exit(main())
