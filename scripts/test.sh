#!/bin/bash
# All tests, then each fuzz target for a number of inputs, then builds for other hosts. Prints what
# runs, packages as they end, failures and skips; the whole output goes to build/test.log.
set -u -o pipefail
cd "$(dirname "$0")/.."
if [ "$(id -u)" -eq 0 ] && ! unshare --mount true 2>/dev/null &&
	unshare --mount --propagation unchanged perl scripts/rooted.pl "$PWD" true; then
	exec unshare --mount --propagation unchanged perl scripts/rooted.pl "$PWD" scripts/test.sh # of a chroot
fi
mkdir -p build
sources() { find . -name "$1" -not -path './build/*' -not -path './.git/*'; } # also without git

echo "== about 10 minutes on two idle cores, a few more the first time; 'make quick' takes one"
[ "$(id -u)" -eq 0 ] || echo "== not root: tests that need it are skipped, each by name"
unformatted=$(sources '*.go' | xargs gofmt -l)
[ -z "$unformatted" ] || { echo "gofmt would change: $unformatted" >&2; exit 1; }

: >build/test.log
: >build/test.json # line by line as they are written, of all packages that run
passed() { grep -cE '"Output":" *--- PASS' build/test.json; }
running() { readlink /proc/[0-9]*/exe 2>/dev/null | grep -o '[^/]*\.test$' | sort -u | tr '\n' ' '; }
alive() { # says every 30 seconds that the tests go on
	while sleep 30 >/dev/null; do echo "   $SECONDS s, $(passed) tests passed; running: $(running)"; done
}

go list ./... >/dev/null || { echo "go cannot load the packages: see above" >&2; exit 1; }
echo "== tests (each package as it ends; all output in build/test.log)"
alive &
alive=$!
trap 'kill $alive 2>/dev/null' EXIT
run() { # run FOLDER [PACKAGE...]: its module's tests, those packages first
	(cd "$1" && ulimit -t 1200 && go test -json -timeout 60m "${@:2}" ./... 2>&1) | tee -a build/test.json |
		perl scripts/grouped.pl | tee -a build/test.log | grep --line-buffered -E '^(ok|FAIL|panic)|--- (SKIP|FAIL)'
	return "${PIPESTATUS[0]}"
}
failures() { # what each failed test wrote, its last 60 lines; of panics and of what does not compile, the lines after
	awk '/^=== RUN +[^\/]*$/ { n = 0 } { line[n++] = $0 }
		/^--- FAIL/ { for (i = n > 60 ? n - 60 : 0; i < n; i++) print line[i]; n = 0 }' build/test.log | head -300
	grep -n -A40 -E '^panic|^fatal|^# ' build/test.log | head -200
}
status=0
# The longest first: else one of them ends alone, beside an idle core.
run . ./runtime ./cmd/ehasm ./docs ./scripts ./validate/live ./internal/profile/record ./dwarfcfa || status=1
run bench || status=1
run internal/profile/push/servers || status=1
[ $status -eq 0 ] || failures

hosts() {
	local bad=0
	for host in darwin/arm64 windows/amd64 freebsd/amd64 linux/arm64; do
		echo "$host"
		GOOS=${host%/*} GOARCH=${host#*/} CGO_ENABLED=0 go build -o /dev/null ./cmd/ehasm &&
			GOOS=${host%/*} GOARCH=${host#*/} CGO_ENABLED=0 go vet ./... || { echo "does not build for $host"; bad=1; }
	done
	return $bad
}
hosts >build/hosts.log 2>&1 & # while targets are linked, one after the other
hosts=$!
trap 'kill $alive $hosts 2>/dev/null' EXIT
echo "== fuzz targets, ${FUZZTIME:=2000x} inputs each"
scripts/fuzz.sh "$FUZZTIME" 2 2>&1 | tee build/fuzz.log | grep --line-buffered -E '^(ok|FAIL|---|fuzz: [a-z.])' | grep --line-buffered -v elapsed
[ "${PIPESTATUS[0]}" -eq 0 ] || { tail -40 build/fuzz.log; status=1; }

echo "== other hosts: the command, and its tests compile"
wait $hosts || status=1
cat build/hosts.log

failed=$(grep -cE '^ *--- FAIL' build/test.log)
skipped=$(grep -cE '^ *--- SKIP' build/test.log)
echo "$(passed) passed, $failed failed, $skipped skipped"
exit $status
