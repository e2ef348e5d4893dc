#!/bin/bash
# Prints the version of the sources, which cmd/ehasm/version.go defines.
sed -n 's/^const release = "\(.*\)"$/\1/p' "$(dirname "$0")/../cmd/ehasm/version.go"
