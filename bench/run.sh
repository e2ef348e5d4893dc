#!/bin/sh
# Usage: bench/run.sh [--quick] [--only PART]. README.md tells what it measures.
# Everything is written below bench/out, or below $BENCH_OUT.
set -eu
cd "$(dirname "$0")"
out=${BENCH_OUT:-$PWD/out}
mkdir -p "$out/lib"

# Two runs in one folder would spoil each other.
exec 9>"$out/.lock"
flock -n 9 || { echo "bench: waiting for another run in $out" >&2; flock 9; }

# What the benchmark needs of the machine. Nothing is installed where it is there.
missing=
need() { # PACKAGE FILE-OR-COMMAND
	command -v "$2" >/dev/null 2>&1 || [ -e "$2" ] || missing="$missing $1"
}
need gcc gcc
need g++ g++
need make make
need valgrind valgrind
need valgrind /usr/include/valgrind/callgrind.h
need libunwind-dev /usr/include/x86_64-linux-gnu/libunwind.h
need libdw-dev /usr/include/elfutils/libdwfl.h
case " $* " in *" perf "*) need linux-perf perf; need libunwind-dev /usr/lib/x86_64-linux-gnu/libunwind-x86_64.so ;; esac
need libpython3-dev "$(ls /usr/lib/x86_64-linux-gnu/libpython3.*.so.1.0 2>/dev/null | head -1)"
if [ -n "$missing" ] && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
	echo "bench: installing$missing" >&2
	export DEBIAN_FRONTEND=noninteractive
	apt-get -qq update && apt-get -qq install -y --no-install-recommends $missing >/dev/null ||
		echo "bench: could not install$missing; what needs it is left out or fails" >&2
elif [ -n "$missing" ]; then
	echo "bench: missing:$missing; what needs it is left out or fails" >&2
fi

# LLVM's libunwind conflicts with packages of other libunwinds, so it is unpacked, not installed.
if [ ! -e "$out/lib/llvm-libunwind.so" ]; then
	for v in $(apt-cache search --names-only '^libunwind-[0-9]+$' 2>/dev/null | sed 's/libunwind-\([0-9]*\) .*/\1/' | sort -rn); do
		rm -rf "$out/lib/deb" && mkdir -p "$out/lib/deb"
		(cd "$out/lib/deb" && apt-get -qq download "libunwind-$v" 2>/dev/null) || continue
		dpkg -x "$out"/lib/deb/*.deb "$out/lib/deb/x"
		so=$(find "$out/lib/deb/x" -name libunwind.so.1.0 -type f | head -1)
		[ -n "$so" ] && ldd "$so" >/dev/null 2>&1 && cp "$so" "$out/lib/llvm-libunwind.so" && echo "libunwind-$v" >"$out/lib/llvm-version" && break
	done
	rm -rf "$out/lib/deb"
fi

# One copy of libunwind for each caching policy, which is a property of the library.
libunwind=$(ldconfig -p | awk '$1 == "libunwind.so.8" {print $NF; exit}')
for policy in global thread none; do
	cmp -s "$libunwind" "$out/lib/libunwind-$policy.so" || cp -L "$libunwind" "$out/lib/libunwind-$policy.so"
done

make -s -C ../runtime OUT="$out/runtime"
cp -L "$out/runtime/libehunwind.so" "$out/lib/libehunwind.so"
driver/build.sh "$out"
perf/build.sh "$out/perf"
go build -o "$out/bench" .
(cd .. && go build -o "$out/ehasm" ./cmd/ehasm)
exec "$out/bench" -out "$out" "$@"
