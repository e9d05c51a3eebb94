#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Each end of a connection names the true reason why it is on TCP, or is on shm,
whatever the cause is, and counts every byte; and exs info says what the system denies
and what allows it: denied.py EXS DENY TALK."""

import concurrent.futures
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile

# How an end is started: by these commands, under exs run, or not. The names that
# are not here are those of deny.c.
PLAIN = 'plain'
WRAPS = {
    'nothing': [],
    'small-files': ['prlimit', '--fsize=8192'],
    'few-descriptors': ['prlimit', '--nofile=16'],
    'no-locked-memory': ['prlimit', '--memlock=0'],
    'little-memory': ['prlimit', '--as=400000000'],
    'user': ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'],
    'user-namespace': ['unshare', '--user', '--map-root-user'],
    'namespaces': ['unshare', '--pid', '--fork', '--mount', '--ipc', '--uts'],
    'no-proc': ['unshare', '--mount', 'sh', '-c',
                'mount -t tmpfs none /proc && exec "$@"', 'sh'],
}

# An end that has no descriptor left may lack the one by which it would say why it does
# not meet: then it says on the connection's socket that it does not.
UNTOLD = 'descriptors or peer-request'

# What is decided when the connection ends: somebody might have come. An end looks for
# its peer within 200 ms, and waits 300 ms for it, however busy the host is.
LATE = ('plain-peer', 'remote', UNTOLD)
LATE_MS = 500

# The server and the client; their settings; what they say then. An end that is
# plain says nothing.
CASES = [
    ('nothing', 'nothing', {}, {}, 'shm', 'shm'),
    ('nothing', PLAIN, {}, {}, 'plain-peer', ''),
    (PLAIN, 'nothing', {}, {}, '', 'plain-peer'),
    ('netlink', 'nothing', {}, {}, 'no-proof', 'no-proof'),
    ('netlink-eperm', 'nothing', {}, {}, 'no-proof', 'no-proof'),
    ('nothing', 'netlink', {}, {}, 'peer-request', 'no-proof'),
    ('nothing', 'netlink-eperm', {}, {}, 'peer-request', 'no-proof'),
    ('unix', 'nothing', {}, {}, 'no-proof', 'peer-request'),
    ('unix-eperm', 'nothing', {}, {}, 'no-proof', 'peer-request'),
    ('nothing', 'unix', {}, {}, 'peer-request', 'no-proof'),
    ('memfd', 'nothing', {}, {}, 'no-provider', 'peer-request'),
    ('nothing', 'memfd', {}, {}, 'peer-request', 'no-provider'),
    ('nothing', 'nothing', {'EXS_PROVIDER': 'tcp'}, {}, 'no-provider', 'peer-request'),
    ('nothing', 'nothing', {}, {'EXS_PROVIDER': 'tcp'}, 'peer-request', 'no-provider'),
    ('nothing', 'nothing', {'EXS_UPGRADE': 'never'}, {}, 'config', 'peer-request'),
    ('nothing', 'nothing', {}, {'EXS_UPGRADE': 'never'}, 'peer-request', 'config'),
    ('io-uring', 'io-uring', {}, {}, 'shm', 'shm'),
    ('small-files', 'nothing', {}, {}, 'memory', 'memory'),
    ('nothing', 'small-files', {}, {}, 'memory', 'memory'),
    ('few-descriptors', 'nothing', {}, {}, 'descriptors', UNTOLD),
    ('nothing', 'few-descriptors', {}, {}, 'peer-request', 'descriptors'),
    ('no-locked-memory', 'little-memory', {}, {}, 'shm', 'shm'),
    ('little-memory', 'no-locked-memory', {}, {}, 'shm', 'shm'),
]

# These need root.
OF_ROOT = [
    ('nothing', 'user', {}, {}, 'shm', 'shm'),
    ('user', 'nothing', {}, {}, 'shm', 'shm'),
    ('nothing', 'user-namespace', {}, {}, 'shm', 'shm'),
    ('namespaces', 'nothing', {}, {}, 'shm', 'shm'),
    ('no-proc', 'nothing', {}, {}, 'shm', 'shm'),
    ('nothing', 'no-proc', {}, {}, 'shm', 'shm'),
]


def environment(more):
    env = {k: v for k, v in os.environ.items() if not k.startswith('EXS_')}
    return env | {'EXS_LOG': 'off'} | more


def talk(tools, case, address='127.0.0.1', within=((), ()), more=()):
    """A server and a client, each under exs run with a report; what these say."""
    exs, deny, program = tools
    server_is, client_is, server_env, client_env = case[:4]
    server_wants, client_wants = ('' if w in LATE else w for w in case[4:])
    least = str(LATE_MS if set(LATE) & set(case[4:]) else 0)

    def command(what, where):
        if what == PLAIN:
            return [*where, program]
        wrap = WRAPS[what] if what in WRAPS else [deny, what]
        return [*where, *wrap, exs, 'run', '--report', program]

    server = subprocess.Popen(
        command(server_is, within[0]) + ['serve', server_wants, address, *more],
        env=environment(server_env), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE)
    port = server.stdout.readline().strip()
    client = subprocess.run(
        command(client_is, within[1]) + ['call', client_wants, address, port, least],
        env=environment(client_env), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    _, text = server.communicate(timeout=60)
    # What a confined process reads and writes is unseen.
    count = '' if more == ['confined'] else client.stdout.strip()
    return [said(t, count) for t in (text, client.stderr)]


def said(text, count):
    """The fabric, or the reason for TCP, if the report has all of this count of
    bytes each way."""
    if not text:
        return text
    found = re.search(r'1 connections?, (shm|tcp \(([a-z-]+)\)|fabric, tcp '
                      r'\(([a-z-]+)\)), (\d+) bytes in, (\d+) out', text) or \
        re.search(r'(without a decision): 1 connection, tcp \(([a-z-]+)\)(), '
                  r'(\d+) bytes in, (\d+) out', text)
    if not found or count and {found[4], found[5]} != {count}:
        return text
    return found[2] or found[3] or found[1]


def trials(exs, deny, what):
    done = subprocess.run([deny, what, exs, 'info', '--json'], env=environment({}),
                          stdout=subprocess.PIPE, check=True, timeout=60)
    all_of_it = json.loads(done.stdout)
    failed = [t['name'] for t in all_of_it['trials'] if not t['works']]
    shm = [f for f in all_of_it['fabrics'] if f['name'] == 'shm'][0]
    return failed, shm['usable'], shm['why'] or ''


def info_is_right(exs, deny):
    good = True
    for what, step, word in (('netlink', 'sock_diag', 'AF_NETLINK'),
                             ('unix', 'UNIX sockets', 'AF_UNIX'),
                             ('memfd', 'shared memory', 'memfd_create'),
                             ('epoll', 'epoll', 'epoll_create1')):
        failed, usable, why = trials(exs, deny, what)
        if failed != [step] or usable or word not in why:
            print(f'info without {what}: {failed}, {usable}, {why}')
            good = False
    failed, usable, why = trials(exs, deny, 'nothing')
    if failed not in ([], ['futex_waitv']) or not usable:
        print(f'info where all is there: {failed}, {usable}, {why}')
        good = False
    return good


def never_reached(exs, folder):
    report = os.path.join(folder, 'refused')
    subprocess.run([exs, 'run', '--report=' + report, sys.executable, '-c',
                    'import socket\n'
                    's = socket.socket()\n'
                    'with socket.socket() as free:\n'
                    '    free.bind(("127.0.0.1", 0))\n'
                    '    try:\n'
                    '        s.connect(free.getsockname())\n'
                    '    except ConnectionRefusedError:\n'
                    '        pass\n'], env=environment({}), check=True, timeout=60)
    if not os.path.exists(report):
        return True
    with open(report) as f:
        text = f.read()
    return 'that is gone' not in text


def start_of_namespace():
    """A process in a network namespace of its own, until its input ends."""
    p = subprocess.Popen(['unshare', '--net', 'cat'], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
    p.stdin.write('here\n')
    p.stdin.flush()
    p.stdout.readline()
    return p, ['nsenter', '--target', str(p.pid), '--net']


@contextlib.contextmanager
def two_namespaces():
    (a, in_a), (b, in_b) = start_of_namespace(), start_of_namespace()
    try:
        for where, args in (
                (in_a, ['link', 'add', 'here', 'type', 'veth', 'peer', 'name',
                        'there', 'netns', str(b.pid)]),
                (in_a, ['addr', 'add', '10.77.0.1/24', 'dev', 'here']),
                (in_b, ['addr', 'add', '10.77.0.2/24', 'dev', 'there']),
                (in_a, ['link', 'set', 'here', 'up']),
                (in_b, ['link', 'set', 'there', 'up'])):
            subprocess.run(where + ['ip', *args], check=True, timeout=60)
        yield in_a, in_b
    finally:
        for p in a, b:
            p.stdin.close()
            p.wait()


def eager(case):
    """The case, with both ends looking for each other from the start."""
    return case[:2] + tuple({'EXS_UPGRADE': 'connect'} | env
                            for env in case[2:4]) + case[4:]


def tries_of(folder, within):
    root = os.path.join(folder, 'root')
    os.mkdir(root)
    both = ('nothing', 'nothing', {}, {})
    tries = [(c, {}) for c in CASES]
    tries.append(((*both, 'seccomp', 'peer-request'), {'more': ['confined']}))
    if within:
        tries += [(c, {}) for c in OF_ROOT]
        tries.append(((*both, 'shm', 'shm'), {'more': ['root', root]}))
        tries.append(((*both, 'remote', 'remote'),
                      {'address': '10.77.0.1', 'within': within}))
    return tries + [(eager(c), more) for c, more in tries]


def all_are_right(tools, tries):
    good = True
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        running = [(case, more, pool.submit(talk, tools, case, **more))
                   for case, more in tries]
        for case, more, found in running:
            if any(f not in wanted.split(' or ')
                   for f, wanted in zip(found.result(), case[4:])):
                print(f'{case}, {more}: {found.result()}')
                good = False
    return good


def has_namespaces():
    return os.geteuid() == 0 and not subprocess.run(
        ['unshare', '--net', '--mount', '--user', 'true'], check=False,
        stderr=subprocess.DEVNULL).returncode


def main():
    tools = tuple(os.path.abspath(a) for a in sys.argv[1:4])
    exs, deny, _ = tools
    good = info_is_right(exs, deny)
    with tempfile.TemporaryDirectory() as folder:
        with (two_namespaces() if has_namespaces()
              else contextlib.nullcontext()) as within:
            good = all_are_right(tools, tries_of(folder, within)) and good
        if not never_reached(exs, folder):
            print('a connection that was refused had a peer that is gone')
            good = False
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main())
