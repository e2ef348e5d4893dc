# What gcc.sh and llvm.sh share; read with ".", after ehasm, library, source and out are set.
mkdir -p "$out/cache"
out=$(realpath "$out")
XDG_CACHE_HOME=$out/cache
export XDG_CACHE_HOME
programs=0 different=0 skipped=0
run() { # NAME COMMAND...: output to NAME, without what differs from run to run: addresses, process numbers, and what "$times" says
	to=$1
	shift
	timeout 60 "$@" >"$to.raw" 2>&1 </dev/null
	echo "status $?" >>"$to.raw"
	sed -e 's/0x[0-9a-f]*/0x/g' ${times:+-e "$times"} -e 's/[0-9]* Aborted/Aborted/' "$to.raw" >"$to"
}
compare() { # LEVEL FILE: runs $exe, made of FILE, with the system's libgcc, with ours preloaded, and with ours in LD_LIBRARY_PATH
	"$ehasm" build -q --cache --deps --vdso "$exe" 2>/dev/null
	programs=$((programs + 1))
	run "$out/stock" "$exe"
	run "$out/preloaded" env LD_PRELOAD="$library" "$exe"
	run "$out/replaced" env LD_LIBRARY_PATH="$(dirname "$library")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$exe"
	for way in preloaded replaced; do
		if ! cmp -s "$out/stock" "$out/$way"; then
			different=$((different + 1))
			echo "different: $1 $way ${2#"$source"/}"
			diff "$out/stock" "$out/$way" | head -5
		fi
	done
}
finish() { # the sums, and the exit status
	echo "$programs programs, $skipped that did not compile, $different differences"
	[ "$different" -eq 0 ]
}
