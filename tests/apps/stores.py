# SPDX-License-Identifier: BSD-2-Clause
"""Stores of data: redis, memcached, PostgreSQL; over TCP, and over UNIX sockets."""

import glob
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys

import common
from common import (HERE, HOST, Server, everywhere, free_port, need,
                    output, path, skip, until)


# --- redis -------------------------------------------------------------------

def redis_server(start, port, *options):
    return Server(start('redis-server', '--port', str(port), '--bind', HOST,
                        '--save', '', '--appendonly', 'no', '--dir',
                        common.folder, *options), port)


def redis_at(port):
    """The options of a client: of a port, or of the path of a UNIX socket."""
    return ['-h', HOST, '-p', str(port)] if isinstance(port, int) else \
        ['-s', port]


def redis_cli(start, port, *args, **kw):
    return output(start('redis-cli', *redis_at(port), *args), **kw)


def redis_clients(client, port, requests=3000):
    """What clients of every kind see of a new server."""
    said = []
    redis_cli(client, port, 'flushall')  # a dump of the last run
    for extra in (['-c', '1'], ['-c', '20'], ['-c', '5', '-P', '16']):
        out = output(client('redis-benchmark', *redis_at(port),
                            '-n', str(requests), '-q', '-t',
                            'set,get,lpush,lrange_100', *extra))
        # The rates are the machine's, the tests that ran are not.
        said.append(re.findall(rb'([A-Z][A-Z_0-9 ()a-z]*): [0-9.]+ '
                               rb'requests per second', out))
    big = 'x' * 100000
    for i in range(5):
        redis_cli(client, port, 'set', 'key%d' % i, big[:i * 20000])
    for i in range(5):
        said.append(hashlib.sha256(redis_cli(
            client, port, 'get', 'key%d' % i)).hexdigest())
    said.append(redis_cli(client, port, 'llen', 'mylist'))
    said.append(redis_cli(client, port, 'bgsave'))
    return said


def redis():
    need('redis-server', 'redis-benchmark', 'redis-cli')

    def run(server, client):
        port = free_port()
        with redis_server(server, port):
            return redis_clients(client, port)

    everywhere(run, ['redis-server'], ['redis-benchmark'])


def redis_unix():
    need('redis-server', 'redis-benchmark', 'redis-cli')
    at = path('redis.sock')

    def run(server, client):
        with redis_server(server, 0, '--unixsocket', at):
            until('the socket', lambda: os.path.exists(at))
            return redis_clients(client, at, 30000)

    everywhere(run, ['redis-server'], ['redis-benchmark'])


def redis_pubsub():
    need('redis-server', 'redis-cli')
    messages = ['%d:' % i + 'm' * (i * 37 % 3000) for i in range(500)]

    def run(server, client):
        port = free_port()
        got = path('messages')

        def came():
            with open(got) as f:
                return f.read().splitlines()

        with redis_server(server, port) as s, open(got, 'w') as f, \
                Server(client('redis-cli', '-h', HOST, '-p', str(port),
                              'subscribe', 'news'), stdout=f) as subscriber:
            until('the subscription', lambda: len(came()) >= 3)
            redis_cli(client, port, input='\n'.join(
                'publish news ' + m for m in messages).encode())
            until('the last message', lambda: messages[-1] in came())
            # The subscriber ends with its server, not by a signal: it reports.
            s.process.send_signal(signal.SIGTERM)
            subscriber.process.wait(common.TIMEOUT)
        return [line for line in came() if line in messages]

    everywhere(run, ['redis-server'], ['redis-cli'])


def redis_replica():
    need('redis-server', 'redis-cli')
    debug = ['--enable-debug-command', 'yes', '--repl-diskless-sync-delay',
             '0']

    def fill(client, port, first):
        redis_cli(client, port, input=''.join(
            'set key%d %s\n' % (i, str(i) * (i % 500))
            for i in range(first, first + 5000)).encode())

    def run(server, client):
        """The replica is the client of its primary."""
        port, copy = free_port(), free_port()
        with redis_server(server, port, *debug):
            fill(client, port, 0)  # goes over as a snapshot

            def digest(p):
                return redis_cli(common.native, p, 'debug', 'digest')

            with redis_server(client, copy, '--replicaof', HOST, str(port),
                              *debug):
                until('the snapshot', lambda: digest(copy) == digest(port))
                fill(client, port, 3000)  # goes over as it comes
                until('the changes', lambda: digest(copy) == digest(port))
                return digest(copy)

    everywhere(run, ['redis-server'], ['redis-server'])


# --- memcached ---------------------------------------------------------------

def memcached():
    need('memcached')
    user = ['-u', 'nobody'] if os.getuid() == 0 else []

    def run(server, client):
        port = free_port()
        with Server(server('memcached', *user, '-l', HOST, '-p', str(port),
                           '-t', '2'), port):
            return output(client(sys.executable,
                                 os.path.join(HERE, 'memcache.py'), str(port)))

    everywhere(run, ['memcached'], ['python3'])


def memcached_unix():
    need('memcached')
    user = ['-u', 'nobody'] if os.getuid() == 0 else []
    os.mkdir(path('sockets'))
    os.chmod(path('sockets'), 0o777)
    at = path('sockets', 'memcached.sock')

    def run(server, client):
        with Server(server('memcached', *user, '-s', at, '-a', '777', '-t',
                           '2')):
            until('the socket', lambda: os.path.exists(at))
            return output(client(sys.executable,
                                 os.path.join(HERE, 'memcache.py'), at))

    everywhere(run, ['memcached'], ['python3'])


# --- PostgreSQL --------------------------------------------------------------

def postgresql_programs():
    """Debian keeps them out of PATH, a folder for each version."""
    found = glob.glob('/usr/lib/postgresql/*/bin')
    if not found:
        skip('PostgreSQL is not installed')
    return max(found, key=lambda d: [int(n) for n in re.findall(r'\d+', d)])


def for_nobody():
    """exs run where a user may reach it who cannot see the build."""
    build = os.path.dirname(os.path.dirname(common.exs))
    for name in 'tools/exs', 'preload/libexs-preload.so', 'libexs.so.1':
        os.makedirs(os.path.dirname(path('for-nobody', name)), exist_ok=True)
        shutil.copy(os.path.join(build, name), path('for-nobody', name))
    common.exs = path('for-nobody', 'tools/exs')


def postgresql(unix=False):
    programs = postgresql_programs()
    as_user = {}
    data = path('data')
    host = data if unix else HOST  # a folder for its UNIX socket, too
    os.mkdir(data, 0o700)
    if os.getuid() == 0:  # which it refuses to be
        for_nobody()
        as_user = {'user': 'nobody', 'group': 'nogroup', 'extra_groups': [],
                   'cwd': data}
        shutil.chown(data, 'nobody', 'nogroup')

    def program(name):
        return os.path.join(programs, name)

    output([program('initdb'), '-D', data, '-A', 'trust', '-U', 'postgres',
            '--no-sync', '--no-locale', '-E', 'UTF8'], **as_user)

    def run(server, client):
        port = free_port()
        said = []

        def ask(name, *args):
            return output(client(program(name), '-h', host, '-p', str(port),
                                 '-U', 'postgres', *args))

        def bench(*args):
            out = ask('pgbench', '--random-seed=1', *args, 'postgres')
            said.append(re.findall(rb'transactions actually processed.*|'
                                   rb'failed transactions.*', out))

        with Server(server(program('postgres'), '-D', data, '-p', str(port),
                           '-c', 'listen_addresses=' + HOST * (not unix),
                           '-c', 'unix_socket_directories=' + data * unix,
                           '-c', 'fsync=off'),
                    None if unix else port, stop=signal.SIGINT, **as_user):
            until('the database', lambda: subprocess.run(
                [program('pg_isready'), '-q', '-h', host, '-p', str(port)],
                check=False).returncode == 0)
            ask('pgbench', '-i', '-q', 'postgres')
            bench('-S', '-c', '1', '-t', '2000')
            bench('-S', '-c', '4', '-t', '500')
            bench('-c', '1', '-t', '200')
            for what in ('select sum(abalance), count(*) from '
                         'pgbench_accounts',
                         'copy (select aid, abalance, filler from '
                         'pgbench_accounts order by aid) to stdout'):
                said.append(hashlib.sha256(ask('psql', '-XAtc', what,
                                               'postgres')).hexdigest())
        return said

    everywhere(run, ['postgres'], ['pgbench'])


def postgresql_unix():
    postgresql(True)
