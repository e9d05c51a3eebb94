#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A library that answers for files by a socket of its own, with a lock held, is loaded
before the shim, as fakeroot-tcp does: the library of the shim does not ask it about its
own files, which would hang. lied.py EXS LIED."""

import os
import subprocess
import sys

SERVER = '''
import socket
with socket.create_server(('127.0.0.1', 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    with listener.accept()[0] as s:
        while b := s.recv(65536):
            s.sendall(b)
'''


def main():
    exs, lied = (os.path.abspath(a) for a in sys.argv[1:3])
    for upgrade in ('auto', 'connect'):
        env = {k: v for k, v in os.environ.items() if not k.startswith('EXS_')}
        env['EXS_UPGRADE'] = upgrade
        server = subprocess.Popen([exs, 'run', sys.executable, '-c', SERVER], env=env,
                                  stdout=subprocess.PIPE, text=True)
        env['LIED_PORT'] = server.stdout.readline().strip()
        client = [exs, 'run', '--report', 'sh', '-c',
                  'LD_PRELOAD="%s:$LD_PRELOAD" exec true' % lied]
        done = subprocess.run(client, env=env, stderr=subprocess.PIPE, text=True,
                              timeout=60, check=False)
        server.wait(60)
        if done.returncode or '1 connection' not in done.stderr:
            sys.exit('%s: %d, %s' % (upgrade, done.returncode, done.stderr))


main()
