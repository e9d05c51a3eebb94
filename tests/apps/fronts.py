# SPDX-License-Identifier: BSD-2-Clause
"""More servers and proxies of the web, and those of its frameworks."""

import os
import re
import signal

import common
from common import (HOST, Server, both_ends, everywhere, free_port, need,
                    output, path, same, sbin, skip, until, write)
from web import HAPROXY, NGINX, fetch, load, nginx_server, site

PYTHON = '/usr/bin/python3'  # the one that Debian's modules are for


def served(start, clients=('curl', 'wrk'), program=None, moved=None):
    """start(server, port) is the command of a server of the site's folder;
    moved: the clients that are sure to be on a fabric."""
    need(*clients)
    large = site(60)

    def run(server, client):
        port = free_port()
        with Server(start(server, port), port):
            fetch(client, port, large)
            if 'wrk' in clients:
                load(client, port)

    everywhere(run, [program], list(moved or clients))


APACHE = """ServerRoot {0}
ServerName localhost
PidFile {0}/pid
ErrorLog {0}/errors
{2}
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
Listen {3}:{1}
MaxKeepAliveRequests 0
DocumentRoot {0}/www
"""


def apache():
    sbin('apache2')

    def start(server, port):
        user = 'User nobody\nGroup nogroup' if os.getuid() == 0 else ''
        os.chmod(path('www'), 0o755)
        write('apache.conf', APACHE.format(common.folder, port, user, HOST))
        return server(sbin('apache2'), '-DFOREGROUND', '-f',
                      path('apache.conf'))

    served(start, program='apache2')


def lighttpd():
    sbin('lighttpd')

    def start(server, port):
        write('lighttpd.conf', 'server.document-root = "%s/www"\n'
              'server.bind = "%s"\nserver.port = %d\n'
              'server.max-keep-alive-requests = 100000\n' %
              (common.folder, HOST, port))
        return server(sbin('lighttpd'), '-D', '-f', path('lighttpd.conf'))

    served(start, program='lighttpd')


def chained(command, program):
    """A proxy between the clients and nginx, which is under exs run if they
    are."""
    need('curl', 'wrk')
    sbin('nginx')
    large = site(60)

    def run(server, client):
        port, behind = free_port(), free_port()
        with nginx_server(client, behind), \
                Server(command(server, port, behind), port):
            fetch(client, port, large)
            load(client, port)

    everywhere(run, [program], ['curl', 'wrk'])


def varnish():
    sbin('varnishd')
    chained(lambda server, port, behind: server(
        sbin('varnishd'), '-F', '-j', 'none', '-n', path('varnish'),
        '-a', '%s:%d' % (HOST, port), '-b', '%s:%d' % (HOST, behind)),
        'varnishd')


def squid():
    sbin('squid')
    need('curl')
    large = site(60)

    def run(server, client):
        port, behind = free_port(), free_port()
        conf = write('squid.conf', """http_port %s:%d
pid_filename none
http_access allow all
cache_log /dev/null
access_log none
shutdown_lifetime 1 seconds
pinger_enable off
""" % (HOST, port))
        with nginx_server(client, behind), \
                Server(server(sbin('squid'), '-N', '-f', conf), port):
            for name in 'large', 'small':
                output(client('curl', '-sS', '-o', path('got'), '-x',
                              'http://%s:%d' % (HOST, port),
                              'http://%s:%d/%s' % (HOST, behind, name)))
                same(path('got'), path('www', name))

    everywhere(run, ['squid'], ['curl'])


def certificate():
    need('openssl')
    output(['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes',
            '-keyout', path('key.pem'), '-out', path('cert.pem'), '-days', '2',
            '-subj', '/CN=localhost'])
    with open(path('both.pem'), 'w') as to:
        for name in 'key.pem', 'cert.pem':
            with open(path(name)) as f:
                to.write(f.read())


def secured(command, program):
    need('curl')
    sbin('nginx')
    large = site(60)
    certificate()

    def run(server, client):
        port, behind = free_port(), free_port()
        with nginx_server(client, behind), \
                Server(command(server, port, behind), port):
            for name in 'large', 'small':
                output(client('curl', '-sSk', '-o', path('got'),
                              'https://%s:%d/%s' % (HOST, port, name)))
                same(path('got'), path('www', name))

    everywhere(run, [program], ['curl'])


def haproxy_tls():
    sbin('haproxy')

    def command(server, port, behind):
        text = HAPROXY.format(HOST, port, behind)
        bind = 'bind %s:%d' % (HOST, port)
        conf = write('haproxy.cfg', text.replace(
            bind, bind + ' ssl crt ' + path('both.pem')))
        return server(sbin('haproxy'), '-db', '-f', conf)

    secured(command, 'haproxy')


def stunnel():
    sbin('stunnel4')

    def command(server, port, behind):
        conf = write('stunnel.conf', """foreground = yes
pid =
debug = 3
[web]
accept = %s:%d
connect = %s:%d
cert = %s
""" % (HOST, port, HOST, behind, path('both.pem')))
        return server(sbin('stunnel4'), conf)

    secured(command, 'stunnel4')


def nghttpd():
    """HTTP/2 without TLS: many streams of one connection."""
    need('nghttpd', 'nghttp', 'h2load')
    large = site(60)

    def run(server, client):
        port = free_port()
        url = 'http://%s:%d/' % (HOST, port)
        with Server(server('nghttpd', '--no-tls', '-a', HOST, '-d',
                           path('www'), str(port)), port):
            with open(path('got'), 'wb') as f:
                f.write(output(client('nghttp', url + 'large')))
            same(path('got'), large)
            out = output(client('h2load', '-n', '3000', '-c', '4', '-m', '10',
                                url + 'small'))
        return re.findall(rb'status codes: .*', out)

    everywhere(run, ['nghttpd'], ['nghttp', 'h2load'])


# --- servers of frameworks ---------------------------------------------------

WSGI = '''
import os
def app(environ, start):
    with open(os.path.join(%r, environ['PATH_INFO'].lstrip('/')), 'rb') as f:
        data = f.read()
    start('200 OK', [('Content-Length', str(len(data)))])
    return [data]
application = app
'''


def gunicorn(worker='gevent'):
    if not os.path.exists('/usr/bin/gunicorn'):
        skip('gunicorn is not installed')
    output([PYTHON, '-c', 'import ' + worker])

    def start(server, port):
        write('site_app.py', WSGI % path('www'))
        return server(PYTHON, '/usr/bin/gunicorn', '-k', worker, '-w', '2',
                      '--chdir', common.folder, '-b', '%s:%d' % (HOST, port),
                      'site_app:app')

    served(start, program='python3')


def gunicorn_tornado():
    gunicorn('tornado')


def uwsgi():
    need('uwsgi_python3')

    def start(server, port):
        write('site_app.py', WSGI % path('www'))
        return server('uwsgi_python3', '--http-socket',
                      '%s:%d' % (HOST, port), '--chdir', common.folder,
                      '--master', '--die-on-term', '-p', '2', '--module',
                      'site_app:app', '--disable-logging')

    served(start, ['curl'], program='uwsgi')


AIO = '''
import asyncio, os, sys
import uvloop
from aiohttp import web
uvloop.install()
async def get(request):
    with open(os.path.join(sys.argv[2], request.match_info['name']), 'rb') as f:
        return web.Response(body=f.read())
app = web.Application()
app.router.add_get('/{name}', get)
web.run_app(app, host=%r, port=int(sys.argv[1]), print=None)
''' % HOST


def uvloop():
    """aiohttp on uvloop, which writes a file at once, as far as TCP takes it:
    all that is sent may be on its way before its client has read any."""
    output([PYTHON, '-c', 'import aiohttp, uvloop'])
    served(lambda server, port: server(PYTHON, '-c', AIO, str(port),
                                       path('www')), program='python3',
           moved=['wrk'])


TWISTED = '''
import sys
from twisted.internet import reactor
from twisted.web.server import Site
from twisted.web.static import File
reactor.listenTCP(int(sys.argv[1]), Site(File(sys.argv[2])), interface=%r)
reactor.run()
''' % HOST


def twisted():
    output([PYTHON, '-c', 'import twisted.web'])
    served(lambda server, port: server(PYTHON, '-c', TWISTED, str(port),
                                       path('www')), program='python3')


def php():
    """PHP's own server closes each connection."""
    need('php')
    served(lambda server, port: server('php', '-S', '%s:%d' % (HOST, port),
                                       '-t', path('www')),
           ['curl'], program='php')


RACK = '''
run lambda { |env|
  data = File.binread(File.join(%r, env['PATH_INFO']))
  [200, {'Content-Length' => data.bytesize.to_s}, [data]]
}
'''


def puma():
    need('puma')

    def start(server, port):
        conf = write('config.ru', RACK.replace('%r', "'%s'" % path('www')))
        return server('puma', '-q', '-t', '4:4', '-b',
                      'tcp://%s:%d' % (HOST, port), conf)

    served(start, program='ruby')


def mojolicious():
    need('perl')
    output(['perl', '-e', 'use Mojolicious'])

    def start(server, port):
        script = write('site.pl', """use Mojolicious::Lite;
app->static->paths(['%s']);
app->log->level('error');
app->start;
""" % path('www'))
        return server('perl', script, 'daemon', '-l',
                      'http://%s:%d' % (HOST, port))

    served(start, program='perl')


def tinyproxy():
    """The client asks nginx by it."""
    need('curl')
    sbin('tinyproxy')
    large = site(60)

    def run(server, client):
        port, behind = free_port(), free_port()
        conf = write('tinyproxy.conf', 'Port %d\nListen %s\nTimeout 600\n'
                     'LogFile "%s"\nLogLevel Error\n' %
                     (port, HOST, path('tinyproxy.log')))
        with nginx_server(client, behind), \
                Server(server(sbin('tinyproxy'), '-d', '-c', conf), port):
            output(client('curl', '-sS', '-o', path('got'), '-x',
                          'http://%s:%d' % (HOST, port),
                          'http://%s:%d/large' % (HOST, behind)))
            same(path('got'), large)

    everywhere(run, ['tinyproxy'], ['curl'])


def unicorn():
    need('unicorn')

    def start(server, port):
        conf = write('config.ru', RACK.replace('%r', "'%s'" % path('www')))
        return server('unicorn', '-l', '%s:%d' % (HOST, port), conf)

    served(start, ['curl'], program='ruby')


FPM = """[global]
daemonize = no
error_log = /dev/null
[www]
listen = %s
pm = static
pm.max_children = 3
%s
"""


def php_fpm(unix=False):
    """nginx asks it by FastCGI."""
    found = [p for p in ('/usr/sbin/php-fpm8.2', '/usr/sbin/php-fpm8.4')
             if os.path.exists(p)]
    if not found:
        skip('php-fpm is not installed')
    sbin('nginx')
    need('curl')
    large = site(60)
    write('www/get.php', '<?php readfile("large");')
    os.chmod(path('www'), 0o755)

    def run(server, client):
        port, behind = free_port(), free_port()
        root = os.getuid() == 0
        to = path('fpm.sock') if unix else '%s:%d' % (HOST, behind)
        fpm = write('fpm.conf', FPM % (to, 'user = nobody\ngroup = nogroup'
                                       if root else ''))
        text = NGINX.format(common.folder, port, 'user root;' if root else '',
                            HOST, 1, 'on')
        text = text.replace('root ', 'fastcgi_buffering off; location ~ php$ '
                            '{ fastcgi_pass %s; fastcgi_param '
                            'SCRIPT_FILENAME %s$fastcgi_script_name; '
                            'fastcgi_param REQUEST_METHOD GET; } root ' %
                            ('unix:' * unix + to, path('www')))
        conf = write('nginx.conf', text)
        with Server(client(found[0], '-y', fpm, *['-R'] * root),
                    None if unix else behind, stop=signal.SIGQUIT), \
                Server(server(sbin('nginx'), '-c', conf), port):
            until('php-fpm', lambda: not unix or os.path.exists(to))
            for _ in range(2):
                start = common.native if unix else client
                output(start('curl', '-sS', '-o', path('got'),
                             'http://%s:%d/get.php' % (HOST, port)))
                same(path('got'), large)

    if unix:
        both_ends(run, ['nginx', 'php-fpm'])
    else:
        everywhere(run, ['nginx'], ['curl'])


def php_fpm_unix():
    php_fpm(True)


def ab():
    """Apache's client and siege, in front of nginx."""
    need('ab', 'siege')
    sbin('nginx')
    site(60)
    os.environ['HOME'] = common.folder

    def run(server, client):
        port = free_port()
        url = 'http://%s:%d/small' % (HOST, port)
        write('siege.conf', 'connection = keep-alive\n')
        with nginx_server(server, port):
            out = output(client('ab', '-q', '-k', '-n', '4000', '-c', '4', url))
            said = re.findall(rb'(?:Failed|Complete) requests:.*', out)
            out = output(client('siege', '-R', path('siege.conf'), '-q', '-b',
                                '-c', '4', '-r', '500', '-j', url))
        return said, re.findall(rb'"(?:transactions|failed_transactions)":.*',
                                out)

    everywhere(run, ['nginx'], ['ab'])
