#!/bin/sh
# llvm.sh EHASM LIBRARY SOURCE OUT [FLAGS [COMPILER]]: libc++abi's and libunwind's tests with the system's libgcc and with LIBRARY, our
# libgcc_s.so.1. SOURCE has the folders libcxxabi, libunwind and libcxx of LLVM; FLAGS are levels of optimisation; COMPILER is a command, g++ if
# it is not given. Each program that compiles is run both ways, ours preloaded and in LD_LIBRARY_PATH; a difference of exit status or output is printed.
set -u
ehasm=$1 library=$2 source=$3 out=$4 levels=${5:--O0 -O1 -O2} compiler=${6:-g++}
mkdir -p "$out/cache"
out=$(realpath "$out")
XDG_CACHE_HOME=$out/cache
export XDG_CACHE_HOME
run() { # NAME COMMAND...: output to NAME
	to=$1
	shift
	timeout 60 "$@" >"$to.raw" 2>&1 </dev/null
	echo "status $?" >>"$to.raw"
	sed -e 's/0x[0-9a-f]*/0x/g' -e 's/[0-9.]* m*s/s/' -e 's/[0-9]* Aborted/Aborted/' "$to.raw" >"$to"
}
programs=0 different=0 skipped=0
for level in $levels; do
	for file in $(find "$source/libcxxabi/test" "$source/libunwind/test" -name '*.pass.cpp' | sort); do
		exe=$out/program
		rm -f "$exe"
		# shellcheck disable=SC2086
		if ! $compiler $level -w -std=c++17 -funwind-tables -pthread -rdynamic -I"$source/libcxx/test/support" -I"$source/libcxxabi/test" -o "$exe" "$file" -ldl >/dev/null 2>&1; then
			skipped=$((skipped + 1))
			continue
		fi
		"$ehasm" build -q --cache --deps --vdso "$exe" 2>/dev/null
		programs=$((programs + 1))
		run "$out/stock" "$exe"
		run "$out/preloaded" env LD_PRELOAD="$library" "$exe"
		run "$out/replaced" env LD_LIBRARY_PATH="$(dirname "$library")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$exe"
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
