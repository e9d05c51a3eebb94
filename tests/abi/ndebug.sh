#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# What asserts compiles without a warning where assertions are left out, as in a
# release: nothing is there for an assertion alone.
cd "$(dirname "$0")/../.." || exit 1
build=$1
bad=0
files=$(grep -rlE '\bassert\(' --include='*.[ch]' api bench core examples fuzz \
	preload providers tests tools 2>/dev/null)
for f in $files; do
	gcc -x c -std=gnu11 -D_GNU_SOURCE -DNDEBUG -Wall -Wextra -Wshadow \
		-Wno-unused-parameter -Wno-sign-compare -Wno-unused-function \
		-Wno-missing-field-initializers -Werror -fsyntax-only -I. \
		-Iapi ${build:+"-I$build"} "$f" || bad=1
done
exit $bad
