#!/bin/bash
# Makes RPM packages in build/rpm: ehasm, ehasm-system, libehunwind, libehunwind-devel. Needs
# rpmbuild, gcc and Go. The same sources and compilers give the same bytes.
set -eu -o pipefail
cd "$(dirname "$0")/.."
version=$(scripts/version.sh)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
out=${OUT:-$PWD/build/rpm}
rm -rf "$out"
mkdir -p "$out"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage/SOURCES"
scripts/sources.sh "$stage/ehasm-$version"
tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - "ehasm-$version" |
	gzip -9n >"$stage/SOURCES/ehasm-$version.tar.gz"
cp scripts/ehasm.spec "$stage"
touch -d "@$SOURCE_DATE_EPOCH" "$stage/ehasm.spec" "$stage"/SOURCES/*
# Go and gcc need not be RPMs here. The name and the time of this build do not go into the packages.
env -u OUT rpmbuild -bb --quiet --nodeps --define "_topdir $stage" --define "release_version $version" \
	--define "_buildhost localhost" --define "use_source_date_epoch_as_buildtime 1" --define "clamp_mtime_to_source_date_epoch 1" \
	"$stage/ehasm.spec" >"$stage/log" 2>&1 ||
	{ cat "$stage/log" >&2; exit 1; }
mv "$stage"/RPMS/*/*.rpm "$out"
(cd "$out" && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
