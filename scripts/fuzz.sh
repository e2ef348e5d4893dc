#!/bin/bash
# Runs every fuzz target for a time or a number of inputs, AT_ONCE (1) of them at a time: scripts/fuzz.sh 10m,
# scripts/fuzz.sh 2000x 2
set -u -o pipefail
cd "$(dirname "$0")/.."
for file in $(find . -name '*_test.go' -not -path './build/*' | sort | xargs grep -l '^func Fuzz'); do
	sed -n "s|^func \(Fuzz[A-Za-z0-9_]*\)(.*|$(dirname "$file") \1|p" "$file"
done | xargs -n 2 -P "${2:-1}" bash -c '
	echo "fuzz: $2 $3"
	# Minimising is bounded: one run of the code takes milliseconds.
	exec go test "$2" -run "^\$" -fuzz "^$3\$" -fuzztime "$1" -fuzzminimizetime 10x' fuzz "$1"
