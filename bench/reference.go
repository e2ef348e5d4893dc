package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sort"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// snapshot is a stack captured as registers and bytes.
type snapshot struct {
	Regs   abi.Regs
	Hi     uint64 // one past its highest address
	Memory []byte // from its rsp on, up to Hi
}

// ReadWord returns the memory of the stack for the reference evaluator.
func (s *snapshot) ReadWord(addr uint64) (uint64, bool) {
	off := addr - s.Regs.Reg[abi.RSP]
	if addr < s.Regs.Reg[abi.RSP] || off > uint64(len(s.Memory)) || uint64(len(s.Memory))-off < 8 {
		return 0, false
	}
	return binary.LittleEndian.Uint64(s.Memory[off:]), true
}

// readDump reads what the driver's dump command wrote.
func readDump(path string, stacks []liveStack) ([]snapshot, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	const head = int(abi.RegsSize) + 8
	var all []snapshot
	for _, live := range stacks {
		size := int(live.Hi - live.RSP)
		if len(b) < head+size {
			return nil, errors.New("the dump is too short")
		}
		var s snapshot
		for i := range s.Regs.Reg {
			s.Regs.Reg[i] = le.Uint64(b[8*i:])
		}
		s.Regs.Valid = le.Uint32(b[abi.RegsValid:])
		s.Regs.Exact = le.Uint16(b[abi.RegsExact:])
		s.Hi = le.Uint64(b[abi.RegsSize:])
		s.Memory = b[head : head+size]
		b = b[head+size:]
		all = append(all, s)
	}
	return all, nil
}

// frame is a caller: its pc, and the CFA of the frame below it.
type frame struct{ PC, CFA uint64 }

// tables are the unwind tables of the driver's modules.
type tables struct {
	modules []module // by address
	table   []*dwarfcfa.Table
}

// find returns the module that holds a run-time address.
func (t *tables) find(pc uint64) (int, bool) {
	i := sort.Search(len(t.modules), func(i int) bool { return t.modules[i].End > pc })
	return i, i < len(t.modules) && t.modules[i].Start <= pc
}

// walk returns the reference: the frames of a stack by the reference evaluator.
func (t *tables) walk(s *snapshot) ([]frame, abi.Status) {
	regs := s.Regs
	var frames []frame
	for len(frames) < 10000 {
		i, ok := t.find(regs.LookupPC())
		if !ok || t.table[i] == nil {
			return frames, abi.StatusNoInfo
		}
		rsp := regs.Reg[abi.RSP]
		if status := t.table[i].Step(&regs, s, t.modules[i].Bias); status != abi.StatusOK {
			return frames, status
		}
		// The CFA must rise, or a damaged table would go round for ever.
		if regs.Reg[abi.RSP] <= rsp && len(frames) > 0 {
			return frames, abi.StatusUnreadable
		}
		frames = append(frames, frame{PC: regs.Reg[abi.RIP], CFA: regs.Reg[abi.RSP]})
	}
	return frames, abi.StatusOK
}

// agree compares what a contender found with the reference. Frames of the
// harness may come first, and a zero may end the list.
func agree(got []uint64, want []frame) error {
	for len(got) > 0 && got[len(got)-1] == 0 {
		got = got[:len(got)-1]
	}
	if len(got) < len(want) {
		return fmt.Errorf("%d frames of %d", len(got), len(want))
	}
	const harness = 8 // frames of the harness at most
	if len(got) > len(want)+harness {
		return fmt.Errorf("%d frames, not %d", len(got), len(want))
	}
	got = got[len(got)-len(want):] // frames are compared from the outermost in, since the harness' own come first
	for i := range want {
		if got[i] != want[i].PC {
			return fmt.Errorf("frame %d: %#x, not %#x", i, got[i], want[i].PC)
		}
	}
	return nil
}
