# SPDX-License-Identifier: BSD-2-Clause
"""The rendezvous of ofi, which anybody on the network reaches: where it listens, and
what a crowd of strangers, or the lack of descriptors, does to it. Over libfabric's
software, on this host.

door.py EXS
"""
import os
import resource
import select
import socket
import subprocess
import sys
import tempfile
import time

DEADLINE = 60
EXS = sys.argv[1]
OFFSET = 32768
ENV = {"EXS_PROVIDER": "ofi,tcp", "EXS_TRUST": "hosts",
       "EXS_UPGRADE": "connect", "EXS_OFI_PROVIDER": "tcp",
       "EXS_OFI_PORT_OFFSET": str(OFFSET)}
# In ofi_sock.c.
SILENT_MAX = 32

SERVER = """
import socket, sys, threading
at, only = sys.argv[1:]
family = socket.AF_INET6 if ':' in at else socket.AF_INET
s = socket.socket(family)
if family == socket.AF_INET6:
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(only))
s.bind((at, 0))
s.listen(100)
print(s.getsockname()[1], flush=True)
def serve(c):
    while data := c.recv(4096):
        c.sendall(data)
    c.close()
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""

# Until it has moved.
CLIENT = """
import os, socket, sys, time
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
end = time.monotonic() + 20
while time.monotonic() < end:
    for i in range(100):
        s.sendall(b'x' * 100)
        s.recv(100, socket.MSG_WAITALL)
    with open(os.environ['EXS_LOG_FILE']) as log:
        said = log.read()
    if 'sends on ofi' in said:
        sys.exit(0)
sys.exit(said)
"""


def run(program, *args, **settings):
    env = {k: v for k, v in os.environ.items() if not k.startswith("EXS_")}
    return subprocess.Popen(
        [EXS, "run", sys.executable, "-c", program, *args], text=True,
        env=env | ENV | settings, stdout=subprocess.PIPE)


class Server:
    def __init__(self, at, only=0):
        self.at = at
        self.run = run(SERVER, at, str(only))
        self.port = int(self.run.stdout.readline())
        door = self.port + OFFSET
        self.door = door - 64512 if door > 65535 else door

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.run.terminate()
        self.run.communicate(timeout=DEADLINE)

    def doors(self):
        """The addresses at which it listens for who asks."""
        found = set()
        for table in "tcp", "tcp6":
            with open(f"/proc/{self.run.pid}/net/{table}") as f:
                for line in list(f)[1:]:
                    at, port = line.split()[1].split(":")
                    if line.split()[3] == "0A" and int(port, 16) == self.door:
                        found.add((table, at))
        return found

    def wait_for_doors(self, want):
        end = time.monotonic() + DEADLINE
        while self.doors() != want and time.monotonic() < end:
            select.select([], [], [], 0.01)
        return self.doors()

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.run.pid}/fd"))

    def cpu(self):
        with open(f"/proc/{self.run.pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stranger(self, says):
        s = socket.create_connection((self.at, self.door), DEADLINE)
        s.sendall(says)
        return s

    def is_met(self):
        with tempfile.NamedTemporaryFile() as log:
            client = run(CLIENT, self.at, str(self.port), EXS_LOG="debug",
                         EXS_LOG_FILE=log.name)
            return client.wait(DEADLINE) == 0


FOUR = ("tcp", "00000000")
SIX = ("tcp6", "0" * 32)


def listens_where_the_program_does():
    for at, only, want in [
            ("127.0.0.1", 0, {("tcp", "0100007F")}), ("0.0.0.0", 0, {FOUR}),
            ("::1", 0, {("tcp6", "0" * 24 + "01000000")}),
            ("::", 0, {FOUR, SIX}), ("::", 1, {SIX})]:
        with Server(at, only) as s:
            got = s.wait_for_doors(want)
            assert got == want, (at, only, got)
            assert s.is_met(), at


def a_crowd_holds_few_descriptors():
    with Server("127.0.0.1") as s:
        s.wait_for_doors({("tcp", "0100007F")})
        assert s.is_met()
        before = s.descriptors()
        silent = [s.stranger(b"") for _ in range(100)]
        assert s.descriptors() <= before, s.descriptors()
        crowd = [s.stranger(b"x") for _ in range(300)]
        assert s.is_met()
        assert s.descriptors() <= before + SILENT_MAX, s.descriptors()
        # The oldest were let go of.
        assert select.select(crowd[:100], [], [], DEADLINE)[0]
        for c in silent + crowd:
            c.close()


def without_descriptors_it_rests():
    with Server("127.0.0.1") as s:
        s.wait_for_doors({("tcp", "0100007F")})
        limits = resource.prlimit(s.run.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(s.run.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        knock = s.stranger(b"x")
        before = s.cpu()
        # Half a second, in which nobody hears of it.
        assert not select.select([knock], [], [], 0.5)[0]
        spent = s.cpu() - before
        assert spent < 0.1, spent
        resource.prlimit(s.run.pid, resource.RLIMIT_NOFILE, limits)
        assert s.is_met()


for row in (listens_where_the_program_does, a_crowd_holds_few_descriptors,
            without_descriptors_it_rests):
    row()
    print(f"{row.__name__}: good", flush=True)
