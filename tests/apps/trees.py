# SPDX-License-Identifier: BSD-2-Clause
"""Programs whose connections get to other processes: those that they start, and those
that they have without privileges."""

import getpass
import os
import subprocess

import common
from common import (Server, Shim, blob, both_ends, fail, free_port, native, need,
                    output, path, same, sbin, skip, write)


def alike(run, program):
    """The client gets the same however many of the ends are under the shim. Those that
    share their connections with others, or hand them on, stay on TCP."""
    want = both_ends(run, [program], Shim.seen)
    for server, client in ((Shim('server').command, native),
                           (native, Shim('client').command)):
        if run(server, client) != want:
            fail('it says other things than without the shim')


def inetd():
    """The server accepts, and starts a program that has the connection three times."""
    sbin('inetd')
    need('nc')
    data = blob('data', 20)

    def run(server, client):
        port = free_port()
        conf = write('inetd.conf', '127.0.0.1:%d stream tcp nowait %s /bin/cat cat\n'
                     % (port, getpass.getuser()))
        with Server(server(sbin('inetd'), '-i', conf), port):
            with open(data, 'rb') as f, open(path('got'), 'wb') as g:
                subprocess.run(client('nc', '-N', '127.0.0.1', str(port)), stdin=f,
                               stdout=g, check=True, timeout=common.TIMEOUT)
            same(path('got'), data)

    alike(run, 'nc')


def vsftpd():
    """A server that gets its connections from a process with privileges, chroots and
    forbids itself calls of the system."""
    if os.getuid():
        skip('vsftpd has to be root')
    sbin('vsftpd')
    need('lftp')
    data = path('there')
    os.mkdir(data, 0o755)
    for i in range(4):
        blob('there/f%d' % i, 15)

    def run(server, client):
        port = free_port()
        to = path('got-%d' % port)
        conf = write('vsftpd.conf', """listen=YES
listen_address=127.0.0.1
listen_port=%d
background=NO
anonymous_enable=YES
local_enable=NO
anon_root=%s
ftp_username=daemon
secure_chroot_dir=%s
no_anon_password=YES
pasv_address=127.0.0.1
""" % (port, data, path('empty')))
        os.makedirs(path('empty'), exist_ok=True)
        with Server(server(sbin('vsftpd'), conf), port):
            output(client('lftp', '-c', 'set ftp:use-mdtm no; mirror --parallel=2 '
                          'ftp://127.0.0.1:%d/ %s' % (port, to)))
        output(['diff', '-r', data, to])

    alike(run, 'lftp')
