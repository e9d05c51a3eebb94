# SPDX-License-Identifier: BSD-2-Clause
"""The game ends well, and says how long a round took and over what.

pingpong.py PROGRAM
"""
import re
import sys

import ends


def main():
    program = sys.argv[1]
    for provider in ("tcp", "shm,tcp"):
        waiting, port = ends.start([program, "0"], provider)
        said = ends.run([program, "localhost", port], provider)
        ends.finish(waiting)
        print(f"{provider}: {said[0]}")
        ends.check(re.fullmatch(r"\d+ rounds over \w+ \([\w-]+\), \d+ ns each",
                                said[0]), f"not understood: {said}")
        ends.check(provider != "tcp" or " over tcp " in said[0],
                   f"not over tcp: {said}")


main()
