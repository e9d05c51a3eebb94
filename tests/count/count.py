# SPDX-License-Identifier: BSD-2-Clause
"""Instructions of operations, by callgrind: not more than the file says, with a
tolerance. Time is not measured: it depends on the host, and these hardly do.

count.py COUNTS COMPILER SHIM API PLAIN [--write]

COUNTS has a line for each operation, and the version of gcc that built them:
another one makes other instructions. --write writes it anew.
"""
import os
import re
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             "../../scripts"))
import stuck  # noqa: E402

TOLERANCE = 0.08
# How often these are called depends on time, which is long under valgrind, and
# longer on a busy host: a look whether a descriptor is still the same, where it
# was not used for some microseconds; a call of the kernel's epoll_wait(), after
# which as many go by without one.
NOT_COUNTED = "exi_lookup_again", "shim_set_ask_kernel"
DEADLINE = 120
HEAD = """# Instructions of one operation of 8 bytes, by callgrind (tests/count/count.py).
# count.py fails if one needs 8 % more; its option --write writes this file.
"""
COMPILER = "# Built by gcc "


def inclusive(path):
    """Of each function: instructions with those of what it calls, and calls."""
    names, found, callee, calls = {}, {}, None, 0
    with open(path, encoding="utf-8", errors="replace") as f:
        for line in f:
            if m := re.match(r"c?fn=\((\d+)\)(?: (.*))?", line):
                if m[2]:
                    names[m[1]] = m[2]
                if line[0] == "c":
                    callee = names[m[1]]
            elif m := re.match(r"calls=(\d+)", line):
                calls = int(m[1])
            elif calls:
                cost, n = found.get(callee, (0, 0))
                found[callee] = cost + int(line.split()[1]), n + calls
                calls = 0
    return found


def run(*command):
    env = {k: v for k, v in os.environ.items() if not k.startswith("EXS_")}
    done = stuck.run(command, DEADLINE, text=True, env=env)
    if done.returncode:
        sys.exit(f"FAIL: {' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def under_exs_run(shim, program):
    """As exs run starts it. valgrind is told by the loader's option: in LD_PRELOAD
    the shim would be in valgrind's own launcher, too."""
    with open(program, "rb") as f:
        loader = re.search(rb"/lib[\w/.-]*/ld-[\w.-]+", f.read())[0].decode()
    return [loader, "--preload", shim, program]


def count(command, prefix):
    with tempfile.TemporaryDirectory() as folder:
        run("valgrind", "--quiet", "--tool=callgrind",
            *(f"--toggle-collect={name}" for name in NOT_COUNTED),
            "--collect-atstart=yes",
            f"--callgrind-out-file={folder}/%p", *command)
        found = {}
        for name in os.listdir(folder):
            found.update(inclusive(os.path.join(folder, name)))
    return {name: round(cost / n) for name, (cost, n) in found.items()
            if name.startswith(prefix)}


def read(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    return (re.search(f"^{COMPILER}(.*)", text, re.M)[1],
            {name: int(n) for n, name in
             re.findall(r"^ *(\d+) (\w+)$", text, re.M)})


def main():
    path, version, shim, api, plain = sys.argv[1:6]
    version = version.split(".")[0]
    by, kept = (version, {}) if sys.argv[6:] else read(path)
    if version != by:
        print(f"built by gcc {version}; the numbers are of gcc {by}")
        sys.exit(77)
    found = {**count([api], "api_"), **count(under_exs_run(shim, plain), "run_")}
    if sys.argv[6:] == ["--write"]:
        with open(path, "w", encoding="utf-8") as f:
            f.write(HEAD + COMPILER + version + "\n")
            f.writelines(f"{n:6} {name}\n" for name, n in found.items())
        return
    bad = set(found) ^ set(kept)
    for name in sorted(found.keys() & kept.keys()):
        print(f"{found[name]:6} instructions, {kept[name]:6} kept: {name}")
        if found[name] > kept[name] * (1 + TOLERANCE):
            bad.add(name)
    if bad:
        sys.exit(f"FAIL: {', '.join(sorted(bad))}: more instructions than "
                 f"{path} allows, or not in both; if that is meant, "
                 "--write")


main()
