# SPDX-License-Identifier: BSD-2-Clause
"""Where processes are that do not end: for each thread what the kernel says it
waits for, for each TCP connection what lies in its queues, and of the shm
fabric the heads of its segments (docs/design/wire-shm.md, section 4).

stuck.py PID...
"""
import os
import re
import struct
import subprocess
import sys


def read(path):
    try:
        with open(path, errors='replace') as f:
            return f.read().strip()
    except OSError as e:
        return '(%s)' % e.strerror


def listed(path):
    try:
        return sorted(os.listdir(path), key=int)
    except OSError:
        return []


def children(pid):
    """From its own threads: nobody else's process is looked at."""
    found = [int(child) for tid in listed('/proc/%d/task' % pid)
             for child in re.findall(r'\b\d+\b', read(
                 '/proc/%d/task/%s/children' % (pid, tid)))]
    return [pid, *(p for child in found for p in children(child))]


def thread(path):
    state = re.search(r'\) (\S)', read(path + '/stat'))
    calls = re.findall(r'\] (\w+)', read(path + '/stack'))
    return '  thread %s %s: %s in %s, call %s%s' % (
        os.path.basename(path), read(path + '/comm'),
        state.group(1) if state else '?', read(path + '/wchan') or '?',
        read(path + '/syscall'),
        ', from ' + ' < '.join(calls[:4]) if calls else '')


def connections(pid):
    """Ends, state, and bytes that lie in the queues of each socket."""
    folder = '/proc/%d/fd/' % pid
    names = {}
    for fd in listed(folder):
        try:
            found = re.match(r'socket:\[(\d+)\]', os.readlink(folder + fd))
        except OSError:
            continue
        if found:
            names[found.group(1)] = fd
    for table in ('tcp', 'tcp6'):
        for line in read('/proc/%d/net/%s' % (pid, table)).splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[9] in names:
                sends, receives = (int(n, 16) for n in words[4].split(':'))
                yield ('  descriptor %s: TCP %s to %s, state %s, %d to send, '
                       '%d to receive' % (names[words[9]], words[1], words[2],
                                          words[3], sends, receives))


def segments(pid):
    """An end's wait words, as position and bits, and what it has taken."""
    for line in read('/proc/%d/maps' % pid).splitlines():
        if 'memfd:libexs ' not in line:
            continue
        start, kind = int(line.split('-')[0], 16), line.split()[1]
        try:
            with open('/proc/%d/mem' % pid, 'rb', 0) as f:
                head = os.pread(f.fileno(), 384, start)
        except OSError as e:
            yield '  segment: ' + e.strerror
            continue
        if len(head) < 384:
            continue
        taken, seq, data = struct.unpack_from('<QII', head, 256)
        space = struct.unpack_from('<I', head, 128)[0]
        yield ('  segment of %s at %x: space_wait %d/%d, taken %d (%d), '
               'data_wait %d/%d' % ('its own' if 'w' in kind else 'its peer',
                                    start, space // 4 * 16, space % 4, taken,
                                    seq, data // 4 * 16, data % 4))


def tell(*pids):
    """Of the processes and all that they started; of all that this one started,
    for the other end of a connection is among them."""
    lines = []
    found = [p for root in pids for p in children(root)] if pids else \
        children(os.getpid())[1:]
    for pid in found:
        command = read('/proc/%d/cmdline' % pid).replace('\0', ' ').strip()
        lines.append('process %d: %s' % (pid, command))
        lines += [thread('/proc/%d/task/%s' % (pid, tid))
                  for tid in listed('/proc/%d/task' % pid)]
        lines += connections(pid)
        lines += segments(pid)
    return '\n'.join(lines)


class Stuck(subprocess.TimeoutExpired):
    """Says where the process was when its time was over."""

    def __init__(self, process, timeout, said):
        super().__init__(process.args, timeout, said)
        self.where = tell()

    def __str__(self):
        return super().__str__() + '\n' + self.where


def communicate(process, timeout, text=None):
    """As the process's own."""
    try:
        return process.communicate(text, timeout=timeout)
    except subprocess.TimeoutExpired as e:
        raise Stuck(process, timeout, e.stdout) from None


def run(command, timeout, input=None, **kw):
    """As subprocess.run(); standard output and error are pipes unless said
    otherwise."""
    if input is not None:
        kw['stdin'] = subprocess.PIPE
    with subprocess.Popen(command, **{'stdout': subprocess.PIPE,
                                      'stderr': subprocess.PIPE,
                                      **kw}) as process:
        try:
            out, err = communicate(process, timeout, input)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


if __name__ == '__main__':
    print(tell(*(int(a) for a in sys.argv[1:])))
