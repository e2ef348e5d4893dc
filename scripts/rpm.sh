#!/bin/bash
# Makes RPM packages in build/rpm: ehasm, ehasm-system, libehunwind, libehunwind-devel, and the source package. Needs
# rpmbuild, gcc and Go.
set -eu -o pipefail
cd "$(dirname "$0")/.."
version=$(scripts/version.sh)
out=${OUT:-$PWD/build/rpm}
rm -rf "$out"
mkdir -p "$out"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage/SOURCES"
scripts/sources.sh "$stage/ehasm-$version"
tar -C "$stage" -czf "$stage/SOURCES/ehasm-$version.tar.gz" "ehasm-$version"
# Go and gcc need not be RPMs here.
rpmbuild -ba --quiet --nodeps --define "_topdir $stage" --define "release_version $version" scripts/ehasm.spec >"$stage/log" 2>&1 ||
	{ cat "$stage/log" >&2; exit 1; }
mv "$stage"/RPMS/*/*.rpm "$stage"/SRPMS/*.rpm "$out"
(cd "$out" && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
