#!/bin/bash
# What libehunwind is not to break at: runtime/stress/run.sh [SECONDS [FILES]]. Signals at HZ (20000)
# for SECONDS (600) in all, under the preload and with the library linked, also with TSan, and in
# a program whose functions note the stack that is to be found (storm.cc); and
# FILES (100000) damaged eh_elfs through the C loader under ASan and UBSan. One line per run; the
# exit status is 1 if one ends badly. MODES are what threads do meanwhile; STRESS_OUT is the folder for what is made.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
out=${STRESS_OUT:-$top/build/stress}
seconds=${1:-600} files=${2:-100000} hz=${HZ:-20000}
status=0
mkdir -p "$out" && cd "$top" || exit 1
unset LD_PRELOAD EHASM_STATS

CGO_ENABLED=0 go build -o "$out/ehasm" ./cmd/ehasm && make -s -C runtime OUT="$out/lib" all || exit 1
export EHASM_PATH=$out/eh XDG_CACHE_HOME=$out/none # Go's cache is below XDG_CACHE_HOME, too
warnings="-Wall -Wextra -Werror -g -D_GNU_SOURCE -Iruntime/include"
sources=$(ls runtime/src/*.c runtime/src/*.S)
# shellcheck disable=SC2086
g++ -std=c++17 -O2 $warnings -o "$out/signals" runtime/stress/signals.cc -pthread &&
	g++ -std=c++17 -O2 -DDIRECT $warnings -o "$out/signals-direct" runtime/stress/signals.cc "$out/lib/libehunwind.a" -pthread &&
	g++ -std=c++17 -O2 -fno-plt $warnings -o "$out/storm" runtime/stress/storm.cc "$out/lib/libehunwind.so" -Wl,-rpath,"$out/lib" -pthread && # its text is what it notes
	make -s -C runtime OUT="$out/tsan" CFLAGS="-O1 -g -fsanitize=thread" "$out/tsan/libehunwind.a" &&
	g++ -std=c++17 -O1 -fsanitize=thread -DDIRECT $warnings -o "$out/signals-tsan" runtime/stress/signals.cc "$out/tsan/libehunwind.a" -pthread &&
	gcc -O1 -fsanitize=address,undefined -fno-sanitize-recover=all $warnings -o "$out/loader" runtime/stress/loader.c \
		runtime/src/{load,trust,content,memory,loader,lock}.c &&
	gcc -O2 -fsanitize=undefined -fno-sanitize-recover=all $warnings -std=gnu11 -o "$out/corrupt" runtime/testdata/corrupt.c $sources -pthread || exit 1
"$out/ehasm" build -q --deps --vdso -o "$out/eh" "$out/signals" "$out/signals-direct" "$out/signals-tsan" "$out/corrupt" \
	"$out/lib/libehunwind-preload.so" "$out/storm" && "$out/ehasm" build -q -o "$out/eh-libgcc" "$out/lib/libgcc/libgcc_s.so.1" || exit 1
"$out/ehasm" build -q --dispatch=packed -o "$out/packed" "$out/signals" || exit 1

# run LABEL COMMAND... says how it ended.
run() {
	local label=$1 said
	shift
	said=$(timeout -k 10 "$((seconds + 300))" "$@" 2>&1)
	local rc=$?
	echo "$label: $(tail -n 3 <<<"$said" | tr '\n' ' ')"
	if [ $rc -ne 0 ] || grep -q -E 'WRONG|ERROR|runtime error|WARNING: ThreadSanitizer' <<<"$said"; then
		echo "FAILED with status $rc: $label"
		head -n 40 <<<"$said"
		status=1
	fi
}

modes=${MODES-"loading loading-forks forking spawning throwing jumping switching alternating cancelling recursing starting"}
each=$((seconds / 30)); [ $each -gt 0 ] || each=1
for mode in $modes all-loading all-throwing; do run "preload, $mode" env LD_PRELOAD="$out/lib/libehunwind-preload.so" "$out/signals" "$mode" $each "$hz"; done
for mode in $modes all; do run "linked, $mode" "$out/signals-direct" "$mode" $each "$hz"; done
run "storm" env EHASM_PATH="$out/eh:$out/eh-libgcc" LD_LIBRARY_PATH="$out/lib/libgcc" "$out/storm" $((each * 3))
# TSan holds signals back until a thread calls what it knows.
for mode in $modes all; do
	run "TSan, $mode" env TSAN_OPTIONS=halt_on_error=1:report_signal_unsafe=0 "$out/signals-tsan" "$mode" $((each / 2 + 1)) 2000
done
run "damaged eh_elfs, trees" "$out/loader" "$out/eh/signals.eh_elf.so" $((files / 2)) 1
run "damaged eh_elfs, packed" "$out/loader" "$out/packed/signals.eh_elf.so" $((files - files / 2)) 2
run "corrupt stacks, UBSan" "$out/corrupt" $((files / 10))
exit $status
