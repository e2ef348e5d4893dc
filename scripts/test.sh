#!/bin/bash
# All tests, then each fuzz target for a short while. Prints packages, failures
# and skips; the whole output goes to build/test.log.
set -u -o pipefail
cd "$(dirname "$0")/.."
mkdir -p build
go vet ./... || exit 1
unformatted=$(gofmt -l $(git ls-files '*.go'))
[ -z "$unformatted" ] || { echo "gofmt would change: $unformatted" >&2; exit 1; }
go test -v -timeout 20m ./... >build/test.log 2>&1
status=$?
(cd bench && go vet ./... && go test -v ./...) >>build/test.log 2>&1 || status=1
if [ $status -eq 0 ]; then
	grep -E '^(ok|\?|FAIL|panic)|--- (SKIP|FAIL)' build/test.log
else
	grep -E '^(ok|FAIL|panic)|--- (SKIP|FAIL)' build/test.log
	grep -n -A40 -E -- '--- FAIL|^panic|^fatal|^# ' build/test.log | head -200
fi
scripts/fuzz.sh "${FUZZTIME:-2000x}" >build/fuzz.log 2>&1 || { tail -40 build/fuzz.log; status=1; }
grep -hE '^(fuzz|ok|FAIL)' build/fuzz.log
passed=$(grep -cE '^ *--- PASS' build/test.log)
failed=$(grep -cE '^ *--- FAIL' build/test.log)
skipped=$(grep -cE '^ *--- SKIP' build/test.log)
echo "$passed passed, $failed failed, $skipped skipped"
exit $status
