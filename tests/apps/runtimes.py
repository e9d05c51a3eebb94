# SPDX-License-Identifier: BSD-2-Clause
"""Event loops and threads of python, node.js and Java."""

import importlib.util
import os
import re
import subprocess
import sys

import common
import grpc_echo
from common import (HERE, Server, Shim, everywhere, fail, free_port, native,
                    need, output, skip)


def serve_and_talk(program, *command):
    """A program that is a server with `serve PORT`, until it is terminated,
    and a client with `talk PORT`."""
    def run(server, client):
        port = free_port()
        with Server(server(*command, 'serve', str(port)), port):
            return output(client(*command, 'talk', str(port)))

    everywhere(run, [program], [program])


def asyncio():
    serve_and_talk('python3', sys.executable, os.path.join(HERE, 'aio.py'))


def threads():
    serve_and_talk('python3', sys.executable, os.path.join(HERE, 'threads.py'))


def grpc():
    # Debian's module is for Debian's python.
    python = '/usr/bin/python3'
    if not os.access(python, os.X_OK) or \
            subprocess.run([python, '-c', 'import grpc'], check=False,
                           stderr=subprocess.DEVNULL).returncode:
        skip('python3-grpcio is not installed')
    serve_and_talk('python3', python, os.path.join(HERE, 'rpc.py'))


def grpc_cpp():
    missing = grpc_echo.missing()
    if missing:
        skip(missing + ' is not installed')
    serve_and_talk('rpc', grpc_echo.build(output, common.folder))


def node():
    need('node')
    serve_and_talk('node', 'node', os.path.join(HERE, 'http.js'))


def node_cluster():
    """A process accepts, and passes each connection to one that serves it."""
    need('node')
    script = os.path.join(HERE, 'http.js')

    def run(server, client):
        port = free_port()
        with Server(server('node', script, 'cluster', str(port)), port):
            return output(client('node', script, 'talk', str(port)))

    want = run(native, native)
    both = Shim('both ends')
    for server, client in (both.command, both.command), \
            (Shim('server').command, native), (native, Shim('client').command):
        if run(server, client) != want:
            fail('it says other things than without the shim')
    # The client, and both that serve; not the one that accepts.
    if sum(bool(re.search(r': [1-8] connections? on a fabric, [1-9]', line))
           for line in both.lines('node')) != 3:
        both.complain('node', 'was not on a fabric in three processes')


def java():
    need('java', 'javac')
    output(['javac', '-d', common.folder, os.path.join(HERE, 'Nio.java')])
    serve_and_talk('java', 'java', '-XX:TieredStopAtLevel=1', '-Xshare:auto',
                   '-cp', common.folder, 'Nio')


# The tests of sockets among python's own, and of what uses sockets. Their resources:
# no other host is asked for anything.
PYTHON = {
    'test_asyncore': [], 'test_epoll': [], 'test_ftplib': [],
    'test_httpservers': [], 'test_poll': [], 'test_selectors': [],
    'test_smtplib': [], 'test_socket': [],
    'test_socketserver': ['-u', 'network'], 'test_ssl': [],
    'test_xmlrpc': [],
}
# An edge may be told twice when a connection leaves TCP, see exs-run(1).
TWICE = {'FAIL: test_control_and_wait'}


def python_tests():
    def run(command, name):
        said = output(
            command(sys.executable, '-m', 'test', '-v', *PYTHON[name],
                    '-i', 'ThreadedVSOCK*', name),  # hangs where there is none
            status=None, cwd=common.folder).decode(errors='replace')
        ran = re.search(r'^Ran (\d+) tests', said, re.M)
        if not ran:
            fail('%s runs no tests:\n%s' % (name, said[-2000:]))
        return ran[1], set(re.findall(r'^(?:FAIL|ERROR): \w+', said, re.M)), \
            said

    if not importlib.util.find_spec('test.test_socket'):
        skip("python's own tests are not installed")
    os.environ['EXS_UPGRADE'] = 'connect'
    shim = Shim('met at once')
    for name in PYTHON:
        count, bad, _ = run(native, name)
        ran, worse, said = run(shim.command, name)
        if ran != count or worse - bad - TWICE:
            fail('%s: %s of %s tests, %s\n%s' %
                 (name, ran, count, worse - bad, said[-4000:]))
    shim.on_fabric('python3')
