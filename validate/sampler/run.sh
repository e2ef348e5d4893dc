#!/bin/bash
# Samples unmodified programs and compares libehunwind with libunwind in every
# sample: validate/sampler/run.sh [PROGRAM...]. Programs that are missing are left
# out. SECONDS_EACH is how long each one runs, SAMPLER_HZ the rate.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
out=$top/build/sampler
export SAMPLER_HZ=${SAMPLER_HZ:-1000} XDG_CACHE_HOME=$out/cache
seconds=${SECONDS_EACH:-20}
mkdir -p "$out"
cd "$top" || exit 1

go build -o "$out/ehasm" ./cmd/ehasm && make -s -C runtime OUT="$out" &&
	gcc -O2 -g -D_GNU_SOURCE -Wall -Wextra -Iruntime/include -shared -fPIC -o "$out/sampler.so" "$here/sampler.c" \
		-L"$out" -lehunwind -lunwind -pthread -Wl,-rpath,"$out" -Wl,-z,now || exit 1

# sampled NAME COMMAND... runs a command again and again until the time is over.
sampled() {
	local name=$1 end=$((SECONDS + seconds))
	shift
	command -v "$1" >/dev/null || { echo "$name: not installed"; return; }
	while [ $SECONDS -lt $end ]; do
		timeout 120 env SAMPLER_OUT="$out/$name.txt" LD_PRELOAD="$out/sampler.so" "$@" >/dev/null 2>"$out/$name.err"
		local status=$?
		if [ $status -ge 128 ]; then
			echo "$name: died, status $status"
			tail -3 "$out/$name.err"
			return
		fi
		[ $status -eq 0 ] || { echo "$name: exit status $status"; tail -3 "$out/$name.err"; return; }
	done
}

# built FILE... puts the eh_elfs of programs and all they load into the cache.
built() { "$out/ehasm" build --cache -q --deps --vdso "$out/sampler.so" "$@" 2>"$out/build.err" || tail -3 "$out/build.err"; }

run_python() {
	local python
	python=$(python3 -c 'import sys, os; print(os.path.realpath(sys.executable))') || return
	built "$python" "$(python3 -c 'import sysconfig; print(sysconfig.get_path("platstdlib"))')/lib-dynload"
	sampled python "$python" "$here/work.py" 4
}
run_openssl() {
	built "$(command -v openssl)" /usr/lib/x86_64-linux-gnu/ossl-modules
	sampled openssl openssl speed -seconds 1 -bytes 4096 sha256 sha512 aes-256-cbc rsa2048 ecdsap256 ecdhx25519 ed25519
	for cipher in aes-256-gcm chacha20-poly1305; do
		seconds=1 sampled openssl openssl speed -seconds 1 -bytes 4096 -evp $cipher
	done
}
run_gcc() {
	built "$(command -v g++)" "$(gcc -print-prog-name=cc1plus)" "$(gcc -print-prog-name=collect2)" "$(command -v as)" "$(command -v ld)" "$(gcc -print-file-name=liblto_plugin.so)"
	sampled gcc g++ -O2 -std=c++20 -o "$out/work.cc.out" "$here/work.cc"
}
run_perl() {
	built "$(command -v perl)"
	sampled perl perl "$here/work.pl"
}
run_sqlite3() {
	built "$(command -v sqlite3)"
	sampled sqlite3 sqlite3 :memory: ".read $here/work.sql"
}
run_git() {
	built "$(command -v git)"
	sampled git git -c core.pager=cat log -p --stat -M --no-textconv
	sampled git git grep -n -I -e 'f.*u.*n.*c'
}
run_node() {
	built "$(command -v node)"
	sampled node node "$here/work.js"
}

programs=(python openssl gcc perl sqlite3 git node)
for p in "$@"; do
	declare -F "run_$p" >/dev/null || { echo "no program $p: there are ${programs[*]}" >&2; exit 2; }
done
[ $# -gt 0 ] && programs=("$@")
for p in "${programs[@]}"; do
	rm -f "$out/$p.txt"
	"run_$p"
done
awk -f "$here/sum.awk" $(for p in "${programs[@]}"; do [ -f "$out/$p.txt" ] && echo "$out/$p.txt"; done)
