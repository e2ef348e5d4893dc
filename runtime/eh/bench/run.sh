#!/bin/sh
# run.sh EHASM LIBRARY [ROUNDS]: what throws cost with the system's libgcc and with LIBRARY, our libgcc_s.so.1, the programs run in turn; medians.
set -eu
here=$(dirname "$0")
ehasm=$1 library=$2 rounds=${3:-9}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
g++ -O2 -o "$dir/throws" "$here/throws.cc" -pthread
export XDG_CACHE_HOME="$dir/cache"
"$ehasm" build -q --cache --deps --vdso "$dir/throws" "$library"
i=0
while [ "$i" -lt "$rounds" ]; do
	"$dir/throws" >>"$dir/stock"; "$dir/throws" first >>"$dir/stock"
	LD_PRELOAD=$library "$dir/throws" >>"$dir/ours"; LD_PRELOAD=$library "$dir/throws" first >>"$dir/ours"
	i=$((i + 1))
done
for side in stock ours; do
	sort -k1,1 -k2,2n -k3,3n "$dir/$side" | awk -v OFS=' ' '
	{ key = $1 " " $2; if (key != last) { flush(); last = key; n = 0 } v[n++] = $3 }
	function flush() { if (last != "") print last, v[int(n / 2)] }
	END { flush() }' >"$dir/$side.median"
done
printf '%-26s %6s %10s %10s %8s\n' case frames stock-ns ours-ns ratio
awk 'NR == FNR { s[$1 " " $2] = $3; next } { k = $1 " " $2; printf "%-26s %6d %10.0f %10.0f %8.1f\n", $1, $2, s[k], $3, s[k] / $3 }' "$dir/stock.median" "$dir/ours.median"
