# Included by the Makefile at the top: make bench, make bench-quick.
.PHONY: bench bench-quick

bench:
	bench/run.sh

bench-quick:
	bench/run.sh --quick
