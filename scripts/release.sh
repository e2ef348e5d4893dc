#!/bin/bash
# Makes build/release: the tarballs of dist.sh, the packages of deb.sh and rpm.sh, the SBOM of the command in CycloneDX's format, and
# checksums of all. The same sources and compilers give the same bytes.
set -eu -o pipefail
cd "$(dirname "$0")/.."
out=${OUT:-$PWD/build/release}
version=$(scripts/version.sh)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
OUT=$stage/dist scripts/dist.sh >/dev/null
OUT=$stage/deb scripts/deb.sh >/dev/null
OUT=$stage/rpm scripts/rpm.sh >/dev/null
tar -C "$stage" -xzf "$stage/dist/ehasm-$version-linux-amd64.tar.gz"
${GO:-go} -C scripts/release build -trimpath -buildvcs=false -o "$stage/sbom" github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
"$stage/sbom" bin -json -licenses -std -noserial -notimestamp -version "v$version" -output "$stage/ehasm-$version.cdx.json" \
	"$stage/ehasm-$version-linux-amd64/bin/ehasm" 2>"$stage/log" || { cat "$stage/log" >&2; exit 1; }
rm -rf "$out"
mkdir -p "$out"
mv "$stage"/dist/*.tar.gz "$stage"/deb/*.deb "$stage"/rpm/*.rpm "$stage/ehasm-$version.cdx.json" "$out"
(cd "$out" && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
