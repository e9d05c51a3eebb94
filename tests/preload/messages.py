#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Messages of a UNIX socket that moved: messages.py EXS. The report counts the
bytes that the two programs sent, and no more. The script is also the program
that it starts."""

import os
import re
import socket
import subprocess
import sys
import tempfile

SIZE = 10
ROUNDS = 20000
BYTES = 2 * SIZE * ROUNDS  # of a process, in both directions


def echo():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = os.fork()
    if child:
        theirs.close()
        for n in range(ROUNDS):
            ours.send(b'%010d' % n)
            if ours.recv(100) != b'%010d' % n:
                raise SystemExit('another message than %d' % n)
        ours.close()
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    ours.close()
    while True:
        message = theirs.recv(100)
        if not message:
            return 0
        theirs.send(message)


def main(exs):
    with tempfile.NamedTemporaryFile('r') as f:
        subprocess.run([exs, 'run', '--report=' + f.name, sys.executable,
                        os.path.abspath(__file__), 'echo'], check=True,
                       env=dict(os.environ, LIBEXS_PACKETS='on', EXS_UNIX='on'))
        report = f.read()
    seen = re.findall(r'1 connection on a fabric, (\d+) of (\d+) ', report)
    good = [(int(there), int(all_)) for there, all_ in seen
            if int(all_) == BYTES and BYTES // 2 < int(there) <= BYTES]
    print('%d of 2 ends moved, and counted %d bytes each' % (len(good), BYTES))
    if len(good) != 2:
        print(report)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(echo() if sys.argv[1:] == ['echo'] else main(sys.argv[1]))
