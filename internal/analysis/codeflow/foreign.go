package codeflow

import (
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// span is a stretch of code, [lo, hi).
type span struct{ lo, hi uint64 }

// findForeign finds V8's builtins: by their symbols, and where those are stripped by the two functions that return the
// place and the size of all, which node and libnode export.
func (img *Image) findForeign() {
	named := span{lo: ^uint64(0)}
	var start, size uint64
	for i := range img.symbols {
		s := &img.symbols[i]
		switch {
		case strings.HasPrefix(s.Name, "Builtins_"):
			named.lo, named.hi = min(named.lo, s.Addr), max(named.hi, s.Addr+s.Size)
		case s.Name == "_ZN2v88internal23DefaultEmbeddedBlobCodeEv":
			start = img.returns(s.Addr)
		case s.Name == "_ZN2v88internal27DefaultEmbeddedBlobCodeSizeEv":
			size = img.returns(s.Addr)
		}
	}
	all := span{start, start + size}
	for _, s := range []span{named, all} {
		if s.lo < s.hi && img.Code(s.lo) != nil && img.Code(s.hi-1) != nil {
			img.foreign = append(img.foreign, s)
		}
	}
}

// returns gives the result of the function at addr if all that it does is to return a constant, an address or a word of
// read-only data; otherwise 0.
func (img *Image) returns(addr uint64) uint64 {
	var in, next x86.Inst
	code := img.Code(addr)
	if x86.Decode(code, &in) != nil || x86.Decode(code[in.Len:], &next) != nil || next.Op != x86.OpRET ||
		in.Args[0].Kind != x86.KGPR || in.Args[0].Reg != uint8(x86.RAX) {
		return 0
	}
	mem, isMem := in.MemAddr(addr)
	switch {
	case in.Op == x86.OpMOV && in.Args[1].Kind == x86.KImm:
		return uint64(in.Imm)
	case in.Op == x86.OpLEA && isMem:
		return mem
	case in.Op == x86.OpMOV && isMem && in.MemSize == 4:
		v, _ := img.half(mem)
		return uint64(uint32(v))
	case in.Op == x86.OpMOV && isMem && in.MemSize == 8:
		v, _ := img.word(mem)
		return v
	}
	return 0
}

// Foreign reports whether the code at addr follows no convention of the psABI: V8's builtins, which take arguments
// below the return address and keep no register, and the code that signal handlers return to.
func (img *Image) Foreign(addr uint64) bool {
	for _, s := range img.foreign {
		if addr >= s.lo && addr < s.hi {
			return true
		}
	}
	return abi.IsSigreturn(img.Code(addr))
}

// ForeignBounds calls yield with the beginning and the end of each stretch of V8's builtins.
func (img *Image) ForeignBounds(yield func(addr uint64)) {
	for _, s := range img.foreign {
		yield(s.lo)
		yield(s.hi)
	}
}
