#!/bin/bash
# Installs the programs that run.sh looks at, where it may.
set -u
needs=(
	/usr/lib/x86_64-linux-gnu/libprofiler.so.0 libgoogle-perftools4
	/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4 libgoogle-perftools4
	/usr/lib/x86_64-linux-gnu/libjemalloc.so.2 libjemalloc2
	/usr/lib/heaptrack/libheaptrack_preload.so heaptrack
	/usr/lib/x86_64-linux-gnu/libgstreamer-1.0.so.0 libgstreamer1.0-0
)
missing=()
for ((i = 0; i < ${#needs[@]}; i += 2)); do
	[ -e "${needs[i]}" ] || missing+=("${needs[i + 1]}")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
	echo "clients: not installed, and this is not a Debian root: ${missing[*]}" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
