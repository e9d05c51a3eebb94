#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Programs of Debian's packages under exs run: they work as they do without,
and their connections are on shared memory, by their own reports.
Usage: apps.py EXS APP; exits with 77 when a program is not installed."""

import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TIMEOUT = 60
HOST = '127.0.0.1'
exs = None
folder = None


def fail(text):
    print('apps: ' + text, file=sys.stderr)
    sys.exit(1)


def need(*programs):
    for p in programs:
        if not shutil.which(p):
            print('apps: %s is not installed' % p, file=sys.stderr)
            sys.exit(77)


def free_port():
    with socket.socket() as s:
        s.bind((HOST, 0))
        return s.getsockname()[1]


def until(what, condition):
    end = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > end:
            fail('waited in vain for ' + what)
        time.sleep(0.02)


def answers(port):
    def look():
        try:
            socket.create_connection((HOST, port), 1).close()
            return True
        except OSError:
            return False
    return look


class Shim:
    """How programs are started, and what they report at their ends."""

    def __init__(self, name):
        self.report = os.path.join(folder, 'report-' + name)
        open(self.report, 'w').close()
        os.chmod(self.report, 0o666)

    def command(self, *args):
        return [exs, 'run', '--report=' + self.report, *args]

    def lines(self):
        with open(self.report) as f:
            return f.read()

    def on_fabric(self, program):
        """At least one connection of the program was."""
        found = re.findall(r'exs run: %s[^\n[]*\[\d+\]: (\d+) connections on '
                           r'a fabric' % re.escape(program), self.lines())
        if not any(int(n) for n in found):
            fail('%s was not on a fabric; the reports are:\n%s' %
                 (program, self.lines()))


def native(*args):
    return list(args)


def output(command, **kw):
    try:
        r = subprocess.run(command, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           timeout=TIMEOUT, **kw)
    except subprocess.TimeoutExpired as e:
        fail('%s does not end; it said:\n%s' %
             (' '.join(command), (e.stdout or b'').decode(errors='replace')))
    if r.returncode:
        fail('%s: status %d\n%s' % (' '.join(command), r.returncode,
                                    r.stdout.decode(errors='replace')))
    return r.stdout


class Server:
    def __init__(self, command, port=None, **kw):
        self.log = open(os.path.join(folder, 'log'), 'ab')
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log, **kw)
        if port:
            until('port %d' % port, answers(port))

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            if not kind:
                fail('a server does not end')
        self.log.close()
        if kind:
            with open(self.log.name, errors='replace') as f:
                sys.stderr.write(f.read()[-4000:])


# --- redis -------------------------------------------------------------------

def redis_run(run):
    port = free_port()
    base = ['-h', HOST, '-p', str(port)]
    said = []
    with Server(run('redis-server', '--port', str(port), '--save', '',
                    '--appendonly', 'no', '--dir', folder), port):
        output(run('redis-cli', *base, 'flushall'))  # a dump of the last run
        for extra in (['-c', '1'], ['-c', '20'], ['-c', '5', '-P', '16']):
            out = output(run('redis-benchmark', *base, '-n', '10000', '-q',
                             '-t', 'set,get,lpush,lrange_100', *extra))
            # The rates are the machine's, the tests that ran are not.
            said.append(re.findall(rb'([A-Z][A-Z_0-9 ()a-z]*): [0-9.]+ '
                                   rb'requests per second', out))
        big = 'x' * 100000
        for i in range(20):
            output(run('redis-cli', *base, 'set', 'key%d' % i, big[:i * 5000]))
        for i in range(20):
            said.append(hashlib.sha256(output(
                run('redis-cli', *base, 'get', 'key%d' % i))).hexdigest())
        said.append(output(run('redis-cli', *base, 'llen', 'mylist')))
        said.append(output(run('redis-cli', *base, 'bgsave')))
    return said


def redis():
    need('redis-server', 'redis-benchmark', 'redis-cli')
    shim = Shim('redis')
    under, without = redis_run(shim.command), redis_run(native)
    if under != without:
        fail('redis says other things than without the shim:\n%r\n%r' %
             (under, without))
    shim.on_fabric('redis-server')
    shim.on_fabric('redis-benchmark')


# --- memcached ---------------------------------------------------------------

def memcached():
    need('memcached')
    shim = Shim('memcached')
    port = free_port()
    user = ['-u', 'nobody'] if os.getuid() == 0 else []
    with Server(shim.command('memcached', *user, '-l', HOST, '-p', str(port),
                             '-t', '2'), port):
        output(shim.command(sys.executable, os.path.join(HERE, 'memcache.py'),
                            str(port)))
    shim.on_fabric('memcached')
    shim.on_fabric('python3')


# --- nginx -------------------------------------------------------------------

NGINX = """worker_processes 2; daemon off; error_log stderr; pid {0}/pid;
{2} events {{ worker_connections 256; }}
http {{ access_log off; sendfile on; keepalive_requests 100000;
client_body_temp_path {0}/a; proxy_temp_path {0}/b; fastcgi_temp_path {0}/c;
uwsgi_temp_path {0}/d; scgi_temp_path {0}/e;
server {{ listen 127.0.0.1:{1}; root {0}/www; }} }}
"""


def nginx():
    need('nginx', 'curl', 'wrk')
    shim = Shim('nginx')
    port = free_port()
    os.mkdir(folder + '/www')
    with open(folder + '/www/small', 'w') as f:
        f.write('hello\n')
    with open(folder + '/www/large', 'wb') as f:
        for _ in range(100):
            f.write(os.urandom(1000000))
    config = folder + '/nginx.conf'
    with open(config, 'w') as f:
        f.write(NGINX.format(folder, port,
                             'user root;' if os.getuid() == 0 else ''))
    url = 'http://%s:%d/' % (HOST, port)
    with Server(shim.command('nginx', '-c', config), port):
        got = folder + '/got'
        for client in (shim.command, native):
            output(client('curl', '-sS', '-o', got, url + 'large'))
            output(['cmp', got, folder + '/www/large'])
            if output(client('curl', '-sS', url + 'small')) != b'hello\n':
                fail('nginx sent something else')
        for extra in ([], ['-H', 'Connection: close']):
            out = output(shim.command('wrk', '-t1', '-c8', '-d2', *extra,
                                      url + 'small'))
            if b'Socket errors' in out or b'Non-2xx' in out:
                fail('wrk: ' + out.decode())
    shim.on_fabric('curl')
    shim.on_fabric('wrk')
    shim.on_fabric('nginx')


# --- iperf3 ------------------------------------------------------------------

def iperf3():
    need('iperf3')
    shim = Shim('iperf3')
    for extra in ([], ['-R'], ['-P', '8']):
        port = free_port()
        with Server(shim.command('iperf3', '-s', '-1', '-p', str(port))) as s:
            command = shim.command('iperf3', '-c', HOST, '-p', str(port), '-t',
                                   '1', *extra)
            # It serves one client: nobody may knock before.
            until('the server', lambda: listens(port))
            output(command)
            s.process.wait(TIMEOUT)
    shim.on_fabric('iperf3')


def listens(port):
    for name in ('/proc/net/tcp', '/proc/net/tcp6'):
        with open(name) as f:
            if any(re.search(r':%04X 0+:0000 0A' % port, line) for line in f):
                return True
    return False


# --- python ------------------------------------------------------------------

def script(name, *args):
    shim = Shim(name)
    path = os.path.join(HERE, name)
    said = output(shim.command(sys.executable, path, *args))
    if said != output(native(sys.executable, path, *args)):
        fail('%s says other things than without the shim' % name)
    shim.on_fabric('python3')


def asyncio():
    script('aio.py')


def threads():
    script('threads.py')


def http():
    need('curl')
    shim = Shim('http')
    port = free_port()
    os.mkdir(folder + '/www')
    with open(folder + '/www/file', 'wb') as f:
        # Past the last point where a server looks for its client's library.
        for _ in range(60):
            f.write(os.urandom(1000000))
    got = folder + '/got'
    with Server(shim.command(sys.executable, '-m', 'http.server', '--bind',
                             HOST, '-d', folder + '/www', str(port)), port):
        for client in (shim.command, native):
            output(client('curl', '-sS', '-o', got,
                          'http://%s:%d/file' % (HOST, port)))
            output(['cmp', got, folder + '/www/file'])
    shim.on_fabric('curl')


# --- one end without the shim ------------------------------------------------

def plain():
    need('redis-server', 'redis-benchmark')
    shim = Shim('plain')
    for server, client in ((shim.command, native), (native, shim.command)):
        port = free_port()
        with Server(server('redis-server', '--port', str(port), '--save', '',
                           '--appendonly', 'no', '--dir', folder), port):
            output(client('redis-benchmark', '-h', HOST, '-p', str(port), '-n',
                          '5000', '-q', '-t', 'set,get', '-c', '4'))
    for program in ('redis-server', 'redis-benchmark'):
        if not re.search(r'%s\S*: 0 connections on a fabric.* on TCP '
                         r'\((plain-peer|undecided)\)' % program,
                         shim.lines()):
            fail('%s does not say why it is on TCP:\n%s' %
                 (program, shim.lines()))


def main():
    global exs, folder
    exs = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix='exs-apps-') as folder:
        os.chmod(folder, 0o711)
        globals()[sys.argv[2]]()


main()
