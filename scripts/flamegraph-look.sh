#!/bin/bash
# Opens a flame graph in a headless browser, uses it, and takes pictures:
#   scripts/flamegraph-look.sh FLAME.svg FOLDER [SEARCH]
# It fails if the page reports an error, asks for anything but the file, or does
# not do what it should. SEARCH (main) must match something. Then look at
# FOLDER/*.png. Needs Debian's chromium, and npm for puppeteer-core.
set -eu
svg=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp "$(dirname "$0")/flamegraph-look.mjs" "$dir"
npm install --silent --no-fund --no-audit --prefix "$dir" puppeteer-core >&2
node "$dir/flamegraph-look.mjs" "$svg" "$out" "${3:-main}"
