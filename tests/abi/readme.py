# SPDX-License-Identifier: BSD-2-Clause
"""The program in README.md is built and run by the commands that stand below it, and
prints what stands there; to a peer without the library, too. The first commands show
that redis's connections use shared memory.

readme.py BUILD
"""
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.path.append(os.path.join(SOURCE, "scripts"))
from ports import free_port  # noqa: E402
SIZE = 1 << 30
TIMEOUT = 60


def readme():
    with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as f:
        return f.read()


def program(text):
    blocks = re.findall(r"^```c\n(.*?)^```$", text, re.M | re.S)
    if len(blocks) != 1:
        sys.exit(f"README.md has {len(blocks)} programs, not one")
    return blocks[0]


def commands(text):
    """To build it, to start its receiver, to run it; and what each run prints."""
    found = re.search(r"^    (gcc program\.c .*)\n    (.* 7000 .*) &\n"
                      r"    (\./program .* 7000)$", text, re.M)
    said = re.findall(r"prints `(sent over [^`]*)`", text)
    if not found or len(said) != 2:
        sys.exit("README.md has not the commands, or what they print")
    return found.groups(), said


class Sink(threading.Thread):
    """A peer without the library, which counts what it gets."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = str(self.listener.getsockname()[1])
        self.bytes = 0

    def run(self):
        connection, _ = self.listener.accept()
        room = bytearray(1 << 20)
        while True:
            got = connection.recv_into(room)
            self.bytes += got
            if not got:
                return


def await_listener(port, at="0100007F"):
    entry = f" {at}:{int(port):04X} 00000000:0000 0A "
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        with open("/proc/net/tcp", encoding="ascii") as f:
            if entry in f.read():
                return
    sys.exit("the receiver does not listen")


def shell(command, **kw):
    return subprocess.run(command, shell=True, check=True, text=True,
                          stdout=subprocess.PIPE, timeout=TIMEOUT, **kw).stdout


def to_receiver(receiver, run, env):
    port = str(free_port())
    with subprocess.Popen("exec " + receiver.replace("7000", port), shell=True,
                          env=env, stdin=subprocess.DEVNULL) as r:
        try:
            await_listener(port)
            said = shell(run.replace("7000", port), env=env)
            r.wait(TIMEOUT)
        finally:
            r.kill()
    return said.strip()


def to_plain_peer(run, env):
    sink = Sink()
    sink.start()
    said = shell(run.replace("7000", sink.port), env=env)
    sink.join(TIMEOUT)
    if sink.bytes != SIZE:
        sys.exit(f"{sink.bytes} bytes came")
    return said.strip()


def first_commands(text, env):
    """The server, the client, and a report of the client that names the fabric."""
    found = re.search(r"^    (exs run redis-server .*) &\n    (exs run --report .*)$", text,
                      re.M)
    if not found:
        sys.exit("README.md has not the first commands")
    if not shutil.which("redis-server") or not shutil.which("redis-benchmark"):
        return
    port = str(free_port())
    server, client = (c.replace("7379", port) for c in found.groups())
    with subprocess.Popen("exec " + server, shell=True, env=env,
                          stdout=subprocess.DEVNULL) as s:
        try:
            await_listener(port, "00000000")
            done = subprocess.run(client, shell=True, env=env, text=True, timeout=TIMEOUT,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  check=True)
        finally:
            s.kill()
    if not re.search(rf"^  to 127\.0\.0\.1 port {port}: \d+ connections?, shm,",
                     done.stderr, re.M):
        sys.exit(f"redis's client reports {done.stderr}")


def figures(text):
    """Those of redis are of the table that bench/compare has made."""
    with open(os.path.join(SOURCE, "docs/performance.md"), encoding="utf-8") as f:
        table = re.search(r"^<!-- compare: redis -->(.*?)^<!-- end -->", f.read(), re.M | re.S)
    for side in "TCP", "exs run":
        figure = re.search(rf"^\| {side} +\| ([\d ]+\d) \(", table.group(1), re.M).group(1)
        if figure.replace(" ", ",") not in text:
            sys.exit(f"README.md has not the figure {figure} of docs/performance.md")


def main():
    build = os.path.abspath(sys.argv[1])
    text = readme()
    (compile_it, receiver, run), wanted = commands(text)
    env = {k: v for k, v in os.environ.items() if not k.startswith("EXS_")}
    env.update(PATH=f"{build}/tools:{env['PATH']}", LD_LIBRARY_PATH=build,
               PKG_CONFIG_PATH=f"{build}/meson-uninstalled",
               C_INCLUDE_PATH=os.path.realpath(SOURCE) + "/api")
    if not shutil.which("nc") or not shutil.which("pkg-config"):
        print("nc or pkg-config is not here")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        with open("program.c", "w", encoding="utf-8") as f:
            f.write(program(text))
        shell(compile_it + " -std=gnu11 -Wall -Wextra -Werror", env=env)
        said = [to_receiver(receiver, run, env), to_plain_peer(run, env)]
        first_commands(text, env)
        figures(text)
        os.chdir("/")
    if said != wanted:
        sys.exit(f"the program said {said}, not {wanted}")


main()
