#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What the README and the guides say to type is typed, and what they show as output has the
shape of what is printed: pages.py EXS SOURCE [namespaces|hosts|tshark].

It is in namespaces of its own, so that the ports of the pages are free, and all that it
starts ends with it. namespaces: docs/guide/containers.md, which needs root. hosts: the
two hosts of the README, likewise, over libfabric's TCP. tshark: docs/guide/trace.md."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

from common import DEADLINE, check, environment, result, wait_for

EXS, SOURCE = (os.path.abspath(a) for a in sys.argv[1:3])
WHAT = sys.argv[3] if len(sys.argv) > 3 else ''
BUILD = os.path.dirname(os.path.dirname(EXS))
APART = 'EXS_TEST_APART'
SHM = r'^  to {} port {}: \d+ connections?, shm,'


def page(name):
    with open(os.path.join(SOURCE, name), encoding='utf-8') as f:
        return f.read()


def block(name, begins):
    """The indented lines of the page among which one begins so, as commands."""
    for lines in re.findall(r'(?:\n\n|\A)((?: {4}.*\n)+)', page(name)):
        lines = [line[4:] for line in lines.splitlines()]
        if any(re.sub(r'^\w*[$#] ', '', line).startswith(begins) for line in lines):
            return [re.sub(r'\s+#\s.*', '', line) for line in lines]
    check(False, name, 'has no block with', begins)
    return []


def inline(name, command):
    check(f'`{command}`' in ' '.join(page(name).split()), name, 'has not', command)
    return command


def settings(more=None):
    env = environment(more)
    env.update(PATH=f'{BUILD}/tools:{BUILD}/examples:{env["PATH"]}', LD_LIBRARY_PATH=BUILD,
               PKG_CONFIG_PATH=f'{BUILD}/meson-uninstalled', HOME=os.getcwd(),
               C_INCLUDE_PATH=os.path.join(SOURCE, 'api'), LC_ALL='C.UTF-8')
    return env


def shell(command, more=None, ok=(0,)):
    """What a command says; its errors, too."""
    p = subprocess.run(['bash', '-c', command], env=settings(more), text=True,
                       timeout=2 * DEADLINE, stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    check(p.returncode in ok, command, 'ends with', p.returncode, p.stdout[-2000:])
    return p.stdout


def background(command, more=None):
    """The page has a & behind it."""
    check(command.rstrip().endswith('&'), 'in the background', command)
    return subprocess.Popen(['bash', '-c', 'exec ' + command.rstrip().rstrip('&')],
                            env=settings(more), stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def answers(port, host='127.0.0.1', where=''):
    wait_for('redis', lambda: subprocess.run(
        f'{where} redis-cli -h {host} -p {port} ping', shell=True, capture_output=True,
        text=True).stdout == 'PONG\n')


def of_programs():
    server, client = block('docs/guide/programs.md', 'exs run --report redis')
    p = background(server)
    answers(7379)
    said = shell(client)
    check(re.search(SHM.format(r'127\.0\.0\.1', 7379), said, re.M), 'on shm', said)
    p.terminate()
    p.wait(DEADLINE)


def under_load(*parts):
    """redis where the pages have it, and a client of it."""
    server = background('exs run redis-server --save "" --enable-debug-command local &')
    answers(6379)
    load = background('exs run redis-benchmark -t get -c 2 -n 1000000000 &')

    def moved():
        return len(re.findall(r'shm/shm', shell(f'exs stat {server.pid}'))) == 2
    try:
        if wait_for('redis on shm', moved):
            for part in parts:
                part(server, load)
    finally:
        for p in load, server:
            p.kill()
            p.wait()


def of_readme(server, load):
    """Why is it not fast?"""
    said = shell(inline('README.md', 'exs check localhost 6379'))
    check('\nverdict: a connection moves off TCP ' in said, 'the port', said)
    said = shell(inline('README.md', 'exs check --pid 4711').replace('4711', str(load.pid)))
    check('\nverdict: shm in both directions\n' in said, 'the program', said)
    said = shell(inline('README.md', 'exs info'))
    check(re.search(r'^  shm +ready', said, re.M), 'exs info', said)
    for name in 'downgrade', 'upgrade':
        said = shell(inline('docs/guide/trace.md', f'exs {name} PID').replace(
            'PID', str(server.pid)))
        check(said.startswith('2 connections '), name, said)


def items(manual):
    """What a manual's lists explain."""
    return {word for line in re.findall(r'^\.It Li (.*)', page('docs/man/' + manual), re.M)
            for word in re.sub(r'\\&', '', line).split(' , ')}


def of_screens(server, _):
    """The manual explains the columns and the steps that are printed, and no others."""
    said = shell(f'exs stat --watch=0.1 --times=2 {server.pid}')
    head = re.findall('^State .*', said, re.M)
    check(len(head) == 2 and set(head[1].split()) == items('exs-stat.1'), 'columns', head,
          items('exs-stat.1'))
    said = shell(f'exs check --pid {server.pid}') + shell('exs check localhost 6379')
    check(set(re.findall(r'^  (\w+) +(?:ok|FAILED|-) ', said, re.M)) == items('exs-check.1'),
          'steps', said, items('exs-check.1'))


def of_examples():
    [build] = block('examples/README.md', 'gcc')
    os.mkdir('examples')
    shutil.copy(os.path.join(SOURCE, 'examples/ask.c'), 'examples')
    shell(build)
    check(os.path.exists('ask'), build)
    serve, call = block('examples/README.md', 'rpc')
    server = background(serve + ' &')
    wait_for('rpc', lambda: ':1B58 00000000:0000 0A' in open('/proc/net/tcp').read())
    said = shell(call)
    check(said.count('\n') >= 3, 'three calls', said)
    server.wait(DEADLINE)


def of_conformance():
    said = shell(block('docs/guide/conformance.md', 'build/tests')[0].replace('build', BUILD, 1))
    check(re.search(r'^\[  PASSED  \] [1-9]\d* test', said, re.M), 'rows of the suite', said)


def of_python():
    lines = block('docs/guide/python.md', 'export PYTHONPATH')
    said = shell('cd "$SOURCE" && ' + ' && '.join(lines).replace('$PWD/build/', BUILD + '/'),
                 {'SOURCE': SOURCE, 'PYTHONDONTWRITEBYTECODE': '1'})
    check(re.fullmatch(r'[a-z-]+\n', said), 'a reason', said)


def of_containers():
    lines = block('docs/guide/containers.md', 'mkdir /run/exs')
    at = [n for n, line in enumerate(lines) if line.endswith('&')]
    check(at == [len(lines) - 2], 'the server, and the client last', lines)
    wait = 'until ip netns exec a redis-cli -h 10.77.0.2 ping >/dev/null 2>&1; do :; done'
    said = shell('set -e\n' + '\n'.join(lines[:-1] + [wait, lines[-1]]) + '\nkill $!')
    check(re.search(SHM.format(r'10\.77\.0\.2', 6379), said, re.M), 'on shm', said)


def of_two_hosts():
    """Two namespaces are the hosts, and "one" is the name of the first."""
    copy, info, server, client = block('README.md', 'exs key copy')
    check(copy.startswith('one$ exs key copy '), 'the key is copied', copy)
    typed = [re.sub(r'^(\w+)\$ ', r'ip netns exec \1 ', line) for line in (info, server, client)]
    with open('hosts', 'w', encoding='ascii') as f:
        f.write('127.0.0.1 localhost\n10.78.0.1 one\n10.78.0.2 two\n')
    shell('mount --bind hosts /etc/hosts && exs key make && ip netns add one && '
          'ip netns add two && ip link add nic netns one type veth peer name nic netns two')
    for n, host in enumerate(('one', 'two'), 1):
        shell(f'ip -n {host} addr add 10.78.0.{n}/24 dev nic && ip -n {host} link set nic up && '
              f'ip -n {host} link set lo up')
    name, value = inline('README.md', 'export EXS_OFI_PROVIDER=tcp').split(' ')[1].split('=')
    said = shell(typed[0], {name: value})
    check(re.search(r'^  ofi +ready', said, re.M), 'exs info', said)
    with background(typed[1] + ' &', {name: value}) as p:
        answers(6379, 'one', 'ip netns exec two')
        said = shell(typed[2] + ' -c 4 -n 2000', {name: value})
        check(re.search(r'^  to 10\.78\.0\.1 port 6379: \d+ connections?, ofi,', said, re.M),
              'on ofi', said)
        p.terminate()


def of_trace(server, _):
    """The packets are others, the pages' lines have the same shape."""
    shown = block('docs/guide/trace.md', 'exs trace $(pidof redis-server) |')
    command = shown[0].removeprefix('$ ')
    # Who types it looks on, and ends it.
    said = shell(f'{command} -c 40 2>/dev/null', ok=(0, 1, 141))
    shape = r'^ *\d+ \d+\.\d+ +127\.0\.0\.1 → 127\.0\.0\.1 +RESP \d+ (Request|Response)'
    for line in shown[1:]:
        check(re.match(shape, line), 'the page shows', line)
    check(len(re.findall(shape, said, re.M)) >= 20, 'as the page shows', said[-500:])

    record, wrote = block('docs/guide/trace.md', 'exs trace -w')
    said = shell(record.removeprefix('$ ').replace(' -d 10 ', ' -d 0.2 '))
    for line in wrote, said:
        check(re.match(r'exs trace: \d+ packets', line), 'packets', line)
    lines = block('docs/guide/trace.md', 'tshark -r redis.pcapng -Y frame.comment')
    said = shell(lines[0].removeprefix('$ '))
    shape = r'^redis-server\[\d+\] fd \d+ (receives|sends) by shm$'
    for line in lines[1:-1]:
        check(re.match(shape, line), 'the page shows', line)
    check(re.search(shape, said, re.M), 'as the page shows', said[-500:])
    said = shell(lines[-1].removeprefix('$ '))
    check('RESP' in said or 'TCP' in said, 'packets of shm', said[-500:])
    # README's, and the stream.
    said = shell(inline('README.md', 'exs trace PID | tshark -r -').replace(
        'PID', str(server.pid)) + ' -c 20 2>/dev/null', ok=(0, 1, 141))
    check('127.0.0.1 → 127.0.0.1' in said, 'README', said[-500:])
    option = inline('docs/guide/trace.md', 'tshark -z follow,tcp,raw,0').split(' ', 1)[1]
    said = shell(f'tshark -r redis.pcapng -q {option}')
    check('Follow: tcp,raw' in said, 'the stream', said[-500:])


def apart():
    """Starts this again where it changes nothing, and its ports are free."""
    user = [] if os.geteuid() == 0 else ['-U', '-r']
    os.environ[APART] = '1'
    return subprocess.run(
        ['unshare', *user, '--net', '--mount', '--pid', '--fork', '--kill-child',
         '--mount-proc', 'sh', '-c', 'ip link set lo up && mount -t tmpfs none /run && '
         'exec "$@"', 'sh', sys.executable, *sys.argv], timeout=250).returncode


def main():
    needs = ['redis-server', 'redis-benchmark', 'ip', 'unshare']
    if WHAT == 'tshark':
        needs += ['tshark', 'pidof']
    for tool in needs:
        if not shutil.which(tool):
            print(tool, 'is not here')
            return 77
    if WHAT in ('namespaces', 'hosts') and os.geteuid():
        print('only root can make network namespaces that have names')
        return 77
    if APART not in os.environ:
        if os.geteuid() and subprocess.run(['unshare', '-U', '-r', '-n', 'true'],
                                           stderr=subprocess.DEVNULL).returncode:
            print('no namespace of users can be made here')
            return 77
        return apart()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        if WHAT == 'namespaces':
            of_containers()
        elif WHAT == 'hosts':
            of_two_hosts()
            subprocess.run(['umount', '/etc/hosts'], check=True)
        elif WHAT == 'tshark':
            under_load(of_trace)
        else:
            of_programs()
            under_load(of_readme, of_screens)
            of_examples()
            of_python()
            of_conformance()
        os.chdir('/')
    return result()


sys.exit(main())
