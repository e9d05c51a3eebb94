# SPDX-License-Identifier: BSD-2-Clause
"""The order of the folders of the core, read from the include lines and, for calls, from the
objects: a folder includes and calls what stands below it, and itself. Prints what goes up.

layers.py BUILD [LARGEST]     fails on a call or an include upwards, and where a circle of
                              calls has more files than LARGEST
"""
import collections
import glob
import os
import re
import subprocess
import sys

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
# From the bottom. What stands beside the others uses the two lowest only.
ORDER = ("base", "fabric", "sock", "meet", "transfer", "link", "call", "life")
BESIDE = ("rma", "trust")
LOWEST = ("base", "fabric")
LIBRARIES = ("libexs_core.a.p", "libexs_key.a.p", "libexs_rma.a.p")


def folder(path):
    return path.split("/")[1]


def may_use(user, used):
    a, b = folder(user), folder(used)
    if a == b:
        return True
    if a in BESIDE:
        return b in BESIDE or b in LOWEST
    return b in ORDER and ORDER.index(b) < ORDER.index(a)


def includes():
    for path in sorted(glob.glob(os.path.join(SOURCE, "core/*/*.[ch]"))):
        user = os.path.relpath(path, SOURCE)
        with open(path, encoding="utf-8") as f:
            for used in re.findall(r'^#include "(core/\w+/\w+\.h)"', f.read(),
                                   re.M):
                yield user, used


def objects(build):
    """(name of the source, object) for each file of the core."""
    sources = {os.path.relpath(p, SOURCE).replace("/", "_"):
               os.path.relpath(p, SOURCE)
               for p in glob.glob(os.path.join(SOURCE, "core/*/*.c"))}
    for library in LIBRARIES:
        path = os.path.join(build, library)
        for name in sorted(os.listdir(path) if os.path.isdir(path) else []):
            found = re.search(r"(core_\w+\.c)\.o$", name)
            if found and found.group(1) in sources:
                yield sources[found.group(1)], os.path.join(path, name)


def names(path):
    """What an object defines for others, and what it needs of them."""
    out = subprocess.run(["nm", "-P", path], check=True, text=True,
                         stdout=subprocess.PIPE).stdout
    defined, needed = set(), set()
    for line in out.splitlines():
        name, kind = line.split()[:2]
        if name.startswith("exi_"):
            (needed if kind == "U" else defined).add(name)
    return defined, needed


def calls(build):
    """edges[user][used] is the set of names that user needs of used."""
    home, needs = {}, collections.defaultdict(set)
    for source, path in objects(build):
        defined, needed = names(path)
        needs[source] |= needed
        for name in defined:
            home.setdefault(name, source)
    if not needs:
        sys.exit(f"{build} has no objects of the core")
    edges = {source: collections.defaultdict(set) for source in needs}
    for source, needed in needs.items():
        for name in needed & home.keys():
            if home[name] != source:
                edges[source][home[name]].add(name)
    return edges


def circles(edges):
    """The sets of files that reach each other, the largest first."""
    reach = {}
    for start in edges:
        seen, todo = set(), [start]
        while todo:
            for used in edges[todo.pop()]:
                if used not in seen:
                    seen.add(used)
                    todo.append(used)
        reach[start] = seen
    found = {frozenset(b for b in reach[a] if a in reach[b])
             for a in edges if a in reach[a]}
    return sorted(found, key=lambda c: (-len(c), sorted(c)))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    edges = calls(sys.argv[1])
    bad = [f"{user} includes {used}" for user, used in includes()
           if not may_use(user, used)]
    bad += [f"{user} calls {used}: {' '.join(sorted(edges[user][used]))}"
            for user in sorted(edges) for used in sorted(edges[user])
            if not may_use(user, used)]
    found = circles(edges)
    print(f"{len(edges)} files, {sum(map(len, edges.values()))} edges, "
          f"{len(bad)} up, "
          f"circles of {', '.join(str(len(c)) for c in found) or 'none'}")
    for circle in found:
        print(f"  {len(circle)}: {' '.join(sorted(circle))}")
    for line in bad:
        print(line)
    if bad:
        sys.exit("a folder may use those below it only")
    if sys.argv[2:] and found and len(found[0]) > int(sys.argv[2]):
        sys.exit(f"a circle has more than {sys.argv[2]} files")


main()
