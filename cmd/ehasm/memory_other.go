//go:build !linux

package main

func boundMemory() {}
