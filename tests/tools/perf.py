# SPDX-License-Identifier: BSD-2-Clause
"""Every test of exs perf over every API ends and prints the members that are
promised; what cannot be is refused with a word about what can.

perf.py EXS [run FULL]; run: what loads a library, such as FULL or exs run's,
which a sanitizer does not let be
"""
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             "../../scripts"))
import stuck  # noqa: E402

DEADLINE = 60
MEMBERS = {"test", "api", "fabric", "size", "depth", "connections", "iters",
           "rtt_ns", "bytes_per_s", "msgs_per_s", "conns_per_s", "cpu_s",
           "user_s", "direct", "bells", "bells_per_message", "syscalls",
           "reason", "mode", "exs_run", "idle", "receives", "messages",
           "unregistered", "own", "others"}
QUANTILES = ["min", "p50", "p75", "p90", "p99", "p999", "p9999", "max"]
# Members that are numbers, for each test; the others of these are null.
NUMBERS = {"lat": {"rtt_ns", "msgs_per_s"},
           "bw": {"bytes_per_s", "msgs_per_s"},
           "rate": {"bytes_per_s", "msgs_per_s"},
           "conn": {"rtt_ns", "conns_per_s"}}
RESULTS = {"rtt_ns", "bytes_per_s", "msgs_per_s", "conns_per_s"}


def check(good, what):
    if not good:
        sys.exit(f"FAIL: {what}")


def exs(*args, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("EXS_")}
    env.update(more)
    return stuck.run([sys.argv[1], *args], DEADLINE, text=True, env=env)


def measure(*args):
    done = exs("perf", *args, "--json")
    return result(" ".join(args), done)


def result(what, done):
    check(done.returncode == 0, f"{what}: {done.stderr}")
    r = json.loads(done.stdout)
    check(set(r) == MEMBERS, f"{what}: members {set(r) ^ MEMBERS}")
    for name in RESULTS:
        check((r[name] is not None) == (name in NUMBERS[r["test"]]),
              f"{what}: {name} is {r[name]}")
    if r["rtt_ns"]:
        times = [r["rtt_ns"][q] for q in QUANTILES]
        check(times == sorted(times) and times[0] > 0, f"{what}: {times}")
    check(r["cpu_s"]["client"] >= 0 and r["cpu_s"]["server"] >= 0, what)
    for end in "client", "server":
        check(0 <= r["user_s"][end] <= r["cpu_s"][end], what)
    # Nothing here moves bytes without a copy.
    check(r["direct"] in (None, 0), f"{what}: direct is {r['direct']}")
    check(r["syscalls"] is None, what)
    return r


def every_test_of_every_api():
    for api in ("exs", "sock", "epoll"):
        for test, iters in (("lat", "2000"), ("bw", "500"), ("rate", "20000"),
                            ("conn", "50")):
            r = measure("--pair", "--api", api, "--test", test, "--iters",
                        iters, "--warmup", "100")
            check(r["iters"] == int(iters), f"{r['iters']}, not {iters}")
            check((r["reason"] is not None) == (api == "exs"), r)
            check(api == "exs" or r["fabric"] == "tcp", r)
            check(not r["exs_run"], r)
            check((r["bells"] is not None) ==
                  (api == "exs" and test != "conn"), r)
    for test in ("lat", "bw"):
        measure("--pair", "--api", "unix", "--test", test, "--iters", "500")
        if os.cpu_count() > 1:
            measure("--pair", "--api", "raw", "--test", test, "--iters", "500")


def plain_calls_under_exs_run_tell_what_is_true():
    for provider, fabric in (("shm,tcp", "shm"), ("tcp", "tcp")):
        for api in ("sock", "epoll"):
            args = ["run", "--provider", provider, sys.argv[1], "perf",
                    "--pair", "--api", api, "--iters", "2000", "--idle",
                    "20" if api == "epoll" else "0", "--json"]
            r = result(" ".join(args), exs(*args))
            check(r["exs_run"] and r["fabric"] == fabric, r)
            check((r["reason"] == "none") == (fabric == "shm"), r)
            check(r["bells"] >= 0 and
                  abs(r["bells_per_message"] - r["bells"] / 4000) < 1e-6, r)
    for args, word in ((["--pair"], "--api sock"), (["--compare"], "without"),
                       (["--pair", "--api", "sock", "--provider", "tcp"],
                        "exs run --provider")):
        done = exs("run", sys.argv[1], "perf", *args)
        check(done.returncode == 2 and word in done.stderr, done.stderr)


def an_answer_waits_for_room():
    done = exs("perf", "--pair", "--api", "epoll", "--test", "bw", "--iters",
               "200", "--json", LD_PRELOAD=sys.argv[3])
    result("a full socket", done)


def the_es_api_in_its_ways():
    r = measure("--pair", "--iters", "2000")
    check(r["mode"] == "sync" and r["size"] == 8, r)
    r = measure("--pair", "--iters", "2000", "--async")
    check(r["mode"] == "async" and r["depth"] == 1, r)
    r = measure("--pair", "--iters", "2000", "--depth", "8")
    check(r["mode"] == "async" and r["depth"] == 8, r)
    for n in (1, 40):
        r = measure("--pair", "--test", "bw", "--iters", "200", "--receives",
                    str(n))
        check(r["mode"] == "async" and r["receives"] == n, r)
    r = measure("--pair", "--test", "bw", "--iters", "200", "--sync",
                "--receives", "4")
    check(r["mode"] == "sync" and r["receives"] == 4, r)
    r = measure("--pair", "--test", "bw", "--iters", "200", "--sync")
    check(r["mode"] == "sync" and r["depth"] == 1, r)
    for test in "lat", "bw", "rate":
        for more in [], ["--unregistered"]:
            r = measure("--pair", "--test", test, "--async", "--iters", "200",
                        *more)
            check(r["unregistered"] == bool(more), r)
    for more in ["--sync"], ["--async"], ["--async", "--depth", "4"], [
            "--api", "sock"], ["--api", "unix"], ["--messages"]:
        r = measure("--pair", "--own", "--iters", "200", *more)
        check(r["own"], r)
    for more in ["--sync"], ["--async"], ["--api", "sock"]:
        r = measure("--pair", "--own", "--test", "bw", "--iters", "200", *more)
        check(r["own"], r)
    r = measure("--pair", "--iters", "2000", "--provider", "tcp")
    check(r["fabric"] == "tcp", r)
    r = measure("--pair", "--iters", "100", "--size", "1M", "--connections",
                "2")
    check(r["connections"] == 2 and r["size"] == 1 << 20, r)


def messages_as_streams():
    for provider in "shm,tcp", "tcp":
        for test, iters in (("lat", "2000"), ("bw", "200"), ("rate", "20000"),
                            ("conn", "50")):
            for mode in ["--sync"] + ["--async"] * (test != "conn"):
                r = measure("--pair", "--messages", "--test", test, "--iters",
                            iters, "--provider", provider, mode)
                check(r["messages"] and r["iters"] == int(iters), r)
    r = measure("--pair", "--messages", "--test", "bw", "--iters", "20",
                "--size", "3M")
    check(r["size"] == 3 << 20, r)


def many_connections_on_epoll():
    r = measure("--pair", "--api", "epoll", "--connections", "50", "--iters",
                "5000", "--warmup", "100")
    check(r["depth"] == 50, r)
    r = measure("--pair", "--api", "epoll", "--connections", "5", "--depth",
                "3", "--idle", "40", "--iters", "2000", "--warmup", "100")
    check(r["depth"] == 3, r)
    measure("--pair", "--api", "epoll", "--connections", "50", "--depth", "1",
            "--iters", "2000", "--warmup", "100")


def start_server(*args, **kw):
    server = subprocess.Popen([sys.argv[1], "perf", "--server", *args],
                              stdout=subprocess.PIPE, text=True, **kw)
    line = server.stdout.readline()
    check(line.startswith("listening on port "), f"no port in {line!r}")
    return server, line.split()[-1]


def a_server_serves_until_it_is_told_to_stop():
    server, port = start_server()
    for host in ("127.0.0.1", "localhost"):
        measure(host, "--port", port, "--iters", "1000", "--warmup", "10")
    server.send_signal(signal.SIGTERM)
    check(server.wait(DEADLINE) == 0, "SIGTERM does not end it well")
    # Nobody listens at a port that this test has. (That of the server may be
    # another program's by now.)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        done = exs("perf", "127.0.0.1", "--port",
                   str(nobody.getsockname()[1]))
    check(done.returncode == 1 and "exs perf --server" in done.stderr,
          done.stderr)
    server, port = start_server("--once")
    measure("127.0.0.1", "--port", port, "--api", "sock", "--iters", "100")
    check(server.wait(DEADLINE) == 0, "--once does not end well")


def few_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))


def a_server_that_cannot_go_on_says_why():
    server, port = start_server(preexec_fn=few_descriptors)
    try:
        for args in (["--api", "sock"], ["--api", "epoll"],
                     ["--api", "epoll", "--test", "bw"], ["--api", "exs"]):
            done = exs("perf", "127.0.0.1", "--port", port, *args,
                       "--connections", "60")
            check(done.returncode == 1 and
                  "cannot continue: Too many open files" in done.stderr,
                  f"{args}: {done.returncode} {done.stderr}")
    finally:
        server.terminate()
        server.wait(DEADLINE)


def time_bounds_a_test():
    r = measure("--pair", "--api", "sock", "--seconds", "0.05")
    check(r["iters"] > 10, r)
    r = measure("--pair", "--api", "sock", "--seconds", "50ms", "--test", "bw")
    check(r["iters"] > 10, r)


def compare_has_a_row_for_each():
    done = exs("perf", "--compare", "--rounds", "2", "--seconds", "0.02",
               "--idle", "30", "--json")
    check(done.returncode == 0, done.stderr)
    tables = json.loads(done.stdout)["tables"]
    check([t["test"] for t in tables] == ["lat", "bw"], tables)
    for table in tables:
        names = [row["name"] for row in table["rows"]]
        want = ["unix", "tcp", "exs-tcp", "exs-shm", "run", "run-unix"]
        if table["test"] == "lat":
            want += ["run-epoll", "run-epoll-idle"]
        check([n for n in names if n != "raw"] == want, names)
        for row in table["rows"]:
            check(not row["name"].startswith("run") or row["fabric"] == "shm",
                  row)
            check(row["min"] <= row["median"] <= row["max"], row)
            for plain in "unix", "tcp":
                check(row["name"] != plain or row["vs_" + plain] == 1, row)
    done = exs("perf", "--compare", "--rounds", "1", "--seconds", "0.02",
               "--test", "lat", "--size", "64")
    check(done.returncode == 0 and "64 B round trip" in done.stdout and
          "exs run, epoll" in done.stdout and "idle" not in done.stdout and
          re.search(r"vs UNIX +vs TCP\n", done.stdout) and
          re.search(r"^  TCP socket .* 1\.00x$", done.stdout, re.M),
          done.stdout + done.stderr)

def others_that_use_the_cpus_are_told_of():
    cpus = sorted(os.sched_getaffinity(0))[:2]
    pin = f"{cpus[0]},{cpus[-1]}"
    hogs = []
    try:
        for cpu in cpus * 3:
            hogs.append(subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "taskset", "-c", str(cpu),
                 "sh", "-c", "while :; do :; done"]))
        args = ["perf", "--pair", "--provider", "tcp", "--seconds", "0.3",
                "--warmup", "10", "--pin", pin]
        done = exs(*args)
        check(done.returncode == 0 and "The host is busy" in done.stdout,
              done.stdout + done.stderr)
        others = json.loads(exs(*args, "--json").stdout)["others"]
        check(0.25 <= others <= 1, f"others used {others}")
    finally:
        for h in hogs:
            h.kill()
            h.wait()


def what_cannot_be_is_refused():
    for args, word in (
            ([], "--pair"),
            (["--pair", "--compare"], "--pair"),
            (["127.0.0.1"], "--port"),
            (["127.0.0.1", "--api", "raw", "--port", "1"], "--pair"),
            (["--pair", "--test", "speed"], "--help"),
            (["--pair", "--api", "quic"], "--help"),
            (["--pair", "--size", "0"], "64k"),
            (["--pair", "--size", "2G"], "1G"),
            (["--pair", "--size", "lots"], "64k"),
            (["--pair", "--seconds", "soon"], "0.5"),
            (["--pair", "--pin", "0"], "0,1"),
            (["--pair", "--sync", "--depth", "4"], "--async"),
            (["--pair", "--api", "sock", "--test", "bw", "--receives", "4"],
             "--api exs"),
            (["--pair", "--receives", "4"], "--test bw"),
            (["--pair", "--test", "bw", "--receives", "5000"], "4096"),
            (["--pair", "--api", "sock", "--async"], "--api exs"),
            (["--pair", "--api", "sock", "--messages"], "--api exs"),
            (["--pair", "--unregistered"], "--async"),
            (["--pair", "--own", "--test", "rate"], "--test lat"),
            (["--pair", "--own", "--api", "epoll"], "--api exs"),
            (["--pair", "--connections", "2000"], "--api epoll"),
            (["--pair", "--api", "unix", "--test", "conn"], "lat and bw"),
            (["--compare", "--test", "conn"], "lat and bw"),
            (["--pair", "--test", "lot"], "lat, bw, rate or conn"),
            (["--pair", "--iters", "0"], "from 1"),
            (["--pair", "--depth", "0"], "from 1"),
            (["--pair", "--async", "--depth", "4096", "--size", "1G"], "4G"),
            (["--pair", "--api", "epoll", "--connections", "5000", "--size", "1M"], "4G"),
            (["--pair", "--connections", "0"], "from 1"),
            (["127.0.0.1", "--port", "70000"], "65535"),
            (["127.0.0.1", "--port", "http"], "65535"),
            (["--server", "--port", "70000"], "65535")):
        done = exs("perf", *args)
        check(done.returncode == 2 and word in done.stderr,
              f"{args}: {done.returncode} {done.stderr}")


def the_other_commands():
    done = exs("fly")
    names = done.stderr.partition("there are ")[2].strip().split(", ")
    check(done.returncode == 2 and {"info", "perf", "run"} <= set(names),
          done.stderr)
    for args in (["help"], *(["help", n] for n in names), ["version"],
                 ["perf", "--help"], ["info"],
                 ["info", "--env", "--config"]):
        done = exs(*args)
        check(done.returncode == 0 and done.stdout, args)
    info = json.loads(exs("info", "--json").stdout)
    fabrics = {f["name"]: f for f in info["fabrics"]}
    kinds = {kind for f in info["fabrics"] for kind in f}
    check(not any(kind.endswith("ys") for kind in kinds), kinds)
    check(fabrics["tcp"]["usable"], fabrics)
    check({"shm", "verbs", "ofi", "tcp", "loop"} <= set(fabrics), fabrics)
    # Libfabric names a domain once for each form of its addresses.
    providers = [p["name"] for p in fabrics["ofi"].get("providers", [])]
    check(len(providers) == len(set(providers)), providers)
    for p in fabrics["ofi"].get("providers", []):
        domains = [(d["name"], d["endpoints"]) for d in p["domains"]]
        check(len(domains) == len(set(domains)), p)
    settings = {c["variable"]: c for c in info["config"]}
    check(settings["EXS_RING_KB"]["origin"] == "default", settings)


ROWS = (every_test_of_every_api, the_es_api_in_its_ways, messages_as_streams,
        many_connections_on_epoll, a_server_serves_until_it_is_told_to_stop,
        a_server_that_cannot_go_on_says_why, time_bounds_a_test, others_that_use_the_cpus_are_told_of,
        what_cannot_be_is_refused, the_other_commands)
ROWS_RUN = (plain_calls_under_exs_run_tell_what_is_true,
            an_answer_waits_for_room, compare_has_a_row_for_each)


def main():
    for row in ROWS_RUN if sys.argv[2:3] == ["run"] else ROWS:
        print(row.__name__, flush=True)
        row()


main()
