# SPDX-License-Identifier: BSD-2-Clause
"""The programs of bench/ run to their ends and tell what they promise, in
figures that are there; how good those are is not for a test to say.

bench.py BENCH BUILD
"""
import json
import os
import re
import subprocess
import sys
import time

sys.path.append(os.path.join(sys.argv[1], "../scripts"))
import stuck  # noqa: E402

DEADLINE = 120
SPREAD = {"median", "q1", "q3", "min", "max", "rounds"}


def check(good, what):
    if not good:
        sys.exit(f"FAIL: {what}")


def run(name, *args):
    done = stuck.run([sys.executable, os.path.join(sys.argv[1], name),
                      sys.argv[2], *args], DEADLINE, text=True)
    check(done.returncode == 0, f"{name}: {done.stdout}{done.stderr}")
    return done.stdout


def measure(name, *args):
    return json.loads(run(name, "--json", "--seconds", "0.02", *args))


def programs_have_a_row_each():
    names = run("programs", "--list").splitlines()
    check(len(names) > 10, names)
    for extra in ([], ["--one-cpu"]):
        result = measure("programs", "--rounds", "2", *extra, "redis",
                         "memcached")
        check(len(result["rows"]) == 6, result)
        for row in result["rows"]:
            check(row["name"] in names, row)
            if "missing" in row:
                continue
            for side in ("native", "exs_run", "ratio"):
                check(set(row[side]) == SPREAD and row[side]["min"] > 0 and
                      len(row[side]["rounds"]) == 2, row)
            check(0 <= row["fabric_share"] <= 1, row)
            check(row["target"] >= 1 and row["bells_per_operation"] >= 0, row)
        check(("raw lat" in result["limits"]) == (not extra), result)


def a_program_that_is_not_here_leaves_its_rows_out():
    path = os.environ["PATH"]
    os.environ["PATH"] = ""
    text = run("programs", "--rounds", "1", "--seconds", "0.02",
               "redis-benchmark -t get -c 1")
    os.environ["PATH"] = path
    check("redis-benchmark is not installed" in text, text)


def what_is_not_accelerated_is_measured():
    result = measure("passthrough", "--rounds", "2")
    check(len(result["calls"]) > 8, result)
    for name, row in {**result["calls"], "all": result["all"]}.items():
        check(row["native_ns"] > 0 and row["exs_run_ns"] > 0 and
              len(row["rounds"]) == 2, (name, row))


def pairs_run_at_once():
    result = measure("pairs", "--rounds", "1", "--pairs", "1", "2")
    check([r["pairs"] for r in result["rows"]] == 2 * [1, 1, 1, 1, 2, 2, 2],
          result)
    for row in result["rows"]:
        check(row["unix"]["min"] > 0 and row["value"]["min"] > 0, row)


def what_does_not_end_is_told_with_its_state():
    never = os.pipe()
    try:
        stuck.run(["cat"], 0.1, stdin=never[0])
        check(False, "cat ends")
    except stuck.Stuck as e:
        check(re.search(r"process \d+: cat\n  thread \d+ cat: S in ", str(e)),
              str(e))
    exs = os.path.join(sys.argv[2], "tools/exs")
    pair = subprocess.Popen([exs, "run", exs, "perf", "--pair", "--api",
                             "epoll", "--test", "bw", "--seconds", "100"])
    last = time.monotonic() + DEADLINE
    try:
        while True:
            told = stuck.tell(pair.pid)
            if all(told.count(part) == times for part, times in (
                    ("process ", 2), (" libexs: ", 2), (", state 01,", 2),
                    ("segment of its own", 2), ("segment of its peer", 2))):
                break
            check(time.monotonic() < last, told)
    finally:
        pair.kill()
        pair.wait()


def a_build_that_is_not_there_is_named():
    for name in ("programs", "passthrough", "pairs"):
        done = subprocess.run([sys.executable,
                               os.path.join(sys.argv[1], name), "/nowhere"],
                              capture_output=True, text=True, timeout=DEADLINE)
        check(done.returncode == 1 and "/nowhere" in done.stderr, done.stderr)


def main():
    for row in (programs_have_a_row_each,
                a_program_that_is_not_here_leaves_its_rows_out,
                what_is_not_accelerated_is_measured, pairs_run_at_once,
                what_does_not_end_is_told_with_its_state,
                a_build_that_is_not_there_is_named):
        print(row.__name__, flush=True)
        row()


main()
