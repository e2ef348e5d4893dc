#!/bin/sh
# random.sh EHASM LIBRARY RANDOM OUT FIRST LAST [PROGRAMS]: files of PROGRAMS (100) random programs each, seeds FIRST to LAST, with the
# system's libgcc and with LIBRARY, our libgcc_s.so.1. RANDOM is the command of the folder random.
set -u
ehasm=$1 library=$2 random=$3 out=$4 first=$5 last=$6 programs=${7:-100}
mkdir -p "$out/cache"
out=$(realpath "$out")
export XDG_CACHE_HOME="$out/cache"
total=0 different=0 seed=$first
while [ "$seed" -le "$last" ]; do
	case $((seed % 5)) in 0) flags=-O0 ;; 1) flags=-O1 ;; 2) flags=-O2 ;; 3) flags="-O2 -fno-omit-frame-pointer -mno-accumulate-outgoing-args" ;;
	4) flags="-O1 -fomit-frame-pointer -mno-accumulate-outgoing-args -mpush-args -fno-ipa-sra" ;; esac
	"$random" "$seed" "$programs" >"$out/random.cc"
	# shellcheck disable=SC2086
	g++ $flags -w -pthread -o "$out/random" "$out/random.cc" || exit 1
	dispatch=tree
	[ $((seed / 5 % 2)) -eq 1 ] && dispatch=packed
	"$ehasm" build -q --dispatch=$dispatch --cache --deps --vdso "$out/random"
	timeout 300 "$out/random" >"$out/stock" 2>&1
	LD_PRELOAD=$library timeout 300 "$out/random" >"$out/ours" 2>&1
	total=$((total + programs))
	if ! cmp -s "$out/stock" "$out/ours"; then
		different=$((different + 1))
		echo "seed $seed: different"
		diff "$out/stock" "$out/ours" | head -6
	fi
	seed=$((seed + 1))
done
echo "$total programs, 4 runs each; $different of $((last - first + 1)) files different"
[ "$different" -eq 0 ]
