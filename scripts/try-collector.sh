#!/bin/bash
# Sends profiles to an OpenTelemetry Collector that is built from its Go modules, and looks for them in what
# its debug exporter prints: scripts/try-collector.sh. It needs the module proxy and listens on 127.0.0.1 alone. 0.156.0 is the last whose
# modules were all to be had when this was written.
set -eu -o pipefail
cd "$(dirname "$0")/.."
version=v0.156.0 stable=v1.62.0
out=$PWD/build/try-collector
mkdir -p "$out"
CGO_ENABLED=0 go build -o "$out/ehasm" ./cmd/ehasm
cp scripts/try-collector/main.go.txt "$out/main.go" # a separate module: the collector's dependencies are not the project's
cp scripts/try-collector/config.yaml "$out"
cd "$out"
[ -e go.mod ] || go mod init try-collector
modules=go.opentelemetry.io/collector
go get $modules/otelcol@$version $modules/receiver/otlpreceiver@$version $modules/exporter/debugexporter@$version \
	$modules/confmap/provider/fileprovider@$stable
go mod tidy
go build -o collector .
./collector --config config.yaml --feature-gates=+service.profilesSupport >collector.out 2>&1 &
collector=$!
trap 'kill $collector 2>/dev/null || true' EXIT
for ((i = 0; i < 100; i++)); do
	grep -q 'Everything is ready' collector.out && break
	sleep 0.1
done
./ehasm agent --push http://127.0.0.1:14318 --push-as otlp --push-name shop --every 1s -- \
	python3 -c 'sum(hash(str(i)) for i in range(6000000))'
sleep 1
kill $collector
wait $collector || true
echo "resources with profiles: $(grep -c '^Profile #0' collector.out)"
for want in 'service.name: Str(shop)' __libc_start_main; do
	grep -qF -- "$want" collector.out || { echo "the collector has no $want" >&2; exit 1; }
done
