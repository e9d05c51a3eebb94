#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""exs run as exs-run(1) has it: what it starts, refuses and ends with. Usage:
run.py BEHAVE EXS."""

import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile

EXS = os.path.abspath(sys.argv[2])
NOBODY = 65534
bad = 0


def expect(what, args, status, out='', err='', env=None, exs=EXS, cwd=None,
           user=None):
    """err: a part of what standard error has."""
    global bad
    plain = {k: v for k, v in os.environ.items() if not k.startswith('EXS_')}
    plain.update(env or {})
    run = subprocess.run([exs, 'run', *args], env=plain, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         stdin=subprocess.DEVNULL, cwd=cwd, timeout=60,
                         user=user, check=False)
    if (run.returncode, run.stdout) != (status, out) or err not in run.stderr \
            or (not err and run.stderr):
        print('%s: %d %r %r' % (what, run.returncode, run.stdout, run.stderr))
        bad = 1


def executable(path, content, mode=0o755):
    with open(path, 'wb') as f:
        f.write(content)
    os.chmod(path, mode)
    return path


def with_capabilities(path):
    """The path of a program with capabilities, or None where users can have none."""
    with open('/bin/true', 'rb') as f:
        executable(path, f.read())
    # Version 2, and CAP_NET_BIND_SERVICE is permitted.
    caps = struct.pack('<5I', 0x02000000, 1 << 10, 0, 0, 0)
    try:
        os.setxattr(path, 'security.capability', caps)
        if os.getuid() == 0:
            subprocess.run([EXS, '--help'], user=NOBODY, check=True,
                           stdout=subprocess.DEVNULL)
            return path
    except (OSError, subprocess.CalledProcessError):
        pass
    return None


def refused(tmp):
    with open(tmp + '/ini', 'w', encoding='ascii') as f:
        f.write('provder = tcp\n')
    return [('EXS_PROVIDER', 'tpc'), ('EXS_REQUIRE', 'smh'),
            ('EXS_UPGRADE', 'nevre'), ('EXS_TRUST', 'kye'),
            ('EXS_MEMORY_LIMIT_MB', '1G'), ('EXS_KEY_FILE', 'x' * 300),
            ('EXS_OFI_PROVIDER', 'x' * 300), ('EXS_CONFIG', tmp + '/none'),
            ('EXS_CONFIG', tmp + '/ini')]


TALK = '''
import socket
l = socket.create_server(('127.0.0.1', 0))
a = socket.create_connection(l.getsockname())
b, _ = l.accept()
for _ in range(1000):
    a.sendall(b'x' * 100), b.recv(100, socket.MSG_WAITALL)
print(sum('libexs' in x for x in open('/proc/self/net/unix')
          if ':%d' % l.getsockname()[1] in x or x.endswith(
              '/%d\\n' % l.getsockname()[1])))
'''


def expect_native(what, shim, env):
    """No name of the library for its port, no report, one line."""
    global bad
    run = subprocess.run(
        [sys.executable, '-c', TALK], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, timeout=60, check=False,
        env={**os.environ, **env, 'LD_PRELOAD': shim})
    if (run.returncode, run.stdout) != (0, '0\n') or what not in run.stderr \
            or 'nothing leaves TCP' not in run.stderr \
            or run.stderr.count('\n') != 1:
        print('%s, preloaded: %d %r %r' % (what, run.returncode, run.stdout,
                                           run.stderr))
        bad = 1


def expect_once(what, env):
    """What exs run and the program both read is told by the program."""
    global bad
    plain = {k: v for k, v in os.environ.items() if not k.startswith('EXS_')}
    run = subprocess.run([EXS, 'run', 'true'], stderr=subprocess.PIPE, text=True,
                         env={**plain, **env}, timeout=60, check=False)
    for name in env:
        if sum(name in line for line in run.stderr.splitlines()) != 1:
            print('%s: %r' % (what, run.stderr))
            bad = 1


def main():
    say = 'echo $EXS_UPGRADE $EXS_SPIN_US $EXS_PROVIDER $EXS_REQUIRE $EXS_REPORT'
    with tempfile.TemporaryDirectory() as tmp:
        # Heads of ELF files without an interpreter, for 64 and 32 bits.
        static = executable(tmp + '/static', b'\x7fELF\x02\x01\x01' + bytes(57))
        narrow = executable(tmp + '/narrow', b'\x7fELF\x01\x01\x01' + bytes(57))
        with open('/bin/true', 'rb') as f:
            setuid = executable(tmp + '/setuid', f.read(), 0o4755)
        if not os.stat(setuid).st_mode & stat.S_ISUID:
            setuid = None
        capable = with_capabilities(tmp + '/capable')
        script = executable(tmp + '/script', b'#!/bin/sh\necho script "$@"\n')
        junk = executable(tmp + '/junk', b'junk')

        expect('status', ['sh', '-c', 'exit 5'], 5)
        expect('script', [script, '--report', '-p'], 0, 'script --report -p\n')
        expect('signal', ['sh', '-c', 'kill -9 $$'], -signal.SIGKILL)
        expect('child', ['sh', '-c', 'sh -c "exit 3"'], 3)
        expect('static', [static], 1, err='statically linked')
        expect('32 bits', [narrow], 1, err='32-bit')
        if setuid:
            expect('set-user-ID', [setuid], 1, err='changes its user')
        if capable:
            os.chmod(tmp, 0o755)
            expect('capabilities', [capable], 0)
            expect('capabilities, not as root', [capable], 1, err='setcap',
                   user=NOBODY)
        expect('junk', [junk], 126, err='junk')
        expect('folder', [tmp], 126, err=tmp)
        expect('none', ['no-such-program'], 127, err='no such program')
        expect('none', [tmp + '/none'], 127, err='no such program')
        expect('empty', [''], 127, err='no such program')
        expect('not executable', [executable(tmp + '/text', b'', 0o644)], 126,
               err='Permission denied')
        # A folder of the name is none, and nothing is the current folder.
        os.makedirs(tmp + '/first/script')
        expect('searched', ['script'], 0, 'script\n',
               env={'PATH': tmp + '/first:' + tmp})
        expect('here', ['script'], 0, 'script\n', cwd=tmp,
               env={'PATH': '/nowhere:'})
        expect('only a folder', ['script'], 126, err='Permission denied',
               env={'PATH': tmp + '/first'})
        expect('nothing', [], 2, err='no program was given')
        expect('profile', ['--profile=x', 'true'], 2, err='no profile')
        expect('profile', ['-p', 'latency', 'sh', '-c', say], 0,
               'connect 200\n')
        expect('profile', ['-p', 'safe', 'sh', '-c', say], 0, 'bytes:7 0\n',
               env={'EXS_UPGRADE': 'bytes:7'})
        expect('others', ['-P', 'shm', '-r', 'shm', '-R', 'sh', '-c', say], 0,
               'shm shm -\n')
        expect('report', ['--report=' + tmp + '/r', 'sh', '-c', say], 0,
               tmp + '/r\n')
        expect('report here', ['--report=r', 'sh', '-c', 'cd /; ' + say], 0,
               os.path.realpath(tmp) + '/r\n', cwd=tmp)
        expect('require', ['-P', 'tcp', '-r', 'shm', 'echo'], 1,
               err='EXS_REQUIRE')
        # The loader takes no such path, and would start the program natively.
        for place in tmp + '/a b', tmp + '/a:b':
            for folder in 'tools', 'preload':
                os.makedirs(place + '/' + folder)
            shutil.copy(EXS, place + '/tools')
            executable(place + '/preload/libexs-preload.so', b'')
            expect('space', ['echo'], 1, err='cannot be loaded',
                   exs=place + '/tools/exs')
        expect('no fabric', ['-r', 'smh', 'echo'], 2,
               err='EXS_REQUIRE: cannot use "smh"; it accepts')
        expect('no fabrics', ['-P', 'shm,tpc', 'echo'], 2,
               err='EXS_PROVIDER: cannot use "shm,tpc"; it accepts')
        # Nothing is started with a setting that cannot be understood,
        for variable, value in refused(tmp):
            expect(variable, ['echo'], 2, env={variable: value}, err=variable)
            # and where the shim is loaded otherwise it says so, and does nothing.
            shim = subprocess.run(
                [EXS, 'run', 'sh', '-c', 'echo $LD_PRELOAD'], text=True,
                stdout=subprocess.PIPE, check=True).stdout.strip()
            expect_native(variable, shim, {variable: value, 'EXS_REPORT': '-'})
        expect('harmless', ['echo'], 0, '\n', err='EXS_SPIN_US',
               env={'EXS_SPIN_US': 'fast'})
        expect_once('each warning comes once', {'EXS_SPIN_US': 'fast', 'EXS_LOG': 'loud',
                                                'EXS_NO_SUCH': '1'})
    return bad


if __name__ == '__main__':
    sys.exit(main())
