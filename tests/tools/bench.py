# SPDX-License-Identifier: BSD-2-Clause
"""The programs of bench/ run to their ends and tell what they promise, in
figures that are there; how good those are is not for a test to say.

bench.py BENCH BUILD
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from xml.dom import minidom

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
    with open(os.path.join(sys.argv[1], "../docs/guide/programs.md"), encoding="utf-8") as f:
        rows = re.findall(r"\n\| program \| native .*\n.*\n((?:\|.*\n)+)", f.read())
    for row in re.findall(r"^\| ([^|]+) \|", rows[0], re.M):
        check(row.replace("`", "") in names, f"the guide's row {row} is none of {names}")
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


COMPARED = ("round trip, 8 B", "stream, 64 KiB", "loans, 64 KiB",
            "processes, round trips, 2 pairs")
TINY = ("--seconds", "0.01", *(w for c in COMPARED for w in ("--only", c)))


def figures_are_there(result, rounds):
    check(set(result["cases"]) == set(COMPARED), result["cases"].keys())
    for name, case in result["cases"].items():
        check(len(case["rounds"]) == rounds == len(case["seconds"]), case)
        for sides in case["rounds"]:
            for side, figures in sides.items():
                check("left out, for want of" in figures["failed"]
                      if "failed" in figures else
                      figures[case["key"]] > 0, (name, side, figures))
            check(sum("failed" not in f for f in sides.values()) > 1, sides)


def redis_is_compared():
    """README has figures of the table that this makes."""
    result = measure("compare", "--rounds", "1", "--only", "redis, GET, 1 client")
    [case] = result["cases"].values()
    for side, figures in case["rounds"][0].items():
        check("left out, for want of" in figures.get("failed", "") or figures["rate"] > 0,
              (side, figures))
    with open(os.path.join(sys.argv[1], "../docs/performance.md"), encoding="utf-8") as f:
        shown = rows(f.read(), "redis")
    check(set(case["rounds"][0]) <= shown, f"docs/performance.md has {shown}")


def calls_are_compared_with_synchronous_ones():
    result = measure("calls", "--rounds", "1", "--seconds", "0.01", "--sizes", "64", "--fabric",
                     "shm")
    check(result["rows"], result)
    # The guide's tables have these columns.
    head = re.search(r"^\| shm .*", run("calls", "--rounds", "1", "--seconds", "0.01", "--sizes",
                                        "64", "--fabric", "shm"), re.M).group(0)
    with open(os.path.join(sys.argv[1], "../docs/guide/speed.md"), encoding="utf-8") as f:
        shown = re.search(r"^\| shm .*", f.read(), re.M).group(0)
    check(head.replace(" ", "") == shown.replace(" ", ""), f"{head} is not {shown}")


def readme_has_four_sides(file, folder):
    """Its plot; gnuplot draws it where gnuplot is installed."""
    sys.path.insert(0, sys.argv[1])  # before this file, which is called bench, too
    import plots
    import results
    trips = results.of_group(results.Results(file), "round trip")
    check(plots.has_four(trips), trips)
    text = plots.bars(trips, "roundtrip", "svg")
    rows = text.split("$d << end\n")[1].split("\nend\n")[0].split("\n")
    check([row.split('"')[1] for row in rows] ==
          ["TCP", "UNIX socket", "TCP, under exs run", "bare cache line"], text)
    for row in rows:
        median, least, most = map(float, row.split()[1:4])
        check(0 < least <= median <= most, row)
    if shutil.which("gnuplot"):
        run("compare", "--continue", file, "--show", "--plots", folder)
        for name in ("roundtrip", "distribution"):
            minidom.parse(os.path.join(folder, name + ".svg"))


def rows(page, section):
    """The names of the rows of a section's tables."""
    text = re.search(rf"<!-- compare: {section} -->(.*?)<!-- end -->", page, re.S).group(1)
    return set(re.findall(r"^\| +([\w][^|]*?) +\|", text, re.M))


def sides_are_compared_round_by_round():
    with tempfile.TemporaryDirectory() as folder:
        file, page = (os.path.join(folder, n) for n in ("file", "page"))
        # Of the four cases one begins, whatever the budget is.
        part = json.loads(run("compare", "--json", *TINY, "--continue", file,
                              "--rounds", "1", "--budget", "0.001"))
        check(list(part["cases"]) == ["round trip, 8 B"], part)
        first = json.loads(run("compare", "--json", *TINY, "--continue", file,
                               "--rounds", "1"))
        figures_are_there(first, 1)
        check(first["cases"]["round trip, 8 B"] ==
              part["cases"]["round trip, 8 B"], (first, part))
        check(len(first["sessions"]) == 2, first["sessions"])
        for name, case in first["cases"].items():
            check(len(case["lines"]) == 1 and len(case["lines"][0]) == 2 and
                  all(line > 0 for line in case["lines"][0]), (name, case))
        marks_rounds_whose_line_changed(file, first)
        readme_has_four_sides(file, folder)
        with open(page, "w", encoding="utf-8") as f:
            f.write("a\n<!-- compare: round trip -->\nold\n<!-- end -->\nz\n")
        text = run("compare", "--continue", file, "--show", "--page", page)
        for word in ("libexs, sync", "exs run, epoll server", "UNIX socket",
                     "times as fast as line", "CPU seconds", "goals: ", "default settings: "):
            check(word in text, text)
        with open(page, encoding="utf-8") as f:
            renewed = f.read()
        check(renewed.startswith("a\n<!-- compare: round trip -->\n") and
              renewed.endswith("<!-- end -->\nz\n") and
              "| libexs, sync " in renewed and "old" not in renewed, renewed)
        with open(os.path.join(sys.argv[1], "../docs/performance.md"), encoding="utf-8") as f:
            shown, made = rows(f.read(), "round trip"), rows(renewed, "round trip")
        check(made and made <= shown, f"docs/performance.md lacks {made - shown}")


def marks_rounds_whose_line_changed(file, first):
    """Of three rounds one, in which the peers were ten times as fast."""
    made = json.loads(json.dumps(first))
    case = made["cases"]["round trip, 8 B"]
    slow = {"libexs, sync": {"p50": 100}, "UNIX socket": {"p50": 200}}
    fast = {"libexs, sync": {"p50": 100}, "UNIX socket": {"p50": 20}}
    case["rounds"] = [slow, fast, slow]
    case["lines"] = [[100, 120], [100, 131], [600, 550]]
    made["cases"] = {"round trip, 8 B": case}
    changed = file + ".changed"
    with open(changed, "w", encoding="utf-8") as f:
        json.dump(made, f)
    text = run("compare", "--continue", changed, "--show")
    check("2.00 (2.00, 0.20*)" in text, text)
    check("In 1 of 3 rounds" in text, text)
    # A file that an earlier compare has made has no lines.
    del case["lines"]
    with open(changed, "w", encoding="utf-8") as f:
        json.dump(made, f)
    text = run("compare", "--continue", changed, "--show")
    check("2.00 (0.20)" in text and "*" not in text, text)


def wake_ups_of_idle_connections_are_counted():
    """Nothing is said of how many: other tests of this host may disturb. There a connection may
    also be too late to move."""
    result = json.loads(run("compare", "--json", "--seconds", "0.02", "--rounds", "1", "--only",
                            "idle connections, 1 connection"))
    (case,) = result["cases"].values()
    (sides,) = case["rounds"]
    check(set(sides) == {"UNIX socket", "TCP", "exs run"}, sides)
    check(all(f.get("runs", -1) >= 0 or name == "exs run" and "are on a fabric" in f["failed"]
              for name, f in sides.items()), sides)


def a_busy_host_is_compared_with_tcp():
    result = json.loads(run("compare", "--json", "--busy", "--seconds", "0.01",
                            "--rounds", "1", "--side", "read", "--side",
                            "async"))
    (case,) = result["cases"].values()
    (sides,) = case["rounds"]
    check(set(sides) == {"exs run, read", "TCP of exs run, read",
                         "libexs, async", "TCP of libexs, async"}, sides)
    for f in sides.values():
        check(all(f[key] > 0 for key in ("p50", "p99", "mean", "rate")), f)


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
    for name in ("programs", "passthrough", "compare"):
        done = subprocess.run([sys.executable,
                               os.path.join(sys.argv[1], name), "/nowhere"],
                              capture_output=True, text=True, timeout=DEADLINE)
        check(done.returncode == 1 and "/nowhere" in done.stderr, done.stderr)


def main():
    for row in (programs_have_a_row_each,
                a_program_that_is_not_here_leaves_its_rows_out,
                what_is_not_accelerated_is_measured,
                redis_is_compared,
                calls_are_compared_with_synchronous_ones,
                sides_are_compared_round_by_round,
                wake_ups_of_idle_connections_are_counted,
                a_busy_host_is_compared_with_tcp,
                what_does_not_end_is_told_with_its_state,
                a_build_that_is_not_there_is_named):
        print(row.__name__, flush=True)
        row()


main()
