#!/bin/bash
# Compares the user frames of 'ehasm script' with those of 'perf script':
#   bench/perf-agree.sh [perf.data...]
# Without arguments it records hackbench, python3, gcc (also cc1plus alone), git, xz,
# and node (several loads, also without its run-time compiler) with perf record
# -e cpu-clock --call-graph dwarf, a minute, below $BENCH_OUT/agree (default bench/out/agree).
# SHOW=N prints N samples of each recording that differ.
set -eu
if [ $# -gt 0 ]; then
	mapfile -t files < <(realpath -- "$@")
	set -- "${files[@]}"
fi
cd "$(dirname "$0")"
out=${BENCH_OUT:-$PWD/out}/agree
mkdir -p "$out"
(cd .. && go build -o "$out/ehasm" ./cmd/ehasm)
go build -o "$out/agree" ./agree

stack=8192 # perf's default
personality=
record() { # NAME COMMAND...
	$personality perf record -q -m 16M -e cpu-clock --call-graph dwarf,$stack -o "$out/$1.data" -- "${@:2}" 2>"$out/$1.log" >/dev/null ||
		{ echo "perf-agree: $1: $(tail -n 1 "$out/$1.log")" >&2; rm -f "$out/$1.data"; }
}

if [ $# -eq 0 ]; then
	rm -f "$out"/*.data
	# The interpreter itself: what PATH has may be a shell script that starts it.
	python=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')
	record hackbench perf bench sched messaging -l 400 -g 5
	record python3 "$python" perf-load/load.py
	stack=65528 record python3-64k "$python" perf-load/load.py
	# Where libraries lie decides whether perf takes an exec well; by chance, without -R.
	personality='setarch -R' record gcc g++ -O2 -g -c -o "$out/load.o" perf-load/load.cc
	# Without the driver, whose processes exec.
	g++ -O2 -g -E -o "$out/load.ii" perf-load/load.cc
	record cc1plus "$(g++ -print-prog-name=cc1plus)" -quiet -O2 -g -fpreprocessed -o "$out/load.s" "$out/load.ii"
	record git git log -p --stat -M -C --find-copies-harder
	record xz xz -6 -k -c "$(command -v perf)"
	if command -v node >/dev/null; then
		record node node perf-load/load.js
		record node-jitless node --jitless perf-load/load.js
		for load in server text crypto; do
			record "node-$load" node "perf-load/$load.js"
		done
		npm=$(readlink -f "$(command -v npm)") &&
			record node-parse node --expose-internals perf-load/parse.js "${npm%/bin/*}"
		# As perf wants to have it: perf inject makes a file of each compiled function.
		rm -rf "$out/jit" && mkdir "$out/jit"
		(cd "$out/jit" && perf record -q -k 1 -m 16M -e cpu-clock --call-graph dwarf -- node --perf-prof \
			"$OLDPWD/perf-load/load.js" >../jit.log 2>&1 && perf inject -j -i perf.data -o ../node-inject.data >>../jit.log 2>&1) ||
			echo "perf-agree: node --perf-prof: $(tail -n 1 "$out/jit.log")" >&2
	fi
	set --
	for name in hackbench python3 python3-64k gcc cc1plus git xz node node-{jitless,inject,server,text,crypto,parse}; do
		[ ! -e "$out/$name.data" ] || set -- "$@" "$out/$name.data"
	done
fi
"$out/agree" -ehasm "$out/ehasm" -show "${SHOW:-0}" "$@"
