#!/bin/bash
# Prints the version of the sources, which compile/version.go defines.
sed -n 's/^const Release = "\(.*\)"$/\1/p' "$(dirname "$0")/../compile/version.go"
