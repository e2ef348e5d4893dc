#!/bin/sh
# llvm.sh EHASM LIBRARY SOURCE OUT [FLAGS [COMPILER]]: libc++abi's and libunwind's tests with the system's libgcc and with LIBRARY, our
# libgcc_s.so.1. SOURCE has the folders libcxxabi, libunwind and libcxx of LLVM; FLAGS are levels of optimisation; COMPILER is a command, g++ if
# it is not given. Each program that compiles is run both ways, ours preloaded and in LD_LIBRARY_PATH; a difference of exit status or output is printed.
set -u
ehasm=$1 library=$2 source=$3 out=$4 levels=${5:--O0 -O1 -O2} compiler=${6:-g++}
times='s/[0-9.]* m*s/s/'
. "$(dirname "$0")/compare.sh"
for level in $levels; do
	for file in $(find "$source/libcxxabi/test" "$source/libunwind/test" -name '*.pass.cpp' | sort); do
		exe=$out/program
		rm -f "$exe"
		# shellcheck disable=SC2086
		if ! $compiler $level -w -std=c++17 -funwind-tables -pthread -rdynamic -I"$source/libcxx/test/support" -I"$source/libcxxabi/test" -o "$exe" "$file" -ldl >/dev/null 2>&1; then
			skipped=$((skipped + 1))
			continue
		fi
		compare "$level" "$file"
	done
done
finish
