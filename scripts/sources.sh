#!/bin/bash
# Copies the sources into a new folder: scripts/sources.sh FOLDER. Of a checkout, those of its last commit.
set -eu -o pipefail
cd "$(dirname "$0")/.."
mkdir "$1"
if [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$PWD" ]; then
	git archive HEAD | tar -C "$1" -xf -
else # a tarball, perhaps inside another repository
	tar --exclude=./build --exclude=./ehasm --exclude=./.git -cf - . | tar -C "$1" -xf -
fi
