# SPDX-License-Identifier: BSD-2-Clause
"""Tests that other projects wrote for their own programs, from the sources
of Debian's packages."""

import concurrent.futures
import contextlib
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


def sources_of(source, version=''):
    """The folder of a package's sources, of this version or the archive's
    newest. They stay in the build folder for the next run."""
    need('apt-get', 'dpkg-source')
    all_sources = os.path.join(os.path.dirname(os.path.dirname(common.exs)),
                               'sources')
    kept = os.path.join(all_sources, '_'.join([source, version or 'newest']))
    if os.path.isdir(kept):
        return kept
    os.makedirs(all_sources, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=all_sources) as folder:
        os.chmod(folder, 0o755)
        options = apt_options(folder)
        wanted = '%s=%s' % (source, version) if version else source
        said = ''
        for command in (['update'], ['source', wanted]):
            try:
                r = stuck.run(['apt-get', '-q', *options, *command], 120,
                              cwd=folder, stdin=subprocess.DEVNULL,
                              stderr=subprocess.STDOUT)
            except stuck.Stuck as e:
                skip('the archive does not answer in time:\n%s' % e)
            said += r.stdout.decode(errors='replace')
        unpacked = glob.glob(os.path.join(folder, source + '-*/'))
        if r.returncode or not unpacked:
            skip('the sources of %s cannot be fetched:\n%s' % (wanted, said))
        os.rename(unpacked[0], kept)
    return kept


BUILD_TIMEOUT = 900


def built(source, target, *options):
    """The folder of the package's sources, and the one where the target was
    built from them. It stays in the build folder, too."""
    need('cmake', 'ninja')
    sources = sources_of(source)
    folder = sources + '-build'
    for command in (['cmake', '-G', 'Ninja', '-S', sources, '-B', folder,
                     *('-D' + option for option in options)],
                    ['ninja', '-C', folder, *target]):
        try:
            r = stuck.run(command, BUILD_TIMEOUT, stdin=subprocess.DEVNULL,
                          stderr=subprocess.STDOUT)
        except stuck.Stuck as e:
            fail('%s is not built in time:\n%s' % (source, e))
        if r.returncode:
            fail('%s is not built:\n%s' %
                 (source, r.stdout.decode(errors='replace')[-4000:]))
    return sources, folder


# --- runs --------------------------------------------------------------------

HANG = 'a hang'
CUT = 'an end before the last test'


class Upgrade(Shim):
    """Programs under exs run with this EXS_UPGRADE."""

    def __init__(self, setting):
        super().__init__('EXS_UPGRADE=' + setting)

    def command(self, *args):
        return ['env', self.name, *super().command(*args)]


def alone():
    """What starts a command with a network and a set of processes of its own:
    the suites have fixed ports, and all that they started ends with the
    command, which ends with the test."""
    for rights in [], ['--user', '--map-root-user']:
        command = ['setpriv', '--pdeathsig', 'KILL', 'unshare', *rights,
                   '--net', '--pid', '--fork', '--kill-child', '--mount-proc']
        if not subprocess.run([*command, 'true'],
                              stderr=subprocess.DEVNULL).returncode:
            return [*command, 'sh', '-c', 'ip link set lo up && exec "$@"',
                    'sh']
    return skip('the kernel does not allow new namespaces')


class Outcome:
    """How many tests of a run passed, the names of those that did not, whether
    the run came to its last test, and what it said. `read` finds the first
    three in the last."""

    def __init__(self, command, timeout, cwd, read):
        where = None
        try:
            said = stuck.run(alone() + command, timeout, cwd=cwd,
                             stdin=subprocess.DEVNULL,
                             stderr=subprocess.STDOUT).stdout
        except stuck.Stuck as e:
            said, where = e.stdout or b'', e.where
        text = re.sub(r'\x1b\[[\d;]*m', '', said.decode(errors='replace'))
        self.passed, self.bad, self.whole = read(text)
        if where is not None:
            self.bad.add(HANG)
        elif not self.whole and not self.bad:
            self.bad.add(CUT)
        self.text = text + (where or '')


@contextlib.contextmanager
def busy():
    """A loop without end on each CPU."""
    loops = [subprocess.Popen(['setpriv', '--pdeathsig', 'KILL', 'sh', '-c',
                               'while :; do :; done'])
             for _ in range(os.cpu_count())]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def faults(what, outcome, natively):
    """Of the tests that failed under exs run, the library's faults: those that
    never fail without it in ten runs beside busy loops. Some tests lean on one
    process being quicker than another. natively(tests) runs these and returns
    those that failed."""
    bad = set(outcome.bad)
    if bad:
        with busy():
            for _ in range(10):
                bad -= natively(sorted(bad)) if bad else set()
    print('%s: %d passed, failed: %s, natively too: %s' % (
        what, outcome.passed, sorted(outcome.bad) or 'none',
        sorted(outcome.bad - bad) or 'none'), flush=True)
    if not bad:
        return []
    print(outcome.text, flush=True)
    return ['%s: %s' % (what, sorted(bad))]


def no_faults(wrong):
    if wrong:
        fail('these fail under exs run alone:\n' + '\n'.join(wrong))


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

# A unit takes a few seconds, and the longest half a minute.
REDIS_TIMEOUT = 120


def redis_read(text):
    passed = len(re.findall(r'^\[ok\]: ', text, re.M))
    bad = re.findall(r'^\[err\]: (.*?)(?: in tests/\S+)?$', text, re.M)
    return (passed, set(bad), '[exception]' not in text and
            'Execution time of' in text and passed + len(bad) > 0)


def redis_run(start, unit, tests=()):
    only = [word for test in tests for word in ('--only', test)]
    return Outcome(start('tclsh', 'tests/test_helper.tcl', '--clients', '1',
                         '--single', unit, *only), REDIS_TIMEOUT,
                   path('redis'), redis_read)


def redis_unit(shim, unit):
    """What of the unit is wrong. A failed test can end the unit; then what
    comes after it is tried anew."""
    what = '%s, %s' % (shim.name, unit)

    def natively(tests):
        named = not {HANG, CUT} & set(tests)
        return redis_run(native, unit, tests if named else ()).bad

    for _ in range(5):
        outcome = redis_run(shim.command, unit)
        wrong = faults(what, outcome, natively)
        if wrong or outcome.whole:
            return wrong
    return [what + ': not once to its last test']


def redis_prepare():
    """The tests beside programs of Debian's packages, where the tests look for
    them."""
    programs = ['redis-' + name for name in
                ('server', 'cli', 'benchmark', 'check-aof', 'check-rdb')]
    need('tclsh', 'ip', 'dpkg-query', *programs)
    source, version = output(
        ['dpkg-query', '-W', '-f', '${source:Package} ${source:Version}',
         'redis-server']).decode().split()
    shutil.copytree(os.path.join(sources_of(source, version), 'tests'),
                    path('redis', 'tests'))
    os.mkdir(path('redis', 'src'))
    for name in programs:
        os.symlink(shutil.which(name), path('redis', 'src', name))


def redis_suite():
    redis_prepare()
    wrong = []
    for setting in 'auto', 'connect':
        shim = Upgrade(setting)
        for unit in REDIS:
            wrong += redis_unit(shim, unit)
        for program in 'redis-server', 'tclsh':
            shim.on_fabric(program)
    no_faults(wrong)


# --- libuv -------------------------------------------------------------------

# Natively it takes 40 s.
LIBUV_TIMEOUT = 400


def libuv_read(text):
    planned = re.search(r'^1\.\.(\d+)$', text, re.M)
    good = re.findall(r'^ok \d+ - (.*)', text, re.M)
    bad = re.findall(r'^not ok \d+ - (\S+)', text, re.M)
    return (len([line for line in good if ' # SKIP' not in line]), set(bad),
            planned and int(planned[1]) == len(good) + len(bad))


def libuv_run(start, program, *tests):
    # The suite refuses to run as root. Its limits of time are for an idle host.
    user = ['unshare', '--user', '--map-user=1', '--map-group=1', 'env',
            'RES_OPTIONS=attempts:0', 'UV_TEST_TIMEOUT_MULTIPLIER=4']
    return Outcome(user + start(program, *tests), LIBUV_TIMEOUT,
                   path('libuv'), libuv_read)


def libuv_suite():
    need('ip')
    sources, folder = built('libuv1', ['uv_run_tests'],
                            'CMAKE_BUILD_TYPE=Debug', 'LIBUV_BUILD_BENCH=OFF')
    program = os.path.join(folder, 'uv_run_tests')
    shutil.copytree(os.path.join(sources, 'test', 'fixtures'),
                    path('libuv', 'test', 'fixtures'))

    def natively(tests):
        """One by one: the program runs one test or all."""
        if {HANG, CUT} & set(tests):
            return libuv_run(native, program).bad
        return set().union(*(libuv_run(native, program, test).bad
                             for test in tests))

    wrong = []
    for setting in 'auto', 'connect':
        shim = Upgrade(setting)
        outcome = libuv_run(shim.command, program)
        wrong += faults(shim.name, outcome, natively)
        shim.on_fabric('uv_run_tests')
    no_faults(wrong)


# --- curl --------------------------------------------------------------------

# Natively it takes some five minutes.
CURL_TIMEOUT = 1200


def curl_read(text):
    bad = re.search(r'^TESTFAIL: These test cases failed: (.*)', text, re.M)
    done = re.search(r'^TESTDONE: (\d+) tests out of \d+ reported OK', text,
                     re.M)
    return (int(done[1]) if done else 0, set(bad[1].split() if bad else []),
            bool(done))


def curl_run(start, built_here, name, *tests):
    """The suite writes where it runs, and looks there for what was built."""
    sources, folder = built_here
    cwd = path(name, 'tests')
    if not os.path.isdir(cwd):
        os.makedirs(cwd)
        for built_name in ('src', 'lib', 'curl-config', 'tests/server',
                           'tests/libtest', 'tests/unit'):
            os.symlink(os.path.join(folder, built_name),
                       path(name, built_name))
    tests_folder = os.path.join(sources, 'tests')
    return Outcome(['env', 'srcdir=' + tests_folder, 'USER=root'] +
                   start('perl', '-I', tests_folder,
                         os.path.join(tests_folder, 'runtests.pl'),
                         '-n', '-a', *(tests or ['!flaky'])),
                   CURL_TIMEOUT, cwd, curl_read)


def curl_suite():
    """The suite waits more than it works: its two runs go side by side."""
    need('ip', 'perl')
    here = built('curl', ['curl', 'testdeps'], 'CMAKE_BUILD_TYPE=Debug',
                 'CURL_ENABLE_SSL=OFF', 'CURL_USE_LIBSSH2=OFF',
                 'ENABLE_DEBUG=ON')
    shims = {setting: Upgrade(setting) for setting in ('auto', 'connect')}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        outcomes = list(pool.map(lambda setting: curl_run(
            shims[setting].command, here, 'curl-' + setting), shims))

    def natively(tests):
        """A hang or an early end is not excused: it could be anywhere in five
        minutes."""
        named = set(tests) - {HANG, CUT}
        return curl_run(native, here, 'curl-native',
                        *named).bad if named else set()

    wrong = []
    for shim, outcome in zip(shims.values(), outcomes):
        wrong += faults(shim.name, outcome, natively)
        shim.on_fabric('curl')
    no_faults(wrong)
