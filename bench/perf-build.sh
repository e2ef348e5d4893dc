#!/bin/bash
# Builds two perfs that perf-agree.sh compares with, from Debian's source of the
# installed perf and of libunwind:
#   bench/perf-build.sh DIR
# DIR/perf-libdw unwinds with elfutils' libdw instead of libunwind. DIR/perf-fixed
# unwinds with libunwind; what goes wrong there is repaired one thing at a time, as
# the words in the environment variable PERF_FIX say:
#   word    perf refuses the last 8 bytes of the stack copy (access_mem: >= for >)
#   exec    perf takes the load bias of an object from the lowest mapping of it that
#           the process ever had, also from those that exec has unmapped
#   popped  libunwind looks for registers below the stack pointer that an epilogue
#           has popped; the memory there is not recorded
#   guess   libunwind does not move the stack pointer to where the frame pointer is
#           after it has guessed a frame by it
#   jit     perf answers EINVAL for code of no file, on which libunwind gives up,
#           instead of ENOINFO, on which it guesses; and libunwind takes the top of the
#           stack for a return address where it cannot read the code
# It takes about 3 minutes and 1 GB on two cores.
set -eu
[ $# -eq 1 ] || { sed -n '2,5p' "$0"; exit 2; }
mkdir -p "$1"
cd "$1"
dir=$PWD

need=()
for p in libdw-dev libelf-dev libunwind-dev flex bison make gcc xz-utils; do
	dpkg -s "$p" >/dev/null 2>&1 || need+=("$p")
done
[ ${#need[@]} -eq 0 ] || { apt-get -qq update && apt-get -qq install -y --no-install-recommends "${need[@]}" >/dev/null; }

# change FILE 'SED EXPRESSION' ...: every expression must change the file.
change() {
	local file=$1 e
	shift
	for e; do
		sed -i.before "$e" "$file"
		! cmp -s "$file" "$file.before" || { echo "perf-build: $file: nothing changed by $e" >&2; exit 1; }
	done
}

if [ ! -x perf-libdw ] || [ ! -x perf-fixed ]; then
	version=$(dpkg-query -W -f '${source:Version}' linux-perf)
	series=$(echo "$version" | cut -d. -f1,2)
	apt-get -qq download "linux-source-$series=$version"
	dpkg-deb --fsys-tarfile "linux-source-$series"_*.deb | tar xO --wildcards '*.tar.xz' >linux.tar.xz
	tar xf linux.tar.xz --strip-components=1 --one-top-level=linux \
		"linux-source-$series"/{tools,scripts,arch/x86,lib,include,Makefile}
	rm -f linux.tar.xz "linux-source-$series"_*.deb
	perf() { # NAME OPTIONS...
		mkdir -p "build-$1"
		nice make -s -C linux/tools/perf -j"$(nproc)" O="$dir/build-$1" WERROR=0 NO_LIBPYTHON=1 NO_LIBPERL=1 NO_SLANG=1 \
			NO_LIBBPF=1 NO_LIBTRACEEVENT=1 NO_GTK2=1 NO_LIBCRYPTO=1 NO_LIBAUDIT=1 NO_JVMTI=1 "${@:2}" >"build-$1.log" 2>&1 ||
			{ tail "build-$1.log" >&2; exit 1; }
		cp "build-$1/perf" "perf-$1"
	}
	perf libdw NO_LIBUNWIND=1
	change linux/tools/perf/util/unwind-libunwind-local.c \
		's/addr + sizeof(unw_word_t) >= end/addr + sizeof(unw_word_t) >= end + fix("word")/' \
		's/^static int read_unwind_spec_eh_frame(/static struct map *ip_map;\n&/' \
		's/base_addr -= dso->data.elf_base_addr;/if (fix("exec")) base_addr = ip_map->start - ip_map->pgoff;\n\t&/' \
		's/int ret = -EINVAL;/int ret = fix("jit") ? -UNW_ENOINFO : -EINVAL;/' \
		's/if (!read_unwind_spec_eh_frame(map->dso/ip_map = map;\n\t&/' \
		'0,/^struct /s//static int fix(const char *w) { return getenv("PERF_FIX") \&\& strstr(getenv("PERF_FIX"), w); }\n\n&/'
	perf fixed
	rm -rf linux build-libdw build-fixed
fi

if [ ! -e libunwind/src/.libs/libunwind-x86_64.so.8 ]; then
	mkdir -p lists/partial
	# The machine's own sources of packages, but for source code.
	mkdir -p sources
	for f in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
		[ -e "$f" ] && sed -n 's/^deb /deb-src /p' "$f" >"sources/$(basename "$f" .list).list"
	done
	for f in /etc/apt/sources.list.d/*.sources; do
		[ -e "$f" ] && sed 's/^Types:.*/Types: deb-src/' "$f" >"sources/$(basename "$f")"
	done
	apt() { apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$dir/sources" -o Dir::State::lists="$dir/lists" "$@"; }
	apt update
	apt source --download-only libunwind >/dev/null
	tar xf libunwind_*.orig.tar.gz --strip-components=1 --one-top-level=libunwind
	cd libunwind
	fix='static int fix(const char *w) { return getenv("PERF_FIX") \&\& strstr(getenv("PERF_FIX"), w); }'
	change src/dwarf/Gparser.c "0,/^#include/s//#include <stdlib.h>\n#include <string.h>\n$fix\n&/" \
		's/new_loc\[i\] = DWARF_MEM_LOC (c, cfa + rs->reg.val\[i\]);/if (fix("popped") \&\& cfa + rs->reg.val[i] < prev_cfa) break;\n&/'
	change src/x86_64/Gstep.c "0,/^#include/s//#include <stdlib.h>\n#include <string.h>\n$fix\n&/" \
		's/c->dwarf.cfa += 16;/c->dwarf.cfa = fix("guess") ? rbp + 16 : c->dwarf.cfa + 16;/' \
		's/^ *invalid_prev_rip = dwarf_get.*/&\nif (fix("jit")) invalid_prev_rip = 0;/'
	find . -name aclocal.m4 -exec touch {} + && touch configure && find . -name Makefile.in -exec touch {} +
	{ ./configure --quiet --disable-tests --disable-documentation --enable-debug-frame &&
		nice make -s -j"$(nproc)" -C src; } >../libunwind.log 2>&1 || { tail ../libunwind.log >&2; exit 1; }
fi
