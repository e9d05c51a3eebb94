# SPDX-License-Identifier: BSD-2-Clause
"""Servers of queues, names, directories, disks and databases."""

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess

import common
import stores
from common import (HOST, Server, blob, both_ends, everywhere, free_port,
                    need, output, path, same, sbin, skip, until, write)

PYTHON = '/usr/bin/python3'


def mosquitto():
    sbin('mosquitto')
    need('mosquitto_pub', 'mosquitto_sub')
    lines = ''.join('message %d %s\n' % (i, 'x' * (i % 700))
                    for i in range(4000)).encode()

    def run(server, client):
        port = free_port()
        conf = write('mosquitto.conf', 'listener %d %s\nallow_anonymous true\n'
                     'max_queued_messages 0\nlog_dest none\n%s' %
                     (port, HOST, 'user root\n' * (os.getuid() == 0)))
        common_args = ['-h', HOST, '-p', str(port), '-q', '1']
        with Server(server(sbin('mosquitto'), '-c', conf), port):
            # A session that is kept: what is published waits for it.
            kept = ['-t', 'a', '-i', 'sub', '-c']
            output(client('mosquitto_sub', *common_args, *kept, '-E'))
            output(client('mosquitto_pub', *common_args, '-t', 'a', '-l'),
                   input=lines)
            return output(client('mosquitto_sub', *common_args, *kept,
                                 '-C', '4000')) == lines or 'other lines'

    everywhere(run, ['mosquitto'], ['mosquitto_sub', 'mosquitto_pub'])


BEANS = '''
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
f = s.makefile('rb')
for i in range(2000):
    body = b'%%d ' %% i * (i %% 200 + 1)
    s.sendall(b'put 0 0 60 %%d\\r\\n%%s\\r\\n' %% (len(body), body))
    assert f.readline().startswith(b'INSERTED')
    s.sendall(b'reserve\\r\\n')
    word, job, size = f.readline().split()
    assert word == b'RESERVED' and f.read(int(size)) == body
    f.readline()
    s.sendall(b'delete %%s\\r\\n' %% job)
    assert f.readline() == b'DELETED\\r\\n'
'''.replace('%%', '%')


def beanstalkd():
    need('beanstalkd')

    def run(server, client):
        port = free_port()
        with Server(server('beanstalkd', '-l', HOST, '-p', str(port)), port):
            return output(client(PYTHON, '-c', BEANS, HOST, str(port)))

    everywhere(run, ['beanstalkd'], ['python3'])


def gearman():
    sbin('gearmand')
    need('gearman')

    def run(server, client):
        port = free_port()
        at = ['-h', HOST, '-p', str(port)]
        with Server(server(sbin('gearmand'), '-L', HOST, '-p', str(port),
                           '-l', path('gearmand.log')), port), \
                Server(client('gearman', *at, '-w', '-f', 'double', '--',
                              'sed', 's/.*/&&/'), stop=signal.SIGTERM):
            text = ''.join('job %d\n' % i for i in range(3000)).encode()
            return output(client('gearman', *at, '-f', 'double', '-s'),
                          input=text), \
                output(client('gearman', *at, '-f', 'double', '-n'),
                       input=text[:2000])

    everywhere(run, ['gearmand'], ['gearman'])


def unbound():
    sbin('unbound')
    need('dig')

    def run(server, client):
        port = free_port()
        text = 'x' * 200
        data = '\n'.join(' local-data: \'big.test. TXT "%d %s"\'' % (i, text)
                         for i in range(120))
        conf = write('unbound.conf', """server:
 directory: "%s"
 chroot: ""
 username: ""
 pidfile: ""
 logfile: "%s"
 use-syslog: no
 do-daemonize: no
 interface: %s@%d
 do-not-query-localhost: no
 local-zone: "test." static
 local-data: "a.test. A 10.0.0.1"
%s
""" % (common.folder, path('unbound.log'), HOST, port, data))
        queries = write('queries', 'a.test A\nbig.test TXT\n' * 300)
        with Server(server(sbin('unbound'), '-d', '-p', '-c', conf), port):
            return output(client('dig', '@' + HOST, '-p', str(port), '+tcp',
                                 '+keepopen', '+short', '-f', queries))

    def sorted_run(server, client):
        return sorted(run(server, client).splitlines())

    everywhere(sorted_run, ['unbound'], ['dig'])


def slapd():
    sbin('slapd')
    need('ldapadd', 'ldapsearch')
    os.mkdir(path('ldap'))
    conf = write('slapd.conf', """include /etc/ldap/schema/core.schema
pidfile {0}/slapd.pid
modulepath /usr/lib/ldap
moduleload back_mdb
database mdb
maxsize 104857600
suffix "dc=test"
rootdn "cn=root,dc=test"
rootpw secret
directory {0}/ldap
""".format(common.folder))
    entries = write('entries', 'dn: dc=test\nobjectClass: dcObject\n'
                    'objectClass: organization\no: test\ndc: test\n\n' +
                    ''.join('dn: cn=n{0},dc=test\nobjectClass: person\n'
                            'cn: n{0}\nsn: s\ndescription: {1}\n\n'.format(
                                i, 'd' * 300) for i in range(500)))

    # A search for each line.
    names = write('names', ''.join('n%d\n' % (i % 500) for i in range(2000)))

    def run(server, client):
        port = free_port()
        url = 'ldap://%s:%d' % (HOST, port)
        for name in os.listdir(path('ldap')):
            os.unlink(path('ldap', name))
        with Server(server(sbin('slapd'), '-d', '0', '-f', conf, '-h', url),
                    port):
            who = ['-x', '-H', url, '-D', 'cn=root,dc=test', '-w', 'secret']
            output(client('ldapadd', *who, '-f', entries))
            return output(client('ldapsearch', *who, '-LLL', '-b', 'dc=test',
                                 '-f', names, '(cn=%s)', 'description'))

    everywhere(run, ['slapd'], ['ldapadd', 'ldapsearch'])


def nbd():
    sbin('nbd-server')
    need('nbdcopy')
    disk = blob('disk', 64)
    os.truncate(disk, 64 << 20)

    def run(server, client):
        port = free_port()
        conf = write('nbd.conf', '[generic]\nport = %d\nlistenaddr = %s\n'
                     '[disk]\nexportname = %s\n' % (port, HOST, disk))
        with Server(server(sbin('nbd-server'), '-d', '-C', conf), port):
            if os.path.exists(path('got')):
                os.unlink(path('got'))
            output(client('nbdcopy', '--connections=1',
                          'nbd://%s:%d/disk' % (HOST, port), path('got')))
            same(path('got'), disk)

    everywhere(run, ['nbd-server'], ['nbdcopy'])


def two_ports():
    """A free one, and so is that of the cluster's own connections, 10000
    higher."""
    while True:
        port = free_port()
        with socket.socket() as s:
            try:
                s.bind((HOST, port + 10000))
                return port
            except (OSError, OverflowError):
                pass


def redis_cluster():
    """Three nodes that speak to each other, and a client that is sent on."""
    need('redis-server', 'redis-cli')

    def run(server, client):
        ports = [two_ports() for _ in range(3)]
        for name in os.listdir(common.folder):  # of the run before
            if name.startswith('nodes-'):
                os.unlink(path(name))
        nodes = [Server(server('redis-server', '--port', str(p), '--bind',
                               HOST, '--save', '', '--cluster-enabled', 'yes',
                               '--cluster-config-file',
                               path('nodes-%d' % p)), p) for p in ports]
        with nodes[0], nodes[1], nodes[2]:
            output(client('redis-cli', '--cluster', 'create',
                          *['%s:%d' % (HOST, p) for p in ports],
                          '--cluster-yes'))
            cli = ['redis-cli', '-c', '-h', HOST, '-p', str(ports[0])]
            until('the cluster', lambda: all(
                b'cluster_state:ok' in output(
                    ['redis-cli', '-h', HOST, '-p', str(p), 'cluster', 'info'])
                for p in ports))
            asked = b''.join(b'set k%d %d\nget k%d\n' % (i, i, i)
                             for i in range(1000))
            return output(client(*cli), input=asked)

    def values(server, client):
        return re.findall(rb'^\d+$|^OK$|^.*ERR.*|DOWN.*', run(server, client),
                          re.M)

    # With one end alone the nodes have each other.
    both_ends(values, ['redis-server', 'redis-cli'])


def redis_sentinel():
    need('redis-server', 'redis-cli')

    def run(server, client):
        port, watch = free_port(), free_port()
        conf = write('sentinel.conf', 'port %d\nbind %s\nsentinel monitor m '
                     '%s %d 1\n' % (watch, HOST, HOST, port))
        with stores.redis_server(server, port), \
                Server(server('redis-server', conf, '--sentinel'), watch):
            ask = ['redis-cli', '-h', HOST, '-p', str(watch)]
            until('the sentinel', lambda: b'flags\nmaster\n' in output(
                ask + ['sentinel', 'master', 'm']))
            asked = b'sentinel get-master-addr-by-name m\nping\n' * 300
            out = output(client(*ask), input=asked)
        return out.replace(b'%d' % port, b'PORT')

    everywhere(run, ['redis-server'], ['redis-cli'])


NAMED = """options { directory "%s"; listen-on port %d { %s; };
listen-on-v6 { none; }; pid-file none; recursion no; allow-transfer { any; };
session-keyfile none; };
controls { };
zone "test" { type master; file "%s"; };
"""


def named():
    """A zone, transferred by one TCP connection."""
    sbin('named')
    need('dig')
    zone = write('zone', '$TTL 60\n@ SOA ns root 1 60 60 60 60\n@ NS ns\n'
                 'ns A 10.0.0.1\n' + ''.join(
                     'n%d TXT "%s"\n' % (i, 'x' * 200) for i in range(9000)))
    os.chmod(common.folder, 0o755)

    def run(server, client):
        port = free_port()
        conf = write('named.conf', NAMED % (common.folder, port, HOST, zone))
        at = ['@' + HOST, '-p', str(port)]
        with Server(server(sbin('named'), '-f', '-c', conf), port):
            until('the zone', lambda: b'10.0.0.1' in output(
                ['dig', *at, '+tcp', '+short', 'ns.test'], None))
            return output(client('dig', *at, '+nocmd', '+nostats', '-t', 'AXFR',
                                 'test'))

    # With one end alone it ends before the server has looked often enough.
    both_ends(run, ['named', 'dig'])


def smtp():
    """Postfix's own load generators."""
    sbin('smtp-sink')
    sbin('smtp-source')

    def run(server, client):
        port = free_port()
        at = '%s:%d' % (HOST, port)
        with Server(server(sbin('smtp-sink'), *(
                ['-u', 'nobody'] if os.getuid() == 0 else []), at, '50'), port):
            return output(client(sbin('smtp-source'), '-d', '-s', '4', '-m',
                                 '600', '-l', '20000', at))

    everywhere(run, ['smtp-sink'], ['smtp-source'])


def nutcracker():
    """Twemproxy, between redis and its client."""
    need('redis-server', 'redis-cli')
    sbin('nutcracker')

    def run(server, client):
        port, behind = free_port(), free_port()
        conf = write('nutcracker.yml', 'one:\n  listen: %s:%d\n  redis: true\n'
                     '  servers:\n   - %s:%d:1\n' % (HOST, port, HOST, behind))
        asked = b''.join(b'set k%d %d\nget k%d\n' % (i, i, i)
                         for i in range(1000))
        with stores.redis_server(client, behind), \
                Server(server(sbin('nutcracker'), '-c', conf, '-s',
                              str(free_port())), port):
            return output(client('redis-cli', '-h', HOST, '-p', str(port)),
                          input=asked)

    everywhere(run, ['nutcracker'], ['redis-cli'])


def samba():
    """smbd forks for each client. At its end it signals its process group."""
    sbin('smbd')
    need('smbclient')
    if os.getuid():
        skip('only root may start smbd')
    os.mkdir(path('share'))
    file = blob('share/file', 60)
    os.chmod(common.folder, 0o755)

    def run(server, client):
        port = free_port()
        dirs = ''.join('%s = %s\n' % (d + ' directory', path('smb')) for d in
                       ('lock', 'state', 'cache', 'pid', 'private'))
        os.makedirs(path('smb'), exist_ok=True)
        conf = write('smb.conf', '[global]\n%sncalrpc dir = %s\nsmb ports = '
                     '%d\ninterfaces = lo\nbind interfaces only = yes\n'
                     'map to guest = Bad User\nguest account = nobody\n'
                     'disable spoolss = yes\nload printers = no\n'
                     'log file = /dev/null\n[share]\npath = %s\n'
                     'guest ok = yes\n' %
                     (dirs, path('smb/np'), port, path('share')))
        with Server(server(sbin('smbd'), '-F', '--no-process-group', '-s',
                           conf), port, start_new_session=True):
            output(client('smbclient', '-s', conf, '-N', '-p', str(port),
                          '//%s/share' % HOST, '-c',
                          'get file ' + path('got')))
            same(path('got'), file)

    everywhere(run, ['smbd'], ['smbclient'], common.Shim.seen)


def qemu_nbd():
    need('qemu-nbd', 'qemu-img')
    disk = blob('disk', 64)
    os.truncate(disk, 64 << 20)

    def run(server, client):
        port = free_port()
        with Server(server('qemu-nbd', '-f', 'raw', '-t', '-b', HOST, '-p',
                           str(port), disk), port):
            output(client('qemu-img', 'convert', '-f', 'raw', '-O', 'raw',
                          'nbd://%s:%d' % (HOST, port), path('got')))
            same(path('got'), disk)

    everywhere(run, ['qemu-nbd'], ['qemu-img'])


DOVECOT = """base_dir = {0}/base
state_dir = {0}/state
protocols = imap
listen = {1}
log_path = {0}/dovecot.log
ssl = no
disable_plaintext_auth = no
import_environment = LD_PRELOAD EXS_REPORT
mail_location = maildir:{0}/mail
first_valid_uid = 0
default_internal_user = root
default_internal_group = root
default_login_user = nobody
passdb {{
  driver = static
  args = password=secret
}}
userdb {{
  driver = static
  args = uid={3} gid={4} home={0}/mail
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {2}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
service anvil {{
  chroot =
}}
service stats {{
  chroot =
}}
"""

IMAP = '''
import hashlib, imaplib, sys
m = imaplib.IMAP4(sys.argv[1], int(sys.argv[2]))
m.login('u' + sys.argv[2], 'secret')
m.select('INBOX')
for i in range(20):
    print(m.append('INBOX', None, None, b'Subject: %d\\r\\n\\r\\n' % i +
                   b'line\\r\\n' * 50000)[0])
m.select('INBOX')
for i in range(20):
    mail = m.fetch(str(i + 1), '(RFC822)')[1][0][1]
    print(hashlib.sha256(mail).hexdigest())
m.logout()
'''


def dovecot():
    """A process of another user logs in, and passes the connection on."""
    sbin('dovecot')
    if os.getuid():
        skip('only root may start dovecot')
    os.chmod(common.folder, 0o755)
    mails = pwd.getpwnam('games')

    def run(server, client):
        port = free_port()
        for name in 'base', 'state', 'mail':
            shutil.rmtree(path(name), ignore_errors=True)
            os.mkdir(path(name))
        os.chown(path('mail'), mails.pw_uid, mails.pw_gid)
        conf = write('dovecot.conf', DOVECOT.format(
            common.folder, HOST, port, mails.pw_uid, mails.pw_gid))
        with Server(server(sbin('dovecot'), '-F', '-c', conf), port):
            return output(client(PYTHON, '-c', IMAP, HOST, str(port)))

    both_ends(run, ['imap'], lambda shim, program: shim.on_tcp(program,
                                                               'passed'))


# Files by io_uring, connections by ordinary calls.
MARIADB = ['--no-defaults', '--innodb-use-native-aio=1',
           '--innodb-buffer-pool-size=24M', '--skip-name-resolve',
           '--innodb-flush-log-at-trx-commit=2']


def mariadb(unix=False):
    sbin('mariadbd')
    need('mariadb', 'mariadb-install-db', 'mariadb-slap')
    data = path('data')
    as_user = ['--user=root'] if os.getuid() == 0 else []
    output(['mariadb-install-db', '--no-defaults', '--datadir=' + data,
            '--auth-root-authentication-method=normal',
            '--skip-test-db', *as_user])

    def run(server, client):
        port = free_port()
        at = ['--no-defaults', '-u', 'root', '--skip-ssl'] + (
            ['--socket=' + path('sock')] if unix else
            ['-h', HOST, '-P', str(port), '--protocol=tcp'])

        def ask(text):
            return output(client('mariadb', *at, '-N', '-B'),
                          input=text.encode())

        with Server(server(sbin('mariadbd'), *MARIADB, *as_user,
                           '--datadir=' + data, '--socket=' + path('sock'),
                           '--pid-file=' + path('pid'), '--bind-address=' +
                           HOST, '--port=%d' % port), port):
            said = [ask("""drop database if exists d; create database d; use d;
create table t (id int primary key, x varchar(200)) engine=innodb;
insert into t select seq, repeat(md5(seq), 6) from seq_1_to_100000;
select count(*), sum(crc32(x)) from t;
show global variables like 'innodb_use_native_aio';""")]
            said.append(ask('select * from d.t order by id limit 60000'))
            said.append(ask(''.join('select x from d.t where id = %d;\n' % i
                                    for i in range(1, 3000))))
            output(client('mariadb-slap', *at, '--concurrency=4',
                          '--iterations=1', '--number-of-queries=4000',
                          '--auto-generate-sql', '--create-schema=slap'))
        return said

    everywhere(run, ['mariadbd'], ['mariadb', 'mariadb-slap'])


def mariadb_unix():
    mariadb(True)


def pgbouncer():
    """Between psql and PostgreSQL."""
    sbin('pgbouncer')
    programs = stores.postgresql_programs()
    data = path('data')
    as_user = {}
    os.mkdir(data, 0o700)
    if os.getuid() == 0:
        stores.for_nobody()
        as_user = {'user': 'nobody', 'group': 'nogroup', 'extra_groups': [],
                   'cwd': data}
        shutil.chown(data, 'nobody', 'nogroup')
    output([os.path.join(programs, 'initdb'), '-D', data, '-A', 'trust', '-U',
            'postgres', '--no-sync', '--no-locale', '-E', 'UTF8'], **as_user)

    def run(server, client):
        port, behind = free_port(), free_port()
        conf = write('pgbouncer.ini', """[databases]
* = host=%s port=%d user=postgres
[pgbouncer]
listen_addr = %s
listen_port = %d
auth_type = any
unix_socket_dir =
pool_mode = transaction
ignore_startup_parameters = extra_float_digits
""" % (HOST, behind, HOST, port))
        os.chmod(conf, 0o644)
        with Server(client(os.path.join(programs, 'postgres'), '-D', data,
                           '-p', str(behind), '-c', 'listen_addresses=' + HOST,
                           '-c', 'unix_socket_directories=', '-c',
                           'fsync=off'), behind, stop=signal.SIGINT,
                    **as_user), \
                Server(server(sbin('pgbouncer'), conf), port,
                       stop=signal.SIGINT, **as_user):
            until('the database', lambda: subprocess.run(
                [os.path.join(programs, 'pg_isready'), '-q', '-h', HOST, '-p',
                 str(port)], check=False).returncode == 0)

            def ask(name, *args):
                return output(client(os.path.join(programs, name), '-h', HOST,
                                     '-p', str(port), '-U', 'postgres', *args))
            ask('pgbench', '-i', '-q', 'postgres')
            out = ask('pgbench', '-S', '-c', '4', '-t', '500', 'postgres')
            return re.findall(rb'transactions actually processed.*', out), \
                ask('psql', '-XAtc', 'select aid, filler from '
                    'pgbench_accounts order by aid', 'postgres')

    everywhere(run, ['pgbouncer'], ['pgbench', 'psql'])
