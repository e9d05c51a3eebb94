#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Every command that a page shows is one that there is, with options that it has:
commands.py EXS."""

import glob
import os
import re
import shlex
import subprocess
import sys

from common import check, result

EXS = os.path.abspath(sys.argv[1])
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..')
PAGES = '*.md', 'docs/*.md', 'docs/guide/*.md', 'docs/man/*.[1-9]'
SCRIPT = re.compile(r'(scripts|bench|fuzz|models|tests/vm)/[a-z]+$')


def lines(name):
    """(number, command) of the lines of code, and of code within a sentence."""
    with open(name, encoding='utf-8') as f:
        text = f.read()
    if name.endswith('.md'):
        # A C program has no commands.
        text = re.sub(r'^```c\n.*?^```', lambda m: '\n' * m.group().count('\n'), text,
                      flags=re.S | re.M)
        shown = r'^ {4}(.*)|`([^`\n]+)`'
    else:
        shown = r'^\.Dl "?(.*)'
    for m in re.finditer(shown, text, re.M):
        for part in re.split(r'[|;&]+ ', ''.join(g or '' for g in m.groups())):
            yield text[:m.start()].count('\n') + 1, part


def words(line):
    """Of a command, without prompt, settings and sudo; none: it is none."""
    line = re.sub(r'^\s*(\w*[$#] )?', '', line.replace('\\-', '-').replace('\\', ''))
    try:
        found = shlex.split(line, comments=True)
    except ValueError:
        return []
    while found and (found[0] in ('sudo', 'env') or re.match(r'[A-Z_]+=', found[0])):
        del found[0]
    return found


def help_of(*command):
    done = subprocess.run([*command, '--help'], capture_output=True, text=True, timeout=60,
                          check=False)
    return done.stdout if done.returncode == 0 else ''


def options(found):
    for word in found:
        if re.match(r'--[a-z]', word):
            yield word.split('=')[0]


def own_words(command, found):
    """Those before the program that exs run starts."""
    n = 0
    while command == 'run' and n < len(found) and found[n].startswith('-'):
        n += 2 if found[n] in ('--profile', '--provider', '--require') else 1
    return found[:n] if command == 'run' else found


def exs_command(where, found, texts):
    command = found[0]
    if command.startswith('-'):
        return
    if command not in texts:
        texts[command] = help_of(EXS, command)
    check(texts[command] or command in ('help', 'version'), where, 'exs', command)
    for option in options(own_words(command, found[1:])):
        check(re.search(rf'{option}\b', texts[command]), where, 'exs', command, option)


def script(where, found, texts):
    name = found[0]
    if not check_there(where, name):
        return
    if name not in texts:
        with open(name, encoding='utf-8') as f:
            texts[name] = f.read()
        if 'python' in texts[name].split('\n')[0]:
            texts[name] = help_of('./' + name)
    # What follows -- is the command of another.
    own = found[:found.index('--')] if '--' in found else found
    for option in options(own[1:]):
        check(option in texts[name], where, name, option)


def check_there(where, name):
    there = os.access(name, os.X_OK)
    check(there, where, 'there is no', name)
    return there


def main():
    os.chdir(SOURCE)
    texts = {}
    seen = 0
    for pattern in PAGES:
        for name in sorted(glob.glob(pattern)):
            for n, line in lines(name):
                found = words(line)
                where = f'{name}:{n}:'
                if len(found) > 1 and found[0] == 'exs' and re.match(r'[a-z-]+$', found[1]):
                    exs_command(where, found[1:], texts)
                elif found and SCRIPT.match(found[0]):
                    script(where, found, texts)
                else:
                    continue
                seen += 1
    check(seen > 100, 'commands are found', seen)
    return result()


sys.exit(main())
