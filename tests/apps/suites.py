# SPDX-License-Identifier: BSD-2-Clause
"""Tests that other projects wrote for their own programs, from the sources
of Debian's packages."""

import glob
import os
import re
import shutil
import subprocess
import tempfile

import common
import stuck
from common import Shim, fail, native, need, output, path, skip


# --- sources -----------------------------------------------------------------

def apt_options(folder):
    """apt-get reads the machine's own lists of archives, but as archives of
    sources, and writes to the folder alone."""
    for name in 'lists/partial', 'archives/partial', 'parts':
        os.makedirs(os.path.join(folder, name))
    for name in ['/etc/apt/sources.list',
                 *glob.glob('/etc/apt/sources.list.d/*')]:
        if not os.path.isfile(name):
            continue
        with open(name) as f:
            text = re.sub(r'^deb(?=\s)', 'deb-src', f.read(), flags=re.M)
        text = re.sub(r'^Types:.*', 'Types: deb-src', text, flags=re.M)
        with open(os.path.join(folder, 'parts', os.path.basename(name)),
                  'w') as f:
            f.write(text)
    settings = {'Dir::Etc::sourcelist': '/dev/null',
                'Dir::Etc::sourceparts': folder + '/parts',
                'Dir::State::lists': folder + '/lists',
                'Dir::Cache': folder, 'Acquire::Retries': '3',
                'APT::Sandbox::User': 'root'}
    return [word for item in settings.items()
            for word in ('-o', '%s=%s' % item)]


def sources_of(program):
    """The folder of the sources that the package of the installed program was
    built from. They stay in the build folder for the next run."""
    need('apt-get', 'dpkg-query', 'dpkg-source')
    source, version = output(
        ['dpkg-query', '-W', '-f', '${source:Package} ${source:Version}',
         program]).decode().split()
    all_sources = os.path.join(os.path.dirname(os.path.dirname(common.exs)),
                               'sources')
    kept = os.path.join(all_sources, '%s_%s' % (source, version))
    if os.path.isdir(kept):
        return kept
    os.makedirs(all_sources, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=all_sources) as folder:
        os.chmod(folder, 0o755)
        options = apt_options(folder)
        said = ''
        for command in (['update'], ['source', '%s=%s' % (source, version)]):
            try:
                r = stuck.run(['apt-get', '-q', *options, *command], 120,
                              cwd=folder, stdin=subprocess.DEVNULL,
                              stderr=subprocess.STDOUT)
            except stuck.Stuck as e:
                skip('the archive does not answer in time:\n%s' % e)
            said += r.stdout.decode(errors='replace')
        unpacked = glob.glob(os.path.join(folder, source + '-*/'))
        if r.returncode or not unpacked:
            skip('the sources of %s %s cannot be fetched:\n%s' %
                 (source, version, said))
        os.rename(unpacked[0], kept)
    return kept


# --- redis -------------------------------------------------------------------

# Units of the suite: first those that lean on the order of what several clients
# send. Left out are those of which one run takes over half a minute, those of the
# server's files, and those that only compute.
REDIS = [
    'unit/type/list', 'unit/type/list-2', 'unit/type/list-3', 'unit/multi',
    'unit/pubsub', 'unit/pubsubshard', 'unit/other', 'unit/tracking',
    'unit/pause', 'unit/wait', 'unit/networking', 'unit/protocol', 'unit/auth',
    'unit/quit', 'integration/redis-cli', 'integration/redis-benchmark',
    'unit/querybuf', 'unit/pendingquerybuf', 'unit/limits', 'unit/obuf-limits',
    'unit/replybufsize', 'unit/client-eviction', 'unit/shutdown',
    'unit/slowlog', 'unit/introspection', 'unit/introspection-2', 'unit/acl',
    'unit/acl-v2', 'unit/type/stream-cgroups', 'integration/block-repl',
    'unit/scripting', 'unit/functions', 'unit/type/set', 'unit/type/hash',
    'unit/type/string', 'unit/type/incr', 'unit/type/zset',
    'unit/latency-monitor', 'unit/info', 'unit/keyspace', 'unit/sort',
    'unit/expire', 'unit/lazyfree', 'unit/cluster', 'unit/cluster/misc',
    'unit/cluster/links', 'unit/cluster-scripting',
    'integration/replication-2', 'integration/replication-3',
]

# EXS_UPGRADE, and tests that are not run with it. Where connections move when
# they begin, these have two new clients send in turn, and exs-run(1) says that
# there is no order while one of them has moved and the other has not.
REDIS_SETTINGS = {
    'auto': [],
    'connect': ['BRPOPLPUSH with multiple blocked clients',
                'BRPOPLPUSH does not affect WATCH while still blocked'],
}

# A unit takes a few seconds, and the longest half a minute.
REDIS_TIMEOUT = 120


def alone():
    """What starts a command with a network and a set of processes of its own:
    the suite has fixed ports, and all that it started ends with the command."""
    for rights in [], ['--user', '--map-root-user']:
        command = ['unshare', *rights, '--net', '--pid', '--fork',
                   '--kill-child', '--mount-proc']
        if not subprocess.run([*command, 'true'],
                              stderr=subprocess.DEVNULL).returncode:
            return [*command, 'sh', '-c', 'ip link set lo up && exec "$@"',
                    'sh']
    return skip('the kernel does not allow new namespaces')


class Outcome:
    """The tests of a unit that passed, and those that did not, by name."""

    def __init__(self, text, ended):
        self.text = re.sub(r'\x1b\[[\d;]*m', '',
                           text.decode(errors='replace'))
        self.passed = re.findall(r'^\[ok\]: (.*) \(\d+ ms\)$', self.text,
                                 re.M)
        self.bad = set(re.findall(r'^\[err\]: (.*?)(?: in tests/\S+)?$',
                                  self.text, re.M))
        last = self.passed[-1] if self.passed else 'its beginning'
        if not ended:
            self.bad.add('a hang after: ' + last)
        elif '[exception]' in self.text:
            self.bad.add('an exception after: ' + last)
        elif not self.passed or ('All tests passed' not in self.text and
                                 not self.bad):
            self.bad.add('the end of the unit')


def redis_unit(start, unit, *options):
    command = alone() + start('tclsh', 'tests/test_helper.tcl', '--clients',
                              '1', '--single', unit, *options)
    try:
        r = stuck.run(command, REDIS_TIMEOUT, cwd=path('redis'),
                      stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    except stuck.Stuck as e:
        outcome = Outcome(e.stdout or b'', False)
        outcome.text += e.where
        return outcome
    return Outcome(r.stdout, True)


def redis_prepare():
    """The tests beside programs of Debian's packages, where the tests look for
    them."""
    programs = ['redis-' + name for name in
                ('server', 'cli', 'benchmark', 'check-aof', 'check-rdb')]
    need('tclsh', 'ip', *programs)
    shutil.copytree(os.path.join(sources_of('redis-server'), 'tests'),
                    path('redis', 'tests'))
    os.mkdir(path('redis', 'src'))
    for name in programs:
        os.symlink(shutil.which(name), path('redis', 'src', name))


def redis_suite():
    """What fails under exs run, and in none of three runs without it, is the
    library's fault."""
    redis_prepare()
    wrong = []
    for setting, skipped in REDIS_SETTINGS.items():
        os.environ['EXS_UPGRADE'] = setting
        shim = Shim('EXS_UPGRADE=' + setting)
        options = [word for name in skipped for word in ('--skiptest', name)]
        for unit in REDIS:
            outcome = redis_unit(shim.command, unit, *options)
            bad = set(outcome.bad)
            for _ in range(3):
                if bad:
                    bad -= redis_unit(native, unit, *options).bad
            print('%s, %s: %d passed, %s' % (
                shim.name, unit, len(outcome.passed),
                sorted(outcome.bad) or 'none failed'), flush=True)
            if bad:
                print(outcome.text, flush=True)
                wrong.append('%s, %s: %s' % (shim.name, unit, sorted(bad)))
        for program in 'redis-server', 'tclsh':
            shim.on_fabric(program)
    if wrong:
        fail('these fail under exs run alone:\n' + '\n'.join(wrong))
