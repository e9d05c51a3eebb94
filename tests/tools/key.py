# SPDX-License-Identifier: BSD-2-Clause
"""exs key shows, makes, prints, takes and brings keys as its page tells, says
what to do where it cannot, and lets a key be seen nowhere but where it is asked
for.

key.py EXS with|without; whether this build has keys
"""
import json
import os
import pty
import re
import stat
import subprocess
import sys
import tempfile

DEADLINE = 60
EXS = os.path.abspath(sys.argv[1])
LINE = re.compile(rb"exs-key-1 ([0-9a-f]{64}) ([0-9a-f]{16})\n")

# What stands for ssh runs the command here, in the folder of the host, by a
# shell as another machine's would, and notes what others could read meanwhile.
SSH = """#!/bin/sh
test -d "{0}/$1" || {{ echo "ssh: no host $1" >&2; exit 255; }}
{{ tr '\\0' ' ' </proc/$$/cmdline; env; }} >>{0}/seen
echo "Welcome to $1"
unset XDG_CONFIG_HOME EXS_KEY_FILE
HOME="{0}/$1"; export HOME
exec sh -c "$2"
"""


def check(good, what):
    if not good:
        sys.exit(f"FAIL: {what}")


class Folder:
    """A home, hosts beside it, and the command in them."""

    def __init__(self, path):
        self.path = path
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith("EXS_") and k != "XDG_CONFIG_HOME"}
        self.env.update(HOME=self.at("home"), LC_ALL="C.UTF-8",
                        PATH=f"{self.at('bin')}:{os.environ['PATH']}")
        for name in ("home", "bin", "one", "two"):
            os.mkdir(self.at(name))
        with open(self.at("bin", "ssh"), "w") as f:
            f.write(SSH.format(path))
        os.chmod(self.at("bin", "ssh"), 0o755)

    def at(self, *names):
        return os.path.join(self.path, *names)

    def key(self, host="home"):
        return self.at(host, ".config", "exs", "key")

    def run(self, *args, status=0, say="", **kw):
        """What it printed; what it says on standard error has the words."""
        env = dict(self.env, **kw.pop("env", {}))
        kw.setdefault("stdin", subprocess.DEVNULL)
        if "input" in kw:
            del kw["stdin"]
        kw.setdefault("stdout", subprocess.PIPE)
        done = subprocess.run([EXS, "key", *args], stderr=subprocess.PIPE,
                              env=env, timeout=DEADLINE, **kw)
        said = done.stderr.decode()
        check(done.returncode == status,
              f"{args}: status {done.returncode}: {done.stdout} {said}")
        check(say in said, f"{args}: \"{say}\" is not in \"{said}\"")
        check(status != 0 or say or not said, f"{args}: it says \"{said}\"")
        return done.stdout

    def json(self, *args, **kw):
        return json.loads(self.run(*args, "--json", **kw))


def read(path):
    with open(path, "rb") as f:
        return f.read()


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def secret(line):
    match = LINE.fullmatch(line)
    check(match, f"{line} is no key")
    return match[1]


def it_tells_where_a_key_is_and_whether_it_is_good(f):
    r = f.json(status=1)
    check(r["verdict"] == "none" and r["id"] is None, r)
    check("exs key make" in r["why"], r)
    check(not os.path.exists(f.key()), "asking makes a key")
    check([s["path"] for s in r["searched"]] ==
          [f.key(), "/etc/exs/key"], r)
    f.run(status=1, say="exs key make")

    f.run("make")
    r = f.json()
    check(r["path"] == f.key() and r["verdict"] == "good", r)
    check(r["mode"] == "0600" and r["user"] == os.geteuid(), r)
    check(r["why"] is None and r["trust"] == "key", r)
    check(r["searched"][0] == {"origin": "HOME", "path": f.key(),
                               "there": True, "used": True}, r)
    text = f.run()
    check(f.key().encode() in text and r["id"].encode() in text, text)
    check(secret(read(f.key())) not in text, "exs key shows the key")
    check(f.json(env={"EXS_TRUST": "hosts"})["trust"] == "hosts", "trust")

    os.chmod(f.key(), 0o644)
    r = f.json(status=1)
    check(r["verdict"] == "refused" and r["mode"] == "0644", r)
    check("chmod 600" in r["why"], r)
    f.run(status=1, say="chmod 600 " + f.key())
    f.run("show", status=1, say="chmod 600")
    f.run("copy", "one", status=1, say="chmod 600")
    check(not os.listdir(f.at("one")), "a refused key is copied")


def it_looks_where_it_is_told(f):
    other, config = f.at("other"), f.at("config")
    f.run("make", env={"EXS_KEY_FILE": other})
    check(secret(read(other)), other)
    f.run("make", env={"XDG_CONFIG_HOME": config})
    check(secret(read(os.path.join(config, "exs", "key"))), config)
    check(not os.path.exists(f.key()), "a key is in the home, too")
    r = f.json(env={"EXS_KEY_FILE": other})
    check(r["path"] == other and len(r["searched"]) == 1, r)
    r = f.json(status=1, env={"EXS_KEY_FILE": f.at("none")})
    check(r["path"] == f.at("none"), r)
    r = f.json(env={"XDG_CONFIG_HOME": config})
    check(r["searched"][0]["origin"] == "XDG_CONFIG_HOME", r)
    del f.env["HOME"]
    done = subprocess.run([EXS, "key", "--json"], capture_output=True,
                          env=f.env, timeout=DEADLINE)
    r = json.loads(done.stdout)
    check([s["path"] for s in r["searched"]] == ["/etc/exs/key"], r)


def a_key_is_not_replaced_by_mistake(f):
    f.run("make")
    first = read(f.key())
    f.run("make", status=1, say="--force")
    check(read(f.key()) == first, "it is replaced without a word")
    said = f.run("make", "--force")
    second = read(f.key())
    check(secret(second) != secret(first), "it is not replaced")
    check(LINE.fullmatch(first)[2] in said, said)
    check(mode(f.key()) == 0o600, oct(mode(f.key())))
    check(os.listdir(os.path.dirname(f.key())) == ["key"], "files are left")


def a_key_is_carried_by_hand(f):
    f.run("make")
    line = f.run("show")
    secret(line)
    there = {"HOME": f.at("two")}
    for bad, why in ((b"", "empty"), (b"hello\n", "does not begin"),
                     (line[:40], "damaged"), (line * 9, "too long"),
                     (line.replace(b"exs-key-1", b"exs-key-7"), "version"),
                     (b"\0" * 90, "not text")):
        f.run("import", "-", env=there, input=bad, status=1, say=why)
        check(not os.listdir(f.at("two")), f"{bad} is taken")
    f.run("import", "-", env=there, input=b" " + line.strip() + b"\r\n")
    check(read(f.key("two")) == line, "it is another key")
    check(mode(f.key("two")) == 0o600, oct(mode(f.key("two"))))
    check(b"already" in f.run("import", "-", env=there, input=line), "again")
    f.run("make", "--force")
    line = f.run("show")
    f.run("import", "-", env=there, input=line, status=1, say="--force")
    r = f.json("import", "--force", "-", env=there, input=line)
    check(r["id"].encode() == LINE.fullmatch(line)[2], r)


def a_terminal_is_warned_of(f):
    f.run("make")
    try:
        ours, its = pty.openpty()
    except OSError as e:
        print("a_terminal_is_warned_of: skipped,", e)
        return
    f.run("show", stdout=its, say="clear")
    os.close(its)
    check(b"exs-key-1 " in os.read(ours, 4096), "the terminal has no key")
    os.close(ours)


def it_is_copied_by_ssh_and_seen_by_nobody(f):
    f.run("copy", "one", status=1, say="exs key make")
    f.run("make")
    line = read(f.key())
    said = f.run("copy", "one", "two", say="Welcome to two")
    check(said.count(b"installed") == 2, said)
    for host in ("one", "two"):
        check(read(f.key(host)) == line, f"{host} has another key")
        check(mode(f.key(host)) == 0o600, oct(mode(f.key(host))))
        check(mode(os.path.dirname(f.key(host))) == 0o700, host)
        check(os.listdir(os.path.dirname(f.key(host))) == ["key"], host)
    seen = read(f.at("seen"))
    check(b"HOME=" in seen and b"mktemp" in seen, seen)
    check(secret(line) not in seen, "the key is on a command line")
    check(b"already" in f.run("copy", "one", say="Welcome"), "again")

    # The same, for others to read: not any more.
    os.chmod(f.key("one"), 0o644)
    f.run("copy", "one", say="Welcome")
    check(mode(f.key("one")) == 0o600, oct(mode(f.key("one"))))

    # Another one, and a host that is not there: the others get it.
    f.run("make", "--force")
    os.unlink(f.key("two"))
    r = f.json("copy", "one", "lost", "two", status=1, say="ssh lost true")
    check([h["result"] for h in r["hosts"]] ==
          ["other", "failed", "installed"], r)
    check(read(f.key("one")) == line, "another key is replaced")
    f.run("copy", "one", status=1, say="copy --force")
    f.run("copy", "--force", "one", say="Welcome")
    check(read(f.key("one")) == read(f.key("two")) == read(f.key()), "force")

    # No room for a file.
    os.unlink(f.key("one"))
    os.rmdir(os.path.dirname(f.key("one")))
    with open(os.path.dirname(f.key("one")), "w"):
        pass
    f.run("copy", "one", status=1, say="could not be written there")


def half_a_key_is_not_installed(f):
    """The connection ends when half of it is there."""
    f.run("make")
    with open(f.at("bin", "ssh"), "w") as ssh:
        ssh.write(SSH.format(f.path).replace('exec sh -c "$2"',
                                             'head -c 40 | sh -c "$2"'))
    f.run("copy", "one", status=1, say="could not be written there")
    check(not os.listdir(f.at("one", ".config", "exs")), "half a key is there")


def without_ssh_it_says_what_to_do(f):
    f.run("make")
    f.run("copy", "one", status=1, say="exs key show",
          env={"PATH": f.at("home")})


def what_cannot_be_is_refused(f):
    f.run("make")
    for args in (["bogus"], ["copy"], ["import"], ["import", "file"],
                 ["make", "it"], ["show", "it"], ["--force"],
                 ["show", "--force"], ["show", "--json"]):
        f.run(*args, status=2, say="exs key: ")
    f.run("copy", "--", "-oProxyCommand=touch x", status=1, say="not a host name")
    check(not os.path.exists(f.at("seen")), "ssh was started")
    check(b"copy HOST" in f.run("--help"), "help")


def without_keys_it_says_so(f):
    for args in ([], ["make"], ["copy", "one"]):
        f.run(*args, status=1, say="libsodium")
    check(b"libsodium" in f.run("--help"), "help")


WITH = [it_tells_where_a_key_is_and_whether_it_is_good,
        it_looks_where_it_is_told, a_key_is_not_replaced_by_mistake,
        a_key_is_carried_by_hand, a_terminal_is_warned_of,
        it_is_copied_by_ssh_and_seen_by_nobody, half_a_key_is_not_installed,
        without_ssh_it_says_what_to_do, what_cannot_be_is_refused]

if os.path.exists("/etc/exs/key"):
    print("this host has a key of the system, which would be found")
    sys.exit(77)
for row in WITH if sys.argv[2] == "with" else [without_keys_it_says_so]:
    with tempfile.TemporaryDirectory(prefix="exs-key-") as folder:
        row(Folder(folder))
    print("ok", row.__name__)
