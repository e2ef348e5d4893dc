package unwind

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/internal/testing/unwindtest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/arch/x86/x86asm"
)

// testFramePointers walks from code without a row by rbp, which may be none.
func testFramePointers(t *testing.T, maps *Maps, walker *Walker) {
	for _, pc := range []uint64{0x401f00, 0x10010} { // no row; anonymous
		var pcs [10]uint64
		regs := start(pc)
		regs.Reg[abi.RBP] = 0x7ffc0010
		mem := stack(0, 0x401044, 0x401010)
		binary.LittleEndian.PutUint64(mem.Bytes[16:], 0x7ffc0020)
		n, cause, _ := walker.Walk(maps, regs, mem, pcs[:])
		assert.Equal(t, []uint64{pc, 0x401044, 0x401010}, pcs[:n])
		assert.Equal(t, OutermostGuessed, cause)
		assert.Equal(t, []int{1}, walker.Guesses)
		for _, rbp := range []uint64{0x7ffb0000, 0x7ffc0028, 0x7ffc0030, ^uint64(7), 0x7ffc0001} {
			regs = start(pc)
			regs.Reg[abi.RBP] = rbp
			n, _, _ = walker.Walk(maps, regs, mem, pcs[:])
			assert.Equal(t, 1, n, "rbp %#x", rbp)
		}
	}
	for last, want := range map[uint64]Cause{0: OutermostGuessed, 1: NoInfo} { // at the end of a chain
		var pcs [10]uint64
		regs, mem := start(0x10010), stack(0x401f10)
		regs.Reg[abi.RBP] = mem.Lo
		binary.LittleEndian.PutUint64(mem.Bytes, last)
		n, cause, _ := walker.Walk(maps, regs, mem, pcs[:])
		assert.Equal(t, []uint64{0x10010, 0x401f10}, pcs[:n])
		assert.Equal(t, want, cause)
		regs = start(0x10010)
		regs.Reg[abi.RBP] = last
		_, cause, _ = walker.Walk(maps, regs, mem, pcs[:])
		assert.Equal(t, NoObject, cause, "what rbp holds in the innermost frame may be anything")
	}
	// At a frame that holds zero, and whose return address no call precedes.
	const fresh, uncalled = 0, 0x401f05
	for _, c := range []struct {
		saved, back uint64
		want        Cause
	}{{fresh, uncalled, OutermostGuessed}, {1, uncalled, NoInfo}, {fresh, 1 << 40, NoInfo}} {
		var pcs [10]uint64
		regs, mem := start(0x10010), stack(0x401f10, c.back)
		regs.Reg[abi.RBP] = mem.Lo
		binary.LittleEndian.PutUint64(mem.Bytes, mem.Lo+16)
		binary.LittleEndian.PutUint64(mem.Bytes[16:], c.saved)
		n, cause, _ := walker.Walk(maps, regs, mem, pcs[:])
		assert.Equal(t, []uint64{0x10010, 0x401f10}, pcs[:n])
		assert.Equal(t, c.want, cause)
		assert.False(t, maps.ReturnsTo(uncalled))
	}
	assert.Equal(t, uint64(7), walker.Guessed)
	assert.Equal(t, uint64(7), walker.GuessedStacks)
}

// testWhereFramePointers has each setting, in code without a row, in anonymous memory, and in
// objects without rows.
func testWhereFramePointers(t *testing.T, ps *Processes, objects *Objects) {
	for _, c := range []struct {
		pointers FramePointers
		ends     [2]Cause // in code without row, in anonymous memory
	}{{Gaps, [2]Cause{OutermostGuessed, NoObject}}, {Never, [2]Cause{NoInfo, NoObject}}} {
		for i, pc := range []uint64{0x401f00, 0x10010} {
			var pcs [10]uint64
			regs, mem := start(pc), stack(0x401010)
			regs.Reg[abi.RBP] = mem.Lo
			w := Walker{FramePointers: c.pointers}
			n, cause, _ := w.Walk(ps.Space(1).Maps(), regs, mem, pcs[:])
			assert.Equal(t, c.ends[i], cause, "%v %#x", c.pointers, pc)
			assert.Equal(t, w.Guessed, uint64(n-1))
		}
		parsed, err := ParseFramePointers(c.pointers.String())
		assert.NoError(t, err)
		assert.Equal(t, c.pointers, parsed)
	}
	for i, hdr := range []bool{false, true} { // an object without rows
		made := unwindtest.ELF{Off: 0x1000, VAddr: 0x1000, Size: 0x1000, EmptyHdr: hdr}
		path := filepath.Join(t.TempDir(), "made.so")
		require.NoError(t, os.WriteFile(path, made.Bytes(), 0o666))
		addr := 0x30000 + 0x1000*uint64(i)
		ps.Space(1).Map(addr, 0x1000, 0x1000, objects.Object(path, nil))
		for _, pointers := range []FramePointers{Always, Gaps, Never} {
			var pcs [10]uint64
			regs, mem := start(addr+8), stack(0x401010)
			regs.Reg[abi.RBP] = mem.Lo
			w := Walker{FramePointers: pointers}
			_, cause, _ := w.Walk(ps.Space(1).Maps(), regs, mem, pcs[:])
			want := NoObject
			if pointers == Always || pointers == Gaps && hdr {
				want = OutermostGuessed
			}
			assert.Equal(t, want, cause, "%v, table: %v", pointers, hdr)
		}
	}
}

// testCallerSaved walks through a frame whose CFA is on a register that calls may change.
func testCallerSaved(t *testing.T, maps *Maps) {
	// work called by main called by assembler, which keeps a word on top of its frame.
	mem := stack(0x401044, 0x401144, 0, 0x401010)
	for valid, want := range map[uint32]Cause{abi.AllRegs: Outermost, abi.AllRegs &^ (1 << abi.RAX): BadRegister} {
		var pcs [10]uint64
		regs := start(libBase + 0x3010)
		regs.Reg[abi.RAX] = mem.Lo + 48
		regs.Valid = valid
		var w Walker
		n, cause, _ := w.Walk(maps, regs, mem, pcs[:])
		assert.Equal(t, want, cause)
		frames := []uint64{libBase + 0x3010, 0x401044, 0x401144, 0x401010}
		if want == BadRegister {
			frames = frames[:3]
		}
		assert.Equal(t, frames, pcs[:n])
	}
	// Before the second walk the count of the first is taken back.
	var pcs [4]uint64
	regs := start(0x10010)
	regs.Reg[abi.RBP], regs.Reg[abi.RAX] = mem.Lo, 0
	w := Walker{}
	n, cause, _ := w.Walk(maps, regs, stack(0x401144), pcs[:])
	assert.Equal(t, BadRegister, cause, "a frame pointer says nothing about other registers")
	assert.Equal(t, 2, n)
	assert.Equal(t, uint64(1), w.Guessed)
	assert.Equal(t, uint64(1), w.GuessedStacks)
	// No room for the last frame.
	regs = start(libBase + 0x3010)
	regs.Reg[abi.RAX] = mem.Lo + 48
	n, cause, _ = w.Walk(maps, regs, mem, pcs[:])
	assert.Equal(t, 4, n)
	assert.Equal(t, Full, cause)
}

// TestEndOfChain: rows lead to no code behind a frame with which the chain of frame pointers ends.
func TestEndOfChain(t *testing.T) {
	ps, _, _ := world(t, Options{})
	maps := ps.Space(1).Maps()
	for _, c := range []struct {
		saved, caller uint64 // the frame that rbp points to
		pointers      FramePointers
		want          Cause
	}{
		{0, 0x401044, Always, OutermostGuessed}, {0, 0x401044, Gaps, OutermostGuessed}, {0, 0x401044, Never, NoMapping},
		{1, 0x401044, Always, NoMapping}, {1 << 60, 0x401044, Always, NoMapping}, {0, 0x401045, Always, NoMapping},
	} {
		mem := stack(0x401044, 0x99999)
		mem.Bytes = binary.LittleEndian.AppendUint64(mem.Bytes, c.saved)
		mem.Bytes = binary.LittleEndian.AppendUint64(mem.Bytes, c.caller)
		regs := start(libBase + 0x3010)
		regs.Reg[abi.RBP] = mem.Lo + uint64(len(mem.Bytes)) - 16
		var pcs [10]uint64
		w := Walker{FramePointers: c.pointers}
		n, cause, _ := w.Walk(maps, regs, mem, pcs[:])
		assert.Equal(t, []uint64{libBase + 0x3010, 0x401044}, pcs[:n], "%+v", c)
		assert.Equal(t, c.want, cause, "%+v", c)
	}
}

// TestInvented has what frame pointers lead to that are none, as rbp in assembler code
// that uses it for something else.
func TestInvented(t *testing.T) {
	for name, opt := range map[string]Options{"compiled": {}, "on demand": onDemand(math.MaxInt64)} {
		t.Run(name, func(t *testing.T) {
			ps, objects, _ := world(t, opt)
			ps.Space(1).Map(0x10000, 0x1000, 0x10000, objects.Object("//anon", nil))
			maps := ps.Space(1).Maps()
			const gap = 0x401f00 // code without a row
			for _, c := range []struct {
				name    string
				words   []uint64 // from rsp = rbp on
				want    []uint64
				cause   Cause
				guesses []int
			}{
				{"whole", []uint64{0, 0x401044, 0, 0x401010}, []uint64{gap, 0x401044, 0x401010}, OutermostGuessed,
					[]int{1}},
				{"not behind a call", []uint64{0, 0x401045, 0, 0x401010}, []uint64{gap}, NoInfo, nil},
				{"in no mapping", []uint64{0, 0x99999, 0, 0x401010}, []uint64{gap}, NoInfo, nil},
				{"small numbers", []uint64{0, 0x401044, 0, 2}, []uint64{gap, 0x401044}, NoInfo, []int{1}},
				{"then not behind a call", []uint64{0, 0x401044, 0, 0x401043, 0, 0x401010}, []uint64{gap, 0x401044},
					NoInfo, []int{1}},
				{"much later", []uint64{0, 0x401044, 0, 0x401046, 0, 0x401043, 0, 0x401010}, []uint64{gap, 0x401044},
					NoInfo, []int{1}},
				{"code without a file", []uint64{5, 0x10011, 0, 0x401010}, []uint64{gap, 0x10011}, NoObject, []int{1}},
				{"to where a handler returns", []uint64{0, libBase + 0x3201, 0, 0x401041, 0, 0x401010},
					[]uint64{gap, libBase + 0x3201, 0x401041, 0x401010}, OutermostGuessed, []int{1}},
			} {
				t.Run(c.name, func(t *testing.T) {
					var mem ehelf.Memory
					mem.Lo = 0x7ffc0000
					for _, w := range c.words {
						mem.Bytes = binary.LittleEndian.AppendUint64(mem.Bytes, w)
					}
					regs := start(gap)
					regs.Reg[abi.RBP] = mem.Lo
					var w Walker
					var pcs [10]uint64
					n, cause, _ := w.Walk(maps, regs, &mem, pcs[:])
					assert.Equal(t, fmt.Sprintf("%#x", c.want), fmt.Sprintf("%#x", pcs[:n]))
					assert.Equal(t, c.cause, cause, cause.String())
					assert.Equal(t, len(c.guesses), len(w.Guesses))
					assert.Equal(t, append([]int{}, c.guesses...), append([]int{}, w.Guesses...))
					assert.EqualValues(t, len(c.guesses), w.Guessed)
				})
			}
			t.Run("below rsp", func(t *testing.T) {
				var w Walker
				var pcs [10]uint64
				n, cause, _ := w.Walk(maps, start(0x401184), stack(0x401044, 0x401010), pcs[:])
				assert.Equal(t, 1, n)
				assert.Equal(t, BelowStack, cause)
				n, cause, _ = w.Walk(maps, start(0x401044), stack(0x401184), pcs[:])
				assert.Equal(t, 2, n)
				assert.Equal(t, Unreadable, cause, "a frame that has called has nothing there")
			})
		})
	}
}

// TestGuessLeaf has a function without rows and without a frame, called by one
// with a frame pointer: going by rbp would leave that one out.
func TestGuessLeaf(t *testing.T) {
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	src, path := filepath.Join(dir, "leaf.s"), filepath.Join(dir, "leaf")
	require.NoError(t, os.WriteFile(src, []byte(`.text
.globl leaf, between, caller, outer
leaf: nop
 ret
between: push %rbp
 nop
pointed: endbr64
 cmpb $0, pointed(%rip)
 jne 1f
 push %rbp
 nop
1: ret
.type outer,@function
caller: .cfi_startproc
 push %rbp
 .cfi_def_cfa_offset 16
 .cfi_offset 6,-16
 mov %rsp,%rbp
 .cfi_def_cfa_register 6
 call leaf
back: nop
 call *%rax
other: nop
 .cfi_endproc
outer: .cfi_startproc
 .cfi_undefined 16
 call caller
last: nop
 .cfi_endproc
.globl back, last, pointed, other
.section .note.GNU-stack
`), 0o666))
	out, err := exec.Command("gcc", "-nostdlib", "-static", "-Wl,-e,outer", src, "-o", path).CombinedOutput()
	require.NoError(t, err, "%s", out)
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	symbols, err := f.Symbols()
	require.NoError(t, err)
	addrs := make(map[string]uint64)
	for _, s := range symbols {
		addrs[s.Name] = s.Value
	}
	objects := NewObjects(Options{Compile: unwindtest.Compile})
	defer objects.Close()
	ps := NewProcesses()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			ps.Space(1).Map(p.Vaddr, p.Filesz, p.Off, objects.Object(path, nil))
		}
	}
	words := func(w ...uint64) *ehelf.Memory {
		mem := ehelf.Memory{Lo: 0x7ffc0000}
		for _, v := range w {
			mem.Bytes = binary.LittleEndian.AppendUint64(mem.Bytes, v)
		}
		return &mem
	}
	walk := func(pc, rbp uint64, mem *ehelf.Memory) ([]uint64, Cause) {
		regs := start(pc)
		regs.Reg[abi.RBP] = rbp
		var w Walker
		var pcs [5]uint64
		n, cause, _ := w.Walk(ps.Space(1).Maps(), regs, mem, pcs[:])
		assert.Len(t, w.Guesses, 1)
		return pcs[:n], cause
	}
	// In leaf, rbp is caller's, whose frame begins above the return address.
	got, cause := walk(addrs["leaf"]+1, 0x7ffc0008, words(addrs["back"], 0, addrs["last"]))
	assert.Equal(t, []uint64{addrs["leaf"] + 1, addrs["back"], addrs["last"]}, got)
	assert.Equal(t, OutermostGuessed, cause)
	// Where pointed begins, which is called through a pointer, and not after its push.
	for _, in := range []uint64{0, 4, 11} {
		got, cause := walk(addrs["pointed"]+in, 0x7ffc0008, words(addrs["other"], 0, addrs["last"]))
		assert.Equal(t, []uint64{addrs["pointed"] + in, addrs["other"], addrs["last"]}, got, in)
		assert.Equal(t, OutermostGuessed, cause)
	}
	got, _ = walk(addrs["pointed"]+14, 0x7ffc0000, words(0x7ffc0010, addrs["other"], 0, addrs["last"]))
	assert.Equal(t, []uint64{addrs["pointed"] + 14, addrs["other"], addrs["last"]}, got)
	// In between, which has no visible call, and which has a frame, rbp is all there is.
	got, _ = walk(addrs["between"]+1, 0x7ffc0000, words(0, addrs["last"]))
	assert.Equal(t, []uint64{addrs["between"] + 1, addrs["last"]}, got)
}

// TestEndsInCall compares with the decoder of golang.org/x/arch: each call it finds is
// known, and what is before the length of one is not looked at.
func TestEndsInCall(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	found := make(map[int]int)
	for range 50_000 {
		code := binary.LittleEndian.AppendUint64([]byte{0xff}, random.Uint64())
		code[1] = code[1]&^0x38 | 2<<3 // most random bytes are no call
		if random.IntN(8) == 0 {
			code[0] = 0xe8
		}
		if random.IntN(2) == 0 {
			code = append([]byte{0x40 | byte(random.IntN(16))}, code...)
		}
		insn, err := x86asm.Decode(code, 64)
		if err != nil || insn.Op != x86asm.CALL {
			continue
		}
		found[insn.Len]++
		require.True(t, endsInCall(code[:insn.Len]), "% x", code[:insn.Len])
	}
	for length := 2; length <= 8; length++ {
		assert.NotZero(t, found[length], "no call of %d bytes was drawn", length)
	}
	for _, none := range []string{"", "\xe8", "\x90\x90\x90\x90\x90\x90\x90\x90", "\xff\xe0", "\xff\x10\x90",
		"\x00\x00\xff\x25\x00\x00\x00\x00", "\x0f\x05"} {
		assert.False(t, endsInCall([]byte(none)), "% x", none)
	}
}

// scanning knows nothing of generated code but what Scan finds on the stack, where all that it finds is the caller
// 0x401010.
type scanning struct{ scans int }

func (*scanning) Step(*abi.Regs, *ehelf.Memory) (abi.Status, bool) { return abi.StatusNoInfo, false }
func (*scanning) Returns(uint64) bool                              { return false }
func (g *scanning) Scan(regs *abi.Regs, _ *ehelf.Memory, _ func(uint64) bool) abi.Status {
	g.scans++
	regs.Reg[abi.RIP] = 0x401010
	return abi.StatusOK
}

// TestFramed: the stack is not searched for a caller if rbp points to a frame, even where its return address follows no
// call.
func TestFramed(t *testing.T) {
	ps, objects, _ := world(t, Options{})
	ps.Space(1).Map(0x10000, 0x1000, 0x10000, objects.Object("//anon", nil))
	for _, c := range []struct {
		name  string
		rbp   uint64 // from rsp on
		word  uint64 // above it
		scans int
	}{{"frame", 0, 0x10100, 0}, {"no code above", 0, 0x99999, 1}, {"not on the stack", 1 << 40, 0x10100, 1},
		{"below rsp", ^uint64(7), 0x10100, 1}} {
		made := &scanning{}
		ps.Space(1).SetGenerated(made)
		regs, mem := start(0x10010), stack(c.word)
		regs.Reg[abi.RBP] = regs.Reg[abi.RSP] + c.rbp
		var pcs [10]uint64
		new(Walker).Walk(ps.Space(1).Maps(), regs, mem, pcs[:])
		assert.Equal(t, c.scans, made.scans, c.name)
	}
}
