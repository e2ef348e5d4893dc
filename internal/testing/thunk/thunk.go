// Package thunk holds C functions, written in assembly, that generated code is
// tested with: a read callback and a deref function over a memory whose content
// is a hash of the address. Each has a twin in Go that gives the same answers.
//
// Beyond what they return, the C functions do harm where the System V calling
// convention allows it: they leave garbage in every caller-saved register (rax,
// rcx, rdx, rsi, rdi, r8 to r11, xmm0 to xmm15), in the flags and in the red
// zone, so that code which relies on one of them gives wrong answers.
package thunk

// derefSeed is the seed of HashDeref, which has no argument for one.
const derefSeed = 0x6568_6173_6d5f_6465

// Mix is the finaliser of the SplitMix64 generator (Steele, Lea and Flood,
// "Fast splittable pseudorandom number generators", 2014, variant 13 of
// Stafford's mixers), a bijection of 64-bit words.
func Mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// HashRead returns the word at addr of the memory seed. One address in eight is
// unreadable; addresses have nothing to do with one another, even where the
// words they name overlap.
func HashRead(seed, addr uint64) (word uint64, ok bool) {
	h := Mix(addr ^ seed)
	if h&7 == 0 {
		return 0, false
	}
	return Mix(h), true
}

// HashDeref returns the word at addr of a memory that is readable everywhere.
func HashDeref(addr uint64) uint64 { return Mix(addr ^ derefSeed) }
