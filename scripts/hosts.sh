#!/bin/bash
# Builds and proves the same files on other hosts, and compares their output, including messages
# about wrong files: linux/386, linux/arm64 under qemu-aarch64, windows/amd64 under wine.
# darwin/arm64 is compiled, not run. The status is 1 if a host differs or its emulator is missing.
# Needs jq. FILE...: the objects; ls and libc without any. Debian: qemu-user, wine64.
set -eu
cd "$(dirname "$0")/.."
objects=("$@")
[ ${#objects[@]} -gt 0 ] || objects=(/bin/ls /lib/x86_64-linux-gnu/libc.so.6)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export WINEPREFIX=$dir/wine WINEDEBUG=-all
failed=0

verdicts() { # COMMAND...
	"$@" prove --json --all "$dir/files" 2>/dev/null | jq -c '.[] | del(.seconds) | .file |= gsub("\\\\"; "/") | .object |= gsub("\\\\"; "/")'
}
built() { # COMMAND...
	rm -rf "$dir/built"
	for object in "${objects[@]}"; do
		"$@" build -q -o "$dir/built" "$object" 2>/dev/null
	done
	(cd "$dir/built" && sha256sum -- *)
}

go build -o "$dir/ehasm" ./cmd/ehasm
n=0
for object in "${objects[@]}"; do
	name=$(basename "$object")
	for flags in --dispatch=tree --dispatch=packed --no-deref --relro --synth=missing; do
		for k in 0 1 2 3 4 5 6 7 8; do # from 1 on: one byte changed
			to=$dir/files/$((++n))
			"$dir/ehasm" build -q "$flags" -o "$to" "$object"
			ln -s "$(realpath "$object")" "$to/$name"
			size=$(stat -c %s "$to/$name.eh_elf.so")
			[ $k -eq 0 ] || printf '\xcc' | dd of="$to/$name.eh_elf.so" bs=1 seek=$((size * k / 9)) conv=notrunc status=none
		done
	done
done
{ verdicts "$dir/ehasm"; built "$dir/ehasm"; } >"$dir/here" || true
proven=$(grep -c '"proven":true' "$dir/here")
refused=$(grep -c '"proven":false' "$dir/here")
echo "here: $n files, $proven proven, $refused refused"
[ $((proven + refused)) -eq $n ] && [ "$proven" -ge $((n / 9)) ] && [ "$refused" -gt $((n / 2)) ] || failed=1

on() { # OS ARCH [EMULATOR]
	local host=$1/$2
	GOOS=$1 GOARCH=$2 CGO_ENABLED=0 go build -o "$dir/ehasm-$1-$2" ./cmd/ehasm
	if [ $# -gt 2 ] && ! command -v "$3" >/dev/null; then
		echo "$host: not run: no $3"
		failed=1
		return
	fi
	{ verdicts ${3:+"$3"} "$dir/ehasm-$1-$2"; built ${3:+"$3"} "$dir/ehasm-$1-$2"; } >"$dir/there" || true
	if cmp -s "$dir/here" "$dir/there"; then
		echo "$host: the same"
	else
		echo "$host: differs:"
		diff "$dir/here" "$dir/there" | head -10
		failed=1
	fi
}
on linux 386
on linux arm64 qemu-aarch64
if command -v wine >/dev/null; then
	# Go needs a library of Windows 10 that wine 8 has not: one function, which another has.
	wine cmd /c exit >/dev/null 2>&1 || true
	system=$WINEPREFIX/drive_c/windows/system32
	if [ -d "$system" ] && [ ! -e "$system/bcryptprimitives.dll" ]; then
		printf 'LIBRARY bcryptprimitives.dll\nEXPORTS\n ProcessPrng = advapi32.SystemFunction036\n' >"$dir/prng.def"
		ld -m i386pep --dll -o "$system/bcryptprimitives.dll" "$dir/prng.def"
	fi
fi
on windows amd64 wine
GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 go build -o "$dir/ehasm-darwin" ./cmd/ehasm
echo "darwin/arm64: compiled, not run"
exit $failed
