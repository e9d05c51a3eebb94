# SPDX-License-Identifier: BSD-2-Clause
"""Each question has its answer, whatever their sizes, and an empty one too.

ask.py PROGRAM
"""
import sys

import ends


def main():
    program = sys.argv[1]
    questions = ["what", "", "is it", "x" * 60000, "good for?"] + ["q"] * 500
    for provider in ("tcp", "shm,tcp"):
        answers, port = ends.start([program, "0"], provider)
        said = ends.run([program, "127.0.0.1", port, *questions], provider)
        ends.finish(answers)
        ends.check(said[:-1] == [q.upper() for q in questions],
                   f"{provider}: not the answers: {said[:4]}...")
        print(f"{provider}: {said[-1]}")
    # A question that does not fit is cut off, and told.
    answers, port = ends.start([program, "0"], "tcp")
    said = ends.run([program, "127.0.0.1", port, "y" * 70000], "tcp")
    ends.finish(answers)
    ends.check(said == ["Y" * 65536, "over tcp"], f"not cut: {len(said[0])}")


main()
