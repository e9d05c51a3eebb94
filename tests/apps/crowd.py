# SPDX-License-Identifier: BSD-2-Clause
"""Many connections to one server, though the library needs descriptors of its
own."""

import os
import resource
import sys

from common import (HERE, Server, Shim, fail, free_port, native, output,
                    skip)

# Descriptors that a process of the library keeps as long as it has
# connections, whatever it gives back: 8 or 9, and those of what it is at, such as
# a connection that goes back to TCP.
KEPT = 14


def limit(soft):
    """Sets the soft limit of descriptors in a program to be started."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and soft > hard:
        skip('a program may have %d descriptors only' % hard)
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connections(start, wanted, at_server, at_client):
    """How many a server gets under a limit, by a client under another."""
    port = free_port()
    many = os.path.join(HERE, 'many.py')
    with Server(start(sys.executable, many, 'serve', str(port)), port,
                preexec_fn=limit(at_server)):
        return int(output(start(sys.executable, many, 'fill', str(port),
                                str(wanted)), preexec_fn=limit(at_client)))


def descriptors():
    """At its limit a server holds what it holds without the shim: connections
    go back to TCP for others to be accepted."""
    want = connections(native, 1100, 1024, 4096)
    shim = Shim('limit')
    got = connections(shim.command, 1100, 1024, 4096)
    if not want - KEPT <= got <= want:
        shim.complain('python3', '%d connections instead of %d' % (got, want))
    shim.on_fabric('python3')
    if not any('on TCP (descriptors)' in s for s in shim.lines('python3')):
        shim.complain('python3', 'does not say that descriptors ran out')


def many():
    shim = Shim('many')
    got = connections(shim.command, 9000, 20000, 20000)
    if got != 9000:
        fail('%d connections' % got)
    shim.on_fabric('python3')
