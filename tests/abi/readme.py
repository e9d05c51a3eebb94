# SPDX-License-Identifier: BSD-2-Clause
"""The program in README.md compiles, and does what the text says.

readme.py BUILD
"""
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")


def program():
    with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as f:
        blocks = re.findall(r"^```c\n(.*?)^```$", f.read(), re.M | re.S)
    if len(blocks) != 1:
        sys.exit(f"README.md has {len(blocks)} programs, not one")
    return blocks[0]


class Sink(threading.Thread):
    """A peer without the library, which counts what it gets."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = str(self.listener.getsockname()[1])
        self.bytes = 0

    def run(self):
        connection, _ = self.listener.accept()
        while True:
            got = len(connection.recv(65536))
            self.bytes += got
            if not got:
                return


def main():
    build = sys.argv[1]
    with tempfile.TemporaryDirectory() as directory:
        source = os.path.join(directory, "program.c")
        binary = os.path.join(directory, "program")
        with open(source, "w", encoding="utf-8") as f:
            f.write(program())
        subprocess.run(["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror",
                        "-I" + os.path.join(SOURCE, "api"), "-o", binary,
                        source, "-L" + build, "-lexs",
                        "-Wl,-rpath," + build], check=True)
        sink = Sink()
        sink.start()
        said = subprocess.run([binary, "127.0.0.1", sink.port], text=True,
                              stdout=subprocess.PIPE, check=True,
                              timeout=60).stdout
        sink.join(60)
    if said != "sent over tcp (plain-peer)\n":
        sys.exit(f"the program said {said!r}")
    if sink.bytes != 16 * 65536:
        sys.exit(f"{sink.bytes} bytes came")


main()
