#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Sums up runs of meson test.

results.py EXPECTED CONDITIONS FAILED NAME=LOG...

EXPECTED is the file of skips that are expected, CONDITIONS the words (with
commas between) that hold on this machine, FAILED how many things failed that
are not tests of Meson. Each LOG is a testlog.json. Prints the end of what the
first failed tests printed, names everything that went wrong, and ends with the
plain line "N passed, N failed, N skipped". The exit status is 0 when nothing
failed.
"""
import json
import re
import sys

GOOD = {"OK", "EXPECTEDFAIL"}
# How many failed tests are shown, and how much of each: the end of a long log is
# often all that is kept of it.
SHOWN, LINES, CHARACTERS = 6, 40, 4000


def expected_skips(path, conditions):
    """Lines: [condition] suite/test  # why; the condition may be left out."""
    names = set()
    with open(path, encoding="utf-8") as f:
        for line in f:
            line = line.split("#")[0].strip()
            m = re.fullmatch(r"(?:\[([\w-]+)\]\s*)?(.*)", line)
            if m[2] and (not m[1] or m[1] in conditions):
                names.add(m[2])
    return names


def short_name(name):
    """"libexs:conformance+shm / x" is conformance/x."""
    suites, _, test = name.partition(" / ")
    return suites.split(":")[-1].split("+")[0] + "/" + test if test else name


def end_of(text):
    """The last lines of what a test printed, indented."""
    lines = text[-CHARACTERS:].splitlines()[-LINES:]
    return "".join(f"    {line}\n" for line in lines)


def main():
    shown = 0
    verdicts = []
    expected = expected_skips(sys.argv[1], sys.argv[2].split(","))
    passed, failed, skipped = 0, int(sys.argv[3]), 0
    for argument in sys.argv[4:]:
        run, _, log = argument.partition("=")
        with open(log, encoding="utf-8") as f:
            for line in f:
                test = json.loads(line)
                name, result = short_name(test["name"]), test["result"]
                if result in GOOD:
                    passed += 1
                elif result == "SKIP" and name in expected:
                    skipped += 1
                    verdicts.append(f"skipped as expected: {run}: {name}")
                elif result == "SKIP":
                    failed += 1
                    verdicts.append(
                        f"skipped, which is not expected: {run}: {name}")
                else:
                    failed += 1
                    verdicts.append(
                        f"failed: {run}: {name} ({result}, "
                        f"status {test.get('returncode')}, "
                        f"{test.get('duration', 0):.0f} s)")
                    if shown < SHOWN:
                        shown += 1
                        print(f"the end of what {run}: {name} printed:")
                        print(end_of(test.get("stdout", "")
                                     + test.get("stderr", "")))
    print("\n".join(verdicts + [""]), end="")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(failed != 0)


main()
