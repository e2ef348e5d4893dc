#!/bin/bash
# Runs every fuzz target for a time or a number of inputs: scripts/fuzz.sh 10m, scripts/fuzz.sh 2000x
set -u -o pipefail
cd "$(dirname "$0")/.."
status=0
for file in $(find . -name '*_test.go' -not -path './build/*' | sort | xargs grep -l '^func Fuzz'); do
	for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
		echo "fuzz: $(dirname "$file") $target"
		# Minimising is bounded: one run of the code takes milliseconds.
		go test "$(dirname "$file")" -run '^$' -fuzz "^$target\$" -fuzztime "$1" -fuzzminimizetime 10x || status=1
	done
done
exit $status
