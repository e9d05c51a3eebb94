#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Programs of Debian's packages under exs run: they work as they do without,
their connections are on shared memory, by their own reports, and where only
one end is under it they say so. Usage: apps.py EXS APP; exits with 77 when a
program is not installed."""

import os
import sys
import tempfile

sys.dont_write_bytecode = True  # the source may be read-only

import brokers  # noqa: E402
import common  # noqa: E402
import copying  # noqa: E402
import crowd  # noqa: E402
import fronts  # noqa: E402
import languages  # noqa: E402
import remote  # noqa: E402
import runtimes  # noqa: E402
import services  # noqa: E402
import stores  # noqa: E402
import suites  # noqa: E402
import trees  # noqa: E402
import unix  # noqa: E402
import web  # noqa: E402


def main():
    name = sys.argv[2].replace('-', '_')
    for module in brokers, copying, crowd, fronts, languages, remote, runtimes, \
            services, stores, suites, trees, unix, web:
        test = getattr(module, name, None)
        if getattr(test, '__module__', None) == module.__name__:
            break
    else:
        common.fail('there is no test of ' + sys.argv[2])
    common.exs = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix='exs-apps-') as common.folder:
        os.chmod(common.folder, 0o711)
        test()


main()
