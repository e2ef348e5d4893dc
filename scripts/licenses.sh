#!/bin/bash
# Copies the licences of the modules that are linked into the command: scripts/licenses.sh FOLDER. A module without one is
# an error.
set -eu -o pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0 GOOS=linux GOARCH=amd64
go=${GO:-go}
modules=$($go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}}@{{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/ehasm | sort -u)
while read -r module dir; do
	mkdir -p "$1/$module"
	find "$dir" -maxdepth 1 -type f \( -iname 'LICEN[CS]E*' -o -iname 'COPYING*' -o -iname 'NOTICE*' \) -exec install -m 644 -t "$1/$module" {} +
	rmdir "$1/$module" 2>/dev/null && { echo "$module has no licence" >&2; exit 1; }
done <<<"$modules"
install -D -m 644 "$($go env GOROOT)/LICENSE" "$1/go/LICENSE"
