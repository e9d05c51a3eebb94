# SPDX-License-Identifier: BSD-2-Clause
"""Event loops and threads of python, node.js and Java."""

import os
import sys

import common
from common import (HERE, Server, everywhere, free_port, need, output)


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


def node():
    need('node')
    serve_and_talk('node', 'node', os.path.join(HERE, 'http.js'))


def java():
    need('java', 'javac')
    output(['javac', '-d', common.folder, os.path.join(HERE, 'Nio.java')])
    serve_and_talk('java', 'java', '-XX:TieredStopAtLevel=1', '-Xshare:auto',
                   '-cp', common.folder, 'Nio')
