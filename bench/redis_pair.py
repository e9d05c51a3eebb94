# SPDX-License-Identifier: BSD-2-Clause
"""redis-server and redis-benchmark, as bench/programs and bench/compare measure them."""

import contextlib
import os
import re
import shutil

from bench import HOST, Failed, Missing, Server, free_port


def need(name):
    """The program's path."""
    found = shutil.which(name, path=os.pathsep.join(
        [os.environ.get('PATH', ''), '/usr/sbin']))
    if not found:
        raise Missing(name)
    return found


@contextlib.contextmanager
def server(bench, side):
    """Its port."""
    need('redis-benchmark')
    port = free_port()
    with Server(bench, side.command(need('redis-server'), '--port', str(port),
                                    '--bind', HOST, '--save', '',
                                    '--appendonly', 'no', '--dir',
                                    bench.folder), port):
        yield port


class Client:
    """redis-benchmark has no time limit: it makes as many requests as fit, by the last
    run's rate."""
    least = 5000  # a connection has moved in the first of them

    def __init__(self, bench, test, clients, seconds):
        self.bench, self.test, self.clients = bench, test, clients
        self.seconds = seconds
        self.rates = {}

    def measure(self, side, port):
        """Requests in a second, and how many there were."""
        n = int(max(self.least, self.rates.get(side.name, 2000) * self.seconds))
        text = self.bench.run(side.command(
            'redis-benchmark', '-h', HOST, '-p', str(port), '-n', str(n), '-c',
            str(self.clients), '-t', self.test, '-q'))
        found = re.search(r'([0-9.]+) requests per second',
                          text.replace('\r', '\n').split('\n\n')[0])
        if not found:
            raise Failed('redis-benchmark said nothing of use:\n%s' %
                         text[-2000:])
        self.rates[side.name] = float(found.group(1))
        return self.rates[side.name], n
