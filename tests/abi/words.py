# SPDX-License-Identifier: BSD-2-Clause
"""words.py: what readers are given keeps to the field's words, its links end, and the glossary of
the overview is short. Prints what breaks that.

Pages for users, the text of --help and of messages are searched for words of which each has a
better one; comments and design notes are not.
"""
import glob
import os
import re
import sys

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
PAGES = ("README.md", "INSTALL.md", "CONTRIBUTING.md", "docs/guide/*.md", "docs/man/*.[1357]")
MESSAGES = ("api/*.c", "core/*/*.c", "preload/*.c", "providers/*/*.c", "tools/*.c")
LINKS = ("*.md", "docs/*.md", "docs/*/*.md", "examples/*.md")
GLOSSARY_MAX = 40

# What is not written, and what is.
WORDS = (
    (r"imitat(?:e|es|ed|ing|ion)", "software RDMA, or emulated"),
    (r"half (?:a )?trips?", "one-way latency"),
    (r"tak(?:es?|en|ing) over", "intercept"),
    (r"tells|told", "returns, reports, describes or says, with its subject"),
    (r"unseen(?!-wait|\.[ch])", "unsupported, or not intercepted"),
    (r"whoever|whosoever", "the process, user or end that is meant"),
    (r"(?:its|their) kin", "related calls"),
    (r"nobody (?:has|sees|hears|is there|tells)", "the subject that does"),
    (r"what cannot be|that cannot be(?= *[\",.])", "invalid"),
    (r"broke the protocol", "violated the protocol"),
)
# A sentence that begins so has lost its subject.
BEGINNINGS = re.compile(r"(?:^|[.:] )(Who|Of (?!course))\b")
ALLOWED = (  # in context
    re.compile(r"whoever (?:connected to its port|can change packets)"),
)


def files(patterns):
    for pattern in patterns:
        yield from sorted(glob.glob(pattern))


def read(name):
    with open(name, encoding="utf-8") as f:
        return f.read()


def strings(text):
    """(line, literal) of C, adjacent literals joined."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    one = r'"(?:[^"\\\n]|\\.)*"'
    for m in re.finditer(rf"{one}(?:\s*{one})*", text):
        yield text[:m.start()].count("\n") + 1, re.sub(r'"\s*"', "", m.group())


def complaints(where, text):
    flat = text
    for allowed in ALLOWED:
        flat = allowed.sub("", flat)
    for pattern, better in WORDS:
        for m in re.finditer(rf"\b(?:{pattern})(?!\w)", flat, re.I):
            yield f'{where}: "{m.group()}": {better}'


def pages():
    for name in files(PAGES):
        text = re.sub(r"^```.*?^```|`[^`\n]*`", "", read(name), flags=re.S | re.M)
        for n, line in enumerate(text.split("\n"), 1):
            yield from complaints(f"{name}:{n}", line)
            if BEGINNINGS.search(line) and not line.startswith((".", "|")):
                yield f"{name}:{n}: a sentence without its subject: {line.strip()}"


def messages():
    for name in files(MESSAGES):
        for n, text in strings(read(name)):
            yield from complaints(f"{name}:{n}", text)


def links():
    for name in files(LINKS):
        text = re.sub(r"^```.*?^```", "", read(name), flags=re.S | re.M)
        for to in re.findall(r"\]\(([^)#\s]+)[^)]*\)|^\[\w+\]: (\S+)", text, re.M):
            to = to[0] or to[1]
            if "://" not in to and not os.path.exists(
                    os.path.join(os.path.dirname(name), to)):
                yield f"{name}: there is no {to}"


def glossary():
    name = "docs/design/overview.md"
    if not os.path.exists(name):
        return
    rows = re.findall(r"^\| ([^|]+) \| ", read(name).split("\n## Words\n")[-1], re.M)[1:]
    words = [word.strip() for row in rows for word in row.split(",")]
    if not 0 < len(rows) <= GLOSSARY_MAX:
        yield f"{name}: {len(rows)} rows of words, and {GLOSSARY_MAX} are allowed"
    for word in sorted({w for w in words if words.count(w) > 1}):
        yield f"{name}: {word} has two meanings"


def main():
    os.chdir(SOURCE)
    found = [line for part in (pages, messages, links, glossary) for line in part()]
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))


main()
