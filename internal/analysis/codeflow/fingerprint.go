package codeflow

import (
	"hash/fnv"

	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// This file makes names for code that survive a link: FNV-1a of the instructions without addresses. A collision makes a
// baseline accept another finding at the same offset of the same function.

// Fingerprint returns a hash of the instructions in [lo, hi), without the addresses in them: it stays the same where a
// linker moves the code, or what the code refers to.
func (img *Image) Fingerprint(lo, hi uint64) uint64 {
	code := img.Code(lo)
	if uint64(len(code)) > hi-lo {
		code = code[:hi-lo]
	}
	h := fnv.New64a()
	var in x86.Inst
	var text [16]byte
	for off := 0; off < len(code); {
		if x86.Decode(code[off:], &in) != nil {
			h.Write(code[off : off+1])
			off++
			continue
		}
		b := text[:copy(text[:in.Len], code[off:])]
		imm := len(b) - int(in.Enc.ImmLen)
		disp := imm - int(in.Enc.DispLen)
		if in.Mem.Base == x86.RIP || in.Enc.DispLen == 4 && img.at(uint64(in.Mem.Disp), 1) != nil {
			clear(b[disp:imm])
		}
		if in.Args[0].Kind == x86.KRel || in.Enc.ImmLen >= 4 && img.at(uint64(in.Imm), 1) != nil {
			clear(b[imm:])
		}
		h.Write(b)
		off += int(in.Len)
	}
	return h.Sum64()
}
