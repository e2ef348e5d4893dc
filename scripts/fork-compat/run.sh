#!/bin/bash
# The original project's fork of libunwind, unmodified, on our files: its walks against backtrace(3).
#   scripts/fork-compat/run.sh CHECKOUT      a clone of libunwind-eh_elf; its branch modified_interface is built
#   scripts/fork-compat/run.sh --installed   the libunwind of this machine, to see that the comparison is sound
set -eu -o pipefail
[ $# -eq 1 ] || { sed -n '2,4p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
include=() lib=()
if [ "$1" != --installed ]; then
	checkout=$(cd "$1" && pwd)
	branch=$(git -C "$checkout" rev-parse --verify -q modified_interface || git -C "$checkout" rev-parse --verify origin/modified_interface)
	mkdir "$work/src"
	git -C "$checkout" archive "$branch" | tar -x -C "$work/src"
	# -fcommon: its headers define variables, as compilers let them before GCC 10.
	(cd "$work/src" && autoreconf -i && ./configure CFLAGS='-O2 -g -fcommon' --disable-tests --disable-documentation && make -j2) >"$work/log" 2>&1 ||
		{ tail -30 "$work/log" >&2; exit 1; }
	include=(-I"$work/src/include") lib=(-L"$work/src/src/.libs")
	export LD_LIBRARY_PATH=$work/src/src/.libs
fi
(cd "$here/../.." && go build -o "$work/ehasm" ./cmd/ehasm)
status=0
for level in -O0 -O1 -O2 -O3; do
	# Position-independent: the fork takes the wrong offset for others.
	gcc $level -g -fPIE -pie "${include[@]}" -o "$work/walks" "$here/walks.c" "${lib[@]}" -lunwind
	for dispatch in tree packed; do
		rm -rf "$work/eh"
		"$work/ehasm" build -q --deps --dispatch=$dispatch -o "$work/eh" "$work/walks"
		echo "$level $dispatch: $(LD_LIBRARY_PATH=$work/eh:${LD_LIBRARY_PATH:-} "$work/walks")" || status=1
	done
done
exit $status
