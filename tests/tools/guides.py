#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The files in docs/guide/services.md and containers.md are such as their readers accept: those
of systemd, of exs itself, of Compose, Kubernetes and docker: guides.py EXS SOURCE."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from common import check, environment, result

EXS, SOURCE = (os.path.abspath(a) for a in sys.argv[1:3])
UNIT = '[Service]\nExecStart=/usr/bin/redis-server\nRestrictAddressFamilies=AF_INET\n'
INSTRUCTIONS = {'FROM', 'COPY', 'RUN', 'USER', 'CMD'}


def blocks(page, language):
    with open(os.path.join(SOURCE, 'docs/guide', page)) as f:
        return re.findall(rf'^```{language}\n(.*?)^```$', f.read(), re.M | re.S)


def by_name():
    """The files of services.md: the first line is a comment with the path."""
    return {b.split('\n')[0][2:]: b for b in blocks('services.md', 'ini')}


def unit(text, folder):
    root = os.path.join(folder, 'root')
    at = f'{root}/etc/systemd/system'
    os.makedirs(f'{at}/redis-server.service.d')
    os.makedirs(f'{root}/usr/bin')
    for name in 'exs', 'redis-server':
        shutil.copy('/bin/true', f'{root}/usr/bin/{name}')
    with open(f'{at}/redis-server.service', 'w') as f:
        f.write(UNIT)

    def verify(drop_in):
        with open(f'{at}/redis-server.service.d/exs.conf', 'w') as f:
            f.write(drop_in)
        p = subprocess.run(['systemd-analyze', f'--root={root}', 'verify', '--man=no',
                            '--recursive-errors=no', 'redis-server.service'], text=True,
                           capture_output=True)
        return p.returncode, [s for s in p.stderr.splitlines() if 'exs.conf' in s]
    status, said = verify(text)
    check(status == 0 and not said, 'systemd-analyze', status, said)
    status, said = verify(text.replace('RestrictAddress', 'RestrictAdress'))
    check(said, 'systemd-analyze finds a mistake', status)


def config(text, folder):
    at = os.path.join(folder, 'exs.conf')
    with open(at, 'w') as f:
        f.write(text)
    p = subprocess.run([EXS, 'info', '--config'], capture_output=True, text=True,
                       env=environment({'EXS_CONFIG': at, 'EXS_LOG': 'warn'}))
    check(p.returncode == 0 and not p.stderr, 'exs.conf', p.stderr)
    env = subprocess.run([EXS, 'info', '--env'], capture_output=True, text=True).stdout
    names = set(re.findall(r'\bEXS_\w+', env))
    for line in by_name()['~/.config/environment.d/50-exs.conf'].splitlines()[1:]:
        name, value = line.split('=', 1)
        check(name in names, 'a variable', name)
        check(set(re.findall(r'\$\{(\w+)\}', value)) <= {'HOME', 'XDG_RUNTIME_DIR'}, value)


def image():
    text = blocks('containers.md', 'dockerfile')
    check(len(text) == 1, 'an image')
    lines = text[0].replace('\\\n', '').splitlines()
    words = [line.split()[0] for line in lines]
    check(words[0] == 'FROM' and set(words) <= INSTRUCTIONS, 'instructions', words)
    check(json.loads(lines[-1].split(None, 1)[1])[:2] == ['exs', 'run'], 'what it runs')
    with open(os.path.join(SOURCE, 'debian/control')) as f:
        built = set(re.findall(r'^Package: (\S+)', f.read(), re.M))
    named = set(re.findall(r'build-packages/(\w+)_\*\.deb', text[0]))
    check(named and named <= built, 'packages', named, built)


def yaml_files():
    try:
        import yaml
    except ImportError:
        return False
    compose, pods = blocks('containers.md', 'yaml')
    it = yaml.safe_load(compose)
    volumes = set(it['volumes'])
    for name, service in it['services'].items():
        check(set(service) <= {'image', 'command', 'environment', 'volumes', 'depends_on'},
              name, service)
        check(service['command'][:2] == ['exs', 'run'] and
              set(service['environment']) == {'EXS_MEET_DIR', 'EXS_KEY_FILE'}, name)
        check({v.split(':')[0] for v in service['volumes']} <= volumes | {'./exs-key'}, name)
        check(set(service.get('depends_on', [])) <= set(it['services']), name)
    for one in yaml.safe_load_all(pods):
        check(one['apiVersion'] == 'v1' and one['metadata']['name'], one)
        volumes = {v['name'] for v in one.get('spec', {}).get('volumes', [])}
        for c in one.get('spec', {}).get('containers', []):
            check({m['name'] for m in c['volumeMounts']} == volumes, 'volumes', volumes)
    return True


def main():
    if not shutil.which('systemd-analyze'):
        print('systemd-analyze is not here')
        return 77
    files = by_name()
    check(len(files) == 3, 'files', list(files))
    with tempfile.TemporaryDirectory() as folder:
        unit(files['/etc/systemd/system/redis-server.service.d/exs.conf'], folder)
        config(files['/etc/exs/exs.conf'], folder)
    image()
    if not yaml_files():
        print('python3-yaml is not here')
        return 77
    return result()


sys.exit(main())
