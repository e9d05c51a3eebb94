# SPDX-License-Identifier: BSD-2-Clause
"""Calls are answered in the order of their times; those that take too long are cancelled.

rpc.py PROGRAM
"""
import sys

import ends


def main():
    program = sys.argv[1]
    for provider in ("tcp", "shm,tcp"):
        server, port = ends.start([program, "0"], provider)
        said = ends.run([program, "127.0.0.1", port, "2500", "200", "60000", "1", "50000"],
                        provider)
        ends.check(said == ["1 ms: answered", "200 ms: answered",
                            "60000 ms: not in time, cancelled",
                            "50000 ms: not in time, cancelled"],
                   f"{provider}: the client said {said}")
        said = ends.finish(server)
        ends.check(said == ["2 cancelled"], f"{provider}: the server said {said}")
    # However late: nothing is answered in no time.
    server, port = ends.start([program, "0"], "tcp")
    said = ends.run([program, "127.0.0.1", port, "0", "60000"], "tcp")
    ends.check(said == ["60000 ms: not in time, cancelled"], f"the client said {said}")
    ends.check(ends.finish(server) == ["1 cancelled"], "the call was not cancelled")


main()
