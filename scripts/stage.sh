#!/bin/bash
# Installs the command, its man pages and completions below a folder: scripts/stage.sh DIR PREFIX [BINARY].
# Without BINARY it builds the command as releases are built.
set -eu -o pipefail
umask 022 # root's shells run what lies there
cd "$(dirname "$0")/.."
dir=$1$2
mkdir -p "$dir/bin"
if [ $# -gt 2 ]; then
	install -m 755 "$3" "$dir/bin/ehasm"
else
	CGO_ENABLED=0 GOOS=linux GOARCH=amd64 ${GO:-go} build -trimpath -buildvcs=false -ldflags='-s -w -buildid= -E main.entry' -o "$dir/bin/ehasm" ./cmd/ehasm
fi
ehasm=$dir/bin/ehasm
mkdir -p "$dir/share/man/man1" "$dir/share/bash-completion/completions" "$dir/share/zsh/site-functions" "$dir/share/fish/vendor_completions.d"
"$ehasm" man >"$dir/share/man/man1/ehasm.1"
"$ehasm" help | sed -n '/^Verbs:/,/^$/s/^  \([a-z]*\) .*/\1/p' | while read -r verb; do
	[ "$verb" = help ] || "$ehasm" man "$verb" >"$dir/share/man/man1/ehasm-$verb.1"
done
"$ehasm" man perf >"$dir/share/man/man1/ehasm-perf.1"
gzip -9nf "$dir"/share/man/man1/*.1
# perf script by ehasm: as ehasm-perf, and as perf in a folder for the front of PATH.
mkdir -p "$dir/lib/ehasm/perf"
ln -sf ehasm "$dir/bin/ehasm-perf"
ln -sf ../../../bin/ehasm "$dir/lib/ehasm/perf/perf"
"$ehasm" completion bash >"$dir/share/bash-completion/completions/ehasm"
"$ehasm" completion zsh >"$dir/share/zsh/site-functions/_ehasm"
"$ehasm" completion fish >"$dir/share/fish/vendor_completions.d/ehasm.fish"
