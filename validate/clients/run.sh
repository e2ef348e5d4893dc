#!/bin/bash
# Profilers and tracers as Debian has them, each with and without the preload:
# validate/clients/run.sh [CLIENT...]. Compares what they say and measures the
# time. ROUNDS is how often each variant is timed (7); they take turns, and the
# least counts. LIBRARY names another libehunwind-preload.so.
#
# A client that differs where it must not makes the exit status 1.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
out=$top/build/clients
lib=/usr/lib/x86_64-linux-gnu
export XDG_CACHE_HOME=$out/cache LC_ALL=C
unset LD_PRELOAD EHASM_STATS
rounds=${ROUNDS:-7}
status=0
mkdir -p "$out"
cd "$top" || exit 1

"$here/deps.sh" || exit 1
CGO_ENABLED=0 go build -o "$out/ehasm" ./cmd/ehasm && go build -o "$out/stacks" ./validate/clients/stacks || exit 1
if [ -z "${LIBRARY:-}" ]; then
	make -s -C runtime OUT="$out" || exit 1
	LIBRARY=$out/libehunwind-preload.so
fi
g++ -O2 -g -Wall -Wextra -Werror -o "$out/work" "$here/work.cc" &&
	gcc -O2 -g -D_GNU_SOURCE -Wall -Wextra -Werror -rdynamic -o "$out/trace" "$here/trace.c" &&
	gcc -O2 -g -Wall -Wextra -Werror -o "$out/leaks" "$here/leaks.c" -l:libgstreamer-1.0.so.0 || exit 1
[ -f "$LIBRARY" ] || { echo "no $LIBRARY" >&2; exit 1; }
cd "$out" || exit 1
preload=(./ehasm preload --library "$LIBRARY")

# differ TEXT: something is not as it should be.
differ() { echo "DIFFERS: $*"; status=1; }

# cpu COMMAND... prints its CPU time, user and system, in ms.
cpu() {
	local TIMEFORMAT='%U %S'
	{ time "$@" >cpu.out 2>&1; } 2>&1 | awk '{ printf "%d\n", ($1 + $2) * 1000 }'
}

# compare ALONE PLAIN PRELOADED, each a function, in turns: the least CPU time of
# each, and what the client takes for a stack, everything it does with it included.
compare() {
	local names=("$@") least=() t
	for ((r = 0; r < rounds; r++)); do
		for i in 0 1 2; do
			t=$(cpu "${names[i]}")
			[ "${least[i]:-$t}" -lt "$t" ] || least[i]=$t
		done
	done
	awk -v a="${least[0]}" -v b="${least[1]}" -v c="${least[2]}" -v n="$walks" 'BEGIN {
		printf "CPU time: alone %d ms, client %d ms, with the preload %d ms; per stack %.2f and %.2f us", a, b, c, (b - a) / n * 1e3, (c - a) / n * 1e3
		if (c > a)
			printf ", a factor of %.1f", (b - a) / (c - a)
		print ""
	}'
}

# taken_over COMMAND...: what the library says of a run, and the number of walks.
taken_over() {
	EHASM_STATS=1 "$@" 2>&1 >/dev/null | grep -a -E '^ehunwind: ' >stats.txt
	grep -E 'taken|walks|early' stats.txt
	walks=$(awk '/ walks/ { n += $2 } END { print n + 0 }' stats.txt)
	[ "$walks" -gt 0 ] || differ "nothing was taken over"
}

run_backtrace() {
	./trace 20 >trace.plain 2>/dev/null
	"${preload[@]}" ./trace 20 >trace.with 2>/dev/null
	for f in plain with; do sed -i 's/ \[0x[0-9a-f]*\]$//' trace.$f; done
	cmp trace.plain trace.with && echo "$(grep -c frames trace.plain) stacks, equal" || differ "backtrace"
	taken_over "${preload[@]}" ./trace 20
	for ((r = 0; r < rounds; r++)); do ./trace 2000 2>&1 >/dev/null; done | sort -t, -k2n | head -1 | sed 's/^/without: /'
	for ((r = 0; r < rounds; r++)); do "${preload[@]}" ./trace 2000 2>&1 >/dev/null; done | sort -t, -k2n | head -1 | sed 's/^/preload: /'
}

# The time of a sample is taken at 4000 Hz. What is sampled is compared at 500 Hz: a
# timer that expires in the handler delivers its sample at the same place, so that
# an unwinder that takes long counts deep stacks more often.
work_cpu() { ./work cpu "$loops"; }
cpu_plain() { CPUPROFILE=cpu.plain CPUPROFILE_FREQUENCY=$hz CPUPROFILE_REALTIME=1 LD_PRELOAD=libprofiler.so.0 ./work cpu "$loops"; }
cpu_with() { CPUPROFILE=cpu.with CPUPROFILE_FREQUENCY=$hz CPUPROFILE_REALTIME=1 LD_PRELOAD=$LIBRARY:libprofiler.so.0 ./work cpu "$loops"; }
cpu_profiler() {
	export TCMALLOC_STACKTRACE_METHOD=$1
	local loops=12000 hz=500
	LD_PRELOAD=libprofiler.so.0 "${preload[@]}" true
	cpu_plain >/dev/null 2>&1
	mv cpu.plain cpu.first
	cpu_plain >/dev/null 2>&1
	taken_over cpu_with
	./stacks shares cpu.first cpu.plain cpu.with
	loops=2500 hz=4000
	taken_over cpu_with >/dev/null
	compare work_cpu cpu_plain cpu_with
	unset TCMALLOC_STACKTRACE_METHOD
}
run_cpuprofiler() { cpu_profiler libunwind; }
run_cpuprofiler_libgcc() { cpu_profiler libgcc; }

work_alloc() { ./work alloc "$allocs"; }
heap_plain() { HEAPPROFILE=heap.plain LD_PRELOAD=libtcmalloc.so.4 "$@" ./work alloc "$allocs"; }
heap_with() { HEAPPROFILE=heap.with LD_PRELOAD=$LIBRARY:libtcmalloc.so.4 "$@" ./work alloc "$allocs"; }
heap_profiler() {
	export TCMALLOC_STACKTRACE_METHOD=$1
	local allocs=800
	heap_plain >/dev/null 2>&1
	LD_PRELOAD=libtcmalloc.so.4 "${preload[@]}" true
	taken_over heap_with
	same heap.plain.0001.heap heap.with.0001.heap
	compare work_alloc heap_plain heap_with
	unset TCMALLOC_STACKTRACE_METHOD
}
run_heapprofiler() { heap_profiler libunwind; }
run_heapprofiler_libgcc() { heap_profiler libgcc; }

# same A B: the stacks of two profiles. The library itself must have none in them.
same() {
	for f in "$@"; do ./stacks list "$f" >"$f.list"; done
	cmp -s "$1.list" "$2.list" && echo "$(wc -l <"$1.list") distinct stacks, equal" ||
		{ ./stacks equal "$1" "$2" | cut -c1-300; differ "$*"; }
}

jemalloc_plain() { MALLOC_CONF=prof:true,lg_prof_sample:0,prof_accum:true,prof_final:true,prof_prefix:je.plain LD_PRELOAD=libjemalloc.so.2 "$@" ./work alloc "$allocs"; }
jemalloc_with() { MALLOC_CONF=prof:true,lg_prof_sample:0,prof_accum:true,prof_final:true,prof_prefix:je.with LD_PRELOAD=$LIBRARY:libjemalloc.so.2 "$@" ./work alloc "$allocs"; }
run_jemalloc() {
	local allocs=800
	LD_PRELOAD=libjemalloc.so.2 "${preload[@]}" true
	rm -f je.*
	jemalloc_plain >/dev/null
	taken_over jemalloc_with
	same je.plain.*.heap je.with.*.heap
	compare work_alloc jemalloc_plain jemalloc_with
	rm -f je.*
}

heaptrack=/usr/lib/heaptrack
heaptrack_plain() { rm -f ht.plain; DUMP_HEAPTRACK_OUTPUT=ht.plain LD_PRELOAD=$heaptrack/libheaptrack_preload.so "$@" ./work alloc "$allocs"; }
heaptrack_with() { rm -f ht.with; DUMP_HEAPTRACK_OUTPUT=ht.with LD_PRELOAD=$LIBRARY:$heaptrack/libheaptrack_preload.so "$@" ./work alloc "$allocs"; }
run_heaptrack() {
	local allocs=100 # heaptrack_interpret 1.4.0 fails on larger files
	LD_PRELOAD=$heaptrack/libheaptrack_preload.so "${preload[@]}" true
	heaptrack_plain >/dev/null
	heaptrack_with >/dev/null
	same ht.plain ht.with
	# What the user sees, with functions and lines.
	for f in plain with; do
		$heaptrack/libexec/heaptrack_interpret <ht.$f >ht.$f.read 2>/dev/null
		heaptrack_print -p0 -a0 -T0 -F ht.$f.flame ht.$f.read >/dev/null
		sed 's/0x7f[0-9a-f]*/PC/g' ht.$f.flame | sort >ht.$f.stacks
	done
	cmp ht.plain.stacks ht.with.stacks && echo "heaptrack_print: $(wc -l <ht.plain.stacks) stacks, equal" || differ "heaptrack_print"
	allocs=4000
	taken_over heaptrack_with
	compare work_alloc heaptrack_plain heaptrack_with
}

gst_alone() { ./leaks "$pipelines"; }
gst_plain() { GST_TRACERS="leaks(stack-traces-flags=$flags)" GST_DEBUG=GST_TRACER:7 GST_DEBUG_NO_COLOR=1 "$@" ./leaks "$pipelines"; }
gst_with() { LD_PRELOAD=$LIBRARY gst_plain "$@"; }
run_gstreamer() {
	local pipelines=4 flags=full
	export GST_REGISTRY=$out/registry GST_REGISTRY_FORK=no
	./leaks 1
	"${preload[@]}" --with $lib/gstreamer-1.0/libgstcoretracers.so --with $lib/gstreamer-1.0/libgstcoreelements.so true
	gst_plain 2>&1 | leaked >gst.plain
	gst_with 2>&1 | leaked >gst.with
	cmp gst.plain gst.with && echo "$(wc -l <gst.plain) objects with their stacks, equal" || differ "gstreamer"
	taken_over gst_with
	compare gst_alone gst_plain gst_with
	flags=none # without functions and lines by libdw
	taken_over gst_with
	compare gst_alone gst_plain gst_with
}
# The objects that are left, each with its stack, without addresses and times.
leaked() {
	awk '/TRACE .* object-alive, / { sub(/.*object-alive, /, ""); alive = 1 } alive { printf "%s | ", $0 } /^;/ && alive { print ""; alive = 0 }' |
		sed -E -e 's/address=[^,]*, description=[^,]*, //' -e 's/:0x[0-9a-f]+\)/)/g' | sort
}

clients=(backtrace cpuprofiler cpuprofiler_libgcc heapprofiler heapprofiler_libgcc jemalloc heaptrack gstreamer)
for c in "$@"; do
	declare -F "run_$c" >/dev/null || { echo "no client $c: there are ${clients[*]}" >&2; exit 2; }
done
[ $# -gt 0 ] && clients=("$@")
"${preload[@]}" --with ./work --with ./leaks true
for c in "${clients[@]}"; do
	echo "== $c"
	"run_$c"
done
exit $status
