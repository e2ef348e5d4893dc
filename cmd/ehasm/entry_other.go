//go:build !(linux && amd64)

package main

const outputClosed = false
