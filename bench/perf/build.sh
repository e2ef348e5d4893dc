#!/bin/sh
# Usage: build.sh OUT. Builds the contenders that are C programs.
set -eu
cd "$(dirname "$0")"
out=$1
mkdir -p "$out"
cc='gcc -std=gnu17 -O2 -Wall -Wextra -Werror main.c'
$cc libunwind.c -lunwind-x86_64 -lunwind -o "$out/libunwind"
$cc -DNO_SIGPROCMASK -rdynamic libunwind.c -lunwind-x86_64 -lunwind -o "$out/libunwind-nosig"
$cc libdw.c -ldw -o "$out/libdw"
$cc -DPER_SAMPLE libdw.c -ldw -o "$out/libdw-per-sample"
