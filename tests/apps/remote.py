# SPDX-License-Identifier: BSD-2-Clause
"""Programs that work elsewhere: openssh and distcc."""

import contextlib
import getpass
import os
import shlex
import shutil

import common
from common import (HERE, HOST, Server, Shim, blob, everywhere, fail,
                    free_port, need, output, path, same, sbin, write)


@contextlib.contextmanager
def credentials():
    """Of a server and its user, and where the server locks itself in before
    somebody has proved who he is."""
    need('ssh', 'ssh-keygen')
    sbin('sshd')
    for key in 'host', 'user':
        output(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f',
                path(key)])
    jail = '/run/sshd'
    ours = os.getuid() == 0 and not os.path.isdir(jail)
    if ours:
        os.mkdir(jail, 0o755)
    try:
        yield
    finally:
        if ours:
            os.rmdir(jail)


def sshd(port, *options):
    return [sbin('sshd'), '-D', '-e', '-f', '/dev/null', '-p', str(port),
            '-o', 'ListenAddress=' + HOST, '-o', 'HostKey=' + path('host'),
            '-o', 'AuthorizedKeysFile=' + path('user.pub'),
            '-o', 'StrictModes=no', '-o', 'PidFile=none',
            '-o', 'UsePAM=no', '-o', 'PermitRootLogin=yes', *options]


def to_sshd(port):
    return ['-F', '/dev/null', '-p', str(port), '-i', path('user'),
            '-o', 'IdentitiesOnly=yes', '-o', 'StrictHostKeyChecking=no',
            '-o', 'LogLevel=ERROR', '-o', 'UserKnownHostsFile=/dev/null']


def here():
    return '%s@%s' % (getpass.getuser(), HOST)


def ssh():
    data = blob('data', 20)

    def run(server, client):
        port = free_port()
        with Server(server(*sshd(port)), port):
            def remote(command, **kw):
                return output(client('ssh', *to_sshd(port), here(), command),
                              **kw)

            with open(data, 'rb') as f:
                remote("cat > '%s'" % path('got'), stdin=f)
            same(path('got'), data)
            with open(data, 'rb') as f:
                if remote("cat '%s'" % data) != f.read():
                    fail('ssh brings other bytes')
            remote('exit 3', status=3)

    with credentials():
        # The server hands connections to another program, where they are
        # plain, and which ends without a word.
        everywhere(run, [], ['ssh'], Shim.seen)


def key():
    """exs key copy, by the real ssh, to the real server."""
    there, port = path('there'), free_port()
    mine, its = path('mine'), os.path.join(there, 'exs', 'key')
    os.environ['EXS_KEY_FILE'] = mine
    output([common.exs, 'key', 'make'])
    with credentials():
        os.mkdir(path('bin'))
        ssh = write(os.path.join('bin', 'ssh'), '#!/bin/sh\nexec %s "$@"\n' %
                    shlex.join([shutil.which('ssh'), *to_sshd(port)]))
        os.chmod(ssh, 0o755)
        os.environ['PATH'] = path('bin') + ':' + os.environ['PATH']
        copy = [common.exs, 'key', 'copy', here()]
        with Server(sshd(port, '-o', 'SetEnv=XDG_CONFIG_HOME=' + there),
                    port):
            output(copy)
            same(mine, its)
            if os.stat(its).st_mode & 0o7777 != 0o600:
                fail('the copy of the key is for others to read')
            output(copy)
            output([common.exs, 'key', 'make', '--force'])
            if b'has a different key' not in output(copy, status=1):
                fail('exs key copy says nothing of another key')
            output([*copy, '--force'])
            same(mine, its)
    del os.environ['EXS_KEY_FILE']


SOURCES = 'core/link/control.c', 'core/sock/table.c', 'preload/sockets.c'


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
