# SPDX-License-Identifier: BSD-2-Clause
"""Servers of the web: nginx, haproxy, python's."""

import ctypes
import os
import re
import signal
import sys

import common
from common import (HOST, Server, Shim, blob, everywhere, fail, free_port,
                    listens, native, need, output, path, same, sbin, skip,
                    until, write)

NGINX = """daemon off; error_log stderr; pid {0}/pid;
worker_processes {4}; master_process {5};
{2} events {{ worker_connections 256; }}
http {{ access_log off; sendfile on; tcp_nopush on;
keepalive_requests 100000;
client_body_temp_path {0}/a; proxy_temp_path {0}/b; fastcgi_temp_path {0}/c;
uwsgi_temp_path {0}/d; scgi_temp_path {0}/e;
server {{ listen {3}:{1}; root {0}/www; }} }}
"""

HAPROXY = """global
  hard-stop-after 5s
  insecure-fork-wanted
defaults
  mode http
  timeout connect 10s
  timeout client 60s
  timeout server 60s
frontend front
  bind {0}:{1}
  default_backend back
backend back
  server one {0}:{2}
"""


def site(megabytes):
    os.mkdir(path('www'))
    write('www/small', 'hello\n')
    return blob('www/large', megabytes)


def nginx_server(start, port, workers=2):
    """No workers: one process, which is its own worker."""
    user = 'user root;' if os.getuid() == 0 else ''
    config = write('nginx.conf', NGINX.format(
        common.folder, port, user, HOST, workers or 1,
        'on' if workers else 'off'))
    return Server(start(sbin('nginx'), '-c', config), port)


def fetch(client, port, large):
    """Both files, by curl."""
    url = 'http://%s:%d/' % (HOST, port)
    output(client('curl', '-sS', '-o', path('got'), url + 'large'))
    same(path('got'), large)
    if output(client('curl', '-sS', url + 'small')) != b'hello\n':
        fail('the server sent something else')


def load(client, port, *extra):
    """Many requests, by wrk."""
    out = output(client('wrk', '-t1', '-c8', '-d1', *extra,
                        'http://%s:%d/small' % (HOST, port)))
    if b'Socket errors' in out or b'Non-2xx' in out:
        fail('wrk: ' + out.decode())
    if not re.search(rb'^ *[1-9]\d* requests in', out, re.M):
        fail('wrk made no request: ' + out.decode())


def nginx():
    need('curl', 'wrk')
    sbin('nginx')
    large = site(100)

    def run(server, client):
        port = free_port()
        with nginx_server(server, port):
            fetch(client, port, large)
            load(client, port)
            load(client, port, '-H', 'Connection: close')

    everywhere(run, ['nginx'], ['curl', 'wrk'])


UPGRADED = """error_log {0}/errors; pid {0}/pid; worker_processes 1;
env LD_PRELOAD; env EXS_REPORT; {2} events {{ worker_connections 256; }}
http {{ access_log off; keepalive_requests 100000;
client_body_temp_path {0}/a; proxy_temp_path {0}/b; fastcgi_temp_path {0}/c;
uwsgi_temp_path {0}/d; scgi_temp_path {0}/e;
server {{ listen {3}:{1}; root {0}/www; }} }}
"""


def number(name):
    """The process that a file names; None."""
    try:
        with open(path(name)) as f:
            return int(f.read() or 0) or None
    except FileNotFoundError:
        return None


def quit_nginx(pid):
    os.kill(pid, signal.SIGQUIT)
    until('the end of nginx', lambda: not os.path.exists('/proc/%d' % pid))


def nginx_upgrade():
    """A new binary takes the listeners of the old one (SIGUSR2). It has LD_PRELOAD
    if the configuration says so."""
    need('curl', 'wrk')
    sbin('nginx')
    large = site(60)

    def run(server, client):
        port = free_port()
        user = 'user root;' if os.getuid() == 0 else ''
        config = write('nginx.conf', UPGRADED.format(
            common.folder, port, user, HOST))
        output(server(sbin('nginx'), '-c', config))
        try:
            until('nginx', lambda: number('pid') and listens(port))
            old = number('pid')
            fetch(client, port, large)
            os.kill(old, signal.SIGUSR2)
            until('the new nginx', lambda: number('pid.oldbin') == old and
                  number('pid') not in (None, old))
            quit_nginx(old)
            fetch(client, port, large)
            load(client, port)
        finally:  # each removes its file
            for name in 'pid.oldbin', 'pid':
                if number(name):
                    quit_nginx(number(name))

    run(native, native)
    shim = Shim('both ends')
    run(shim.command, shim.command)
    shim.on_fabric('curl')
    # The one worker of each binary.
    if sum(bool(re.search(r': [1-9]\d* connections? on a fabric, [1-9]', line))
           for line in shim.lines('nginx')) != 2:
        shim.complain('nginx', 'was not on a fabric in two processes')


def haproxy():
    need('curl', 'wrk')
    sbin('nginx')
    sbin('haproxy')
    large = site(60)

    def run(back, front, client):
        port, behind = free_port(), free_port()
        config = write('haproxy.conf', HAPROXY.format(HOST, port, behind))
        with nginx_server(back, behind), \
                Server(front(sbin('haproxy'), '-db', '-f', config), port,
                       stop=signal.SIGUSR1):  # by the other it just dies
            fetch(client, port, large)
            load(client, port)

    run(native, native, native)
    shim = Shim('all')
    run(shim.command, shim.command, shim.command)
    for program in 'nginx', 'haproxy', 'curl', 'wrk':
        shim.on_fabric(program)
    shim = Shim('haproxy')
    run(native, shim.command, native)
    shim.on_tcp('haproxy', 'plain-peer')
    shim = Shim('ends')
    run(shim.command, native, shim.command)
    for program in 'nginx', 'curl', 'wrk':
        shim.on_tcp(program, 'plain-peer')


def workers(pid):
    with open('/proc/%d/task/%d/children' % (pid, pid)) as f:
        return set(f.read().split())


def haproxy_reload():
    """On SIGUSR2 the master starts itself anew (exec), and a new worker, which gets
    the listeners of the old one."""
    need('curl', 'wrk')
    sbin('nginx')
    sbin('haproxy')
    large = site(60)

    def run(start):
        port, behind = free_port(), free_port()
        config = write('haproxy.conf', HAPROXY.format(HOST, port, behind))
        with nginx_server(start, behind), \
                Server(start(sbin('haproxy'), '-W', '-db', '-f', config), port,
                       stop=signal.SIGUSR1) as server:
            fetch(start, port, large)
            old = workers(server.process.pid)
            server.process.send_signal(signal.SIGUSR2)
            until('the new worker', lambda: len(
                workers(server.process.pid) - old) == 1 and
                not workers(server.process.pid) & old)
            fetch(start, port, large)
            load(start, port)

    run(native)
    shim = Shim('all')
    run(shim.command)
    for program in 'nginx', 'curl', 'wrk':
        shim.on_fabric(program)
    # The workers; the master has no connections.
    if sum(bool(re.search(r': [1-9]\d* connections? on a fabric, [1-9]', line))
           for line in shim.lines('haproxy')) != 2:
        shim.complain('haproxy', 'was not on a fabric in two processes')


CLONE_NEWNET = 0x40000000
REDIRECT = """table ip mesh {{
    chain out {{
        type nat hook output priority -100
        tcp dport {0} redirect to :{1}
    }}
}}
"""


def mesh():
    """A proxy as beside the programs of a service mesh: what curl sends to the
    service is redirected to it. It uses shared memory to the server behind it."""
    need('curl', 'ip')
    nft = sbin('nft')
    sbin('nginx')
    sbin('haproxy')
    if os.getuid():
        skip('it needs root')
    if ctypes.CDLL(None).unshare(CLONE_NEWNET):
        skip('the kernel refuses network namespaces')
    output(['ip', 'link', 'set', 'lo', 'up'])
    large = site(60)
    service = free_port()

    def run(start):
        port, behind = free_port(), free_port()
        config = write('haproxy.conf', HAPROXY.format(HOST, port, behind))
        output([nft, '-f', write('rules', REDIRECT.format(service, port))])
        with nginx_server(start, behind), \
                Server(start(sbin('haproxy'), '-db', '-f', config), port,
                       stop=signal.SIGUSR1):
            fetch(start, service, large)
        output([nft, 'delete', 'table', 'ip', 'mesh'])

    run(native)
    shim = Shim('all')
    run(shim.command)
    shim.on_tcp('curl', 'redirected')
    shim.on_fabric('haproxy')
    shim.on_fabric('nginx')
    if not any('(redirected)' in line for line in shim.lines('haproxy')):
        shim.complain('haproxy', 'does not say redirected')


def http_server(start, port):
    return Server(start(sys.executable, '-m', 'http.server', '--bind', HOST,
                        '-d', path('www'), str(port)), port,
                  stop=signal.SIGINT)


def http():
    need('curl')
    large = site(60)

    def run(server, client):
        port = free_port()
        with http_server(server, port):
            fetch(client, port, large)

    everywhere(run, ['python3'], ['curl'])
