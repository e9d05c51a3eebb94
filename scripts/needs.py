#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What ninja must build for some tests of a build folder.

needs.py FOLDER NAME...: prints the files, relative to FOLDER, of the programs that
tests of these names start, but for long ones, and of all that is not a program: tests
find libraries and modules by themselves.
"""
import json
import os
import sys


def load(folder, what):
    with open(f"{folder}/meson-info/intro-{what}.json", encoding="utf-8") as f:
        return json.load(f)


def main():
    folder = os.path.realpath(sys.argv[1])
    needed = set()
    for test in load(folder, "tests"):
        if test["name"] in sys.argv[2:] and "libexs:long" not in test["suite"]:
            needed |= set(test["depends"])
    if not needed:
        sys.exit(f"needs.py: {folder} has none of these tests")
    for target in load(folder, "targets"):
        if not target["build_by_default"] and target["id"] not in needed:
            continue
        if target["type"] != "executable" or target["id"] in needed:
            for file in target["filename"]:
                print(os.path.relpath(file, folder))


main()
