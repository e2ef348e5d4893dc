#!/bin/bash
# What 'ehasm record' finds and loses, beside perf record, on programs that are here:
# bench/record.sh [LOAD...]; see docs/validation/record.md. It writes to bench/out/record.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1
out=$PWD/bench/out/record
mkdir -p "$out" || exit 1
CGO_ENABLED=0 go build -o "$out/ehasm" ./cmd/ehasm || exit 1
export XDG_CACHE_HOME=$out/cache # empty at first
rate=${RATE:-999}

cat > "$out/load.py" <<'P'
def f(n): return n if n < 2 else f(n - 1) + f(n - 2)
f(31)
P
cat > "$out/load.js" <<'P'
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2) }
function deep(n) { return n == 0 ? fib(24) : deep(n - 1) + 1 }
const a = []; for (let i = 0; i < 200000; i++) a.push(Math.random())
for (let k = 0; k < 6; k++) { a.slice().sort((x, y) => x - y); deep(100 + k * 10); JSON.parse(JSON.stringify(a)) }
P
cat > "$out/load.cc" <<'P'
#include <map>
#include <regex>
#include <string>
int main() { std::map<std::string, int> m; std::regex r("a.*b"); m["x"] = 1; return std::regex_match("acb", r) + m.size(); }
P
head -c 12000000 "$(command -v node)" > "$out/load.bin"

command_of() { # sets command to the words of a load
	case $1 in
	python) command=(python3 "$out/load.py") ;;
	node) command=(node "$out/load.js") ;;
	g++) command=(g++ -O1 -c "$out/load.cc" -o /dev/null) ;;
	xz) command=(xz -T2 -2 -k -c "$out/load.bin") ;;
	git) command=(git log --stat -n 300) ;;
	perf-bench) command=(perf bench sched messaging -g 10 -l 300) ;; # what hackbench is: 400 tasks
	*) return 1 ;;
	esac
}

number() { sed -n 's/.*"'"$2"'": \([0-9.]*\).*/\1/p' "$1" | head -1; }

echo "$(uname -r), $(sed -n 's/model name.*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, load $(cut -d' ' -f1-3 /proc/loadavg), $rate Hz"
printf '%-10s %8s %6s %8s %8s %9s %9s %8s %10s %9s %9s\n' load samples lost whole% memory us/sample B/sample write-ms perf-8K-MB perf-lost B/sample
for load in "${@:-python node g++ xz git perf-bench}"; do
	for name in $load; do
		command_of "$name" || { echo "no load $name" >&2; exit 2; }
		"$out/ehasm" record -q -F "$rate" --stats "$out/stats" -o "$out/$name.pb.gz" -- "${command[@]}" >/dev/null || exit 1
		perf record -q -F "$rate" -e cpu-clock --call-graph dwarf,8192 -o "$out/perf.data" -- "${command[@]}" >/dev/null 2>"$out/perf.err"
		perfLost=$(perf report --stats -i "$out/perf.data" 2>/dev/null | awk '/LOST_SAMPLES events:|LOST events:/{n+=$3} END{print n+0}')
		perfBytes=$(stat -c %s "$out/perf.data")
		samples=$(number "$out/stats" samples)
		unwound=$(number "$out/stats" stacks_unwound)
		outer=$(sed -n 's/.*"outermost frame[^"]*": \([0-9]*\).*/\1/p' "$out/stats" | awk '{n+=$1} END{print n+0}')
		awk -v name="$name" -v s="$samples" -v lost="$(number "$out/stats" lost)" -v u="$unwound" -v o="$outer" \
			-v mem="$(number "$out/stats" refilled_from_memory)" \
			-v ns="$(number "$out/stats" handling_ns)" -v bytes="$(stat -c %s "$out/$name.pb.gz")" -v w="$(number "$out/stats" writing_ns)" \
			-v pb="$perfBytes" -v pl="$perfLost" 'BEGIN{
			printf "%-10s %8d %6d %8.2f %8d %9.2f %9.1f %8.0f %10.1f %9d %9.0f\n", name, s, lost, 100*o/(u?u:1), mem, ns/s/1000, bytes/s, w/1e6, pb/1e6, pl, pb/s}'
		rm -f "$out/perf.data"
	done
done

echo
echo "Highest rates, one busy thread, 16 KB copies, rings of 16 MB, real-time priority:"
cat > "$out/spin.c" <<'P'
volatile unsigned long s;
__attribute__((noinline)) int w(void) { for (unsigned long i = 0; i < 1500000000; i++) s += i; return 1; }
__attribute__((noinline)) int d(int n) { volatile char p[64]; p[0] = n; return n ? d(n - 1) + p[0] : w(); }
int main(void) { return d(22) == 0; }
P
gcc -O1 -fno-optimize-sibling-calls -o "$out/spin" "$out/spin.c" || exit 1
for hz in 999 4999 20000 49000; do
	"$out/ehasm" record -q --ring 16777216 -F $hz --stats "$out/stats" -o "$out/spin.folded" -- "$out/spin" || exit 1
	awk -v hz=$hz -v s="$(number "$out/stats" samples)" -v lost="$(number "$out/stats" lost)" -v ns="$(number "$out/stats" handling_ns)" \
		'BEGIN{printf "%6d Hz: %8d samples, %d lost, %.2f us a sample\n", hz, s, lost, ns/s/1000}'
done
