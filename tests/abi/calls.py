# SPDX-License-Identifier: BSD-2-Clause
"""Which files of the core call which, read from the objects, and the circles among
them: files that all need each other, so that none can be read alone. A circle may
become smaller, not larger.

calls.py BUILD [LARGEST]            fails where a circle has more files than LARGEST
calls.py BUILD --edges [FILE...]    prints each call between two files, or of FILE
"""
import collections
import os
import re
import subprocess
import sys

LIBRARIES = ("libexs_core.a.p", "libexs_key.a.p",
             "providers/verbs/verbs.so.p", "providers/ofi/ofi.so.p")


def objects(build):
    """(name of the source, object) for each file of the core."""
    for folder in LIBRARIES:
        path = os.path.join(build, folder)
        for name in sorted(os.listdir(path) if os.path.isdir(path) else []):
            found = re.search(r"core_(\w+\.c)\.o$", name)
            if found:
                yield found.group(1), os.path.join(path, name)


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
    if sys.argv[2:3] == ["--edges"]:
        for user in sorted(edges):
            for used in sorted(edges[user]):
                if not sys.argv[3:] or {user, used} & set(sys.argv[3:]):
                    print(f"{user} -> {used}: "
                          f"{' '.join(sorted(edges[user][used]))}")
        return
    found = circles(edges)
    print(f"{len(edges)} files, {sum(map(len, edges.values()))} edges, "
          f"circles of {', '.join(str(len(c)) for c in found) or 'none'}")
    for circle in found:
        print(f"  {len(circle)}: {' '.join(sorted(circle))}")
    if sys.argv[2:] and found and len(found[0]) > int(sys.argv[2]):
        sys.exit(f"a circle has more than {sys.argv[2]} files: "
                 "--edges has the calls")


main()
