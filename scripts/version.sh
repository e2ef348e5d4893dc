#!/bin/bash
# Prints the version of the sources: the one place is cmd/ehasm/version.go.
sed -n 's/^const release = "\(.*\)"$/\1/p' "$(dirname "$0")/../cmd/ehasm/version.go"
