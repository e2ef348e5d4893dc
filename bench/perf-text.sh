#!/bin/bash
# Compares all text of 'ehasm-perf script --no-inline' with perf's, sample by sample:
#   bench/perf-text.sh [COMMAND...]
# Each COMMAND, which a shell runs, is recorded in five ways at 9,973 Hz. perf reads copies with call chains, since its own
# unwinder cuts stacks. Names of entries of linkage tables are left out (docs/perf-tools.md says why). Without a
# COMMAND it is a few programs of this machine. ROUNDS=N repeats all; SHOW=N prints N lines of each difference.
set -eu
cd "$(dirname "$0")"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
(cd .. && go build -o "$dir/ehasm" ./cmd/ehasm)
ln -s ehasm "$dir/ehasm-perf"
export HOME=$dir XDG_CACHE_HOME=$dir
[ $# -gt 0 ] || set -- 'python3 perf-load/load.py' 'g++ -O2 -c -o /dev/null perf-load/load.cc' 'git log -p -50 --stat' \
	'for i in 1 2 3 4 5 6 7 8; do ls -l / | sort | gzip -9; done'

# entry drops the names of entries of linkage tables, and of _init, after which perf calls some.
entry() {
	sed -E 's/^(.*[ \t][0-9a-f]{4,16}) (.*@plt|_init|\[unknown\])(\+0x[0-9a-f]+)?( \(|$)/\1 [entry]\4/'
}

recordings=0 lines=0 different=0
for ((round = 0; round < ${ROUNDS:-1}; round++)); do
	for command; do
		for how in '-e cpu-clock:u --call-graph dwarf' '-e cpu-clock --call-graph dwarf --sample-cpu' \
			'-e cpu-clock:u,page-faults:u --call-graph dwarf' '-e cpu-clock -g' '-e cpu-clock:u'; do
			perf record -q -F 9973 -m 16M -o "$dir/in.data" $how -- sh -c "$command" >/dev/null 2>&1
			"$dir/ehasm" script -q --cache=false -i "$dir/in.data" -o "$dir/chains.perf.data"
			for flags in '' '-F comm,tid,ip,sym,symoff' '-F ip,sym,dso -G'; do
				perf script --no-inline -i "$dir/chains.perf.data" $flags 2>/dev/null | entry >"$dir/perf.txt"
				"$dir/ehasm-perf" script --no-inline -i "$dir/in.data" $flags | entry >"$dir/ehasm.txt"
				n=$(diff "$dir/perf.txt" "$dir/ehasm.txt" | grep -c '^[<>]' || true)
				lines=$((lines + $(wc -l <"$dir/perf.txt"))) different=$((different + n))
				[ "$n" = 0 ] || echo "$command: $how: $flags: $n lines"
				diff "$dir/perf.txt" "$dir/ehasm.txt" | head -n "${SHOW:-0}" || true
			done
			recordings=$((recordings + 1))
		done
	done
done
echo "$recordings recordings, $lines lines, $different different"
