# SPDX-License-Identifier: BSD-2-Clause
"""What libfabric costs who does not use it: nothing before a process that has a key
meets a peer on another host that has a device, or names a provider; and no threads,
handlers or descriptors where nothing usable is found.

idle.py EXS; within one host a peer is met as if on another, for shm is left out
"""
import os
import re
import socket
import subprocess
import sys
import tempfile

BYTES, DEADLINE = 65536, 120


def status(name):
    with open("/proc/self/status") as f:
        return re.search(name + r":\s*(\S+)", f.read()).group(1)


def descriptors():
    """Below the library's own, which are high."""
    return [n for n in os.listdir("/proc/self/fd")
            if int(n) < 1000 and os.path.exists("/proc/self/fd/" + n)]


def program():
    """Both ends of a connection; then what its process is like."""
    server = socket.create_server(("127.0.0.1", 0))
    a = socket.create_connection(server.getsockname())
    b, _ = server.accept()
    for end, other in 4 * [(a, b), (b, a)]:
        end.sendall(BYTES * b"x")
        left = BYTES
        while left:
            left -= len(other.recv(left))
    with open("/proc/self/maps") as f:
        print("loaded" if "libfabric" in f.read() else "away")
    print(status("SigIgn"), status("SigBlk"), status("SigCgt"),
          status("Threads"), len(descriptors()))


def run(**settings):
    env = {k: v for k, v in os.environ.items() if not k.startswith("EXS_")}
    env["EXS_PROVIDER"] = "verbs,ofi,tcp"
    env.update({"EXS_" + k: v for k, v in settings.items()})
    done = subprocess.run([sys.argv[1], "run", sys.executable, __file__],
                          env=env, timeout=DEADLINE, check=True,
                          capture_output=True, text=True)
    loaded, left = done.stdout.splitlines()
    return loaded, left, done.stderr


def check(good, what):
    if not good:
        sys.exit(f"FAIL: {what}")


def device():
    return any(os.path.isdir(d) and os.listdir(d)
               for d in ("/sys/class/infiniband", "/sys/class/cxi"))


def main():
    _, plain, _ = run(PROVIDER="tcp")
    with tempfile.TemporaryDirectory() as home:
        none = os.path.join(home, "key")
        loaded, left, _ = run(KEY_FILE=none, PROVIDER="ofi,tcp")
        check(loaded == "away", "libfabric is loaded for who has no key")
        check(left == plain, f"without a key: {left} is not {plain}")
    if not device():
        loaded, left, _ = run(TRUST="hosts")
        check(loaded == "away", "libfabric is loaded where no device is")
        check(left == plain, f"without a device: {left} is not {plain}")
    loaded, left, said = run(TRUST="hosts", PROVIDER="ofi,tcp",
                             OFI_PROVIDER="none-such")
    check(loaded == "loaded", "a provider was named, and not looked for")
    check("none-such" in said, f"nobody hears that there is none: {said}")
    if device():  # libfabric keeps what it looked at open
        left, plain = left.rsplit(" ", 1)[0], plain.rsplit(" ", 1)[0]
    check(left == plain, f"with nothing usable: {left} is not {plain}")


if len(sys.argv) > 1:
    main()
else:
    program()
