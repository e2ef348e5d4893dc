#!/bin/bash
# Makes Debian packages in build/deb: ehasm, ehasm-system, libehunwind, libehunwind-dev. Needs dpkg-deb,
# gcc and Go. The same sources and compiler give the same bytes.
set -eu -o pipefail
cd "$(dirname "$0")/.."
version=$(scripts/version.sh)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
triplet=x86_64-linux-gnu
out=${OUT:-$PWD/build/deb}
rm -rf "$out"
mkdir -p "$out"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

# needs FILE...: the oldest glibc that has all versioned symbols of the files
needs() {
	echo "libc6 (>= $(objdump -T "$@" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1 | sed s/GLIBC_//))"
}

# It has the names of the libgcc that it was built beside, and no newer ones.
libgcc() {
	local major
	major=$(dpkg-query -W -f '${Version}' libgcc-s1 | cut -d. -f1)
	echo "libgcc-s1 (>= $major), libgcc-s1 (<< $((major + 1)))"
}

package() { # package NAME SECTION DEPENDS DESCRIPTION [RECOMMENDS], of what lies below $stage/NAME
	local dir=$stage/$1
	mkdir -p "$dir/DEBIAN" "$dir/usr/share/doc/$1"
	cp LICENSE "$dir/usr/share/doc/$1/copyright"
	gzip -9nc CHANGELOG.md >"$dir/usr/share/doc/$1/changelog.gz"
	{
		echo "Package: $1"
		echo "Version: $version"
		echo "Architecture: amd64"
		echo "Section: $2"
		echo "Priority: optional"
		echo "Maintainer: the ehasm authors"
		echo "Installed-Size: $(du -sk --exclude=DEBIAN "$dir" | cut -f1)"
		[ -z "$3" ] || echo "Depends: $3"
		[ -z "${5:-}" ] || echo "Recommends: $5"
		echo "Description: $4"
	} >"$dir/DEBIAN/control"
	(cd "$dir" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
	find "$dir" -type d -exec chmod 755 {} +
	find "$dir" -type f -perm /111 -exec chmod 755 {} +
	find "$dir" -type f ! -perm /111 -exec chmod 644 {} +
	find "$dir" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
	dpkg-deb --root-owner-group -Zxz --build "$dir" "$out/${1}_${version}_amd64.deb" >/dev/null
}

scripts/stage.sh "$stage/ehasm" /usr
mkdir -p "$stage/ehasm/usr/share/zsh/vendor-completions" "$stage/ehasm/usr/share/doc/ehasm"
mv "$stage/ehasm/usr/share/zsh/site-functions/_ehasm" "$stage/ehasm/usr/share/zsh/vendor-completions"
rmdir "$stage/ehasm/usr/share/zsh/site-functions"
# For packages of others: dh --with ehasm.
install -D -m 755 scripts/dh_ehasm "$stage/ehasm/usr/bin/dh_ehasm"
install -D -m 644 scripts/dh_ehasm.pm "$stage/ehasm/usr/share/perl5/Debian/Debhelper/Sequence/ehasm.pm"
pod2man --center ehasm --release "ehasm $version" scripts/dh_ehasm | gzip -9n >"$stage/ehasm/usr/share/man/man1/dh_ehasm.1.gz"
scripts/docs.sh "$stage/ehasm/usr/share/doc/ehasm"

# Paths of the build folder do not go into the libraries.
make -s -C runtime OUT="$stage/build" PREFIX=/usr LIBDIR="lib/$triplet" CFLAGS="-O2 -g0 -ffile-prefix-map=$stage=." DESTDIR="$stage/all" install
lib=usr/lib/$triplet
mkdir -p "$stage/libehunwind/$lib" "$stage/libehunwind-dev/$lib/pkgconfig" "$stage/libehunwind-dev/usr"
(cd "$stage/all/$lib" && for f in *.so.* *-preload.so *-record.so; do strip --strip-unneeded -o "$stage/libehunwind/$lib/$f" "$f"; done)
mkdir "$stage/libehunwind/$lib/libgcc"
strip --strip-unneeded -o "$stage/libehunwind/$lib/libgcc/libgcc_s.so.1" "$stage/all/$lib/libgcc/libgcc_s.so.1"
cp -a "$stage/all/$lib"/libehunwind.so "$stage/all/$lib"/libehunwind.a "$stage/libehunwind-dev/$lib"
cp -a "$stage/all/$lib"/pkgconfig/ehunwind.pc "$stage/libehunwind-dev/$lib/pkgconfig"
cp -a "$stage/all/usr/include" "$stage/libehunwind-dev/usr"

package ehasm devel "" "compile unwind tables ahead of time into native code
 Turns the .eh_frame of ELF programs into loadable x86-64 code that unwinds a
 frame in a few nanoseconds; unwinds profiles with it, and checks tables." "libehunwind"
mkdir -p "$stage/ehasm-system/usr/lib/ehasm" "$stage/ehasm-system/DEBIAN"
cp scripts/system/update "$stage/ehasm-system/usr/lib/ehasm/update"
cp scripts/system/{postinst,postrm,triggers} "$stage/ehasm-system/DEBIAN"
package ehasm-system devel "ehasm (= $version)" "compiled unwind tables of all installed programs
 Compiles the tables of programs and libraries when packages are installed, and
 removes them with the packages, for profilers and programs of all users."
package libehunwind libs "$(needs "$stage/libehunwind/$lib"/*.so* "$stage/libehunwind/$lib"/libgcc/*), $(libgcc)" "stacks of the calling process, taken with compiled unwind tables
 The C library, and the library that 'ehasm preload' puts into programs."
package libehunwind-dev libdevel "libehunwind (= $version)" "headers of libehunwind, and the library to link statically
 eh_elf.h is the interface of compiled unwind tables, ehunwind.h the one of the
 unwinder of the calling process."
(cd "$out" && sha256sum ./*.deb >SHA256SUMS && cat SHA256SUMS)
