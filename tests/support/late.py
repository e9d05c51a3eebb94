#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A row that does not end fails, and where its processes were is said before
they are killed. Usage: late.py PROGRAM"""

import re
import subprocess
import sys

r = subprocess.run([sys.argv[1]], text=True, stdout=subprocess.PIPE,
                   stderr=subprocess.STDOUT, timeout=100, check=False)
# A sanitizer has threads of its own.
said = [len(re.findall(what, r.stdout, re.M)) for what in
        (r'^process ', r'^  thread .* S in ', r'TCP .*, state 01,')]
if r.returncode != 1 or 'hangs: killed after' not in r.stdout or \
        (said[0], said[2]) != (2, 4) or said[1] < 2:
    sys.exit('status %d: %s' % (r.returncode, r.stdout))
