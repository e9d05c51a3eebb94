#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# pip.sh SOURCE LIBRARY: the binding is installed by pip, and works as installed.
for python in python3 /usr/bin/python3 none; do
	$python -c 'import setuptools, pip, wheel' 2>/dev/null && break
done
[ $python != none ] || {
	echo "there is no Python with pip, setuptools and wheel"
	exit 1
}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
# A copy: setuptools leaves folders beside the source.
cp -r "$1" "$tmp/source" &&
	$python -m pip install -q --no-index --no-build-isolation --no-deps \
		--target "$tmp/there" "$tmp/source" >"$tmp/log" 2>&1 || {
	cat "$tmp/log"
	exit 1
}
cd / && PYTHONPATH=$tmp/there LIBEXS=$2 $python -c '
import exs, importlib.metadata, sys
q = exs.Queue(4)
q.delete()
assert importlib.metadata.version("exs") == exs.__version__, exs.__version__
assert exs.__file__.startswith(sys.argv[1]), exs.__file__
' "$tmp/there"
