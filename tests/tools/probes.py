#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What docs/guide/probes.md says to do with bpftrace and perf is done, on a program whose
connection sleeps, wakes, and goes to TCP and back: probes.py EXS LIBEXS GUIDE."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

from common import DEADLINE, check, environment, result

EXS, LIBEXS, GUIDE = (os.path.abspath(a) for a in sys.argv[1:4])
SETTINGS = {'EXS_LOG': 'off'}
TRACING = '/sys/kernel/tracing'

PROGRAM = """
import socket, sys, threading
s = socket.create_server(('127.0.0.1', 0))
def serve():
    c = s.accept()[0]
    while got := c.recv(65536):
        c.sendall(got)
threading.Thread(target=serve, daemon=True).start()
c = socket.create_connection(s.getsockname())
def ask():
    c.sendall(bytes(3000))
    c.recv(3000, socket.MSG_WAITALL)
ask()
print('talks', flush=True)
rest = threading.Event()
while True:
    for i in range(20):
        ask()
    rest.wait(0.005)
"""


def commands(heading):
    """The commands of a section, as a shell takes them."""
    with open(GUIDE) as f:
        section = f.read().split(f'## {heading}\n')[1].split('\n## ')[0]
    found = []
    for block in re.findall(r'(?:^ {4}.*\n)+', section, re.M):
        for line in block.splitlines():
            if line.startswith('    # '):
                found.append(line[6:])
            else:
                found[-1] += '\n' + line
    return found


def downs_and_ups(pid, over):
    while not over.is_set():
        for word in 'downgrade', 'upgrade':
            subprocess.run([EXS, word, str(pid)], capture_output=True, timeout=DEADLINE,
                           env=environment(SETTINGS))


def shell(text, pid, seconds, folder=None):
    """L is the library that the program has loaded. The status and the output of the
    command, which is interrupted after so long; not by a pipe, into which perf record
    would write what it records."""
    text = text.replace('PID', str(pid)).replace('sleep 10', 'sleep 2')
    with tempfile.TemporaryFile('w+', errors='replace') as out:
        p = subprocess.Popen(['sh', '-c', f'L={LIBEXS}\nexec {text}'], cwd=folder,
                             stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        try:
            p.wait(seconds)
        except subprocess.TimeoutExpired:
            p.send_signal(signal.SIGINT)
            try:
                p.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        out.seek(0)
        return p.returncode, out.read()


def by_bpftrace(pid):
    library, *all_of = commands('bpftrace')
    check(library.startswith('L='), 'the library', library)
    said = {'libexs:move {': r'process \d+ fd \d+ (sends|receives) on shm',
            'libexs:back {': rf'@\[{pid}, 44\]: \d+',
            'print(@sleeps)': r'(?s)(?=.*@sleeps\[\w+\]: \d+).*@wakes\[\w+\]: \d+',
            '[ustack]': r'(?s)exi_.*\]: \d+'}
    check(len(all_of) == len(said), 'commands', all_of)
    for text in all_of:
        words = [w for k, w in said.items() if k in text]
        check(len(words) == 1, 'which command', text)
        # Longer each time, until so much has happened that it is seen.
        for seconds in 3, 10, 30:
            got = shell(text, pid, seconds)[1]
            if re.search(words[0], got):
                break
        check(re.search(words[0], got), text, got[-2000:])


def by_perf(pid, folder):
    all_of = commands('perf')
    check([c.split()[:2] for c in all_of] == [['perf', 'buildid-cache'], ['perf', 'probe'],
                                              ['perf', 'record'], ['perf', 'script']], all_of)
    mine = ['perf', '--buildid-dir', f'{folder}/ids']
    try:
        for text in all_of:
            status, got = shell(text.replace('perf', ' '.join(mine), 1), pid, DEADLINE, folder)
            check(status == 0, text, got[-2000:])
        names = set(re.findall(r'sdt_libexs:(\w+):', got))
        check(names >= {'move', 'back', 'sleep', 'wake'}, 'perf script has', names)
    finally:
        p = subprocess.run(['perf', 'probe', '-d', 'sdt_libexs:*'], capture_output=True,
                           text=True)
        check(p.returncode == 0, 'perf probe -d', p.stderr)


@contextlib.contextmanager
def traced():
    """The files of the tracer, for as long as this runs."""
    mounted = not os.listdir(TRACING)
    if mounted:
        subprocess.run(['mount', '-t', 'tracefs', 'none', TRACING], check=True)
    try:
        yield
    finally:
        if mounted:
            subprocess.run(['umount', TRACING], check=True)


def main():
    if os.getuid() or not shutil.which('bpftrace') or not shutil.which('perf'):
        return 77
    p = subprocess.run(['bpftrace', '-e', 'BEGIN { exit(); }'], capture_output=True, text=True)
    if p.returncode:
        print('the kernel refuses bpftrace:', p.stderr)
        return 77
    p = subprocess.run(['bpftrace', '-l', f'usdt:{LIBEXS}:*'], capture_output=True, text=True)
    check(p.stdout.count('libexs:') == 6, 'the list of probes', p.stdout, p.stderr)
    program = subprocess.Popen([EXS, 'run', sys.executable, '-c', PROGRAM], text=True,
                               stdout=subprocess.PIPE, env=environment(SETTINGS))
    over = threading.Event()
    mover = threading.Thread(target=downs_and_ups, args=(program.pid, over))
    try:
        check(program.stdout.readline() == 'talks\n', 'the program')
        mover.start()
        with tempfile.TemporaryDirectory() as folder, traced():
            by_bpftrace(program.pid)
            by_perf(program.pid, folder)
        check(program.poll() is None, 'the program goes on')
    finally:
        over.set()
        if mover.ident:
            mover.join()
        program.kill()
        program.communicate()
    return result()


sys.exit(main())
