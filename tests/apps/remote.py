# SPDX-License-Identifier: BSD-2-Clause
"""Programs that work elsewhere: openssh and distcc."""

import getpass
import os

import common
from common import (HERE, HOST, Server, Shim, blob, everywhere, fail,
                    free_port, need, output, path, same, sbin)


def ssh():
    need('ssh', 'ssh-keygen')
    sshd = sbin('sshd')
    data = blob('data', 20)
    for key in 'host', 'user':
        output(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f',
                path(key)])
    # Where it locks itself in before somebody has proved who he is.
    jail = '/run/sshd'
    ours = os.getuid() == 0 and not os.path.isdir(jail)
    if ours:
        os.mkdir(jail, 0o755)

    def run(server, client):
        port = free_port()
        with Server(server(sshd, '-D', '-e', '-f', '/dev/null', '-p',
                           str(port), '-o', 'ListenAddress=' + HOST,
                           '-o', 'HostKey=' + path('host'),
                           '-o', 'AuthorizedKeysFile=' + path('user.pub'),
                           '-o', 'StrictModes=no', '-o', 'PidFile=none',
                           '-o', 'UsePAM=no', '-o', 'PermitRootLogin=yes'),
                    port):
            def remote(command, **kw):
                return output(client(
                    'ssh', '-F', '/dev/null', '-p', str(port),
                    '-i', path('user'), '-o', 'IdentitiesOnly=yes',
                    '-o', 'StrictHostKeyChecking=no', '-o', 'LogLevel=ERROR',
                    '-o', 'UserKnownHostsFile=/dev/null',
                    '%s@%s' % (getpass.getuser(), HOST), command), **kw)

            with open(data, 'rb') as f:
                remote("cat > '%s'" % path('got'), stdin=f)
            same(path('got'), data)
            with open(data, 'rb') as f:
                if remote("cat '%s'" % data) != f.read():
                    fail('ssh brings other bytes')
            remote('exit 3', status=3)

    try:
        # The server hands connections to another program, where they are
        # plain, and which ends without a word.
        everywhere(run, [], ['ssh'], Shim.seen)
    finally:
        if ours:
            os.rmdir(jail)


SOURCES = 'core/link.c', 'core/sock.c', 'preload/sockets.c'


def distcc():
    need('distcc', 'gcc')
    distccd = sbin('distccd')
    source = os.path.dirname(os.path.dirname(HERE))
    build = os.path.dirname(os.path.dirname(common.exs))

    def compile_all(*compiler):
        """The objects of some of this project's files."""
        objects = []
        for name in SOURCES:
            output([*compiler, '-std=gnu11', '-O1', '-D_GNU_SOURCE', '-c',
                    '-I' + source, '-I' + os.path.join(source, 'api'),
                    '-I' + build, '-o', path('object'),
                    os.path.join(source, name)])
            with open(path('object'), 'rb') as f:
                objects.append(f.read())
        return objects

    want = compile_all('gcc')
    os.mkdir(path('distcc'))

    def run(server, client):
        port = free_port()
        with Server(server(distccd, '--daemon', '--no-detach', '--log-stderr',
                           '--listen', HOST, '--port', str(port), '--allow',
                           HOST, '--jobs', '2'), port):
            os.environ.update(DISTCC_HOSTS='%s:%d' % (HOST, port),
                              DISTCC_FALLBACK='0', DISTCC_DIR=path('distcc'))
            if compile_all(*client('distcc', 'gcc')) != want:
                fail('distcc makes other objects')

    # What is sent may be too little to move; the servers end by a signal.
    everywhere(run, [], ['distcc'], Shim.seen)
