# SPDX-License-Identifier: BSD-2-Clause
"""What the settings of ofi do, right and wrong: where a connection is then, and what
is said of it. All over libfabric's software, on this host.

ofi.py EXS MODULE
"""
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

DEADLINE = 120
AT_ONCE = 4  # cases, which wait most of their time
TRIES = 20  # a machine that is slow has not always decided when a run is over
EXS, MODULE = sys.argv[1:]
# Listeners have ports of the kernel's choice, 32768 and above: theirs are then
# those that no connection has.
BASE = {"PROVIDER": "ofi,tcp", "TRUST": "hosts", "UPGRADE": "bytes:64",
        "OFI_PORT_OFFSET": "32768"}
MSG = {"OFI_PROVIDER": "tcp"}
RXM = {"OFI_PROVIDER": "tcp;ofi_rxm"}
SHM = {"OFI_PROVIDER": "shm"}
# Until the ends have given up.
LONG = ["--seconds", "8", "--test", "lat"]
HERE = "libfabric 1\\.\\d+ does not have on this host"

# Settings of the server, of the client; where the connection is, what the client says.
CASES = [
    ("an endpoint for each connection", MSG, MSG, "ofi none", ""),
    ("one for all", RXM, RXM, "ofi none", ""),
    ("the kind is chosen", MSG | {"OFI_ENDPOINT": "rdm"}, RXM, "ofi none", ""),
    ("sockets, msg", {"OFI_PROVIDER": "sockets"},
     {"OFI_PROVIDER": "sockets"}, "ofi none", ""),
    ("more connections than one endpoint has room for",
     {"OFI_PROVIDER": "sockets", "OFI_ENDPOINT": "rdm"},
     {"OFI_PROVIDER": "sockets", "OFI_ENDPOINT": "rdm", "CONNECTIONS": 6},
     "ofi none", ""),
    ("kinds that differ", MSG, RXM, "tcp remote", ""),
    ("kinds that differ the other way", RXM, MSG, "tcp remote", ""),
    ("a kind that the provider does not have", MSG,
     RXM | {"OFI_ENDPOINT": "msg"}, "tcp remote",
     "ofi is not used: .*tcp;ofi_rxm.*" + HERE + ".* kind msg"),
    ("no kind", MSG, MSG | {"OFI_ENDPOINT": "foo"}, "ofi none",
     'EXS_OFI_ENDPOINT: cannot use "foo".*using "auto"'),
    ("no provider of that name", MSG, {"OFI_PROVIDER": "none-such"},
     "tcp remote", 'ofi is not used: .*"none-such".*' + HERE),
    ("nor at the server", {"OFI_PROVIDER": "none-such"}, MSG,
     "tcp plain-peer", ""),
    ("memory, within a host", SHM, SHM, "ofi none", ""),
    ("memory, for a program that had libfabric before", SHM,
     SHM | {"LD_PRELOAD": "libfabric.so.1"}, "tcp remote",
     "ofi is not used: shm: the program used libfabric before libexs"),
    ("an experiment", MSG, {"OFI_PROVIDER": "net"}, "tcp remote",
     "ofi is not used: net: experimental in libfabric 1.17: use tcp"),
    ("nor at the server", {"OFI_PROVIDER": "net"}, MSG, "tcp plain-peer", ""),
    ("one that does not open", MSG, {"OFI_PROVIDER": "udp"}, "tcp remote",
     "a connection stays on TCP: udp;ofi_rxd cannot be opened: "),
    ("nor at the server", {"OFI_PROVIDER": "udp"}, MSG, "tcp no-provider", ""),
    ("software, not named", MSG, {}, "tcp no-provider", ""),
    ("another offset", MSG, MSG | {"OFI_PORT_OFFSET": "32769"},
     "tcp plain-peer", ""),
    ("endpoints that refuse each other",
     RXM | {"FI_OFI_RXM_BUFFER_SIZE": "16384"}, RXM | {"ARGS": LONG},
     "tcp peer-lost", ""),
    ("few descriptors", MSG, MSG | {"UNDER": ["prlimit", "--nofile=64"]},
     "tcp descriptors", "a connection stays on TCP: tcp cannot be opened: "),
]


def device():
    return any(os.path.isdir(d) and os.listdir(d)
               for d in ("/sys/class/infiniband", "/sys/class/cxi"))


def start(exs, settings, *args):
    env = {k: v for k, v in os.environ.items() if not k.startswith("EXS_")}
    env.update({k if k.startswith(("FI_", "LD_")) else "EXS_" + k: v
                for k, v in (BASE | settings).items()
                if k not in ("CONNECTIONS", "ARGS", "UNDER")})
    return subprocess.Popen(
        [*settings.get("UNDER", []), exs, *args], env=env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def reach(exs, settings, port):
    """Where the connection is; what was said."""
    for _ in range(TRIES):
        out, said = start(exs, settings, "perf", "127.0.0.1", "--port", port,
                          *settings.get("ARGS", ["--iters", "50"]), "--json",
                          "--connections",
                          str(settings.get("CONNECTIONS", 1))).communicate(
                              timeout=DEADLINE)
        result = json.loads(out)
        where = f"{result['fabric']} {result.get('reason')}"
        if where != "tcp undecided":
            break
    return where, said


def check(name, exs, server, client, want, says):
    door = start(EXS, server, "perf", "--server")
    try:
        port = door.stdout.readline().split()[-1]
        where, said = reach(exs, client, port)
    finally:
        door.terminate()
        door.communicate(timeout=DEADLINE)
    lines = [re.sub("^libexs[^:]*: ", "", line) for line in said.splitlines()]
    if where == want and len(lines) == bool(says) and re.search(
            says, "".join(lines)):
        return True
    print(f"FAIL: {name}: {where}, not {want}; it says {lines}")
    return False


def without_library(folder):
    """The module, and the command beside it, where libfabric is not installed."""
    os.makedirs(f"{folder}/providers/ofi")
    os.mkdir(f"{folder}/tools")
    shutil.copy(EXS, f"{folder}/tools/exs")
    with open(MODULE, "rb") as f:
        code = f.read()
    with open(f"{folder}/providers/ofi/ofi.so", "wb") as f:
        f.write(code.replace(b"\0libfabric.so.1\0", b"\0libabsent.so.1\0"))
    return f"{folder}/tools/exs"


def elsewhere():
    """Processes that are numbered anew cannot be found by the others."""
    for under in ["unshare", "-p", "-f"], ["unshare", "-U", "-r", "-p", "-f"]:
        if not subprocess.run([*under, "true"], capture_output=True).returncode:
            return check("memory, of another container", EXS, SHM,
                         SHM | {"UNDER": under, "ARGS": LONG}, "tcp peer-lost",
                         "")
    print("memory, of another container: skipped, no namespace can be made here")
    return os.geteuid() != 0


def says_that_there_is_none(exs):
    out, _ = start(exs, MSG, "info").communicate(timeout=DEADLINE)
    if re.search("ofi.*libabsent.so.1: cannot open", out):
        return True
    print(f"FAIL: exs info does not say that there is none: {out}")
    return False


def main():
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        absent = without_library(folder)
        # Those that take longest first.
        running = [pool.submit(elsewhere)]
        running += [pool.submit(check, case[0], EXS, *case[1:])
                    for case in sorted(CASES, key=lambda c: "ARGS" not in c[2])
                    if case[2] or not device()]
        running += [pool.submit(check, "no library", absent, MSG, MSG,
                                "tcp remote",
                                "ofi is not used: libabsent.so.1: cannot open"),
                    pool.submit(says_that_there_is_none, absent)]
        good = all([r.result() for r in running])
    sys.exit(not good)


main()
