# SPDX-License-Identifier: BSD-2-Clause
"""Two ends of an example on loopback: one picks a port, the other is told."""
import os
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             "../../scripts"))
import stuck  # noqa: E402

DEADLINE = 60


def environment(provider):
    env = {k: v for k, v in os.environ.items() if not k.startswith("EXS_")}
    if provider:
        env["EXS_PROVIDER"] = provider
    return env


def start(command, provider=None):
    """Starts the end that waits; returns it and the port it printed."""
    end = subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                           env=environment(provider))
    line = end.stdout.readline()
    check(line.startswith("listening on port "), f"no port in {line!r}")
    return end, line.split()[-1]


def finish(end):
    """The rest of what it prints; it must end well."""
    rest, _ = stuck.communicate(end, DEADLINE)
    check(end.returncode == 0, f"exit status {end.returncode}, said {rest!r}")
    return rest.splitlines()


def run(command, provider=None):
    end = subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                           env=environment(provider))
    return finish(end)


def check(good, what):
    if not good:
        sys.exit(f"FAIL: {what}")
