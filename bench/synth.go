package main

import (
	"encoding/binary"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// synthOptions say what synthetic stacks look like.
type synthOptions struct {
	Stacks int
	Frames int
	Base   uint64 // address of their memory
	Bias   uint64 // load bias of the object
	Bottom uint64 // return address of the outermost frame
	ByByte bool   // pcs are uniform over the bytes covered, not over the rows
	Seed   uint64
}

// synthStack is a stack that was made so that its frames unwind as planned.
type synthStack struct {
	Regs   abi.Regs
	Hi     uint64  // one past its highest address
	Frames []frame // the planned ones, innermost first
}

// synthSet is a number of stacks in one block of memory.
type synthSet struct {
	Base   uint64
	Memory []byte
	Stacks []synthStack
}

// ReadWord returns the memory of the stacks for the reference evaluator.
func (s *synthSet) ReadWord(addr uint64) (uint64, bool) {
	off := addr - s.Base
	if addr < s.Base || off+8 > uint64(len(s.Memory)) {
		return 0, false
	}
	return binary.LittleEndian.Uint64(s.Memory[off:]), true
}

// synthesize makes stacks. Each frame is a row drawn at random; the stack
// memory holds what the rows expect to find, saved registers included.
func synthesize(rows []candidate, opt synthOptions) (*synthSet, error) {
	p, err := newPicker(rows, opt.ByByte, opt.Seed)
	if err != nil {
		return nil, err
	}
	set := &synthSet{Base: opt.Base}
	for range opt.Stacks {
		// stacks begin at different distances, so that they do not compete for the same cache sets
		set.Memory = append(set.Memory, make([]byte, 64+8*p.rng.IntN(32))...)
		for len(set.Memory)%16 != 0 {
			set.Memory = append(set.Memory, 0)
		}
		set.Stacks = append(set.Stacks, set.one(p, opt))
	}
	set.Memory = append(set.Memory, make([]byte, 4096)...)
	return set, nil
}

// one appends a stack. The value of rbp is decided late: home is where it comes
// from (a word of the stack, or the registers), and it is written when a row
// bases its CFA on it.
func (s *synthSet) one(p *picker, opt synthOptions) synthStack {
	var st synthStack
	sp := s.Base + uint64(len(s.Memory))
	st.Regs.Valid = abi.CalleeSaved | 1<<abi.RSP | 1<<abi.RIP
	st.Regs.Reg[abi.RSP] = sp
	for i := range abi.RSP {
		st.Regs.Reg[i] = p.rng.Uint64() >> 20 // values below 2^44, which are no kernel addresses
	}
	var home uint64 // address of the word that rbp was restored from; 0: the registers
	setRBP := func(v uint64) {
		if home == 0 {
			st.Regs.Reg[abi.RBP] = v
		} else {
			s.put(home, v)
		}
	}
	pc, row := p.pick()
	st.Regs.Reg[abi.RIP] = uint64(pc) + 1 + opt.Bias
	for i := range opt.Frames {
		cfa := sp + uint64(row.CFA.Offset)
		if row.CFA.Reg == abi.RBP {
			// The CFA does not depend on rsp here: choose how far up it lies.
			cfa = sp + uint64(-lowestSlot(row)) + 8*uint64(p.rng.IntN(16))
			setRBP(cfa - uint64(row.CFA.Offset))
		}
		s.grow(cfa)
		for reg, rule := range row.Regs {
			if rule.Kind != dwarfcfa.RuleOffset {
				continue
			}
			slot := cfa + uint64(rule.Offset)
			s.put(slot, p.rng.Uint64()>>20)
			if reg == abi.RBP {
				home = slot
			}
		}
		ra := opt.Bottom
		slot := cfa + uint64(row.Regs[abi.RIP].Offset)
		if i < opt.Frames-1 { // the last frame returns to Bottom, where every walk ends
			pc, row = p.pick()
			ra = uint64(pc) + 1 + opt.Bias
		}
		s.put(slot, ra)
		st.Frames = append(st.Frames, frame{PC: ra, CFA: cfa})
		sp = cfa
	}
	st.Hi = sp + 16
	s.grow(st.Hi)
	return st
}

// grow extends the memory to the address hi.
func (s *synthSet) grow(hi uint64) {
	if n := int(hi - s.Base); n > len(s.Memory) {
		s.Memory = append(s.Memory, make([]byte, n-len(s.Memory))...)
	}
}

// put writes a word at an address.
func (s *synthSet) put(addr, v uint64) {
	binary.LittleEndian.PutUint64(s.Memory[addr-s.Base:], v)
}

// encode returns the file that the driver's synth command reads.
func (s *synthSet) encode() []byte {
	le := binary.LittleEndian
	frames := 0
	for _, st := range s.Stacks {
		frames += len(st.Frames)
	}
	var b []byte
	for _, v := range []uint64{s.Base, uint64(len(s.Memory)), uint64(len(s.Stacks)), uint64(frames)} {
		b = le.AppendUint64(b, v)
	}
	first := 0
	for _, st := range s.Stacks {
		for _, v := range st.Regs.Reg {
			b = le.AppendUint64(b, v)
		}
		for _, v := range []uint64{st.Hi, uint64(first), uint64(len(st.Frames))} {
			b = le.AppendUint64(b, v)
		}
		first += len(st.Frames)
	}
	for _, st := range s.Stacks {
		for _, f := range st.Frames {
			b = le.AppendUint64(b, f.CFA)
			b = le.AppendUint64(b, f.PC)
		}
	}
	return append(b, s.Memory...)
}
