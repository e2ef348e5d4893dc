#!/bin/bash
# Makes build/dist: the sources, and the command and the libraries for linux/amd64, as tarballs, with
# checksums. The same sources and compilers give the same bytes.
set -eu -o pipefail
cd "$(dirname "$0")/.."
version=$(scripts/version.sh)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
out=${OUT:-$PWD/build/dist}
rm -rf "$out"
mkdir -p "$out"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

pack() { # pack NAME: the folder NAME of the stage, as NAME.tar.gz
	find "$stage/$1" -type d -exec chmod 755 {} +
	find "$stage/$1" -type f -perm /111 -exec chmod 755 {} +
	find "$stage/$1" -type f ! -perm /111 -exec chmod 644 {} +
	tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" --format=gnu -cf - "$1" | gzip -9n >"$out/$1.tar.gz"
}

sources=ehasm-$version
scripts/sources.sh "$stage/$sources"
pack "$sources"

binary=ehasm-$version-linux-amd64
scripts/stage.sh "$stage/$binary" ""
cp CHANGELOG.md LICENSE "$stage/$binary"
scripts/docs.sh "$stage/$binary"
scripts/licenses.sh "$stage/$binary/licenses"
# The libraries, for /usr/local; paths of the build folder do not go into them.
make -s -C runtime OUT="$stage/build" PREFIX=/usr/local CFLAGS="-O2 -g0 -ffile-prefix-map=$stage=." DESTDIR="$stage/all" install
find "$stage/all" -name '*.so*' -type f -exec strip --strip-unneeded {} +
cp -a "$stage/all/usr/local/." "$stage/$binary"
pack "$binary"

(cd "$out" && sha256sum ./*.tar.gz >SHA256SUMS && cat SHA256SUMS)
