package tally

import (
	"encoding/binary"
	"iter"
)

// This file has the form of keys: numbers of frames and labels, each in a fixed size.

// NumberSize is the size of a number in a key, in bytes: big-endian, so that keys are in the order of their numbers.
const NumberSize = 4

// AppendNumber appends a number to a key.
func AppendNumber(b []byte, n uint32) []byte { return binary.BigEndian.AppendUint32(b, n) }

// Numbers yields the numbers of a key, in their order.
func Numbers(key []byte) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for ; len(key) >= NumberSize && yield(binary.BigEndian.Uint32(key)); key = key[NumberSize:] {
		}
	}
}
