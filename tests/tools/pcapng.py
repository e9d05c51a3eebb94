# SPDX-License-Identifier: BSD-2-Clause
"""Reads pcapng as exs trace writes it: packets of TCP, and the streams that they make."""

import dataclasses
import struct


@dataclasses.dataclass
class Packet:
    interface: str
    ns: int
    ends: tuple  # (address, port) of the sender, and of the receiver
    seq: int
    ack: int
    flags: int
    bytes: bytes
    length: int  # of its bytes in the stream
    comment: str
    lost: int
    incoming: bool


def options(body):
    found = {}
    while len(body) >= 4:
        code, n = struct.unpack_from('=HH', body)
        if code == 0:
            break
        found[code] = body[4:4 + n]
        body = body[4 + n + (-n & 3):]
    return found


def ones(data):
    total = sum(struct.unpack(f'>{len(data) // 2}H', data[:len(data) & ~1]))
    total += (data[-1] << 8) if len(data) & 1 else 0
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total


def packet(names, body):
    interface, high, low, kept, length = struct.unpack_from('=IIIII', body)
    data, more = body[20:20 + kept], options(body[20 + kept + (-kept & 3):])
    if data[0] >> 4 == 4:
        assert ones(data[:20]) == 0xffff, 'the checksum of IP'
        assert struct.unpack('>H', data[2:4])[0] == length
        at, addresses = 20, (data[12:16], data[16:20])
    else:
        assert data[0] >> 4 == 6 and struct.unpack('>H', data[4:6])[0] == length - 40
        at, addresses = 40, (data[8:24], data[24:40])
    ports = struct.unpack_from('>HH', data, at)
    seq, ack, flags = struct.unpack_from('>IIH', data, at + 4)
    head = at + (flags >> 12) * 4
    if kept == length:
        pseudo = b''.join(addresses) + struct.pack('>II', length - at, 6)
        assert ones(pseudo + data[at:]) == 0xffff, 'the checksum of TCP'
    return Packet(names[interface], high << 32 | low, tuple(zip(addresses, ports)), seq, ack,
                  flags & 63, data[head:], length - head, more.get(1, b'').decode(),
                  struct.unpack('=Q', more[4])[0] if 4 in more else 0,
                  more[2] == struct.pack('=I', 1))


def read(path, whole=True):
    """Its packets, and how many the statistics at the end say are lost; None: there are no
    statistics. A file that is not whole ends somewhere."""
    with open(path, 'rb') as f:
        data = f.read()
    names, found, lost, at = [], [], None, 0
    while at < len(data):
        if at + 8 > len(data) or at + struct.unpack_from('=I', data, at + 4)[0] > len(data):
            assert not whole, 'the last block'
            break
        kind, n = struct.unpack_from('=II', data, at)
        body = data[at + 8:at + n - 4]
        assert struct.unpack_from('=I', data, at + n - 4)[0] == n
        if kind == 1:
            names.append(options(body[8:])[2].decode())
        elif kind == 5:
            lost = struct.unpack('=Q', options(body[12:])[5])[0]
        elif kind == 6:
            found.append(packet(names, body))
        at += n
    return found, lost


def streams(packets):
    """By the ports of sender and receiver: the pieces of the stream, by where they begin,
    those that follow each other joined."""
    found = {}
    for p in packets:
        if p.length:
            assert len(p.bytes) == p.length, 'all of it is kept'
            found.setdefault((p.ends[0][1], p.ends[1][1]), []).append((p.seq - 1, p.bytes))
    for key, parts in found.items():
        joined = []
        for at, part in sorted(parts, key=lambda x: x[0]):
            if joined and joined[-1][0] + len(joined[-1][1]) == at:
                joined[-1][1].extend(part)
            else:
                joined.append((at, bytearray(part)))
        found[key] = joined
    return found
