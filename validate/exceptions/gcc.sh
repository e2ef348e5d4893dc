#!/bin/sh
# gcc.sh EHASM LIBRARY SOURCE OUT [FLAGS]: GCC's exception tests with the system's libgcc and with LIBRARY, our libgcc_s.so.1.
# SOURCE is an unpacked GCC (Debian's gcc-12-source); FLAGS are levels of optimisation, such as "-O0 -O1 -O2". Each program
# that compiles is run both ways, ours preloaded and in LD_LIBRARY_PATH; a difference of exit status or output is printed.
set -u
ehasm=$1 library=$2 source=$3 out=$4 levels=${5:--O0 -O1 -O2}
. "$(dirname "$0")/compare.sh"
for level in $levels; do
	for file in $(find "$source" -path '*testsuite/g++.dg/eh/*.C' -o -path '*testsuite/g++.old-deja/g++.eh/*.C' -o -path '*testsuite/18_support/*.cc' | sort); do
		grep -q 'dg-do compile' "$file" && continue
		exe=$out/program
		rm -f "$exe"
		options=$(sed -n 's/.*dg-options "\([^"]*\)".*/\1/p' "$file" | head -1)
		util=$(dirname "$file" | sed -n 's|/testsuite/.*|/testsuite/util|p')
		# shellcheck disable=SC2086
		g++ $level -w $options -pthread -I"$source" -I"$util" -I"$(find "$source" -type d -path '*testsuite/util' | head -1)" -o "$exe" "$file" >/dev/null 2>&1 ||
			g++ $level -w -std=gnu++14 -fpermissive -pthread -I"$(find "$source" -type d -path '*testsuite/util' | head -1)" -o "$exe" "$file" >/dev/null 2>&1
		if [ ! -x "$exe" ]; then
			skipped=$((skipped + 1))
			continue
		fi
		compare "$level" "$file"
	done
done
finish
