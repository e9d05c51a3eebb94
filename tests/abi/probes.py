#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The library has the probes that docs/guide/probes.md lists, with as many arguments, and
no others; in a build without them none: probes.py with|without LIBRARY."""

import os
import re
import subprocess
import sys

GUIDE = os.path.join(os.path.dirname(__file__), '../../docs/guide/probes.md')


def promised():
    """name -> number of arguments, by the table of the guide."""
    rows = {}
    with open(GUIDE) as f:
        for line in f:
            row = re.fullmatch(r'\| `(\w+)` \|([^|]*)\|(.*)\|\n', line)
            if row:
                rows[row[1]] = len([c for c in row[3].split('|') if c.strip()])
    return rows


def notes(library):
    """{(name, number of arguments)} of the section .note.stapsdt."""
    text = subprocess.run(['readelf', '--wide', '--notes', library], check=True,
                          capture_output=True, text=True, env=os.environ | {'LC_ALL': 'C'}).stdout
    found = set()
    for one in re.finditer(r'Provider: (\S+)\s+Name: (\S+)\s+Location: .*\s+Arguments: (.*)',
                           text):
        if one[1] == 'libexs':
            found.add((one[2], len(re.findall(r'-?\d+@', one[3]))))
    return found


def main():
    wanted = set(promised().items()) if sys.argv[1] == 'with' else set()
    if not promised():
        print('the guide has no table of probes')
        return 1
    found = notes(sys.argv[2])
    if found != wanted:
        print(f'missing {sorted(wanted - found)}, not in the guide {sorted(found - wanted)}')
    return found != wanted


sys.exit(main())
