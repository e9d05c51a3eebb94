#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The table of docs/guide/frameworks.md is true: a connection for each line, on which
the option is set before it moves, and what both ends become.
options.py EXS PAGE."""

import os
import re
import struct
import subprocess
import sys

SOL_TCP, SOL_SOCKET, SOL_IP = 6, 1, 0
ON = struct.pack('i', 1)


def number(n):
    return struct.pack('i', n)


# Where it is set: l, the listener, before it listens; c, the client, before it
# connects; both, the two ends of the connection; get, read there.
OPTIONS = {
    'SO_REUSEPORT': ('l', SOL_SOCKET, 15, ON),
    'SO_ATTACH_REUSEPORT_CBPF': ('l', SOL_SOCKET, 51, None),
    'SO_REUSEADDR': ('l', SOL_SOCKET, 2, ON),
    'IP_TRANSPARENT': ('l', SOL_IP, 19, ON),
    'SO_INCOMING_CPU': ('l', SOL_SOCKET, 49, number(0)),
    'TCP_DEFER_ACCEPT': ('l', SOL_TCP, 9, number(5)),
    'TCP_FASTOPEN': ('l', SOL_TCP, 23, number(16)),
    'TCP_SAVE_SYN': ('l', SOL_TCP, 27, ON),
    'TCP_FASTOPEN_CONNECT': ('c', SOL_TCP, 30, ON),
    'IP_BIND_ADDRESS_NO_PORT': ('c', SOL_IP, 24, ON),
    'TCP_SYNCNT': ('c', SOL_TCP, 7, number(3)),
    'TCP_NODELAY': ('both', SOL_TCP, 1, ON),
    'TCP_CORK': ('both', SOL_TCP, 3, number(0)),
    'TCP_QUICKACK': ('both', SOL_TCP, 12, ON),
    'TCP_USER_TIMEOUT': ('both', SOL_TCP, 18, number(20000)),
    'SO_KEEPALIVE': ('both', SOL_SOCKET, 9, ON),
    'TCP_KEEPIDLE': ('both', SOL_TCP, 4, number(60)),
    'TCP_KEEPINTVL': ('both', SOL_TCP, 5, number(60)),
    'TCP_KEEPCNT': ('both', SOL_TCP, 6, number(5)),
    'TCP_NOTSENT_LOWAT': ('both', SOL_TCP, 25, number(16384)),
    'TCP_CONGESTION': ('both', SOL_TCP, 13, b'reno'),
    'TCP_MAXSEG': ('both', SOL_TCP, 2, number(1400)),
    'TCP_WINDOW_CLAMP': ('both', SOL_TCP, 10, number(1 << 16)),
    'TCP_LINGER2': ('both', SOL_TCP, 8, number(5)),
    'SO_RCVTIMEO': ('both', SOL_SOCKET, 20, struct.pack('qq', 20, 0)),
    'SO_SNDTIMEO': ('both', SOL_SOCKET, 21, struct.pack('qq', 20, 0)),
    'SO_BINDTODEVICE': ('both', SOL_SOCKET, 25, b'lo'),
    'SO_PREFER_BUSY_POLL': ('both', SOL_SOCKET, 69, ON),
    'SO_INCOMING_NAPI_ID': ('get', SOL_SOCKET, 56, 4),
    'SO_TIMESTAMPNS': ('both', SOL_SOCKET, 35, ON),
    'TCP_INFO': ('get', SOL_TCP, 11, 256),
    'TCP_INQ': ('both', SOL_TCP, 36, ON),
    'SO_ZEROCOPY': ('both', SOL_SOCKET, 60, ON),
    'SO_BUSY_POLL': ('both', SOL_SOCKET, 46, number(50)),
    'SO_PRIORITY': ('both', SOL_SOCKET, 12, number(3)),
    'SO_MARK': ('both', SOL_SOCKET, 36, number(7)),
    'SO_MAX_PACING_RATE': ('both', SOL_SOCKET, 47, number(1 << 30)),
    'SO_RCVBUF': ('both', SOL_SOCKET, 8, number(1 << 18)),
    'SO_SNDBUF': ('both', SOL_SOCKET, 7, number(1 << 18)),
    'SO_RCVLOWAT': ('both', SOL_SOCKET, 18, number(1)),
    'SO_LINGER': ('both', SOL_SOCKET, 13, struct.pack('ii', 1, 5)),
    'SO_OOBINLINE': ('both', SOL_SOCKET, 10, ON),
    'IP_TOS': ('both', SOL_IP, 1, number(16)),
    'IP_TTL': ('both', SOL_IP, 2, number(64)),
    'SO_TIMESTAMPING': ('both', SOL_SOCKET, 37, number(1 << 4)),
    'SO_TIMESTAMP': ('both', SOL_SOCKET, 29, ON),
    'SO_ATTACH_FILTER': ('both', SOL_SOCKET, 26, None),
    'SO_PEEK_OFF': ('both', SOL_SOCKET, 42, number(0)),
    'TCP_ULP': ('both', SOL_TCP, 31, b'tls'),
    'TCP_ZEROCOPY_RECEIVE': ('get', SOL_TCP, 35, 64),
}

# Each connection talks until both ends have moved, or have another reason than that
# they are undecided.
TALKS = '''
import ctypes, socket, sys, time
exs = ctypes.CDLL('libexs.so.1')
exs.exs_x_reason_name.restype = ctypes.c_char_p

def what(s):
    info = ctypes.create_string_buffer(1024)
    assert exs.exs_x_sockinfo(s.fileno(), info) == 0
    if info.raw[:32] == b'shm'.ljust(16, bytes(1)) * 2:
        return 'shm'
    reason = int.from_bytes(info.raw[32:36], sys.byteorder)
    return exs.exs_x_reason_name(reason).decode() if reason else 'undecided'

for line in sys.stdin:
    name, where, level, option, value = line.split()
    level, option = int(level), int(option)
    def set_(s):
        try:
            if value == 'filter':
                code = ctypes.create_string_buffer(
                    bytes([6, 0, 0, 0, 255, 255, 255, 255]))
                what = (ctypes.c_ushort * 8)(1)
                ctypes.memmove(ctypes.byref(what, 8),
                               ctypes.byref(ctypes.c_void_p(ctypes.addressof(code))), 8)
                s.setsockopt(level, option, bytes(what))
            else:
                s.setsockopt(level, option, bytes.fromhex(value))
        except OSError:
            pass  # what the kernel lacks, or a user may not
    l = socket.socket()
    l.bind(('127.0.0.1', 0))
    if where == 'l':
        if 'REUSEPORT' in name:
            l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        set_(l)
    l.listen()
    a = socket.socket()
    if where == 'c':
        set_(a)
    a.connect(l.getsockname())
    a.sendall(b'x' * 16)
    b = l.accept()[0]
    if where == 'both':
        set_(a), set_(b)
    if where == 'get':
        for s in a, b:
            try:
                s.getsockopt(level, option, int(value))
            except OSError:
                pass
    got = b.recv(16, socket.MSG_WAITALL)
    end = time.monotonic() + 10
    for i in range(10**6):
        m = bytes([i % 256]) * 50
        a.sendall(m)
        assert b.recv(50, socket.MSG_WAITALL) == m, name
        b.sendall(m)
        assert a.recv(50, socket.MSG_WAITALL) == m, name
        became = {what(a), what(b)}
        if 'undecided' not in became or time.monotonic() > end:
            break
    print(name, *became, flush=True)
    a.close(), b.close(), l.close()
'''


def promised(page):
    """What the page says of each option: a fabric, or the reason for TCP."""
    ret = {}
    with open(page, encoding='utf-8') as f:
        for line in f:
            m = re.match(r'\| (`[A-Z].*?) \|.*\| (shm|`[a-z-]+`)[^|]* \|$', line)
            if m:
                for name in re.findall(r'`(\w+)`', m.group(1)):
                    ret[name] = m.group(2).strip('`')
    return ret


def seen(exs, names):
    env = {k: v for k, v in os.environ.items() if not k.startswith('EXS_')}
    env['EXS_PROVIDER'] = 'shm,tcp'
    lines = ''
    for name in names:
        where, level, option, value = OPTIONS[name]
        text = value if where == 'get' else 'filter' if value is None else value.hex()
        lines += f'{name} {where} {level} {option} {text}\n'
    out = subprocess.run([exs, 'run', sys.executable, '-c', TALKS], input=lines,
                         env=env, text=True, stdout=subprocess.PIPE, timeout=100,
                         check=True).stdout
    return dict(line.split(' ', 1) for line in out.splitlines())


def main():
    exs = os.path.abspath(sys.argv[1])
    want = promised(sys.argv[2])
    bad = set(want) ^ set(OPTIONS)
    if bad:
        print('in the page or in the test only:', bad)
    for name, said in seen(exs, set(want) & set(OPTIONS)).items():
        if said != want[name]:
            print(f'{name}: {said}, the page says {want[name]}')
            bad = True
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
