#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Programs of Debian's packages, as they are, between two hosts: what clients
say is what they say without exs run; with it at both ends their connections are
on verbs, by the reports of both, and with it at one end on none. The servers'
host does as the clients' asks. Usage, with its address in T_ADDRESS:

apps.py EXS serve
apps.py EXS play APP..."""

import contextlib
import json
import os
import random
import re
import socket
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             '../apps'))

import common  # noqa: E402
import stores  # noqa: E402
import web  # noqa: E402
from common import (HOST, Server, Shim, fail, native, output,  # noqa: E402
                    path, until, write)

CONTROL = 4000
MEGABYTES = 16  # meeting a host takes longer than one megabyte


def site():
    """The same on both hosts."""
    if not os.path.exists(path('www')):
        os.mkdir(path('www'))
        write('www/small', 'hello\n')
        with open(path('www/large'), 'wb') as f:
            f.write(random.Random(1).randbytes(MEGABYTES * 1000000))
    return path('www/large')


# --- the programs ------------------------------------------------------------

def redis_server(start, port):
    return stores.redis_server(start, port, '--protected-mode', 'no')


def redis_clients(client, port):
    return stores.redis_clients(client, port, 100)


def iperf3_server(start, port):
    return Server(start('iperf3', '-s', '-p', str(port)), port)


def iperf3_clients(client, port):
    """For a time: how many bytes that is depends on what is measured."""
    said = []
    for extra in [], ['-R'], ['-P', '4']:
        told = json.loads(output(client(
            'iperf3', '-c', HOST, '-p', str(port), '-t', '3', '-J', *extra)))
        if 'error' in told:
            fail('iperf3 %s: %s' % (' '.join(extra), told['error']))
        end = told['end']
        if not end['sum_received']['bytes']:
            fail('iperf3 %s: %r' % (' '.join(extra), end))
        said.append((extra, len(end['streams'])))
    return said


def nginx_server(workers):
    def start_it(start, port):
        site()
        return web.nginx_server(start, port, workers)

    return start_it


def nginx_clients(client, port):
    web.fetch(client, port, site())
    web.load(client, port, '-d10')  # meeting takes long, too


def http_server(start, port):
    site()
    return web.http_server(start, port)


def http_clients(client, port):
    web.fetch(client, port, site())


def on_verbs(shim, program):
    shim.on_fabric(program)
    with open(shim.report) as f:  # the peer may close while one sends
        told = f.read().replace('fabric, tcp (peer-lost)', 'verbs')
    fabrics = set(re.findall(r'connections?, ([a-z, ]+?)(?: \(|, \d)', told))
    if 'verbs' not in fabrics or fabrics - {'verbs', 'tcp'}:
        shim.complain(program, 'was on %s' % ', '.join(fabrics))


def on_none(shim, program):
    """One end knows of no other, or had no time to say so."""
    lines = shim.lines(program)
    if not lines or any(']: 0 connections on a fabric' not in line
                        for line in lines):
        shim.complain(program, 'was on a fabric, or does not report')


# Server, clients, their names, and where their connections are.
APPS = {
    'redis': (redis_server, redis_clients, ['redis-server'],
              ['redis-benchmark'], on_verbs),
    'iperf3': (iperf3_server, iperf3_clients, ['iperf3'], ['iperf3'],
               on_verbs),
    'nginx': (nginx_server(0), nginx_clients, ['nginx'], ['curl', 'wrk'],
              on_verbs),
    'nginx-workers': (nginx_server(2), nginx_clients, ['nginx'],
                      ['curl', 'wrk'], on_verbs),
    'http': (http_server, http_clients, ['python3'], ['curl'], on_verbs),
}


# --- the two hosts -----------------------------------------------------------

def serve():
    """Each line asks for a server and says how: NAME PORT shim|native. When
    the next comes it is ended, and what it reported goes back."""
    with socket.create_server((HOST, CONTROL)) as door:
        line, _ = door.accept()
    with line, line.makefile('rw') as asks:
        for ask in asks:
            name, port, how = ask.split()
            shim = Shim('server')
            with APPS[name][0](shim.command if how == 'shim' else native,
                               int(port)):
                asks.write('ready\n')
                asks.flush()
                asks.readline()
            with open(shim.report) as f:
                asks.write(json.dumps(f.read()) + '\n')
            asks.flush()


def reach():
    got = []

    def reached():
        with contextlib.suppress(OSError):
            got.append(socket.create_connection((HOST, CONTROL), 5))
        return got

    until('the host of the servers', reached)
    return got[0]


class Play:
    def __init__(self, line):
        self.asks = line.makefile('rw')
        self.port = 5000

    def ask(self, text):
        self.asks.write(text + '\n')
        self.asks.flush()
        return self.asks.readline() or fail('the host of the servers ended')

    @contextlib.contextmanager
    def server(self, name, start):
        self.port += 1
        self.ask('%s %d %s' % (name, self.port,
                               'native' if start is native else 'shim'))
        yield self.port
        told = json.loads(self.ask('done'))
        if start is not native:  # the report of its shim
            with open(start.__self__.report, 'a') as f:
                f.write(told)

    def app(self, name):
        _, clients, server_names, client_names, where = APPS[name]

        def run(server, client):
            with self.server(name, server) as port:
                return clients(client, port)

        begin = time.monotonic()
        want = run(native, native)
        for at in 'both', 'server', 'client':
            shim = Shim(at)
            said = run(native if at == 'client' else shim.command,
                       native if at == 'server' else shim.command)
            if said != want:
                fail('%s, shim at %s: it says other things than without:\n'
                     '%.2000r\n%.2000r' % (name, at, said, want))
            for program in (server_names if at != 'client' else []) + \
                    (client_names if at != 'server' else []):
                (where if at == 'both' else on_none)(shim, program)
        print('%s, %.0f s' % (name, time.monotonic() - begin), flush=True)


def main():
    common.exs = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix='exs-apps-') as common.folder:
        os.chmod(common.folder, 0o711)
        if sys.argv[2] == 'serve':
            serve()
            return
        with reach() as line:
            line.settimeout(3 * common.TIMEOUT)
            play = Play(line)
            for name in sys.argv[3:]:
                play.app(name)


main()
