# SPDX-License-Identifier: BSD-2-Clause
"""Messages and work by way of others: ZeroMQ, dask.distributed, RabbitMQ, etcd."""

import contextlib
import glob
import os
import subprocess

import common
from common import (HERE, Server, everywhere, fail, free_port, need, output,
                    path, skip, write)
from runtimes import serve_and_talk

# Debian's modules are for Debian's python.
PYTHON = '/usr/bin/python3'


def need_module(name, package):
    if not os.access(PYTHON, os.X_OK) or \
            subprocess.run([PYTHON, '-c', 'import ' + name], check=False,
                           stderr=subprocess.DEVNULL).returncode:
        skip(package + ' is not installed')


def zeromq():
    need_module('zmq', 'python3-zmq')
    serve_and_talk('python3', PYTHON, os.path.join(HERE, 'zeromq.py'))


def dask():
    need_module('distributed', 'python3-distributed')

    def run(server, client):
        port = free_port()
        there = '127.0.0.1:%d' % port
        with contextlib.ExitStack() as s:
            s.enter_context(Server(server(
                PYTHON, '/usr/bin/dask-scheduler', '--host', '127.0.0.1', '--port',
                str(port), '--no-dashboard'), port, cwd=common.folder))
            s.enter_context(Server(client(
                PYTHON, '/usr/bin/dask-worker', there, '--nworkers', '1',
                '--nthreads', '1', '--no-nanny', '--no-dashboard', '--memory-limit',
                '0', '--local-directory', path('worker')), cwd=common.folder))
            return output(client(PYTHON, os.path.join(HERE, 'crunch.py'), str(port)))

    everywhere(run, ['python3'], ['python3'])


def rabbitmq():
    need_module('pika', 'python3-pika')
    programs = glob.glob('/usr/lib/rabbitmq/lib/*/sbin')
    if not programs:
        skip('rabbitmq-server is not installed')
    need('epmd')
    names = free_port()
    env = dict(os.environ, HOME=common.folder, ERL_EPMD_PORT=str(names),
               ERL_EPMD_ADDRESS='127.0.0.1', RABBITMQ_NODENAME='exs@localhost',
               RABBITMQ_MNESIA_BASE=path('mnesia'), RABBITMQ_LOG_BASE=path('logs'),
               RABBITMQ_NODE_IP_ADDRESS='127.0.0.1',
               RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface '
               '{127,0,0,1}',
               RABBITMQ_ENABLED_PLUGINS_FILE=write('plugins', '[].\n'),
               RABBITMQ_CONF_ENV_FILE='/dev/null',
               RABBITMQ_PID_FILE=path('pid'))

    def run(server, client):
        port = free_port()
        there = dict(env, RABBITMQ_NODE_PORT=str(port),
                     RABBITMQ_DIST_PORT=str(free_port()))
        with Server(server(programs[0] + '/rabbitmq-server'), port, env=there):
            return output(client(PYTHON, os.path.join(HERE, 'amqp.py'), str(port)))

    # Erlang's daemon of names is no child of the server.
    with Server(['epmd'], names, env=env):
        everywhere(run, ['beam.smp'], ['python3'])


def etcd():
    """Both are programs in Go: they run as they do without, and exs run says so."""
    need('etcd', 'etcdctl')
    os.environ['ETCDCTL_API'] = '3'

    def run(start):
        """What etcdctl says, and what exs run says of it."""
        port = free_port()
        url, peers = ('http://127.0.0.1:%d' % p for p in (port, free_port()))
        said, notes = [], []
        with Server(start('etcd', '--data-dir', path('etcd-%d' % port),
                          '--listen-client-urls', url, '--advertise-client-urls', url,
                          '--listen-peer-urls', peers), port):
            for i in range(5):
                for args in (['put', 'key%d' % i, 'x' * 10000 * i],
                             ['get', 'key%d' % i]):
                    out = output(start('etcdctl', '--command-timeout=60s',
                                       '--endpoints=' + url, *args))
                    for line in out.splitlines():
                        (notes if line.startswith(b'exs run: ') else said).append(line)
        return said, notes

    want, _ = run(common.native)
    said, notes = run(common.Shim('both ends').command)
    if said != want:
        fail('etcdctl says other things than without the shim:\n%.500r' % said)
    if not notes or not all(b'etcdctl' in n and b' Go' in n for n in notes):
        fail('exs run does not say that etcdctl is in Go: %.500r' % notes)
