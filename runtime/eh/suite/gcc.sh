#!/bin/sh
# gcc.sh EHASM LIBRARY SOURCE OUT [FLAGS]: GCC's exception tests with the system's libgcc and with LIBRARY, our libgcc_s.so.1.
# SOURCE is an unpacked GCC (Debian's gcc-12-source); FLAGS are levels of optimisation, such as "-O0 -O1 -O2". Each program
# that compiles is run both ways, ours preloaded and in LD_LIBRARY_PATH; a difference of exit status or output is printed.
set -u
ehasm=$1 library=$2 source=$3 out=$4 levels=${5:--O0 -O1 -O2}
mkdir -p "$out/cache"
out=$(realpath "$out")
XDG_CACHE_HOME=$out/cache
export XDG_CACHE_HOME
run() { # NAME COMMAND...: output to NAME
	to=$1
	shift
	timeout 60 "$@" >"$to.raw" 2>&1 </dev/null
	echo "status $?" >>"$to.raw"
	sed -e 's/0x[0-9a-f]*/0x/g' -e 's/[0-9]* Aborted/Aborted/' "$to.raw" >"$to"
}
programs=0 different=0 skipped=0
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
		"$ehasm" build -q --cache --deps --vdso "$exe" 2>/dev/null
		programs=$((programs + 1))
		run "$out/stock" "$exe"
		run "$out/preloaded" env LD_PRELOAD="$library" "$exe"
		run "$out/replaced" env LD_LIBRARY_PATH="$(dirname "$library")" "$exe"
		for way in preloaded replaced; do
			if ! cmp -s "$out/stock" "$out/$way"; then
				different=$((different + 1))
				echo "different: $level $way ${file#"$source"/}"
				diff "$out/stock" "$out/$way" | head -5
			fi
		done
	done
done
echo "$programs programs, $skipped that did not compile, $different differences"
[ "$different" -eq 0 ]
