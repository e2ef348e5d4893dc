#!/bin/bash
# Are findings of check true? validate/truth/drawn.sh FOLDER SEED [OUTPUT_FOLDER]
# FOLDER has a folder for each package, unpacked. Of each package, files with errors or warnings are drawn, at most three, and
# of each file two errors and two warnings. Runs of the functions decide them. What is done already is not done again.
set -eu
folder=${1:?no folder} seed=${2:?no seed} out=${3:-build/drawn}
folder=$(realpath "$folder")
cd "$(dirname "$0")/../.."
mkdir -p "$out"
go build -o "$out/truth" ./validate/truth && go build -o "$out/ehasm" ./cmd/ehasm
for package in "$folder"/*/; do
	json=$out/$(basename "$package").json
	[ -e "$json" ] && continue
	files=()
	while read -r file; do
		found=$(timeout 60 "$out/ehasm" check "$file" 2>/dev/null | grep -Ec ': (error|warning): ' || true)
		[ "$found" = 0 ] || files+=("$file")
	done < <(find "$package" -type f -size +4k -size -150M -exec file -F '|' {} + | grep -E 'ELF 64-bit.*(executable|shared object), x86-64' |
		cut -d '|' -f 1 | sort | shuf --random-source=<(yes "$seed") | head -n 40)
	[ ${#files[@]} -gt 0 ] || continue
	"$out/truth" --force --draw 2 --seed "$seed" --json "${files[@]:0:3}" >"$json.part" && mv "$json.part" "$json" || echo "$package: failed" >&2
done
"$out/truth" --sum "$out"/*.json
