# SPDX-License-Identifier: BSD-2-Clause
"""Programs that move bytes: iperf3, sockperf, socat, nc, rsync."""

import os
import re
import signal
import subprocess

import common
from common import (HOST, Server, blob, everywhere, fail, free_port,
                    need, output, path, same, write)


def iperf3():
    need('iperf3')

    def run(server, client):
        for extra in ([], ['-R'], ['-P', '8']):
            port = free_port()
            # With -1 the server serves one client.
            with Server(server('iperf3', '-s', '-1', '-p', str(port)),
                        port) as s:
                output(client('iperf3', '-c', HOST, '-p', str(port), '-n',
                              '1G', *extra))
                s.wait()

    everywhere(run, ['iperf3'], ['iperf3'])


def sockperf():
    need('sockperf')

    def run(server, client):
        port = free_port()
        at = ['--tcp', '-i', HOST, '-p', str(port)]
        with Server(server('sockperf', 'server', *at), port,
                    stop=signal.SIGINT):
            # sockperf's tables are for no more messages than TCP carries.
            out = output(client('sockperf', 'ping-pong', *at, '-t', '1',
                                '--mps', '20000'))
        if not re.search(rb'# dropped messages = 0; # duplicated messages = 0;'
                         rb' # out-of-order messages = 0', out):
            fail('sockperf: ' + out.decode())

    everywhere(run, ['sockperf'], ['sockperf'])


def socat():
    need('socat')
    data = blob('data', 60)

    def run(server, client):
        port = free_port()
        at = '%s:%d' % (HOST, port)
        listen = 'TCP-LISTEN:%d,bind=%s' % (port, HOST)
        with Server(server('socat', '-u', listen, 'OPEN:%s,creat,trunc' %
                           path('got')), port) as s:
            output(client('socat', '-u', 'OPEN:' + data, 'TCP:' + at))
            s.wait()
        same(path('got'), data)
        # A process for each connection, which sends back what it gets.
        with Server(server('socat', listen + ',reuseaddr,fork', 'PIPE'), port):
            for size in 1, 20000, 1000000:
                text = os.urandom(size)
                if output(client('socat', '-t60', '-', 'TCP:' + at),
                          input=text) != text:
                    fail('socat sends other bytes back')

    everywhere(run, ['socat'], ['socat'])


def nc():
    need('nc')
    data = blob('data', 60)

    # One way at a time: an end that has sent all drops a part of what still
    # comes when the other end is done, too.
    def run(server, client):
        for way in 'up', 'down':
            port = free_port()
            with open(data, 'rb') as f, open(path('got'), 'wb') as got:
                sends = ['-N'], {'stdin': f}
                receives = ['-d'], {'stdin': subprocess.DEVNULL, 'stdout': got}
                (here, one), (there, other) = \
                    (sends, receives) if way == 'up' else (receives, sends)
                with Server(server('nc', *there, '-l', HOST, str(port)), port,
                            **other) as s:
                    output(client('nc', *here, HOST, str(port)), **one)
                    s.wait()
            same(path('got'), data)

    everywhere(run, ['nc'], ['nc'])


RSYNCD = """use chroot = no
{}
[files]
path = {}
read only = no
"""


def rsync():
    need('rsync')
    for name in 'there', 'there/sub':
        os.mkdir(path(name))
    blob('there/large', 60)
    for i in range(200):
        write('there/sub/%d' % i, 'line %d\n' % i * i)
    os.chmod(path('there/sub/7'), 0o755)
    user = 'uid = root\ngid = root' if os.getuid() == 0 else ''

    def run(server, client):
        port = free_port()
        config = write('rsyncd.conf', RSYNCD.format(user, common.folder))
        url = 'rsync://%s:%d/files/' % (HOST, port)
        with Server(server('rsync', '--daemon', '--no-detach', '--address',
                           HOST, '--port', str(port), '--config', config),
                    port):
            output(client('rsync', '-a', url + 'there/', path('down/')))
            output(client('rsync', '-a', path('down/'), url + 'up/'))
            # Nothing is left to do.
            said = output(client('rsync', '-ani', path('there/'), url + 'up/'))
        for copy in 'down', 'up':
            output(['diff', '-r', path('there'), path(copy)])
            output(['rm', '-r', path(copy)])
        return said

    # Two of its processes use the connection of a transfer; it may have been on
    # a fabric when the second was forked.
    everywhere(run, ['rsync'], ['rsync'],
               lambda shim, program: shim.on_tcp(program, 'shared', 4096))
