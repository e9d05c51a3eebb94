# SPDX-License-Identifier: BSD-2-Clause
"""The example that measures round trips from Python prints a row for each kind, and a plot.

latency.py PROGRAM BINDING LIBRARY
"""
import os
import subprocess
import sys
import tempfile
import xml.dom.minidom


def main():
    program, binding, library = sys.argv[1:4]
    with tempfile.TemporaryDirectory() as d:
        plot = os.path.join(d, "plot.svg")
        env = {k: v for k, v in os.environ.items() if not k.startswith("EXS_")}
        said = subprocess.run(
            [sys.executable, program, "--rounds", "300", "--svg", plot, "64", "1000"], check=True,
            text=True, stdout=subprocess.PIPE, timeout=100,
            env={**env, "LIBEXS": library, "PYTHONPATH": binding}).stdout
        rows = [line.split() for line in said.splitlines()]
        assert [r[:3] for r in rows] == [[size, "B", kind] for size in ("64", "1000")
                                         for kind in ("TCP", "UNIX", "exs")], said
        assert all(0 < float(r[-2]) <= float(r[-1]) for r in rows), said
        # It moves while the rounds go on, on a busy host after them.
        assert all(r[4] in ("shm", "tcp") for r in rows if r[2] == "exs"), said
        bars = xml.dom.minidom.parse(plot).getElementsByTagName("rect")
        assert len(bars) == 6, len(bars)


main()
