#!/bin/bash
# Copies README.md and docs into a folder: scripts/docs.sh FOLDER. Links to files of the sources alone become text.
set -eu -o pipefail
mkdir -p "$1"
folder=$(realpath "$1")
cd "$(dirname "$0")/.."
cp -r README.md docs "$folder"
rm "$folder"/docs/*.go
cd "$folder"
find . -name '*.md' | while read -r page; do
	(cd "$(dirname "$page")" && perl -0pi -e 's{\[([^][]*)\]\(([^)\s#]+)(#[^)]*)?\)}{$2 =~ m{://} || -e $2 ? $& : $1}ge' "$(basename "$page")")
done
