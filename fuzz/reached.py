#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""reached.py [--functions] PROFILE PROGRAM FILE...: the lines of each file that a fuzzer reached, of
all, and of the functions that handle what comes from others: those that fuzz/own does not name.
--functions: also what was not reached of these, function by function.
"""
import bisect
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def own():
    """{file: functions} that only this process's own program calls, or its own state."""
    names = {}
    for line in open(os.path.join(HERE, "own"), encoding="utf-8"):
        if line.strip() and not line.startswith("#"):
            path, *functions = line.split()
            names.setdefault(path, set()).update(functions)
    return names


def counts(segments):
    """{line: count} as llvm-cov has it: of what spans a line, and of what begins in it."""
    lines, starts = {}, [s[0] for s in segments]
    for line in range(segments[0][0], segments[-1][0] + 1):
        i = bisect.bisect_left(starts, line)
        spans = segments[i - 1] if i else None
        here = [s for s in segments[i:bisect.bisect_right(starts, line)]]
        begin = [s[2] for s in here if s[3] and s[4] and not (len(s) > 5 and s[5])]
        if spans and spans[3] and not begin:
            lines[line] = spans[2]
        elif begin:
            lines[line] = max(begin + ([spans[2]] if spans and spans[3] else []))
    return lines


def functions(data, path):
    """(name, first line, last line) of the functions in a file, each once."""
    found = {}
    for f in data["functions"]:
        if os.path.relpath(f["filenames"][0]) == path:
            regions = [r for r in f["regions"] if r[5] == 0]
            found[f["name"].split(":")[-1]] = (min(r[0] for r in regions), max(r[2] for r in regions))
    return sorted((a, b, name) for name, (a, b) in found.items())


def main():
    tell = sys.argv[1] == "--functions"
    profile, program, *files = sys.argv[1 + tell:]
    data = json.loads(subprocess.run(
        ["llvm-cov", "export", "-instr-profile", profile, program], check=True,
        stdout=subprocess.PIPE).stdout)["data"][0]
    theirs = own()
    for f in data["files"]:
        path = os.path.relpath(f["filename"])
        if path not in files:
            continue
        lines, total, missed = counts(f["segments"]), [0, 0], []
        known = functions(data, path)
        wrong = theirs.get(path, set()) - {name for _, _, name in known}
        if wrong:
            sys.exit(f"fuzz/own: {path} has no {', '.join(sorted(wrong))}")
        for a, b, name in known:
            if name in theirs.get(path, ()):
                continue
            of = [n for n in range(a, b + 1) if n in lines]
            left = [n for n in of if not lines[n]]
            total[0] += len(of) - len(left)
            total[1] += len(of)
            if left:
                missed.append(f"        {name}: {len(left)} of {len(of)} lines: "
                              + " ".join(map(str, left[:12])))
        s = f["summary"]["lines"]
        print(f"    {path:34} {s['covered']:4} of {s['count']:4} lines, {s['percent']:3.0f} %; facing "
              f"others {total[0]:4} of {total[1]:4}, {100 * total[0] / max(total[1], 1):3.0f} %")
        if tell and missed:
            print("\n".join(missed))


main()
