#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# found.sh EXS: the exs command finds the modules of its fabrics also when it was
# found by PATH, from elsewhere.
exs=$(realpath "$1") || exit 1
cd / || exit 1
here=$("$exs" info | grep '^  verbs ')
path=$(PATH=$(dirname "$exs"):$PATH && exs info | grep '^  verbs ')
case $path in
*"no module"*) ;;
*) [ -n "$path" ] && [ "$path" = "$here" ] && exit 0 ;;
esac
echo "by path: $path; by its whole name: $here" >&2
exit 1
