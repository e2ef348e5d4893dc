#!/bin/bash
# What synth and check say of the functions that gas makes rows for itself: internal/analysis/synth/scfi.sh FOLDER AS
# FOLDER is gas/testsuite/gas/scfi/x86_64 of a binutils checkout, AS an assembler with --scfi (binutils 2.43 or later).
# Each source that AS takes is assembled and linked. gas's rows are then held against the code by `ehasm check`, and
# synth's answers, which do not use them, against gas's rows. The exit status is 1 if one differs.
set -eu
folder=${1:?no folder} as=${2:?no assembler}
ehasm=${EHASM:-ehasm}
cd "$(dirname "$0")/../../.."
"$as" --help | grep -q -e --scfi || { echo "$as: has no --scfi" >&2; exit 2; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
go build -o "$out/agree" ./validate/agree
taken=0 refused=0 alike=0 differ=()
for source in "$folder"/scfi-*.s; do
	[ -e "$source" ] || { echo "$folder: no scfi-*.s" >&2; exit 2; }
	name=$(basename "$source" .s)
	# What gas's own tests want refused is not for rows.
	if ! "$as" --scfi=experimental -W -o "$out/$name.o" "$source" 2>"$out/said"; then
		refused=$((refused + 1))
		echo "$name: gas refuses it: $(head -n 1 "$out/said")"
		continue
	fi
	link() { ld --build-id --unresolved-symbols=ignore-all "$@" -o "$out/$name.so" "$out/$name.o" 2>"$out/said"; }
	link -shared -z notext || link -e 0 # some are not position-independent
	taken=$((taken + 1))
	good=1
	"$ehasm" check "$out/$name.so" >"$out/found" 2>&1 || good=0
	row=$("$out/agree" "$out/$name.so" | awk -F'|' '$3 ~ /^ known/') # | file | starts | instructions | answered | as the table | other CFA | other register |
	[ -n "$row" ] && awk -F'|' '{ exit !($7 == 0 && $8 == 0) }' <<<"$row" || good=0
	if [ $good = 1 ]; then
		alike=$((alike + 1))
	else
		differ+=("$name")
		echo "$name: $row"
		cat "$out/found"
	fi
done
echo "$taken sources with gas's rows: $alike agree, ${#differ[@]} differ${differ[*]:+: ${differ[*]}}; $refused refused by gas"
[ ${#differ[@]} = 0 ] && [ $taken -gt 0 ]
