# SPDX-License-Identifier: BSD-2-Clause
"""What the tests of the exs command share: counting what is not so, and waiting."""

import os
import time

DEADLINE = 40

failed = 0
checks = 0


def check(right, *what):
    global failed, checks
    checks += 1
    if not right:
        failed += 1
        print('not so:', *what)


def wait_for(what, until):
    """Until it is so, or else a failure."""
    deadline = time.monotonic() + DEADLINE
    while not until():
        if time.monotonic() > deadline:
            check(False, 'waited in vain:', what)
            return False
        time.sleep(0.02)
    return True


def environment(*more):
    """These settings, and none of whoever runs the test."""
    env = {k: v for k, v in os.environ.items() if not k.startswith('EXS_')}
    for settings in more:
        env |= settings or {}
    return env


def result():
    """Prints the line at the end; the status of the test."""
    print(f'{checks - failed} passed, {failed} failed, 0 skipped')
    return failed > 0
