#!/bin/bash
# Installs the programs that the tests need and this machine lacks, if run as
# root. Tests whose programs are still missing are skipped, each by name.
set -u

# a program or file to look for, and the Debian package that has it
needs=(
	gcc gcc  g++ g++  readelf binutils  patch patch  gdb gdb  git git  ldd libc-bin  eu-elflint elfutils
	dwz dwz  make make  valgrind valgrind  pkg-config pkg-config
	/usr/include/x86_64-linux-gnu/libunwind.h libunwind-dev
	/usr/lib/x86_64-linux-musl/libc.so musl  musl-gcc musl-tools
	/usr/include/c++ libstdc++-12-dev  clang++ clang  /usr/lib/llvm-14/lib/clang/14.0.6/lib/linux/libclang_rt.asan-x86_64.so libclang-rt-14-dev
	debuginfod debuginfod  debuginfod-find debuginfod
	perf linux-perf  jq jq  less less  man man-db  script bsdutils
	pfunct pahole  python3 python3  pgrep procps  groff groff-base  zsh zsh  fish fish
	rpmbuild rpm  dh debhelper  qemu-arm qemu-user  patchelf patchelf  rsync rsync  ld.lld lld  mold mold
)
missing=()
for ((i = 0; i < ${#needs[@]}; i += 2)); do
	what=${needs[i]}
	case $what in
	/*) [ -e "$what" ] || missing+=("${needs[i + 1]}") ;;
	*) command -v "$what" >/dev/null || missing+=("${needs[i + 1]}") ;;
	esac
done
[ ${#missing[@]} -eq 0 ] && exit 0
if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
	echo "deps: missing, by their Debian names: ${missing[*]}" >&2
	echo "deps: they are installed by root where there is apt-get; here, tests that need them fail or are skipped" >&2
	exit 0
fi
echo "deps: installing with apt-get: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
	echo "deps: could not install ${missing[*]}; tests that need them fail or are skipped" >&2
exit 0
