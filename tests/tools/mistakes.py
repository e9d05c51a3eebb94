# SPDX-License-Identifier: BSD-2-Clause
"""Mistakes at the exs command: each is named, with what to do, and has the exit status of
the manual; output that is lost is one, too.

mistakes.py EXS
"""
import os
import subprocess
import sys

EXS = sys.argv[1]
TIMEOUT = 60
good = True
# Arguments, exit status, what standard error says.
MISTAKES = (
    (('statt',), 2, 'exs: there is no command "statt"; did you mean stat?'),
    (('inof',), 2, 'did you mean info?'),
    (('Check',), 2, 'did you mean check?'),
    (('prf',), 2, 'did you mean perf?'),
    (('run ', 'true'), 2, 'did you mean run?'),
    (('frobnicate',), 2, 'there is no command "frobnicate"; there are check, downgrade, info,'),
    (('version', 'of'), 2, 'exs version: unexpected argument "of"'),
    (('help', 'stat', 'all'), 2, 'exs help: unexpected argument "all"'),
    (('run',), 2, 'no program was given'),
    (('run', '/tmp'), 126, 'exs run: /tmp: Is a directory'),
    (('run', '/etc/passwd'), 126, 'exs run: /etc/passwd: Permission denied'),
    (('run', 'no-such-program'), 127, 'there is no such program'),
    (('run', '--profile', 'lat', 'true'), 2, 'the profiles are latency, throughput and safe'),
    (('check', 'localhost', '0'), 2, 'a port is 1 to 65535, not 0'),
    (('check', 'localhost', '65536'), 2, 'a port is 1 to 65535, not 65536'),
    (('check', 'localhost', '99999999999999999999'), 2, 'a port is 1 to 65535'),
    (('perf', '--pair', '--size', '1e9'), 2, '--size takes bytes, such as 8 or 64k, not "1e9"'),
    (('perf', '--pair', '--size', '1k '), 2, 'not "1k "'),
    (('perf', '--pair', '--size', ''), 2, 'not ""'),
    (('perf', '--pair', '--seconds', '-1'), 2, 'such as 2 or 0.5, not "-1"'),
    (('stat', '99999999'), 1, 'there is no process 99999999'),
    (('log', str(os.getpid()), 'loud'), 2, '"loud" is not a level'),
    (('-x',), 2, 'there is no option "-x" before the command'),
    (('info', '--program=/bin/sh'), 2, 'takes the name of a program, not "/bin/sh"'),
    (('check', 'localhost'), 2, 'no port was given'),
    (('check', '--pid', '1', 'localhost', '80'), 2, 'HOST and PORT or --pid, not both'),
    (('check', '--pid', 'redis'), 2, '"redis" is not a process'),
    (('run', '--report=', 'true'), 2, '--report= names no file'),
    (('run', '--report=/no-such/file', 'true'), 1,
     '--report: /no-such/file: No such file or directory'),
    (('run', '--report=/tmp/', 'true'), 1, '--report: /tmp/: Is a directory'),
    (('stat', 'redis', 'nginx'), 2, 'unexpected argument "nginx"'),
    (('stat', '-p', 'redis', 'nginx'), 2, 'unexpected argument "nginx"'),
    (('stat', '--times', '3'), 2, '--times needs --watch'),
    (('stat', '-w', '0.5'), 2, 'the time of --watch is joined to it: -w0.5'),
    (('stat', '-w', '99999999'), 1, 'there is no process 99999999; the time of --watch is '
                                    'joined to it: -w99999999'),
    (('stat', '--json', '--prometheus'), 2, 'exclude each other'),
    (('trace', '--write', '/', str(os.getpid())), 1, 'exs trace: /: Is a directory'),
    (('trace', '--seconds', '0', '1'), 2, 'such as 10 or 0.5, not "0"'),
    (('key', 'foo'), 2, 'foo: the commands are make, show, import and copy'),
    (('key', 'show', 'all'), 2, 'show: it takes no argument'),
    (('perf', 'localhost', '--port', '0'), 2, 'a port is 1 to 65535, not 0'),
    (('perf', '--pair', 'localhost'), 2, 'give one of HOST, --pair, --compare and --server'),
    (('perf', '--pair', '--rounds', '3'), 2, '--rounds has no effect with --pair'),
    (('perf', '--pair', '--port', '3'), 2, '--port has no effect with --pair'),
    (('perf', '--compare', '--iters', '3'), 2, '--iters has no effect with --compare'),
    (('perf', '--server', '--size', '8'), 2, '--size has no effect with --server'),
    (('perf', '--once', '--port', '3', 'localhost'), 2, '--once has no effect with a host'),
    (('perf', '--pair', '--pin', '0,99999'), 2, 'there is no CPU 99999'),
)
# Commands that write, and their exit status if they can.
WRITERS = (('info',), ('info', '--env'), ('info', '--json'), ('help',), ('help', 'perf'),
           ('run', '--help'), ('--version',), ('stat', '--help'), ('help', '--help'),
           ('version', '--help'), ('stat', '--watch=0.01'),
           ('perf', '--pair', '--iters', '100', '--warmup', '0', '--json'))


def check(right, *what):
    global good
    if not right:
        print('FAIL:', *what)
        good = False


def run(args, **how):
    env = {k: v for k, v in os.environ.items() if not k.startswith('EXS_')}
    # A library with a sanitizer is loaded into a program without it.
    env['ASAN_OPTIONS'] = env.get('ASAN_OPTIONS', '') + ':verify_asan_link_order=0'
    return subprocess.run([EXS, *args], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True, timeout=TIMEOUT, env=env, **how)


def mistakes_are_named():
    for args, status, words in MISTAKES:
        done = run(args, stdout=subprocess.PIPE)
        check(done.returncode == status and words in done.stderr, args, done)


def lost_output_is_an_error():
    gone = os.pipe()
    os.close(gone[0])
    with open('/dev/full', 'w') as full:
        for args in WRITERS:
            for out, why in ((full, 'No space left on device'), (gone[1], 'Broken pipe')):
                # Python has its children ignore SIGPIPE if they do not restore it.
                done = run(args, stdout=out, restore_signals=False)
                check(done.returncode == 1 and
                      'cannot write the output: ' + why in done.stderr, args, done)
            done = run(args, preexec_fn=lambda: os.close(1))
            check(done.returncode == 1 and 'Bad file descriptor' in done.stderr, args, done)
    os.close(gone[1])


def a_program_has_what_was_closed():
    """exs holds the numbers of the standard streams; the program does not see that."""
    code = ('import os, sys\n'
            'for fd in 0, 1:\n'
            '    try:\n'
            '        os.fstat(fd)\n'
            '        sys.exit(f"{fd} is open")\n'
            '    except OSError:\n'
            '        pass\n')
    done = run(('run', sys.executable, '-c', code), preexec_fn=lambda: os.closerange(0, 2))
    check(done.returncode == 0, 'closed', done)


mistakes_are_named()
lost_output_is_an_error()
a_program_has_what_was_closed()
sys.exit(not good)
