# SPDX-License-Identifier: BSD-2-Clause
"""How long files and functions are: no .c file of the core, the shim and the providers has more
than 800 lines, and no function there more than 80, from the line of its name to its last brace;
and each folder with such files has a README of at most ten lines. Prints what breaks that.
"""
import glob
import os
import sys

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
FOLDERS = ("core", "preload", "providers")
FILE_MAX = 800
FUNCTION_MAX = 80
README_MAX = 10


def sources(ending):
    for folder in FOLDERS:
        yield from sorted(glob.glob(os.path.join(SOURCE, folder, "**/*" + ending),
                                    recursive=True))


def functions(lines):
    """(line, length, head) for each: a body begins and ends with a brace at the margin, and its
    head with the last line before it that begins a paragraph or follows one that ends something."""
    begin = None
    for i, line in enumerate(lines):
        if line == "{":
            head = i - 1
            while head > 0 and lines[head - 1] and \
                    not lines[head - 1].endswith(("*/", ";", "}")) and \
                    not lines[head - 1].startswith("#"):
                head -= 1
            begin = head
        elif line == "}" and begin is not None:
            yield begin + 1, i - begin + 1, lines[begin]
            begin = None


def readmes():
    """What is wrong with the page at the head of each folder with sources."""
    for folder in sorted({os.path.dirname(path) for path in sources(".c")}):
        path = os.path.join(folder, "README")
        name = os.path.relpath(path, SOURCE)
        if not os.path.exists(path):
            yield f"{name} is not there"
            continue
        with open(path, encoding="utf-8") as f:
            length = len(f.read().splitlines())
        if length > README_MAX:
            yield f"{name}: {length} lines"


def main():
    bad = []
    n_files = n_functions = 0
    for path in list(sources(".c")) + list(sources(".h")):
        with open(path, encoding="utf-8") as f:
            lines = f.read().splitlines()
        name = os.path.relpath(path, SOURCE)
        n_files += 1
        if path.endswith(".c") and len(lines) > FILE_MAX:
            bad.append(f"{name}: {len(lines)} lines")
        for line, length, head in functions(lines):
            n_functions += 1
            if length > FUNCTION_MAX:
                bad.append(f"{name}:{line}: {length} lines: {head}")
    bad += readmes()
    if not n_functions:
        sys.exit("there are no functions here")
    print(f"{n_files} files, {n_functions} functions, {len(bad)} to mend")
    for line in bad:
        print(line)
    if bad:
        sys.exit(f"a file has at most {FILE_MAX} lines, "
                 f"a function at most {FUNCTION_MAX}, a folder's README {README_MAX}")


main()
