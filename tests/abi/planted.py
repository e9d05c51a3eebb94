# SPDX-License-Identifier: BSD-2-Clause
"""planted.py CC: each gate of the source fails on the violation that it is for, and passes on the
same tree without. The gates run as they are, in a small tree of their own.
"""
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
GATES = ("layers.py", "sizes.py", "includes.sh", "habits.sh", "ndebug.sh", "words.py",
         "commands.py")
OBJECTS = "build/libexs_core.a.p"

# A tree that passes: a lower and a higher folder, two files in a circle.
CLEAN = {
    "core/base/README": "a line\n",
    "core/life/README": "a line\n",
    "core/base/low.h": "int exi_low(void);\n",
    "core/base/low.c": '#include "core/base/low.h"\nint exi_low(void)\n{\n\treturn 0;\n}\n',
    "core/life/high.h": "int exi_high(void);\n",
    "core/life/high.c": '#include "core/base/low.h"\n#include "core/life/high.h"\n'
                        "int exi_high(void)\n{\n\treturn exi_low();\n}\n",
}


def ring(n):
    """n files of one folder, each of which calls the next."""
    return {f"core/meet/ring{i}.c":
            f"int exi_ring{(i + 1) % n}(void);\nint exi_ring{i}(void);\n"
            f"int exi_ring{i}(void)\n{{\n\treturn exi_ring{(i + 1) % n}();\n}}\n"
            for i in range(n)}


def long_file(n):
    return {"preload/long.c": "static int line;\n" * (n - 2)}  # and two lines of head


def long_function(n):
    return {"providers/shm/long.c":
            "void shmp_long(void)\n{\n" + "\tshmp();\n" * (n - 3) + "}\n"}


def glossary(n):
    return "## Words\n\n| word | meaning |\n|---|---|\n" + "".join(
        f"| word{i} | one |\n" for i in range(n))


# What is planted, the gate that must fail then, and a part of what it says.
PLANTED = (
    ("an include upwards", "layers.py",
     {"core/base/up.c": '#include "core/life/high.h"\nint exi_up(void)\n{\n\treturn 0;\n}\n'},
     "core/base/up.c includes core/life/high.h"),
    ("a call upwards", "layers.py",
     {"core/base/up.c": "int exi_high(void);\nint exi_up(void)\n{\n\treturn exi_high();\n}\n"},
     "core/base/up.c calls core/life/high.c: exi_high"),
    ("a circle of five files", "layers.py", ring(5), "a circle has more than 4 files"),
    ("a file of 801 lines", "sizes.py", long_file(801), "preload/long.c: 801 lines"),
    ("a function of 81 lines", "sizes.py", long_function(81),
     "providers/shm/long.c:3: 81 lines: void shmp_long(void)"),
    ("a folder without its page", "sizes.py", {"core/meet/one.c": ""},
     "core/meet/README is not there"),
    ("a page of eleven lines", "sizes.py", {"core/base/README": "a line\n" * 11},
     "core/base/README: 11 lines"),
    ("a variable for an assertion alone", "ndebug.sh",
     {"core/base/one.c": "#include <assert.h>\nint exi_one(void);\nvoid exi_two(void);\n"
      "void exi_two(void)\n{\n\tint n = exi_one();\n\n\tassert(n);\n}\n"},
     "unused variable"),
    ("an include of a fabric in the core", "includes.sh",
     {"core/base/up.c": '#include "providers/shm/shm_int.h"\n'}, "providers/shm/shm_int.h"),
    ("a function that needs a lock and does not assert it", "habits.sh",
     {"core/base/needs.c": "void exi_needs_locked(int *n)\n{\n\t++*n;\n}\n"},
     "exi_needs_locked"),
    ("a function that needs a lock and does not say so", "habits.sh",
     {"core/base/needs.c": "void exi_needs(int *n)\n{\n\t/* No lock. */\n\texi_add_locked(n);\n}\n"},
     "exi_needs"),
    ("a word on a page that has a better one", "words.py",
     {"README.md": "The call tells how many.\n"}, 'README.md:1: "tells"'),
    ("a word in a message that has a better one", "words.py",
     {"tools/say.c": 'static const char text[] = "an "\n\t"imitated device";\n'},
     'tools/say.c:3: "imitated"'),
    ("a sentence without its subject", "words.py", {"docs/guide/one.md": "Who waits is woken.\n"},
     "docs/guide/one.md:1: a sentence without its subject"),
    ("a link that does not end", "words.py", {"docs/guide/one.md": "[it](two.md)\n"},
     "docs/guide/one.md: there is no two.md"),
    ("a command in a fence that no test runs", "commands.py",
     {"docs/guide/one.md": "```sh\nexs stat \\\n  --watch\n```\n"},
     "docs/guide/one.md: neither run by a test nor in tests/abi/commands: exs stat --watch"),
    ("a command behind a prompt, above its output", "commands.py",
     {"README.md": "It says:\n\n    $ exs stat  # all\n    Process\n"},
     "README.md: neither run by a test nor in tests/abi/commands: exs stat\n"),
    ("a command in a sentence", "commands.py", {"README.md": "Use `exs check\n--pid 1` here.\n"},
     "README.md: neither run by a test nor in tests/abi/commands: exs check --pid 1\n"),
    ("a glossary of 41 words", "words.py", {"docs/design/overview.md": glossary(41)},
     "docs/design/overview.md: 41 rows"),
    ("a type that is declared twice", "habits.sh",
     {"core/base/twice.h": "struct exi_a;\nstruct exi_b;\nstruct exi_a;\n"}, "struct exi_a;"),
)
# What is as large as it may be.
ALLOWED = (ring(4), long_file(800), long_function(80), {"docs/design/overview.md": glossary(40)},
           {f"{folder}/README": "a line\n" * 10
            for folder in ("core/meet", "preload", "providers/shm")})


def write(tree, files):
    for name, text in files.items():
        path = os.path.join(tree, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            if name.endswith(("README", ".md")):
                f.write(text)
                continue
            f.write("/* SPDX-License-Identifier: BSD-2-Clause */\n/* Planted. */\n" + text)


def build(tree, cc):
    """Objects where a build folder has those of the core."""
    os.makedirs(os.path.join(tree, OBJECTS))
    for folder, _, names in sorted(os.walk(os.path.join(tree, "core"))):
        for name in names:
            source = os.path.relpath(os.path.join(folder, name), tree)
            if source.endswith(".c") and "providers/" not in open(
                    os.path.join(tree, source), encoding="utf-8").read():
                out = os.path.join(OBJECTS, source.replace("/", "_") + ".o")
                subprocess.run([*cc, "-I.", "-c", source, "-o", out], cwd=tree, check=True)


def run(gate, files, cc):
    """The gate's result, and what it said, of the clean tree with the files in it."""
    with tempfile.TemporaryDirectory() as tree:
        os.makedirs(os.path.join(tree, "tests/abi"))
        for name in ("api/sys", "tools", "examples", "preload", "providers/shm", "bench"):
            os.makedirs(os.path.join(tree, name))
        for name in GATES:
            shutil.copy(os.path.join(HERE, name), os.path.join(tree, "tests/abi"))
        write(tree, {**CLEAN, "examples/one.c": "", **files})
        command = [os.path.join(tree, "tests/abi", gate)]
        if gate == "layers.py":
            build(tree, cc)
            command += ["build", "4"]
        if gate.endswith(".py"):
            command.insert(0, sys.executable)
        done = subprocess.run(command, cwd=tree, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        return done.returncode, done.stdout


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    cc = sys.argv[1:]
    failed = 0
    allowed = {name: text for files in ALLOWED for name, text in files.items()}
    for gate in GATES:
        code, said = run(gate, allowed, cc)
        if code:
            print(f"{gate} fails on a tree with nothing planted:\n{said}")
            failed += 1
    for what, gate, files, words in PLANTED:
        code, said = run(gate, files, cc)
        if not code or words not in said:
            print(f"{gate} does not see {what}; it said {code}:\n{said}")
            failed += 1
    print(f"{len(PLANTED)} planted, {failed} not seen")
    sys.exit(failed != 0)


main()
