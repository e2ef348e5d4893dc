#!/bin/bash
# gdb's backtraces with the tables of a program and its libc, without them, and with made rows in their place: internal/analysis/synth/gdb-stops.sh FOLDER [STOPS]
# FOLDER gets copies of sort and libc, and what gdb said. EHASM names the command.
set -eu
dir=$(mkdir -p "${1:?no folder}" && cd "$1" && pwd)
stops=${2:-1000}
ehasm=${EHASM:-ehasm}
cd "$dir"
mkdir -p with none debug
program=$(command -v sort)
libc=$(ldd "$program" | awk '$1 == "libc.so.6" { print $3 }')
cp "$program" with/program
cp -L "$libc" with/libc.so.6
seq 1 400 | sort -R --random-source=/dev/zero >input
for f in program libc.so.6; do
	objcopy -R .eh_frame -R .eh_frame_hdr with/$f none/$f 2>/dev/null
	id=$(readelf -n with/$f | awk '/Build ID/ { print $3 }')
	mkdir -p "debug/.build-id/${id:0:2}"
	"$ehasm" synth -o "debug/.build-id/${id:0:2}/${id:2}.debug" none/$f
done
cat >stops.py <<PYTHON
import gdb
def frames():
    out, f = [], gdb.newest_frame()
    while f is not None and len(out) < 60:
        out.append("%x" % f.pc())
        try:
            f = f.older()
        except gdb.error:
            out.append("error")
            break
    return " ".join(out)
gdb.execute("starti", to_string=True)
gdb.execute("tbreak setlocale", to_string=True)
gdb.execute("continue", to_string=True)
for n in range($stops):
    gdb.execute("stepi 61", to_string=True)
    print("stop", n, frames())
PYTHON
run() { # run NAME FOLDER DEBUG
	env -i PATH=/usr/bin:/bin LD_LIBRARY_PATH="$dir/$2" LC_ALL=C.UTF-8 gdb -nx -q -batch -iex 'set debuginfod enabled off' -iex "set debug-file-directory $3" \
		-ex 'set breakpoint pending on' -x stops.py --args "$dir/$2/program" input >"$1.txt" 2>"$1.err" || true
	grep '^stop' "$1.txt" >"$1.stops" || true
}
run tables with /nonexistent
run without none /nonexistent
run made none "$dir/debug"
same() { awk 'NR == FNR { t[$2] = $0; next } { all++; if (t[$2] == $0) same++ } END { print same + 0 " of " all + 0 }' tables.stops "$1.stops"; }
echo "backtraces as with the tables: without them $(same without), with made rows $(same made); $(wc -l <tables.stops) stops"
