#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Programs into which the shim cannot be loaded: a program under exs run starts
them, by every call, and they run without it; exs run itself refuses them. Programs
in Go. Usage: foreign.py EXS COMPILER..."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

EXS = os.path.abspath(sys.argv[1])
CC = sys.argv[2:]
bad = 0

# Prints its LD_PRELOAD, and how many other variables it has.
SHOWS = '''
#include <stdio.h>
#include <string.h>
extern char **environ;
int main(void)
{
	int others = 0;
	for (char **e = environ; *e; e++)
		if (!strncmp(*e, "LD_PRELOAD=", 11))
			printf("%s ", *e);
		else
			others++;
	printf("%d\\n", others);
	return 0;
}
'''

# A program that is linked to one place, as Debian's Python is, starts another.
FIXED = '''
#include <unistd.h>
int main(int argc, char **argv)
{
	return execv(argv[1], argv + 1);
}
'''

# As the linker of Go marks its programs.
GO = '''
__attribute__((section(".go.buildinfo"), used)) static const char info[16] = "Go";
int main(void) { return 0; }
'''

# Starts the program in one of the ways, with the environment that it is to have.
STARTS = '''
import os, sys
how, path, extra = sys.argv[1:4]
ours = os.environ['LD_PRELOAD']
env = {'A': '1', 'LD_PRELOAD': extra[1:] if extra[:1] == '=' else ours + extra,
       'B': '2',
       'PATH': os.path.dirname(path), 'EXS_REPORT': os.environ['EXS_REPORT']}
name = os.path.basename(path)
argv = [path]
os.environ['PATH'] = os.path.dirname(path)
if how == 'root':
    os.chroot(os.path.dirname(path))
    os.chdir('/')
    os.execve('/' + name, argv, env)
if how == 'execve':
    os.execve(path, argv, env)
if how == 'execvp':
    os.environ.clear()
    os.environ.update(env)
    os.execvp(name, argv)
if how == 'fexecve':
    os.execve(os.open(path, os.O_RDONLY), argv, env)
if how == 'path':
    os.execve(os.open(path, os.O_PATH), argv, env)
if how == 'vfork':
    import subprocess
    sys.exit(subprocess.run(argv, env=env).returncode)
spawn = os.posix_spawnp if how == 'posix_spawnp' else os.posix_spawn
pid = spawn(name if how == 'posix_spawnp' else path, argv, env)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
'''
WAYS = ('execve', 'execvp', 'fexecve', 'path', 'vfork', 'posix_spawn', 'posix_spawnp')


def check(what, good, *seen):
    global bad
    if not good:
        print(what, *seen)
        bad = 1


def built(tmp, name, source, *flags, cc=None):
    path = tmp + '/' + name
    with open(path + '.c', 'w', encoding='ascii') as f:
        f.write(source)
    subprocess.run([*(cc or CC), '-o', path, path + '.c', *flags], check=True)
    return path


def started(how, path, extra=''):
    """What a program under exs run that starts another shows, and the report."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith('EXS_')}
    with tempfile.NamedTemporaryFile('r') as report:
        # No file outside a changed root can be opened there.
        name = '' if how == 'root' else '=' + report.name
        run = subprocess.run(
            [EXS, 'run', '--report' + name, sys.executable, '-c', STARTS, how, path,
             extra], env=plain, text=True, capture_output=True, timeout=60,
            check=False)
        return run.returncode, run.stdout, run.stderr, report.read()


def refused(path):
    run = subprocess.run([EXS, 'run', path], text=True, capture_output=True,
                         timeout=60, check=False)
    return run.returncode, run.stderr


def main():
    loader = os.path.realpath(re.search(
        r'interpreter: (\S+)\]', subprocess.run(
            ['readelf', '-l', sys.executable], text=True, check=True,
            stdout=subprocess.PIPE).stdout).group(1))
    with tempfile.TemporaryDirectory() as tmp:
        os.chmod(tmp, 0o755)
        shutil.copy(loader, tmp + '/loader')
        own = built(tmp, 'own', SHOWS)
        other = built(tmp, 'other', SHOWS, '-Wl,--dynamic-linker=' + tmp + '/loader')
        static = built(tmp, 'static', SHOWS, '-static')
        musl = built(tmp, 'musl', SHOWS, cc=['musl-gcc'])
        script = tmp + '/script'
        with open(script, 'w', encoding='ascii') as f:
            f.write('#! ' + musl + ' -x\n')
        os.chmod(script, 0o755)

        for how in WAYS:
            for path, why in ((other, 'another C library'),
                              (musl, 'another C library'),
                              (static, 'statically linked')):
                status, out, err, told = started(how, path)
                # A program without a loader passes LD_PRELOAD on.
                check(f'{how} of {path}', (status, err) == (0, '') and re.fullmatch(
                    'LD_PRELOAD=.*libexs-preload.so 4\n' if path == static else
                    '4\n', out), status, out, err)
                check(f'{how} of {path}, reported',
                      'without the library: ' in told and why in told and
                      told.count('\n') == 1, told)
            # One that can have the shim has it.
            status, out, err, told = started(how, own)
            check(f'{how} of {own}', status == 0 and not err and not told and
                  out.endswith('libexs-preload.so 4\n'), status, out, err, told)
        seen = started('execve', script)
        check('script', seen[:3] == (0, '4\n', ''), *seen)
        for flags in (('-no-pie',), ('-pie', '-fPIE')):
            starter = built(tmp, 'starter', FIXED, *flags)
            for path in other, musl:
                run = subprocess.run([EXS, 'run', starter, path], text=True,
                                     capture_output=True, timeout=60, check=False,
                                     env={'PATH': os.environ['PATH']})
                check(f'{flags[0]}: exec of {path}', (run.returncode, run.stderr) ==
                      (0, '') and 'LD_PRELOAD' not in run.stdout, run)
        # Other libraries stay, wherever they stand in the list.
        for extra in (':libc.so.6', ' libc.so.6 libm.so.6:'):
            seen = started('execve', other, extra)
            check('others', seen[:3] == (
                0, 'LD_PRELOAD=' + ':'.join(re.findall(r'[\w.]+', extra)) + ' 4\n',
                ''), *seen)
        # As trickle does.
        status, out, err, told = started('execvp', own, '=libm.so.6')
        check('others instead', (status, out, err) == (0, 'LD_PRELOAD=libm.so.6 4\n', '')
              and 'own without the library: LD_PRELOAD names others instead' in told and
              told.count('\n') == 1, status, out, err, told)
        # A root without the library: its loader need say nothing.
        if os.getuid() == 0:
            os.makedirs(tmp + os.path.dirname(loader), exist_ok=True)
            for lib in (loader, *re.findall(r'=> (\S+)', subprocess.run(
                    ['ldd', own], text=True, check=True,
                    stdout=subprocess.PIPE).stdout)):
                os.makedirs(tmp + os.path.dirname(lib), exist_ok=True)
                shutil.copy(lib, tmp + lib)
            asked = re.search(r'interpreter: (\S+)\]', subprocess.run(
                ['readelf', '-l', own], text=True, check=True,
                stdout=subprocess.PIPE).stdout).group(1)
            os.makedirs(tmp + os.path.dirname(asked), exist_ok=True)
            if not os.path.exists(tmp + asked):
                shutil.copy(loader, tmp + asked)
            seen = started('root', own)
            check('changed root', seen[:2] == (0, '4\n') and seen[2].count('\n') == 1
                  and 'not in its root directory' in seen[2], *seen)

        for path, why in ((other, 'another C library'), (script, 'another C library'),
                          (musl, 'another C library'), (static, 'statically linked')):
            status, err = refused(path)
            check(f'exs run {path}', status == 1 and why in err, status, err)

        # Go: said before it starts, and in the report of whoever starts it.
        go = built(tmp, 'go', GO)
        check('Go', refused(go)[0] == 0 and 'program in Go' in refused(go)[1],
              refused(go))
        told = started('vfork', go)[3]
        check('Go, reported', 'exs run: go[' in told and 'no report' in told, told)
        check('not Go', refused(own)[1] == '', refused(own))
    return bad


if __name__ == '__main__':
    sys.exit(main())
