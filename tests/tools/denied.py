#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Where the system denies what a meeting needs, each end names the true reason and
counts every byte, and exs info says what is denied and what allows it: denied.py EXS
DENY."""

import json
import os
import re
import resource
import subprocess
import sys
import tempfile

SERVER = """
import os, socket, sys
s = socket.create_server(('127.0.0.1', 0))
print(s.getsockname()[1], flush=True)
if sys.argv[1:]:
    os.chroot(sys.argv[1])
c, _ = s.accept()
s.close()
while True:
    got = c.recv(65536)
    if not got:
        break
    c.sendall(got)
"""

ROUNDS = 60

CLIENT = """
import socket, sys, time
c = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
for i in range(%d):
    c.sendall(bytes(8192))
    got = 0
    while got < 8192:
        got += len(c.recv(65536))
    time.sleep(0.002)  # the meeting takes place beside it
""" % ROUNDS

# What is denied where, by name or by a function in the child; which settings; and
# what the server and the client say then.
CASES = [
    ('nothing', 'nothing', {}, {}, 'shm', 'shm'),
    ('netlink', 'nothing', {}, {}, 'no-proof', 'no-proof'),
    ('netlink-eperm', 'nothing', {}, {}, 'no-proof', 'no-proof'),
    ('nothing', 'netlink', {}, {}, 'plain-peer', 'no-proof'),
    ('nothing', 'netlink-eperm', {}, {}, 'plain-peer', 'no-proof'),
    ('unix', 'nothing', {}, {}, 'no-proof', 'plain-peer'),
    ('unix-eperm', 'nothing', {}, {}, 'no-proof', 'plain-peer'),
    ('nothing', 'unix', {}, {}, 'plain-peer', 'no-proof'),
    ('memfd', 'nothing', {}, {}, 'no-provider', 'plain-peer'),
    ('nothing', 'memfd', {}, {}, 'plain-peer', 'no-provider'),
    ('nothing', 'nothing', {'EXS_PROVIDER': 'tcp'}, {}, 'no-provider', 'plain-peer'),
    ('nothing', 'nothing', {}, {'EXS_PROVIDER': 'tcp'}, 'plain-peer', 'no-provider'),
    ('nothing', 'nothing', {'EXS_UPGRADE': 'connect'}, {'EXS_PROVIDER': 'tcp'},
     'plain-peer', 'no-provider'),
]


def environment(more):
    env = {k: v for k, v in os.environ.items() if not k.startswith('EXS_')}
    return env | {'EXS_LOG': 'off'} | more


def talk(exs, deny, case, before=None, root=()):
    """A server and a client, each under exs run with a report; what these say."""
    server_denied, client_denied, server_env, client_env = case[:4]

    def command(what):
        denied = [] if what == 'nothing' else [deny, what]
        return denied + [exs, 'run', '--report', sys.executable, '-c']

    server = subprocess.Popen(command(server_denied) + [SERVER, *root],
                              env=environment(server_env), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              preexec_fn=before)
    port = server.stdout.readline().strip()
    client = subprocess.run(command(client_denied) + [CLIENT, port],
                            env=environment(client_env), stderr=subprocess.PIPE,
                            text=True, timeout=60, check=False)
    _, text = server.communicate(timeout=60)
    return [said(text), said(client.stderr)]


def said(text):
    """The fabric, or the reason for TCP, if the report has every byte."""
    moved = re.search(r'connection, shm', text)
    found = re.search(r'1 on TCP \(([a-z-]+)\)', text)
    count = ROUNDS * 8192
    if f'{count} bytes in, {count} out' not in text:
        return text
    return 'shm' if moved else found.group(1) if found else text


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
                             ('memfd', 'shared memory', 'memfd_create')):
        failed, usable, why = trials(exs, deny, what)
        if failed != [step] or usable or word not in why:
            print(f'info without {what}: {failed}, {usable}, {why}')
            good = False
    failed, usable, why = trials(exs, deny, 'nothing')
    if failed not in ([], ['futex_waitv']) or not usable:
        print(f'info where all is there: {failed}, {usable}, {why}')
        good = False
    return good


def small_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))


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


def main():
    exs, deny = (os.path.abspath(a) for a in sys.argv[1:3])
    good = info_is_right(exs, deny)
    with tempfile.TemporaryDirectory() as folder:
        tries = [(c, None, ()) for c in CASES]
        tries.append((('nothing', 'nothing', {}, {}, 'memory', 'memory'),
                      small_files, ()))
        if os.geteuid() == 0:
            root = os.path.join(folder, 'root')
            os.mkdir(root)
            for more in {}, {'EXS_UPGRADE': 'connect'}:
                tries.append((('nothing', 'nothing', more, more, 'shm', 'shm'),
                              None, [root]))
        for case, before, root in tries:
            found = talk(exs, deny, case, before, root)
            if found != list(case[4:]):
                print(f'{case}: {found}')
                good = False
        if not never_reached(exs, folder):
            print('a connection that was refused had a peer that is gone')
            good = False
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main())
