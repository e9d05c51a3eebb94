# SPDX-License-Identifier: BSD-2-Clause
"""Programs that talk over UNIX sockets, and over nothing else."""

import hashlib
import os
import re
import shutil
import stat
import sys

import common
from common import (HERE, Server, Shim, both_ends, everywhere, native, need,
                    output, path, sbin, skip, until, write)
from brokers import PYTHON, need_module


def made(at):
    """A socket has that path."""
    until('the socket ' + at, lambda: os.path.exists(at) and
          stat.S_ISSOCK(os.stat(at).st_mode))


def untouched(shim, program):
    """The library has nothing to say about its sockets."""
    if any(': 0 connections on' not in line for line in shim.lines(program)):
        shim.complain(program, 'was on a fabric')


def with_descriptors(shim, program):
    """The kernel carries what is sent beside the bytes."""
    if not any('ancillary' in line or 'peer-request' in line
               for line in shim.lines(program)):
        shim.complain(program, 'does not say ancillary')


def multiprocessing():
    for how in 'fork', 'spawn':
        both_ends(lambda server, client, how=how: output(
            server(sys.executable, os.path.join(HERE, 'pairs.py'), how)),
            ['python3'])


def zeromq_ipc():
    need_module('zmq', 'python3-zmq')
    at = path('zeromq.sock')

    def run(server, client):
        script = os.path.join(HERE, 'zeromq.py')
        with Server(server(PYTHON, script, 'serve', 'ipc://' + at)):
            made(at)
            return output(client(PYTHON, script, 'talk', 'ipc://' + at))

    everywhere(run, ['python3'], ['python3'])


def ssh_agent():
    need('ssh-agent', 'ssh-add', 'ssh-keygen')
    os.environ['EXS_UPGRADE'] = 'connect'  # none of them lasts
    # The package's has a group of its own: the system loads nothing into it.
    agent = shutil.copy(shutil.which('ssh-agent'), path('ssh-agent'))
    os.chmod(agent, 0o755)
    keys = [path('key%d' % i) for i in range(20)]
    for key in keys:
        output(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-C', 'x' * 200,
                '-f', key])
    text = write('text', 'to be signed\n')
    at = path('agent.sock')
    env = dict(os.environ, SSH_AUTH_SOCK=at)

    def run(server, client):
        with Server(server(agent, '-D', '-a', at)):
            made(at)
            said = [output(client('ssh-add', *keys), env=env)]
            said.append(output(client('ssh-add', '-L'), env=env))
            # On a busy host, some end before they met.
            if server is not native:
                until('an ssh-add on a fabric', lambda:
                      server.__self__.moved('ssh-add') or
                      not output(client('ssh-add', *keys), env=env))
            for key in keys[:5]:
                output(client('ssh-keygen', '-Y', 'sign', '-n', 'file', '-f',
                              key + '.pub', text), env=env)
                with open(text + '.sig', 'rb') as f:
                    said.append(f.read())
                os.unlink(text + '.sig')
        return said

    both_ends(run, ['ssh-agent', 'ssh-add'])


def tmux():
    """Its clients give their terminals to it."""
    need('tmux')
    os.environ.pop('TMUX', None)
    at = path('tmux.sock')
    lines = write('lines', ''.join('%d: %s\n' % (i, 'y' * (i % 90))
                                   for i in range(20000)))

    def run(server, client):
        def ask(*args):
            return output(client('tmux', '-S', at, *args))

        with Server(server('tmux', '-S', at, '-f', '/dev/null', '-D')):
            made(at)
            ask('new-session', '-d', '-x', '80', '-y', '24', 'cat')
            ask('load-buffer', lines)
            ask('send-keys', '-l', 'hello there')
            until('the text', lambda: b'hello there' in
                  ask('capture-pane', '-p'))
            said = [ask('show-buffer'), ask('list-panes', '-F',
                                            '#{pane_width} #{pane_height}')]
            ask('kill-server')
        return said

    both_ends(run, ['tmux'], with_descriptors)


def dbus():
    need('dbus-daemon', 'dbus-send', 'dbus-monitor')
    at = path('bus.sock')
    config = write('bus.conf', """<busconfig><type>session</type>
<listen>unix:path=%s</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/>
<allow receive_sender="*" eavesdrop="true"/><allow own="*"/><allow user="*"/>
</policy></busconfig>""" % at)
    bus = ['--bus=unix:path=' + at, '--type=signal', '/a', 'a.b.c']

    def run(server, client):
        got = path('got')

        def came():
            with open(got) as f:
                return [line for line in f if 'string "' in line]

        with Server(server('dbus-daemon', '--nofork', '--nopidfile',
                           '--config-file=' + config)), \
                open(got, 'w') as f:
            made(at)
            with Server(client('dbus-monitor', '--address', 'unix:path=' + at,
                               "interface='a.b'"), stdout=f):
                def sent(text):
                    output(client('dbus-send', *bus, 'string:' + text))
                    return any('"%s"' % text in line for line in came())
                until('the first signal', lambda: sent('first'))
                texts = [str(i) * 20000 for i in range(30)]
                for text in texts:
                    sent(text)
                # The bus reads from those who sent in an order of its own.
                until('all signals', lambda: all(
                    '   string "%s"\n' % text in came() for text in texts))
                said = []
            said.append(output(client(
                'dbus-send', bus[0], '--dest=org.freedesktop.DBus',
                '--print-reply=literal', '/org/freedesktop/DBus',
                'org.freedesktop.DBus.Introspectable.Introspect')))
        return said

    both_ends(run, ['dbus-daemon', 'dbus-monitor'])


def picture(dump):
    """What xwd wrote, without what it never set: the last byte of each color."""
    ret = bytearray(dump)
    size, colors = (int.from_bytes(dump[at:at + 4], 'big') for at in (0, 76))
    ret[size + 11:size + 12 * colors:12] = bytes(colors)
    return hashlib.sha256(ret).hexdigest()


def x11():
    """The server and its clients can pass descriptors, and receive with room for
    them."""
    sbin('Xvfb')
    need('x11perf', 'xdpyinfo', 'xwd')

    def run(server, client):
        read, write_ = os.pipe()
        with Server(server('Xvfb', '-displayfd', str(write_), '-nolisten',
                           'tcp', '-retro', '-screen', '0', '1024x768x24'),
                    pass_fds=[write_]):
            os.close(write_)
            with open(read) as f:
                display = ':' + f.readline().strip()

            def ask(*args):
                return output(client(*args), env=dict(os.environ,
                                                      DISPLAY=display))
            said = [re.sub(rb'(?m)^(name of display|focus).*', b'',
                           ask('xdpyinfo'))]
            said.append(picture(ask('xwd', '-root', '-silent')))
            out = ask('x11perf', '-repeat', '1', '-time', '1', '-putimage100',
                      '-shmput100', '-getimage100', '-noop', '-pointer')
            said.append(re.findall(rb'(?m)\): (\S.*)$', out))
        return said

    both_ends(run, ['Xvfb', 'xwd', 'x11perf'])


def systemd_notify():
    """Datagrams are the kernel's."""
    need('systemd-notify')
    at = path('notify.sock')
    script = ('import socket, sys\n'
              's = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n'
              's.bind(sys.argv[1])\n'
              'for _ in range(3): print(s.recv(4096))\n')

    def run(server, client):
        got = path('got')
        with open(got, 'w') as f, Server(server(
                sys.executable, '-c', script, at), stdout=f) as s:
            made(at)
            for i in range(3):
                output(client('systemd-notify', '--no-block',
                              '--status=%d' % i),
                       env=dict(os.environ, NOTIFY_SOCKET=at))
            s.wait()
        os.unlink(at)
        with open(got) as f:
            return f.read()

    both_ends(run, ['python3'], untouched)
