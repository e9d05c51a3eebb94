# SPDX-License-Identifier: BSD-2-Clause
"""commands.py: every command in the README, INSTALL and the guides is run by a test, or the list
beside this file (commands) says why none can. Prints what breaks that.

A command is a line of an indented block, or of a fenced one of sh or of no language; where the
block has prompts, a line with a prompt; and, within a sentence, what is set as code and begins
with exs, scripts/ or another program's name.

A line of the list: page, command, and what runs it: the names of tests, or "no: " and a reason.
They are separated by tabs, and empty lines and lines with # are left out.
"""
import glob
import os
import re
import sys

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
PAGES = ("README.md", "INSTALL.md", "docs/guide/*.md", "docs/performance.md",
         "examples/README.md")
PROMPT = re.compile(r"^(?:\w*[$#]) ")
INLINE = re.compile(r"`((?:exs|(?:scripts|bench|tests)/[\w./]+|pip|python3|meson|ninja|rdma|perf|"
                    r"tshark|bpftrace|docker|cmake|mount|rpmbuild) [^`]+)`")


def files(patterns):
    for pattern in patterns:
        yield from sorted(glob.glob(pattern))


def blocks(text):
    """Lists of lines: those of fences of sh or of no language, and indented ones."""
    for language, body in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S):
        if language in ("", "sh", "console", "bash"):
            yield body.splitlines()
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    for block in re.findall(r"(?:\n\n|\A)((?: {4}.*\n)+)", text):
        yield [line[4:] for line in block.splitlines()]


def complete(command):
    return not command.endswith("\\") and command.replace('\\"', "").count('"') % 2 == 0


def commands_of(block):
    prompts = any(PROMPT.match(line) for line in block)
    open_one = None
    for line in block:
        if open_one is not None:
            open_one += "\n" + line
        elif not prompts or PROMPT.match(line):
            open_one = PROMPT.sub("", line)
        if open_one and complete(open_one):
            yield " ".join(re.sub(r"\\\n|\n", " ", open_one).split())
            open_one = None
    if open_one:
        yield " ".join(open_one.split())


def strip(command):
    """Without the words about it that stand behind."""
    return re.sub(r"\s+#\s.*", "", command).strip()


def found():
    for name in files(PAGES):
        with open(name, encoding="utf-8") as f:
            text = f.read()
        for block in blocks(text):
            for command in commands_of(block):
                yield name, strip(command)
        prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
        prose = " ".join(re.sub(r"^ {4}.*$", "", prose, flags=re.M).split())
        for command in INLINE.findall(prose):
            if not re.fullmatch(r"exs \w+", command):  # a name
                yield name, command


def listed():
    name = os.path.join(os.path.dirname(os.path.abspath(__file__)), "commands")
    if not os.path.exists(name):  # where this gate itself is tried
        return
    with open(name, encoding="utf-8") as f:
        for line in f.read().splitlines():
            if line.strip() and not line.startswith("#"):
                parts = line.split("\t")
                if len(parts) != 3:
                    sys.exit(f"commands: not three parts: {line}")
                yield tuple(parts)


def tests():
    names = set()
    for name in glob.glob("tests/**/meson.build", recursive=True):
        with open(name, encoding="utf-8") as f:
            names |= {a or b for a, b in re.findall(
                r"\btest\(\s*'([^']+)'|'([^'/.]+)'\s*:", f.read())}
    return names


def main():
    os.chdir(SOURCE)
    if "--print" in sys.argv:
        for page, command in dict.fromkeys(found()):
            print(page, command, sep="\t")
        return
    here, rows, known = set(found()), list(listed()), tests()
    there = {(page, command) for page, command, _ in rows}
    bad = [f"{page}: neither run by a test nor in tests/abi/commands: {command}"
           for page, command in sorted(here - there)]
    bad += [f"tests/abi/commands: {page} does not have it: {command}"
            for page, command in sorted(there - here)]
    for page, command, how in rows:
        if how.startswith("no: ") and len(how) > 12:
            continue
        bad += [f"tests/abi/commands: there is no test {one}: {page}: {command}"
                for one in how.split(", ") if one not in known]
    print(*bad, sep="\n", end="\n" if bad else "")
    sys.exit(bool(bad))


main()
