package prove

import "bytes"

// Where a path is cut: at instructions by which the parts of the code can be told. A
// cut is no claim. What a path meets there is proven to satisfy the invariant of that
// part, and the part is proven from its invariant on; a wrong cut makes a proof fail.
var (
	cutLoad = []byte{0x0f, 0x12, 0x6f, 0x18}                 // movlps 24(%rdi), %xmm5
	cutSlot = []byte{0x48, 0x83, 0x7c, 0x24, slotRegs, 0x00} // cmpq $0, slotRegs(%rsp)

	cutCFA = []byte{0x0f, 0xb6, 0x45, 0x00} // movzbl (%rbp), %eax
	// movzbl (%rbp), %ecx; inc %rbp; mov %ecx, %r15d
	cutRule   = []byte{0x0f, 0xb6, 0x4d, 0x00, 0x48, 0xff, 0xc5, 0x41, 0x89, 0xcf}
	cutFinal  = []byte{0x41, 0x0f, 0xbc, 0xc5}      // bsf %r13d, %eax
	cutEnd    = []byte{0x8b, 0x44, 0x24, slotExact} // mov slotExact(%rsp), %eax
	cutLookup = []byte{0x48, 0x3d}                  // cmp $imm32, %rax
	cutNear   = []byte{0x48, 0x83, 0xf8}            // cmp $imm8, %rax
	cutRead   = []byte{0x49, 0x8b, 0x4e, 0x08}      // mov 8(%r14), %rcx
)

// begins reports whether the code at pc begins with one of such instructions.
func (p *proof) begins(pc uint64, with ...[]byte) bool {
	b := p.im.text(pc)
	for _, w := range with {
		if bytes.HasPrefix(b, w) {
			return true
		}
	}
	return false
}

// stops returns a predicate for exec.run: a path ends where the code begins with one of the byte
// strings.
func (p *proof) stops(code ...[]byte) func(uint64) bool {
	return func(pc uint64) bool { return p.begins(pc, code...) }
}

// run runs a state and hands every ending to check, which must not keep it. run then takes the
// ending's state back for reuse.
func (p *proof) run(s *state, stop func(uint64) bool, check func(e *ending) error) error {
	ends, err := p.x.run(s, stop)
	if err != nil {
		return err
	}
	for i := range ends {
		if err := check(&ends[i]); err != nil {
			return err
		}
		p.x.free = append(p.x.free, ends[i].state)
	}
	return nil
}
