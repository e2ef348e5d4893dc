#!/bin/bash
# What the library of `heap` is not to change: runtime/stress/recorded.sh [SECONDS [REGIONS]].
# For SECONDS (600), a program that must print and end as it does alone (allocating.cc), and whose
# bytes the profile must have within 3 %. Then REGIONS (20000) damaged ones are read. The exit status
# is 1 if one ends badly.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
out=$top/build/stress
seconds=${1:-600} regions=${2:-20000}
status=0
mkdir -p "$out" && cd "$top" || exit 1
unset LD_PRELOAD EHASM_STATS

CGO_ENABLED=0 go build -o "$out/ehasm" ./cmd/ehasm && make -s -C runtime OUT="$out/lib" all &&
	g++ -std=c++17 -O2 -g -D_GNU_SOURCE -Wall -Wextra -Werror -Wno-clobbered -Wno-cast-function-type \
		-o "$out/allocating" runtime/stress/allocating.cc -pthread || exit 1
export XDG_CACHE_HOME=$out/cache EHASM_RECORD_LIBRARY=$out/lib/libehunwind-record.so
modes="throwing cancelling forking spawning loading dropping confining switching interrupting crowding closing
	calculating sealing limiting kinds ending"

# compare MODE ROUNDS
compare() {
	local plain said rc got bytes
	plain=$("$out/allocating" "$1" "$2" 2>/dev/null)
	rc=$?
	rm -f "$out/recorded.folded"
	said=$(timeout -k 10 300 "$out/ehasm" heap --total --period 2K -o "$out/recorded.folded" \
		"$out/allocating" "$1" "$2" 2>"$out/recorded.err")
	got=$?
	bytes=$(sed -n 's/^bytes //p' "$out/recorded.err")
	awk -v want="$bytes" '{ sum += $NF } END { exit !(sum > 0.97 * want && sum < 1.03 * want) }' "$out/recorded.folded" &&
		[ $rc -eq $got ] && [ "$plain" = "$said" ] && return
	echo "FAILED: $1 $2: status $got, alone $rc; $bytes bytes; $said"
	tail -n 5 "$out/recorded.err"
	status=1
}

n=0 SECONDS=0
while [ $SECONDS -lt "$seconds" ]; do
	for mode in $modes; do compare "$mode" $((n % 8 + 1)); done
	n=$((n + 1))
done
echo "recorded: $n times each of" $modes
EHASM_REGIONS=$regions go test ./internal/profile/record -count=1 -timeout 1h -run TestRegionMutated || status=1
exit $status
