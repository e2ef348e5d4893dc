#!/bin/bash
# Compares 'ehasm script' with 'perf script' on recordings of a few programs:
#   scripts/perf-compare.sh [perf.data...]
# Without arguments it records them, with perf record -e cpu-clock --call-graph
# dwarf, into a temporary folder. Per recording it prints the samples, how many
# have the same user frames, how many more frames (deeper), fewer (shallower), or
# others, and the seconds that each program took.
#
# perf ends a stack whose return address is 0 with the frame ffffffffffffffff;
# that frame does not count.
set -eu
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go build -o "$dir/ehasm" ./cmd/ehasm

record() {
	local name=$1
	shift
	perf record -q -e cpu-clock --call-graph dwarf -o "$dir/$name.data" -- "$@" >/dev/null 2>&1 || true
}

if [ $# -eq 0 ]; then
	record hackbench perf bench sched messaging -l 20 -g 2
	record python3 python3 -c 'f=lambda n: n if n<2 else f(n-1)+f(n-2)
f(25)'
	record gcc gcc -O2 -c -o "$dir/stack.o" -x c runtime/src/stack.c -Iinclude -Iruntime/include
	record git git log --stat -n 40
	record xz xz -k -c /bin/bash
	command -v node >/dev/null && record node node -e 'let s=0; for (let i=0;i<3e7;i++) s+=Math.sqrt(i)'
	set -- "$dir"/*.data
fi

# A line per sample: its user frames.
frames() {
	awk '/^$/ { print line; line = ""; next }
		/^\t/ { if ($0 !~ /\(\[kernel|\(\[[a-z0-9_]+\]\)$/ && $1 != "ffffffffffffffff") line = line " " $1 }' "$1"
}

seconds() {
	local start=$EPOCHREALTIME
	"${@:2}" >"$1" 2>/dev/null || true
	awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f", b - a }'
}

printf '%-12s %8s %7s %7s %9s %7s  %6s %6s\n' recording samples same deeper shallower other perf ehasm
for data; do
	p=$(seconds "$dir/perf" perf script --no-inline -i "$data")
	e=$(seconds "$dir/ehasm.out" "$dir/ehasm" script -q -i "$data")
	frames "$dir/perf" >"$dir/a"
	frames "$dir/ehasm.out" >"$dir/b"
	paste -d'|' "$dir/a" "$dir/b" | awk -F'|' -v name="$(basename "$data" .data)" -v p="$p" -v e="$e" '
		$1 == $2 { same++; next }
		index($2 " ", $1 " ") == 1 { deeper++; next }
		index($1 " ", $2 " ") == 1 { shallower++; next }
		{ other++ }
		END { printf "%-12s %8d %6.2f%% %7d %9d %7d  %5ss %5ss\n", name, NR, 100*same/NR, deeper, shallower, other, p, e }'
done
