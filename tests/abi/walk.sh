#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# walk.sh SOURCE: the README's first commands work as they are typed, in a Debian that has
# nothing else: by root and by a user with sudo, each in an unpacked release and in a clone.
# The connection is on shared memory. Then the demo works, too. Prints how long each took.
cd "$1" || exit 1
. tests/abi/debian.sh
need_debian git meson
git rev-parse HEAD >/dev/null 2>&1 || {
	echo "this is no clone"
	exit 77
}
git clone -q --bare "file://$PWD" "$tmp/libexs.git" &&
	git -C "$tmp/libexs.git" archive HEAD README.md | tar -x -C "$tmp" &&
	git clone -q "$tmp/libexs.git" "$tmp/clone" &&
	meson setup "$tmp/build" "$tmp/clone" -Dtests=disabled -Dexamples=disabled \
		-Dtools=disabled >"$tmp/log" 2>&1 &&
	meson dist -C "$tmp/build" --no-tests >>"$tmp/log" 2>&1 || {
	tail -20 "$tmp/log"
	exit 1
}

# The indented block of standard input that has the words.
block()
{
	awk -v words="$1" '
		/^    / { text = text substr($0, 5) "\n"; next }
		index(text, words) { printf "%s", text; exit }
		{ text = "" }'
}

# The commands, as they stand there: those that install, and those that run.
block scripts/install <"$tmp/README.md" >"$tmp/all"
grep -v '^exs run' "$tmp/all" >"$tmp/install"
grep '^exs run' "$tmp/all" >"$tmp/first"
[ -s "$tmp/install" ] && [ "$(wc -l <"$tmp/first")" = 2 ] || {
	echo "README.md has not the commands:"
	cat "$tmp/all"
	exit 1
}
# The server is ready before somebody has typed the next line; here it is waited for.
sed '1 {
	p
	s/.*--port \([0-9]*\).*/until redis-cli -p \1 ping >\/dev\/null 2>\&1; do :; done/
}' "$tmp/first" >"$tmp/first.ready"

# walk WHO ROOT FOLDER COMMAND...: COMMAND is the way to be that user's shell.
walk()
{
	local who=$1 root=$2 folder=$3 began=$SECONDS
	shift 3

	{
		echo "set -ex; cd $folder"
		cat "$tmp/install"
	} >"$root/tmp/install"
	cp "$tmp/first.ready" "$root/tmp/first"
	chmod 644 "$root/tmp/install" "$root/tmp/first"
	# apt-get asks who types its line.
	yes | in_debian "$root" "$@" /tmp/install >"$tmp/said" 2>&1 || {
		tail -40 "$tmp/said"
		echo "$who: what the README says to install with does not work"
		exit 1
	}
	echo "$who: installed in $((SECONDS - began)) s"
	began=$SECONDS
	apart_in_debian "$root" timeout 300 "$@" -e /tmp/first >"$tmp/said" 2>&1 || {
		tail -40 "$tmp/said"
		echo "$who: the README's first commands do not work"
		exit 1
	}
	grep -qE '^  to 127\.0\.0\.1 port [0-9]+: [0-9]+ connections?, shm,' "$tmp/said" || {
		tail -40 "$tmp/said"
		echo "$who: the connection is not on shared memory"
		exit 1
	}
	echo "$who: first commands in $((SECONDS - began)) s:"
	grep -hE 'requests per second|^  to 127' "$tmp/said" | sed 's/.*\r//; s/^/    /'
	began=$SECONDS
	in_debian "$root" "$@" -c "cd $folder && scripts/demo" >"$tmp/said" 2>&1 &&
		grep -q "^ *shm *none " "$tmp/said" || {
		tail -40 "$tmp/said"
		echo "$who: scripts/demo does not work"
		exit 1
	}
	echo "$who: scripts/demo in $((SECONDS - began)) s"
}

# What INSTALL.md has for other systems, over what root has in a clone.
by_hand()
{
	local began=$SECONDS

	git -C "$tmp/libexs.git" show HEAD:INSTALL.md | block "meson install" >"$tmp/hand"
	{
		echo "set -ex; cd /root/libexs; rm -rf build-install"
		cat "$tmp/hand"
		echo '[ "$(exs run echo works)" = works ]'
	} >"$root/tmp/hand"
	[ "$(wc -l <"$tmp/hand")" = 3 ] &&
		in_debian "$root" bash /tmp/hand >"$tmp/said" 2>&1 || {
		tail -40 "$tmp/hand" "$tmp/said"
		echo "what INSTALL.md says to do by hand does not work"
		exit 1
	}
	echo "root, by hand: $((SECONDS - began)) s"
}

# Root needs no sudo, and types none.
cp "$tmp/install" "$tmp/install-user" &&
	sed 's/^sudo //' "$tmp/install" >"$tmp/install-root" || exit 1
: "${DEBIAN_TARBALL:=$tmp/debian.tar}"
for who in root user; do
	for what in release clone; do
		root=$tmp/$who-$what
		cp "$tmp/install-$who" "$tmp/install"
		if [ $who = root ]; then
			home=/root as=(bash) packages=
		else
			home=/home/user packages=sudo
			as=(setpriv --reuid=user --regid=user --init-groups
				env HOME=/home/user bash)
		fi
		[ $what = release ] && packages+=" xz-utils" || packages+=" git"
		# shellcheck disable=SC2086 # a list of words
		make_debian "$root" $packages || exit 1
		[ $who = root ] || in_debian "$root" sh -c 'useradd -m -s /bin/bash user &&
			echo "user ALL=(ALL) NOPASSWD: ALL" >/etc/sudoers.d/user' || exit 1
		if [ $what = release ]; then
			cp "$tmp"/build/meson-dist/libexs-*.tar.xz "$root/tmp/" &&
				in_debian "$root" "${as[@]}" -c "cd && tar -xf /tmp/libexs-*.tar.xz"
		else
			cp -r "$tmp/libexs.git" "$root/srv" &&
				in_debian "$root" sh -c "chown -R $who /srv/libexs.git" &&
				in_debian "$root" "${as[@]}" -c \
					"cd && git clone -q file:///srv/libexs.git"
		fi || exit 1
		walk "$who, $what" "$root" "$home/libexs*" "${as[@]}"
		[ "$who $what" != "root clone" ] || by_hand
		rm -rf --one-file-system "$root"
	done
done
