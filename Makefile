# Everything needs Go; the tests also need the Debian packages in scripts/deps.sh,
# which installs them if run as root.
SHELL = /bin/bash -o pipefail
GO ?= go

.PHONY: try-collector truth decoder build test quick lint race race-quick fuzz adversary corpus bench bench-perf bench-exceptions exceptions deps runtime install uninstall clean sample clients dist deb bench-record probes

# Where the process begins: see cmd/ehasm/entry_linux_amd64.s
ENTRY = $(if $(filter linux/amd64,$(shell $(GO) env GOOS)/$(shell $(GO) env GOARCH)),-ldflags '-E main.entry')

# Without cgo, since a library in LD_PRELOAD is meant for the program that preload
# runs.
build:
	CGO_ENABLED=0 $(GO) build $(ENTRY) -o ehasm ./cmd/ehasm

test: deps
	scripts/test.sh

# Between two edits: vet, and the tests of one host but those of whole commands and recordings, which take minutes.
# 60 s of CPU after a change of a line in dwarfcfa, on which most depends; 70 if it changes the code of all its files,
# of which 45 compile, link and vet. The collector's 400 are worth 6 s.
QUICK = ./validate/layers $$($(GO) list ./... | grep -vE '/(bench|cmd|docs|examples|runtime|scripts|stack|validate|internal/profile/record(er)?)(/|$$)')
quick: export GOGC = 400
quick:
	$(GO) vet ./...
	$(GO) test -short -vet=off $(QUICK)

deps:
	scripts/deps.sh

lint:
	test -z "$$(gofmt -l .)"
	$(GO) vet ./...
	$(GO) vet -tags adversary ./...
	$(GO) -C scripts/lint build -o $(CURDIR)/build/lint/ tool
	build/lint/staticcheck ./...
	build/lint/ineffassign ./...
	build/lint/unparam ./...

# CI runs race-quick: what takes seconds with the race detector.
RACE_QUICK = ./ehelf ./unwind ./internal/profile/script ./internal/debuginfo/symbols ./internal/profile/push
RACE ?= $(RACE_QUICK) ./cmd/... ./validate/verify/... ./asmgen/... ./internal/builder ./internal/debuginfo/srcline ./internal/profile/record ./internal/profile/recorder ./internal/profile/ondemand ./internal/debuginfo/debuginfod
race:
	$(GO) test -race $(RACE)
race-quick:
	$(MAKE) race RACE="$(RACE_QUICK)"

# Long runs: make fuzz FUZZTIME=1h
FUZZTIME ?= 10m
fuzz:
	scripts/fuzz.sh $(FUZZTIME)

# Mutated inputs for every verb, kills at random moments, full disks: make adversary INPUTS=1000
INPUTS ?= 100000
KILLS ?= 500
adversary: deps
	$(GO) test -tags adversary ./cmd/ehasm -run TestAdversary -v -timeout 24h -inputs $(INPUTS) -kills $(KILLS)

# Every ELF file of the machine: make corpus CORPUS="/usr/bin /opt"
CORPUS ?= /usr /opt /lib /bin /sbin
corpus: deps
	$(GO) run ./validate/corpus $(CORPUS)

# PACKAGES of Debian, one at a time: downloaded, built in all forms, proven, removed. The lines of each file go to
# build/packages.jsonl, their sums are printed. Hours.
PACKAGES ?= 1600
.PHONY: packages rpm
packages: build
	mkdir -p build
	$(GO) build -o build/ ./validate/corpus ./validate/packages
	build/packages --select $(PACKAGES) | build/packages --corpus build/corpus --folder build/unpacked >build/packages.jsonl
	build/packages --sum build/packages.jsonl

bench: deps
	bench/run.sh

# Unwinding perf recordings, compared with libunwind, libdw and perf script.
bench-perf: deps
	bench/run.sh --only perf

# What record finds and loses, compared with perf record:
# docs/validation/record.md
bench-record: deps
	bench/record.sh

# Tracepoints and probes in a virtual machine, compared with perf's there: docs/validation/events.md
probes:
	bench/probes.sh

# The cost of throws with the system's libgcc and with this project's, in turn.
bench-exceptions: build runtime
	runtime/eh/bench/run.sh ./ehasm $(CURDIR)/build/runtime/libgcc/libgcc_s.so.1

# Programs that throw with either libgcc: 10,000 random ones, and with GCC=FOLDER the tests of an unpacked GCC.
exceptions: build runtime
	$(GO) build -o build/random ./validate/exceptions/random
	validate/exceptions/random.sh ./ehasm $(CURDIR)/build/runtime/libgcc/libgcc_s.so.1 build/random build/exceptions 1 100
	test -z "$(GCC)" || validate/exceptions/gcc.sh ./ehasm $(CURDIR)/build/runtime/libgcc/libgcc_s.so.1 $(GCC) build/exceptions

# libehunwind, for programs that unwind themselves: see docs/runtime.md
runtime:
	$(MAKE) -C runtime

# Installs what make build and make runtime have made, or makes it. As root without DESTDIR, the loader learns
# of the library; for a PREFIX of your own, link with -Wl,-rpath,PREFIX/lib.
PREFIX ?= /usr/local
install:
	test -x ehasm || $(MAKE) build
	$(MAKE) -C runtime install PREFIX=$(PREFIX)
	scripts/stage.sh "$(DESTDIR)" $(PREFIX) $(CURDIR)/ehasm
	test -n "$(DESTDIR)" || test $$(id -u) -ne 0 || ldconfig

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/ehasm-perf $(DESTDIR)$(PREFIX)/lib/ehasm/perf/perf
	rmdir $(DESTDIR)$(PREFIX)/lib/ehasm/perf $(DESTDIR)$(PREFIX)/lib/ehasm 2>/dev/null || true
	rm -f $(DESTDIR)$(PREFIX)/bin/ehasm $(DESTDIR)$(PREFIX)/share/man/man1/ehasm.1.gz $(DESTDIR)$(PREFIX)/share/man/man1/ehasm-*.1.gz
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/ehasm $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_ehasm
	rm -f $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/ehasm.fish
	$(MAKE) -C runtime uninstall PREFIX=$(PREFIX)

# Release tarballs with checksums, and Debian packages; both reproducible.
dist:
	scripts/dist.sh
deb:
	scripts/deb.sh
rpm:
	scripts/rpm.sh
# All three, with an SBOM.
.PHONY: release
release:
	scripts/release.sh

clean:
	rm -rf ehasm build bench/out

# Real programs, sampled: libehunwind against libunwind in every sample.
sample: deps
	validate/sampler/run.sh

# Debian's profilers and tracers, with and without the preload.
clients:
	validate/clients/run.sh

# Profiles pushed to an OpenTelemetry Collector: docs/validation/record.md
try-collector:
	scripts/try-collector.sh

# Programs run step by step, and their frames compared with tables:
# docs/validation/truth.md. Needs x264, dav1d, svt-av1, ffmpeg, libgmp-dev, clang, rustc
# and openssl.
truth:
	nice -n 19 validate/truth/long.sh build/truth --made

# decoder compares package x86 with objdump over the code that the FDEs of FILES cover; see docs/validation/check.md
decoder:
	go run ./validate/objdumpcmp/cmd $(FILES)

# Mutants of finished files: every bit of three small images (PROVE_MUTANTS=bits), or N random ones of PROVE_FILES, for
# at most PROVE_TIME each; accepted ones are written to PROVE_ACCEPTED.
.PHONY: prove-mutants
prove-mutants: export PROVE_MUTANTS ?= bits
prove-mutants: export PROVE_FILES ?= /bin/ls
prove-mutants: export PROVE_TIME ?= 30m
prove-mutants: export PROVE_ACCEPTED ?= /tmp/prove-accepted.txt
prove-mutants:
	go test ./prove -v -timeout 0 -run TestManyMutants

# The same files proven by builds for other hosts, under emulators.
.PHONY: prove-hosts
prove-hosts:
	scripts/hosts.sh

# Changes of the emitter, one at a time: each must be refused by the proof. See validate/mutants/list.txt
.PHONY: emitter-mutants
emitter-mutants:
	$(GO) run ./validate/mutants /bin/ls /lib/x86_64-linux-gnu/libc.so.6 /usr/lib/x86_64-linux-gnu/libcrypto.so.3

# Rows changed at random, and how many of them check finds: docs/validation/check.md. Needs clang and rustc.
.PHONY: mutations
mutations: export MUTATIONS ?= 10000
mutations:
	mkdir -p build
	g++ -O2 -shared -fPIC -o build/templates-gcc.so internal/analysis/check/testdata/templates.cc
	clang++ -O2 -shared -fPIC -o build/templates-clang.so internal/analysis/check/testdata/templates.cc
	$(GO) test ./internal/analysis/check -run 'TestMutations$$' -v -timeout 0 -args -mutation-list -mutations $$MUTATIONS -mutation-files \
		"$(CURDIR)/build/templates-gcc.so,$(CURDIR)/build/templates-clang.so,$$(echo "$$(rustc --print sysroot)"/lib/rustlib/*/lib/libstd-*.so),/usr/lib/x86_64-linux-gnu/libstdc++.so.6,/usr/bin/bash"
