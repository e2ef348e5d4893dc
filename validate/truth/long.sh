#!/bin/bash
# Steps through real programs, 10 million instructions in all, and sums up:
# validate/truth/long.sh [OUTPUT_FOLDER] [TRUTH_FLAG...]. Takes about ten minutes. What is
# not installed is named and makes the run fail at its end.
set -u -o pipefail
cd "$(dirname "$0")/../.."
out=${1:-build/truth}
shift || true
extra=("$@")
mkdir -p "$out"
go build -o "$out/truth" ./validate/truth || exit 1
gcc -O2 -o "$out/frames" validate/truth/testdata/frames.c &&
	gcc -O1 -o "$out/long" validate/truth/testdata/long.c &&
	gcc -O2 -o "$out/gmp" validate/truth/testdata/gmp.c -lgmp &&
	g++ -O2 -o "$out/std" validate/truth/testdata/std.cc &&
	g++ -O2 -Wno-deprecated-declarations -o "$out/lib" validate/truth/testdata/lib.cc || exit 1
missing=()

run() { # run NAME FLAGS... -- COMMAND...: one program
	local name=$1 program
	shift
	program=$(printf '%s\n' "$@" | sed -n '/^--$/{n;p;q}')
	command -v "$program" >/dev/null || { missing+=("$program"); return; }
	[ -e "$out/$name.json" ] && return
	"$out/truth" --json --limit 5m "${extra[@]}" "$@" >"$out/$name.json.part" && mv "$out/$name.json.part" "$out/$name.json" ||
		missing+=("$name: failed")
}

# libc
run libc-long --in libc.so -n 500000 -- "$out/long"
run libc-frames --in libc.so,frames -n 100000 -- "$out/frames"
run libc-sort --in libc.so,sort -n 300000 -- sort --parallel=2 validate/truth/step.go validate/truth/tracer.go
run libc-grep --in libc.so,grep -n 200000 -- grep -rE '(a|b)+c[0-9]?.*x' truth
run libc-find --in libc.so,find -n 200000 -- find truth -name '*.go' -printf '%p %s %t\n'
run libc-date --in libc.so,date -n 100000 -- date -d 'last monday +3 days' '+%c %x %s'

# libgmp, libstdc++
run libgmp --in libgmp -n 1500000 -- "$out/gmp"
run libstdcxx --in libstdc++,/std -n 1500000 -- "$out/std"
run libstdcxx-lib --in libstdc++ -n 1500000 -- "$out/lib"

# libcrypto: what openssl speed runs, on this processor, without AES-NI, PCLMULQDQ, AVX
# and SHA instructions, and on the oldest
for caps in host noaes none; do
	case $caps in
	host) cap=() ;;
	noaes) cap=(--env 'OPENSSL_ia32cap=~0x1200000200000000:~0x20000420') ;;
	none) cap=(--env 'OPENSSL_ia32cap=~0xffffffffffffffff:~0xffffffffffffffff') ;;
	esac
	for alg in md5 sha1 sha256 sha512 rmd160 whirlpool des des-ede3 rc4 blowfish cast idea-cbc seed-cbc \
		rsa1024 rsa2048 dsa1024 ecdsap256 ecdsap384 ecdhx25519 ecdhx448 ed25519; do
		run "crypto-$caps-$alg" --in libcrypto -n 50000 --skip 200ms "${cap[@]}" -- openssl speed -seconds 2 -bytes 1024 $alg
	done
	for evp in aes-128-cbc aes-256-cbc aes-128-ctr aes-256-gcm aes-128-ccm aes-128-xts aes-128-ocb aes-128-cfb aes-128-ofb camellia-128-cbc camellia-256-cbc \
		camellia-128-ctr chacha20 chacha20-poly1305 aria-128-cbc sm4-cbc sm4-ctr sha3-256 blake2b512 sm3; do
		run "crypto-$caps-evp-$evp" --in libcrypto -n 50000 --skip 200ms "${cap[@]}" -- openssl speed -seconds 2 -bytes 1024 -evp $evp
		case $evp in
		aes-???-?b?* | aes-128-xts | camellia-128-cbc | sm4-cbc) ;;
		*) continue ;;
		esac
		run "crypto-$caps-dec-$evp" --in libcrypto -n 20000 --skip 200ms "${cap[@]}" -- openssl speed -seconds 2 -bytes 1024 -decrypt -evp $evp
	done
	for mb in aes-128-cbc-hmac-sha1 aes-256-cbc-hmac-sha256; do
		run "crypto-$caps-mb-$mb" --in libcrypto -n 50000 --skip 200ms "${cap[@]}" -- openssl speed -seconds 2 -bytes 8192 -mb -evp $mb
	done
done

# Video codecs: assembly without tables
clip=$out/clip.y4m
[ -e "$clip" ] || ffmpeg -v error -f lavfi -i testsrc2=size=640x360:rate=25 -frames:v 200 -pix_fmt yuv420p "$clip"
[ -e "$out/clip.ivf" ] || SvtAv1EncApp -i "$clip" --preset 8 -b "$out/clip.ivf" >/dev/null 2>&1
run x264 --in libx264 -n 1500000 --skip 300ms --every 100ms --window 200000 -- x264 --threads 2 --preset slow -o /dev/null "$clip"
run dav1d --in libdav1d -n 1500000 --skip 100ms --every 10ms --window 200000 -- dav1d --threads 2 -q -i "$out/clip.ivf" -o /dev/null --muxer null

# Compilers
printf 'int f(int *a, int n) { int s = 0; for (int i = 0; i < n; i++) s += a[i] * i; return s; }\n' >"$out/a.c"
printf 'fn main() { let v: Vec<u32> = (0..9).map(|x| x * x).collect(); println!("{:?}", v); }\n' >"$out/a.rs"
run clang --in libLLVM,libclang -n 1000000 -- "$(clang -print-prog-name=clang)" -cc1 -O2 -emit-obj -o /dev/null "$out/a.c"
run rustc --in librustc_driver,libstd -n 1000000 --skip 100ms --every 20ms --window 200000 -- "$(rustc --print sysroot)/bin/rustc" -O --out-dir "$out" "$out/a.rs"

"$out/truth" --sum "$out"/*.json || exit 1
[ ${#missing[@]} -eq 0 ] || { printf 'not run: %s\n' "${missing[@]}" >&2; exit 1; }
