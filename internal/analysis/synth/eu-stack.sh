#!/bin/bash
# eu-stack's backtraces of cores, with the tables of a program and its libc, without them, and with made rows in their place:
# internal/analysis/synth/eu-stack.sh FOLDER [CORES]. FOLDER is one that internal/analysis/synth/gdb-stops.sh filled.
set -eu
dir=$(cd "${1:?no folder}" && pwd)
cores=${2:-20}
cd "$dir"
mkdir -p cores
cat >cores.py <<PYTHON
import gdb, os
gdb.execute("starti", to_string=True)
gdb.execute("tbreak setlocale", to_string=True)
gdb.execute("continue", to_string=True)
for n in range($cores):
    gdb.execute("stepi 2903", to_string=True)
    gdb.execute("generate-core-file cores/%s.%d" % (os.environ["SET"], n), to_string=True)
PYTHON
for set in with none; do
	env -i PATH=/usr/bin:/bin LD_LIBRARY_PATH="$dir/$set" LC_ALL=C.UTF-8 SET=$set gdb -nx -q -batch -iex 'set debuginfod enabled off' -iex 'set debug-file-directory /nonexistent' \
		-ex 'set breakpoint pending on' -x cores.py --args "$dir/$set/program" input >"cores/$set.txt" 2>"cores/$set.err" || true
done
frames() { # frames CORES DEBUG FILE
	: >"$3"
	for ((n = 0; n < cores; n++)); do
		echo "core $n $(eu-stack -q --core="cores/$1.$n" --executable="$1/program" --debuginfo-path="$2" 2>>cores/eu.err | awk '/^#/ { printf "%s ", $2 }')" >>"$3"
	done
}
frames with /nonexistent cores/tables
frames none /nonexistent cores/without
frames none "$dir/debug" cores/made
same() { paste -d '|' cores/tables "$1" | awk -F '|' 'NF == 2 && $1 == $2 && $1 ~ /0x/ { n++ } END { print n + 0 }'; }
echo "eu-stack as with the tables, of $cores cores: without them $(same cores/without), with made rows $(same cores/made)"
