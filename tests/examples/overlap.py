# SPDX-License-Identifier: BSD-2-Clause
"""All blocks come while the program computes, whatever the fabric.

overlap.py PROGRAM
"""
import re
import sys

import ends


def main():
    for provider, fabric in ("shm,tcp", "(shm|tcp)"), ("tcp", "tcp"):
        said = ends.run([sys.argv[1], "127.0.0.1", "60"], provider)
        print(said[0])
        ends.check(re.fullmatch(
            rf"60 blocks over {fabric} in \d+ us; a step took "
            r"\d+\.\d us, \d+\.\d alone", said[0]), f"not understood: {said}")


main()
