#!/bin/bash
# Checks that the test of each fixed fault fails without the fix: scripts/mends.sh [PATTERN].
# Reverts one fix at a time in a copy of the last commit, and runs its test, which must fail. Prints
# a line per fix; the exit status is 1 if a test still passes, or a fix is not found.
set -u
top=$(cd "$(dirname "$0")/.." && pwd)
copy=$(mktemp -d)
trap 'git -C "$top" worktree remove --force "$copy/tree"; rm -rf "$copy"' EXIT
git -C "$top" worktree add -q --detach "$copy/tree" && cd "$copy/tree" || exit 1
status=0

# without NAME PACKAGE TEST FILE PERL takes PERL's part out of FILE.
without() {
	[[ $1 =~ ${pattern:-.} ]] || return 0
	local said rc before
	before=$(sha256sum "$4")
	perl -0pi -e "$5" "$4"
	if [ "$(sha256sum "$4")" = "$before" ]; then
		echo "NOT FOUND: $1: $5 in $4"
		status=1
		return
	fi
	said=$(timeout 300 go test -count=1 "./$2" -run "^($3)\$" 2>&1)
	rc=$?
	git checkout -q .
	if [ $rc -eq 0 ]; then
		echo "PASSES: $1: $3 ($2) without the mend in $4"
		status=1
	elif grep -q -E 'build failed|setup failed|no tests to run|cannot use|: error: ' <<<"$said"; then
		echo "NOT BUILT: $1: $4: $(grep -m 1 -E 'error|failed|go:[0-9]+' <<<"$said")"
		status=1
	else
		echo "$1 | $3 ($2) | $4 | $(grep -m 1 -o -E 'FAIL: [A-Za-z/_]+|panic: test timed out|signal: [a-z ]+|FAIL' <<<"$said")"
	fi
}

pattern=${1:-}
without "1 cache of others" cmd/ehasm TestCacheOfOthers internal/profile/ondemand/cached.go 's/trust\.Open\(path\)/os.Open(path)/; s/\t"github.com\/ehasm\/ehasm\/internal\/files\/trust"\n//'
without "1 cache is proven" cmd/ehasm TestCacheProven internal/profile/ondemand/ondemand.go 's/_, err := prove\.Image\(image, table\)\n\t\t\treturn err/_, _ = prove.Image(image, table)\n\t\t\treturn nil/'
without "1 folders of the cache" cmd/ehasm TestCacheFolders internal/files/input/trust_unix.go 's/path, 0o700\)/path, 0o777)/'
without "1 the rule, Go" internal/files/input TestOpenTrusted internal/files/input/trust_unix.go 's/uid != 0 && uid != w\.self/uid < 0/'
without "1 the rule, C" runtime 'TestTrustedPath|TestOthersFile' runtime/src/trust.c 's/if \(st->st_uid != 0 && st->st_uid != self\)/if (st->st_uid != 0 \&\& st->st_uid != self \&\& self == (uid_t)-1)/'
without "2 set-gid, capabilities, C" runtime TestPrivileged runtime/src/trust.c 's/uid_t user = secure \? 0/uid_t user = secure && geteuid() == 0 ? 0/'
without "2 set-gid, capabilities, Go" internal/files/input TestPrivileged internal/files/input/trust_unix.go 's/if privileged\(\)/if false \&\& privileged()/'
without "3 fork in a handler" runtime TestForks runtime/src/table.c 's/, 0L\) != 0 && errno == ESRCH/, 0L) > 0 \&\& errno == ESRCH/'
without "4 seccomp" runtime TestSeccomp runtime/src/stack.c 's/if \(!in_valgrind\(\) && by_sig/if (in_valgrind() \&\& by_sig/'
without "5 stale, no build-id" runtime TestStale runtime/src/trust.c 's/return wanted->build_id_size > 0 \|\| ehu_same_content_/return wanted->build_id_size + 1 > 0 || ehu_same_content_/'
without "6 a full disk" cmd/ehasm TestOutputFull internal/files/output/atomic.go 's/err := f\.err\n/err := error(nil)\n/'
without "6 interrupted" cmd/ehasm TestOutputInterrupted internal/files/output/output.go 's/\treturn host\.InterruptContext\(ctx\)/\t_ = host.InterruptContext\n\treturn ctx, func() {}/'
without "6 modes" cmd/ehasm TestOutputMode internal/files/output/output.go 's/return perm & \(0o600 \| st\.Mode\(\)\.Perm\(\)\)/return perm/'
without "7 ASan" runtime TestPreloadAddressSanitizerStarted cmd/ehasm/preload.go 's/find\.AddressSanitizer\(program\)\)/"")/'
without "7 ASan below a shell" runtime TestPreloadAddressSanitizerStarted runtime/Makefile 's/(PRELOAD = .*) asan/$1/'
without "8 control characters" internal/profile/script TestControlCharacters internal/profile/stackfmt/escape.go 's/if isPlain\(s\)/if len(s) >= 0 || isPlain(s)/'
without "9 a stack in a circle" runtime TestCircle runtime/src/walk.c 's/return !after->exact \|\| !before->exact \|\|/return after->exact < 9 ||/'
without "9 valgrind" runtime TestMainStackInValgrind runtime/src/stack.c 's/\.inside = getauxval\(AT_RANDOM\)/.inside = 0/'
without "9 a foreign stderr" runtime TestSecond runtime/src/stats.c 's/if \(!start\.open \|\| [^\n]*\n/if (fstat(STDERR_FILENO, \&st) != 0)\n/'
without "9 limits" cmd/ehasm TestLimits cmd/ehasm/entry_linux_amd64.s 's/1536 << 20/1 << 20/'
without "9 sparse objects" cmd/ehasm TestSparse asmgen/plan/build.go 's/p\.Segments = segments\(p\)/p.Segments = segments(p)[:0]/'
without "10 mapped names" cmd/ehasm TestMappedNames internal/files/find/find.go 's/range maxLinks \{\n\t\tto, err/range 0 * maxLinks {\n\t\tto, err/; s/err == nil && filepath\.Base\(real\)/err != nil \&\& filepath.Base(real)/'
without "10 objects without FDEs" cmd/ehasm TestMappedNames compile/compile.go 's/AllowEmpty: target\.Mapped/AllowEmpty: false/'
without "11 frames behind calls" unwind TestInvented unwind/calls.go 's/if caller != nil && caller[^\n]*\{/if caller != nil {/'
without "11 a leaf keeps its caller" unwind TestGuessLeaf unwind/calls.go 's/site\.direct, site\.distance = true/site.direct, site.distance = false/'
without "11 guesses are marked" internal/profile/script TestGuessed internal/profile/script/worker.go 's/w\.stack, s\.walked\.guesses/w.stack, nil/'
without "12 code of type OBJECT" internal/debuginfo/symbols TestCodeObject internal/debuginfo/symbols/elf.go 's/elf\.STT_NOTYPE, elf\.STT_OBJECT/elf.STT_NOTYPE/'
without "12 symbols without size" internal/debuginfo/symbols 'TestCodeObject|TestTable' internal/debuginfo/symbols/table.go 's/if s\.Start < covered/if s.Start+1 == 0/'
without "12 shifts in names" internal/debuginfo/symbols TestDemangle internal/debuginfo/symbols/demangle.go 's/return plainShift\((demangle\.Filter[^\n]*)\)\n/return $1\n/'
without "12 memfd" internal/profile/script TestMemfd internal/profile/symbolize/namer.go 's/if strings\.HasPrefix\(f\.Object/if false \&\& strings.HasPrefix(f.Object/'
without "13 the red zone" unwind TestInvented unwind/calls.go 's/sp-addr-1 < redZone/sp-addr-1 > 1<<63/'
without "14 pc - 1" unwind 'TestWalk|TestTiers' abi/abi.go 's/return r\.Reg\[RIP\] - 1/return r.Reg[RIP]/'
without "14 padding behind an FDE" dwarfcfa TestPadding dwarfcfa/normalize.go 's/if n > 0 \{\n\t\t\tranges/if n > 1000 {\n\t\t\tranges/'
without "foreign objects in the cache" cmd/ehasm TestCacheForeignObjects internal/profile/ondemand/ondemand.go 's/ \|\| !d\.believed\(object\.Name\(\), path\)//'
without "foreign files of processes" internal/profile/record TestFilesOfOthers internal/profile/record/procs.go 's/return regular\.OpenBelow\(proc\+"\/root", name\)/return os.Open(proc + "\/root" + name)/'
without "foreign files, kept open" internal/profile/record TestMostFiles internal/profile/record/procs.go 's/if len\(t\.files\) >= mostFiles\(\)/if len(t.files) < 0/'
without "foreign debug links" internal/debuginfo/symbols TestDebugLinkFIFO internal/debuginfo/symbols/elf.go 's/regular\.Open\(path\)/os.Open(path)/; s/"github.com\/ehasm\/ehasm\/internal\/regular"/"os"/'
without "foreign sections" dwarfcfa TestHugeSections dwarfcfa/locate.go 's/maxRead = 1 << 30/maxRead = 1 << 62/'
without "foreign servers" internal/debuginfo/debuginfod TestTrickle internal/debuginfo/debuginfod/debuginfod.go 's/w\.since >= leastBytes/w.since > 0/'
without "small stacks" runtime TestSmallStack runtime/src/search.c 's/used = 0;\n    add_text\(w->path\)/volatile char room[9000]; room[0] = 0; (void)room[0]; used = 0;\n    add_text(w->path)/'
without "overflow user, Go" internal/files/input TestOverflow internal/files/input/trust_unix.go 's/!shared\(user\)/!shared(user) || true/'
without "overflow user, C" runtime TestOverflow runtime/src/trust.c 's/return all \? user/return all || n >= 0 ? user/'
without "mostly holes" cmd/ehasm TestMostlyHoles internal/files/find/file_unix.go 's/&& regular\.IsSparse/\&\& info == nil \&\& regular.IsSparse/'
without "again debuginfod, cut files" internal/debuginfo/debuginfod TestCut internal/debuginfo/debuginfod/debuginfod.go 's/want > uint64\(size\)/false \&\& want > 0/'
without "again debuginfod, passwords" internal/debuginfo/debuginfod TestSecrets internal/debuginfo/debuginfod/debuginfod.go 's/return u\.Redacted\(\)/_ = u; return from/'
without "again debuginfod, https" internal/debuginfo/debuginfod TestStaySecure internal/debuginfo/debuginfod/debuginfod.go 's/c\.http\.CheckRedirect = staySecure//'
without "again stacks again and again" stack TestReadKeepsNothing internal/profile/symbolize/namer.go 's/weak\.Pointer\[Namer\]/*Namer/; s/weak\.Make\(n\), k\}/n, k}/; s/k\.namer\.Value\(\)/k.namer/'
without "again FUSE servers" stack TestAskNoServer stack/servers.go 's/!local\[m\.Device\]/false/'
without "again crashes without a user" internal/profile/crash TestAsk internal/profile/crash/reporter.go 's/user < 0/false/'
without "again swapped folders" internal/files/ehcache TestRemoveSwapped internal/files/ehcache/ehcache.go 's/f\.root\.Remove\(file\.Name\)/os.Remove(path.Join(f.root.Name(), file.Name))/'
exit $status
