#!/bin/sh
# languages.sh EHASM LIBRARY OUT: programs in Ada, D, Go with C++, and Rust with the system's libgcc and with LIBRARY, our libgcc_s.so.1, preloaded and in
# LD_LIBRARY_PATH; a difference of exit status or output is printed. What there is no compiler for is named.
set -u
here=$(realpath "$(dirname "$0")/testdata")
ehasm=$(realpath "$1") library=$(realpath "$2") out=$3
mkdir -p "$out/cache"
cd "$out" || exit 1
XDG_CACHE_HOME=$PWD/cache
export XDG_CACHE_HOME
run() { # NAME COMMAND...: output to NAME, in an order that threads do not change
	to=$1
	shift
	timeout 60 "$@" >"$to.raw" 2>&1 </dev/null
	echo "status $?" >>"$to.raw"
	sed -e 's/0x[0-9a-f]*/0x/g' "$to.raw" | sort >"$to"
}
failed=0
for program in raises throws panics cgo; do
	rm -f "./$program"
	case $program in
	raises) gnatmake -q -O1 "$here/raises.adb" -o raises -bargs -shared ;;
	throws) gdc-12 -O2 -o throws "$here/throws.d" ;;
	panics) rustc -O -o panics "$here/panics.rs" ;;
	cgo) rm -rf module && cp -r "$here/cgo" module && cd module && go mod init module && go build -o ../cgo . && cd .. ;;
	esac >"$program.log" 2>&1
	if [ ! -x "./$program" ]; then
		echo "$program: not built: $(tail -1 "$program.log")"
		failed=1
		continue
	fi
	"$ehasm" build -q --cache --deps --vdso "./$program"
	for round in 1 2 3 4 5; do
		run stock "./$program"
		run preloaded env LD_PRELOAD="$library" "./$program"
		run replaced env LD_LIBRARY_PATH="$(dirname "$library")" "./$program"
		for way in preloaded replaced; do
			if ! cmp -s stock $way; then
				failed=1
				echo "different: $program $way, round $round"
				diff stock $way | head -5
			fi
		done
	done
	echo "$program: $(wc -l <stock) lines, $(tail -1 stock)"
done
exit $failed
