#!/bin/bash
# Times 'ehasm script --inline --lines' beside 'perf script -F +srcline', which asks
# addr2line for the same:
#   bench/perf-lines.sh [perf.data...]
# Without arguments it records python3.11d of Debian's python3.11-dbg, a C++ program
# and SQLite, the latter two built with -g -O2, each with perf record -e cpu-clock
# --call-graph dwarf for several seconds, for less than one, and for less than a tenth
# of one, below $BENCH_OUT/lines (default bench/out/lines); the programs are kept
# there. Both commands take turns, ROUNDS=N times (default 5). The floor is ehasm script
# without --inline --lines. perf's CPU time excludes addr2line's.
set -eu
if [ $# -gt 0 ]; then
	mapfile -t files < <(realpath -- "$@")
	set -- "${files[@]}"
fi
cd "$(dirname "$0")"
out=${BENCH_OUT:-$PWD/out}/lines
rounds=${ROUNDS:-5}
mkdir -p "$out"
out=$(realpath "$out")
(cd .. && CGO_ENABLED=0 go build -o "$out/ehasm" ./cmd/ehasm)

# The folder of SQLite's source: the Go module has it in one file.
sqlite() {
	(cd "$out" && go mod download -json github.com/mattn/go-sqlite3@v1.14.53) | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'
}

programs() {
	if [ ! -x "$out/python/usr/bin/python3.11d" ]; then
		need=(python3.11-dbg python3.11-minimal libpython3.11-minimal libpython3.11-stdlib)
		(cd "$out" && rm -rf python deb && mkdir python deb && cd deb && { apt-get -qq download "${need[@]}" 2>/dev/null ||
			{ apt-get -qq update && apt-get -qq download "${need[@]}"; }; } && for d in *.deb; do dpkg-deb -x "$d" ../python; done)
		rm -rf "$out/deb"
	fi
	[ -x "$out/cxx" ] || g++ -g -O2 -o "$out/cxx" lines-load/load.cc
	[ -x "$out/sqlite" ] || { dir=$(sqlite) && gcc -g -O2 -I"$dir" -o "$out/sqlite" lines-load/load.c "$dir/sqlite3-binding.c" -lm -lpthread -ldl; }
}

record() { # NAME COMMAND...
	perf record -q -m 16M -e cpu-clock --call-graph dwarf -o "$out/$1.data" -- "${@:2}" >"$out/$1.log" 2>&1 ||
		{ echo "perf-lines: $1: $(tail -n 1 "$out/$1.log")" >&2; exit 1; }
}

if [ $# -eq 0 ]; then
	programs
	export PYTHONHOME=$out/python/usr
	py=(env PYTHONDONTWRITEBYTECODE=1 "$out/python/usr/bin/python3.11d" lines-load/load.py)
	record python-long "${py[@]}" 400
	record python-short "${py[@]}" 45
	record python-tiny "${py[@]}" 3
	record cxx-long "$out/cxx" 5000
	record cxx-short "$out/cxx" 600
	record cxx-tiny "$out/cxx" 60
	record sqlite-long "$out/sqlite" 600
	record sqlite-short "$out/sqlite" 80
	record sqlite-tiny "$out/sqlite" 8
	for name in python cxx sqlite; do
		set -- "$@" "$out/$name-long.data" "$out/$name-short.data" "$out/$name-tiny.data"
	done
fi

# clock NAME COMMAND...: seconds of wall and of CPU time, a line in $out/NAME.times.
clock() {
	local TIMEFORMAT='%3R %3U %3S'
	{ time "${@:2}" >"$out/output" 2>/dev/null; } 2>>"$out/$1.times"
}

# least and median of a column of $out/NAME.times; column 4 is CPU time.
stat() { # NAME COLUMN
	awk -v c="$2" '{print c == 4 ? $2 + $3 : $c}' "$out/$1.times" | sort -n |
		awk '{v[NR] = $1} END {printf "%.3f %.3f", v[1], NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'
}

printf '%-16s %7s | %s\n' recording samples "seconds, least and median: perf; its CPU; ehasm; its CPU; floor | ratio of least, of medians"
for data; do
	"$out/ehasm" script -i "$data" -o "$out/output" --stats "$out/stats.json" -q # fills the cache
	samples=$(sed -n 's/^ *"samples": \([0-9]*\),*$/\1/p' "$out/stats.json" | head -n 1)
	rm -f "$out"/{perf,ours,floor}.times
	for ((i = 0; i < rounds; i++)); do
		clock perf perf script -F +srcline -i "$data"
		# A short command is timed more often than a long one.
		for ((k = 0; k < 3; k++)); do
			clock ours "$out/ehasm" script -q --inline --lines -i "$data"
			clock floor "$out/ehasm" script -q -i "$data"
		done
	done
	read -r pl pm <<<"$(stat perf 1)"
	read -r ol om <<<"$(stat ours 1)"
	printf '%-16s %7s | %s %s; %s; %s %s; %s; %s | %s\n' "$(basename "$data" .data)" "$samples" "$pl" "$pm" "$(stat perf 4)" \
		"$ol" "$om" "$(stat ours 4)" "$(stat floor 1)" "$(awk "BEGIN {printf \"%.1f %.1f\", $pl / $ol, $pm / $om}")"
done
