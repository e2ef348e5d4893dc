#!/bin/sh
# Runs in the guest of bench/probes.sh, as its first process. Each line that begins with FAIL is a difference.
export PATH=/bin:/usr/bin HOME=/root TERM=dumb
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev; mount -t tmpfs none /tmp
mount -t tracefs none /sys/kernel/tracing; mount -t debugfs none /sys/kernel/debug
dmesg -n 1
echo 0 >/proc/sys/kernel/kptr_restrict
cd /tmp
libc=$(echo /lib/*/libc.so.6)
fail() { echo "FAIL $*"; }
own() { ehasm record --cache=false -q "$@" 2>&1; }

# The tests of the unwinder in the kernel that need no compiler.
bpfunwind -test.v -test.run 'TestLoad|TestSteps|TestCircle|TestFull|TestLost' >bpf.txt 2>&1 || fail "bpfunwind: $(cat bpf.txt)"
grep -E '^ok|^PASS|kind 0|frames:' bpf.txt

# number FIELD: of the summary, the sum of all fields that begin so.
number() { awk -F'": *' -v f="$1" 'index($1, "\"" f) { n += $2 } END { print n + 0 }' stats.json; }

# same EHASM-EVENT PERF-EVENT [FILTER]: as many samples of calls as perf takes, and as perf stat counts; all stacks are whole,
# and as perf script unwinds the same copies. One CPU runs all: where a thread moves to another CPU while it is in a uprobe,
# the kernel may count that twice, or not at all.
same() {
	taskset 1 perf stat -x, -o stat.txt -e "$2" -- calls
	want=$(awk -F, '/,/ { print $1; exit }' stat.txt)
	if [ $# = 3 ]; then
		taskset 1 perf record -q -o filter.data -e "$2" --filter "$3" -- calls
		want=$(perf script -i filter.data -F comm | wc -l)
	fi
	own --stats stats.json --raw raw.data -o own.perf.txt -e "$1" ${3:+--filter "$3"} -- taskset 1 calls
	got=$(grep -c '^calls ' own.perf.txt) lost=$(number lost) stacks=$(number stacks_unwound) whole=$(number 'outermost frame')
	[ "$got" = "$want" ] && [ "$got" -gt 0 ] && [ "$lost" = 0 ] || fail "$1: $got samples, $lost lost; perf counts $want"
	[ "$whole" = "$stacks" ] || fail "$1: $whole of $stacks stacks are whole"
	perf script -i raw.data --no-inline --max-stack 1024 -F ip,sym >perf.txt
	compare perf.txt own.perf.txt >compared.txt || fail "$1: $(tail -n 1 compared.txt)"
	echo "$1${3:+, $3}: $got samples, perf $want; $whole of $stacks stacks whole; $(tail -n 1 compared.txt)"
}

# compare PERF EHASM: the addresses of each sample. perf's may end earlier.
compare() {
	awk '
	function address(f) { sub(/^0+/, "", f); return f }
	/^\tf+ / { next } # the end of a stack that perf cuts
	FNR == 1 { file++; n = 0; inside = 0 }
	NF == 0 { inside = 0; next }
	file == 2 && !/^[ \t]/ { next }
	!inside { inside = 1; n++; if (file == 2) count = n; else perfs = n }
	{ if (file == 1) p[n, ++pn[n]] = address($1); else o[n, ++on[n]] = address($1) }
	END {
		for (i = 1; i <= count; i++) {
			if (pn[i] > on[i]) { print "sample " i " has " on[i] " frames, perf " pn[i]; exit 1 }
			for (j = 1; j <= pn[i]; j++)
				if (p[i, j] != o[i, j]) { print "sample " i ", frame " j ": " o[i, j] ", perf " p[i, j]; exit 1 }
			if (pn[i] < on[i]) shorter++
		}
		if (count != perfs) { print count " samples, perf script has " perfs; exit 1 }
		print count - shorter " stacks as perf script, " shorter + 0 " that it cuts"
	}' "$1" "$2"
}

perf probe -q -x "$libc" malloc
perf probe -q -x "$libc" malloc%return
perf probe -q -x /bin/calls deep
perf probe -q do_sys_openat2
perf probe -q do_sys_openat2%return
same "uprobe:$libc:malloc" probe_libc:malloc
same "uretprobe:$libc:malloc" probe_libc:malloc__return
same uprobe:/bin/calls:deep probe_calls:deep
same probe_libc:malloc probe_libc:malloc
same kprobe:do_sys_openat2 probe:do_sys_openat2
same kretprobe:do_sys_openat2 probe:do_sys_openat2__return
same syscalls:sys_enter_openat syscalls:sys_enter_openat
same syscalls:sys_enter_openat syscalls:sys_enter_openat 'flags == 1'

# samples FOLDED...: of stacks with take, as folded text has them.
samples() { cat "$@" | awk '/;take;/ { n += $NF } END { print n + 0 }'; }
# expect NAME GOT WANT
expect() { if [ "$2" = "$3" ]; then echo "$1: $2"; else fail "$1: $2, want $3"; fi; }

# How often threads sleep differs from run to run, so perf counts in the same one.
filter='prev_state == 1'
own --raw raw.data -o own.perf.txt -e sched:sched_switch --filter "$filter" -- perf stat -x, -o stat.txt -e sched:sched_switch --filter "$filter" -- calls
expect 'sched:sched_switch as perf stat' "$(grep -c '^calls ' own.perf.txt)" "$(awk -F, '/,/ { print $1; exit }' stat.txt)"
perf script -i raw.data --no-inline --max-stack 1024 -F ip,sym >perf.txt
compare perf.txt own.perf.txt || fail sched:sched_switch
own -o own.perf.data -e sched:sched_switch --filter "$filter" -- calls
perf script -i own.perf.data -F event,ip,sym | grep -q '^sched:sched_switch:' || fail 'perf script of .perf.data'

calls forever &
other=$!
own -o own.folded -e "uprobe:$libc:malloc" -- taskset 1 calls
expect 'a command, while another program comes to the probe' "$(samples own.folded)" 900
mkfifo go
taskset 1 calls wait <go & waiting=$!
exec 3>go
own -o own.folded -e "uprobe:$libc:malloc" -p $waiting & recording=$!
sleep 4
echo >&3
wait $recording
exec 3>&-
expect 'a process with its threads and children' "$(samples own.folded)" 900
own -o all.folded -a -d 2 -e "uprobe:$libc:malloc" --stack-copy 1024
[ "$(samples all.folded)" -gt 0 ] || fail 'record -a has no samples of the other program'
kill $other
own -o several.perf.txt -e "kprobe:do_sys_openat2,uprobe:$libc:malloc" -e sched:sched_switch --filter 'prev_state == 1' -e page-faults -- taskset 1 calls
for event in kprobe:do_sys_openat2 uprobe: sched:sched_switch page-faults; do
	echo "of several events, $event: $(grep -c "^calls.* $event.*:" several.perf.txt)"
done
for i in 1 2 3 4 5; do
	own -o own.folded -e "uprobe:$libc:malloc" -- calls
	echo "900 calls of malloc, on any CPU: $(samples own.folded)"
done

# A CPU may go offline at any moment, also while the events of all are opened.
cpu1=/sys/devices/system/cpu/cpu1/online
while :; do echo 0 >$cpu1; echo 1 >$cpu1; done &
changes=$!
for i in 1 2 3 4 5 6; do
	own -o hotplug.folded -a -F 97 -d 1 || fail 'record -a, as CPU 1 goes offline and online'
	echo "samples, as CPU 1 goes offline and online: $(awk '{ n += $NF } END { print n + 0 }' hotplug.folded)"
done
kill $changes
wait $changes
echo 1 >$cpu1

# refused TEXT ARGUMENT...: record fails with one line that has the text.
refused() {
	text=$1
	shift
	if own -o none.folded "$@" >said.txt 2>&1; then fail "$*: accepted"; fi
	grep -q "$text" said.txt || fail "$*: $(head -n 1 said.txt)"
	head -n 1 said.txt
}
refused 'did you mean sched:sched_switch?' -e sched:sched_swich -- calls
refused 'no such function' -e kprobe:no_such_function -- calls
refused 'filter "no_field == 1"' -e sched:sched_switch --filter 'no_field == 1' -- calls
own() { su user -c "cd /tmp && HOME=/tmp ehasm record --cache=false -q $*" 2>&1; }
chmod 777 /tmp
for paranoid in 3 2; do
	echo $paranoid >/proc/sys/kernel/perf_event_paranoid
	refused 'only root may read tracefs' -e sched:sched_switch -- calls
done
refused 'a probe needs root' -e "uprobe:$libc:malloc" -- calls
refused 'a probe needs root' -e kprobe:do_sys_openat2 -- calls
echo 3 >/proc/sys/kernel/perf_event_paranoid
refused 'kernel.perf_event_paranoid=3' -e page-faults -- calls

perf probe -q -d '*'
expect 'probes left behind' "$(cat /sys/kernel/tracing/uprobe_events /sys/kernel/tracing/kprobe_events /sys/kernel/debug/kprobes/list | wc -l)" 0
echo DONE
poweroff -f
