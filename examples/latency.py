# SPDX-License-Identifier: BSD-2-Clause
"""Round trips to another process by socket.socket over TCP and over a UNIX socket, and by
exs.Socket: medians and 99th percentiles in microseconds, and a plot that needs no other package.
Under exs run, the connection of the row TCP moves to shared memory.

    latency.py [--rounds N] [--svg FILE] [BYTES...]
"""
import argparse
import os
import socket
import time

import exs

KINDS = ("TCP", "UNIX", "exs")


def connect(kind):
    if kind == "UNIX":
        return socket.socketpair()
    make = exs.Socket if kind == "exs" else socket.socket
    listener, a = make(), make()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    a.connect(listener.getsockname())
    b = listener.accept() if kind == "exs" else listener.accept()[0]
    listener.close()
    for s in a, b:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return a, b


def fill(s, view):
    """Receives until the view is full; false at the end of the stream."""
    while view:
        n = s.recv_into(view)
        if not n:
            return False
        view = view[n:]
    return True


def measure(kind, size, rounds):
    """Times of round trips in microseconds, sorted."""
    a, b = connect(kind)
    view, times = memoryview(bytearray(size)), []
    if not os.fork():
        a.close()
        while fill(b, view):
            b.sendall(view)
        os._exit(0)
    b.close()
    for i in range(rounds + rounds // 10):
        begin = time.perf_counter_ns()
        a.sendall(view)
        assert fill(a, view)
        if i >= rounds // 10:  # before that, it may still be on TCP
            times.append((time.perf_counter_ns() - begin) / 1000)
    name = f"exs over {a.info()['tx_fabric']}" if kind == "exs" else kind
    a.close()
    os.wait()
    return sorted(times), name


def draw(name, results):
    """Bars of the medians: one group for each size."""
    colours = dict(zip(KINDS, ("#999", "#0b5cad", "#c23b22")))
    most = max(times[len(times) // 2] for times in results.values())
    rows = []
    for i, ((size, kind), times) in enumerate(results.items()):
        median, y = times[len(times) // 2], 30 + i * 22 + i // len(KINDS) * 12
        rows.append(f'<text x="5" y="{y + 13}">{size} B, {kind}</text>'
                    f'<rect x="140" y="{y}" height="16" width="{380 * median / most:.1f}" '
                    f'fill="{colours[kind]}"/>'
                    f'<text x="{145 + 380 * median / most:.1f}" y="{y + 13}">{median:.1f}</text>')
    with open(name, "w", encoding="utf-8") as f:
        f.write('<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" '
                f'font-size="13" width="600" height="{60 + len(rows) * 26}">'
                '<text x="5" y="18">median round trip, microseconds</text>'
                + "".join(rows) + "</svg>\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--svg")
    parser.add_argument("sizes", nargs="*", type=int, default=[64, 65536])
    options = parser.parse_args()
    results = {}
    for size in options.sizes:
        for kind in KINDS:
            times, name = measure(kind, size, options.rounds)
            results[size, kind] = times
            print(f"{size:8} B  {name:14}{times[len(times) // 2]:9.1f}"
                  f"{times[len(times) * 99 // 100]:9.1f}")
    if options.svg:
        draw(options.svg, results)


main()
