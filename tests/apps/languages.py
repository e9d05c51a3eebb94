# SPDX-License-Identifier: BSD-2-Clause
"""Echo servers in languages whose runtimes differ in how they wait: tasks on threads
that a collector stops by signals, threads of their own on epoll, an event loop."""

import os
import sys

from common import HERE, Server, everywhere, free_port, need, output, path

PYTHON = sys.executable


def echo(program, *command):
    """A server PORT: what the client of all of them says."""
    def run(start, client):
        port = free_port()
        with Server(start(*command, str(port)), port):
            return output(client(PYTHON, os.path.join(HERE, 'echo/talk.py'),
                                 str(port)))

    everywhere(run, [program], ['python3'])


def script(name):
    return os.path.join(HERE, 'echo', name)


def mono():
    need('mono', 'mcs')
    output(['mcs', '-out:' + path('Echo.exe'), script('Echo.cs')])
    echo('mono', 'mono', path('Echo.exe'))


def haskell():
    need('ghc')
    output(['ghc', '-threaded', '-outputdir', path('hs'), '-o', path('echo-hs'),
            script('Echo.hs')])
    echo('echo-hs', path('echo-hs'))


def perl():
    need('perl')
    output(['perl', '-e', 'use AnyEvent::Socket'])
    echo('perl', 'perl', script('echo.pl'))
