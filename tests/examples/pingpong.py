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
        said = ends.run([program, "-n", "9999", "localhost", port], provider)
        same = ends.finish(waiting)
        print(f"{provider}: {said[0]}")
        for one in said, same:
            ends.check(re.fullmatch(
                r"\d+ rounds over \w+ \([\w-]+\), \d+ ns each", one[0]),
                f"not understood: {one}")
        ends.check(provider != "tcp" or " over tcp " in said[0],
                   f"not over tcp: {said}")
    waiting, port = ends.start([program, "0"], "tcp")
    said = ends.run([program, "-n", "7", "-s", "200000", "127.0.0.1", port],
                    "tcp")
    ends.finish(waiting)
    ends.check(said[0].startswith("7 rounds"), f"not seven rounds: {said}")


main()
