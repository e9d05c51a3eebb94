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
    """Who is not root is refused it: none where it cannot be tried."""
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
        expect('nothing', [], 2, err='which program?')
        expect('profile', ['--profile=x', 'true'], 2, err='no profile')
        expect('profile', ['-p', 'latency', 'sh', '-c', say], 0,
               'connect 200\n')
        expect('profile', ['-p', 'safe', 'sh', '-c', say], 0, '7 0\n',
               env={'EXS_UPGRADE': '7'}, err='EXS_UPGRADE')
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
               err='--require cannot be "smh"')
        expect('no fabrics', ['-P', 'smh', 'echo'], 2,
               err='--provider cannot be "smh"')
    return bad


if __name__ == '__main__':
    sys.exit(main())
