package unwind

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/testtool"
	"github.com/ehasm/ehasm/unwind/unwindtest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/arch/x86/x86asm"
)

var (
	prog = unwindtest.ELF{Off: 0x1000, VAddr: 0x401000, Size: 0x1000, BuildID: []byte("prog-build-id"), Funcs: []unwindtest.Func{
		{Name: "_start", Addr: 0x401000, Size: 0x40, Kind: unwindtest.Outermost},
		{Name: "main", Addr: 0x401040, Size: 0x40},
		{Name: "handler", Addr: 0x401100, Size: 0x40},
		{Name: "assembler", Addr: 0x401140, Size: 0x40, Kind: unwindtest.ByRAX},
		{Name: "vector", Addr: 0x401180, Size: 0x40, Kind: unwindtest.BelowRSP},
	}}
	lib = unwindtest.ELF{Entry: 0x3400, Off: 0x2000, VAddr: 0x3000, Size: 0x1000, BuildID: []byte("lib-build-id!"), Funcs: []unwindtest.Func{
		{Name: "work", Addr: 0x3000, Size: 0x100},
		{Name: "restore", Addr: 0x3200, Size: 0x10, Kind: unwindtest.Signal},
	}}
)

const libBase = 0x7f0000000000

// world writes the objects below a folder, and maps them.
func world(t *testing.T, opt Options) (*Processes, *Objects, string) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prog"), prog.Bytes(), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "lib.so"), lib.Bytes(), 0o666))
	if opt.Compile == nil {
		opt.Compile = unwindtest.Compile
	}
	objects := NewObjects(opt)
	t.Cleanup(func() { assert.NoError(t, objects.Close()) })
	ps := NewProcesses()
	ps.Map(1, 0x401000, 0x1000, 0x1000, objects.Object(filepath.Join(dir, "prog"), prog.BuildID))
	ps.Map(1, libBase+0x3000, 0x1000, 0x2000, objects.Object(filepath.Join(dir, "lib.so"), nil))
	return ps, objects, dir
}

// stack is frames of two words: rbp, return address.
func stack(returns ...uint64) *ehelf.Memory {
	var b []byte
	for _, r := range returns {
		b = binary.LittleEndian.AppendUint64(b, 0xb9)
		b = binary.LittleEndian.AppendUint64(b, r)
	}
	return &ehelf.Memory{Lo: 0x7ffc0000, Bytes: b}
}

func start(pc uint64) *abi.Regs {
	r := &abi.Regs{Valid: abi.AllRegs, Exact: 1}
	r.Reg[abi.RIP], r.Reg[abi.RSP] = pc, 0x7ffc0000
	return r
}

// TestWalk walks through eh_elfs, by rows on demand, and by the one until there is
// the other.
func TestWalk(t *testing.T) {
	t.Run("compiled", func(t *testing.T) { testWalk(t, Options{}) })
	t.Run("on demand", func(t *testing.T) { testWalk(t, onDemand(math.MaxInt64)) })
	t.Run("on demand at first", func(t *testing.T) { testWalk(t, onDemand(10)) })
}

func testWalk(t *testing.T, opt Options) {
	ps, objects, _ := world(t, opt)
	anon := objects.Object("//anon", nil)
	ps.Map(1, 0x10000, 0x1000, 0x10000, anon)
	missing := objects.Object("/nonexistent/x.so", nil)
	ps.Map(1, 0x20000, 0x1000, 0, missing)
	maps := ps.Process(1).Maps()
	var walker Walker
	for _, c := range []struct {
		name   string
		pc     uint64
		stack  []uint64
		want   []uint64
		cause  Cause
		object string
	}{
		{"over two objects", libBase + 0x3010, []uint64{0x401050, 0x401010}, []uint64{libBase + 0x3010, 0x401050, 0x401010}, Outermost, "prog"},
		{"return address behind the last instruction", libBase + 0x3010, []uint64{0x401080, 0x401010},
			[]uint64{libBase + 0x3010, 0x401080, 0x401010}, Outermost, "prog"},
		{"through a signal frame", 0x401100, []uint64{libBase + 0x3200 + 1, libBase + 0x3000, 0x401044, 0x401010},
			[]uint64{0x401100, libBase + 0x3201, libBase + 0x3000, 0x401044, 0x401010}, Outermost, "prog"},
		{"stack copy too short", libBase + 0x3010, []uint64{0x401050}, []uint64{libBase + 0x3010, 0x401050}, Unreadable, "prog"},
		{"no row", 0x401050, []uint64{0x401f00, 0}, []uint64{0x401050, 0x401f00}, NoInfo, "prog"},
		{"entry without row", libBase + 0x3010, []uint64{libBase + 0x3410, 0}, []uint64{libBase + 0x3010, libBase + 0x3410}, Outermost, "lib.so"},
		{"no mapping", 0x401050, []uint64{0xdead}, []uint64{0x401050}, NoMapping, ""},
		{"zero", 0x401050, []uint64{0}, []uint64{0x401050}, Outermost, ""},
		{"anonymous", 0x401050, []uint64{0x10010}, []uint64{0x401050, 0x10010}, NoObject, "//anon"},
		{"missing", 0x401050, []uint64{0x20010}, []uint64{0x401050, 0x20010}, NoObject, "x.so"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var pcs [10]uint64
			n, cause, object := walker.Walk(maps, start(c.pc), stack(c.stack...), pcs[:])
			assert.Equal(t, fmt.Sprintf("%#x", c.want), fmt.Sprintf("%#x", pcs[:n]))
			assert.Equal(t, c.cause, cause, cause.String())
			if c.object == "" {
				assert.Nil(t, object)
			} else if assert.NotNil(t, object) {
				assert.Equal(t, filepath.Base(c.object), filepath.Base(object.Name))
			}
		})
	}
	t.Run("by frame pointer", func(t *testing.T) {
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
		for _, c := range []struct {
			pointers FramePointers
			ends     [2]Cause // in code without row, in anonymous memory
		}{{Gaps, [2]Cause{OutermostGuessed, NoObject}}, {Never, [2]Cause{NoInfo, NoObject}}} {
			for i, pc := range []uint64{0x401f00, 0x10010} {
				var pcs [10]uint64
				regs, mem := start(pc), stack(0x401010)
				regs.Reg[abi.RBP] = mem.Lo
				w := Walker{FramePointers: c.pointers}
				n, cause, _ := w.Walk(maps, regs, mem, pcs[:])
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
			at := 0x30000 + 0x1000*uint64(i)
			ps.Map(1, at, 0x1000, 0x1000, objects.Object(path, nil))
			for _, pointers := range []FramePointers{Always, Gaps, Never} {
				var pcs [10]uint64
				regs, mem := start(at+8), stack(0x401010)
				regs.Reg[abi.RBP] = mem.Lo
				w := Walker{FramePointers: pointers}
				_, cause, _ := w.Walk(ps.Process(1).Maps(), regs, mem, pcs[:])
				want := NoObject
				if pointers == Always || pointers == Gaps && hdr {
					want = OutermostGuessed
				}
				assert.Equal(t, want, cause, "%v, table: %v", pointers, hdr)
			}
		}
		assert.Equal(t, uint64(4), walker.Guessed)
		assert.Equal(t, uint64(4), walker.GuessedStacks)
	})
	t.Run("by a caller-saved register", func(t *testing.T) {
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
	})
	var two [2]uint64
	n, cause, _ := walker.Walk(maps, start(libBase+0x3010), stack(0x401050, 0x401010), two[:])
	assert.Equal(t, 2, n)
	assert.Equal(t, Full, cause)
	regs := start(0x401050)
	regs.Valid &^= 1 << abi.RSP
	_, cause, _ = walker.Walk(maps, regs, stack(0x401010), two[:])
	assert.Equal(t, BadRegister, cause)
	assert.ErrorIs(t, anon.Err(), ErrNoFile)
	assert.ErrorIs(t, missing.Err(), fs.ErrNotExist)

	libObject := maps.Find(libBase + 0x3000).Object
	assert.True(t, libObject.SignalFrame(0x3200))
	assert.False(t, libObject.SignalFrame(0x3010))
	assert.False(t, libObject.SignalFrame(0x9999))
	assert.False(t, anon.SignalFrame(1))
}

// TestInvented has what frame pointers lead to that are none, as rbp in assembler code
// that uses it for something else.
func TestInvented(t *testing.T) {
	for name, opt := range map[string]Options{"compiled": {}, "on demand": onDemand(math.MaxInt64)} {
		t.Run(name, func(t *testing.T) {
			ps, objects, _ := world(t, opt)
			ps.Map(1, 0x10000, 0x1000, 0x10000, objects.Object("//anon", nil))
			maps := ps.Process(1).Maps()
			const gap = 0x401f00 // code without a row
			for _, c := range []struct {
				name    string
				words   []uint64 // from rsp = rbp on
				want    []uint64
				cause   Cause
				guesses []int
			}{
				{"whole", []uint64{0, 0x401044, 0, 0x401010}, []uint64{gap, 0x401044, 0x401010}, OutermostGuessed, []int{1}},
				{"not behind a call", []uint64{0, 0x401045, 0, 0x401010}, []uint64{gap}, NoInfo, nil},
				{"in no mapping", []uint64{0, 0x99999, 0, 0x401010}, []uint64{gap}, NoInfo, nil},
				{"small numbers", []uint64{0, 0x401044, 0, 2}, []uint64{gap, 0x401044}, NoInfo, []int{1}},
				{"then not behind a call", []uint64{0, 0x401044, 0, 0x401043, 0, 0x401010}, []uint64{gap, 0x401044}, NoInfo, []int{1}},
				{"much later", []uint64{0, 0x401044, 0, 0x401046, 0, 0x401043, 0, 0x401010}, []uint64{gap, 0x401044}, NoInfo, []int{1}},
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

// TestGuessLeaf has a function without rows and without a frame of its own, called by one
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
	at := make(map[string]uint64)
	for _, s := range symbols {
		at[s.Name] = s.Value
	}
	objects := NewObjects(Options{Compile: unwindtest.Compile})
	defer objects.Close()
	ps := NewProcesses()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			ps.Map(1, p.Vaddr, p.Filesz, p.Off, objects.Object(path, nil))
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
		n, cause, _ := w.Walk(ps.Process(1).Maps(), regs, mem, pcs[:])
		assert.Len(t, w.Guesses, 1)
		return pcs[:n], cause
	}
	// In leaf, rbp is that of caller, whose frame begins above the return address.
	got, cause := walk(at["leaf"]+1, 0x7ffc0008, words(at["back"], 0, at["last"]))
	assert.Equal(t, []uint64{at["leaf"] + 1, at["back"], at["last"]}, got)
	assert.Equal(t, OutermostGuessed, cause)
	// Where pointed begins, which is called through a pointer, and not after its push.
	for _, in := range []uint64{0, 4, 11} {
		got, cause := walk(at["pointed"]+in, 0x7ffc0008, words(at["other"], 0, at["last"]))
		assert.Equal(t, []uint64{at["pointed"] + in, at["other"], at["last"]}, got, in)
		assert.Equal(t, OutermostGuessed, cause)
	}
	got, _ = walk(at["pointed"]+14, 0x7ffc0000, words(0x7ffc0010, at["other"], 0, at["last"]))
	assert.Equal(t, []uint64{at["pointed"] + 14, at["other"], at["last"]}, got)
	// In between, which nobody is seen to call, and which has a frame, rbp is all there is.
	got, _ = walk(at["between"]+1, 0x7ffc0000, words(0, at["last"]))
	assert.Equal(t, []uint64{at["between"] + 1, at["last"]}, got)
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
	for _, none := range []string{"", "\xe8", "\x90\x90\x90\x90\x90\x90\x90\x90", "\xff\xe0", "\xff\x10\x90", "\x00\x00\xff\x25\x00\x00\x00\x00", "\x0f\x05"} {
		assert.False(t, endsInCall([]byte(none)), "% x", none)
	}
}

func TestResolve(t *testing.T) {
	_, _, dir := world(t, Options{})
	write := func(path string, e unwindtest.ELF) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, e.Bytes(), 0o666))
	}
	other := lib
	other.BuildID = []byte("another build")
	write(filepath.Join(dir, "replaced.so"), other)
	debug := filepath.Join(dir, "debug")
	byID := filepath.Join(debug, ".build-id", "6c", fmt.Sprintf("%x", lib.BuildID[1:]), "elf")
	write(byID, lib)
	write(filepath.Join(dir, "root", "lib", "inside.so"), lib)

	objects := NewObjects(Options{DebugDirs: []string{debug}, Compile: unwindtest.Compile})
	o := objects.Object(filepath.Join(dir, "replaced.so"), lib.BuildID)
	assert.Equal(t, byID, o.Path())
	o = objects.Object("/gone.so (deleted)", append(lib.BuildID, 0, 0, 0))
	assert.Equal(t, byID, o.Path())
	assert.Equal(t, lib.BuildID, o.BuildID())
	o = objects.Object(filepath.Join(dir, "replaced.so"), []byte("nowhere"))
	assert.Empty(t, o.Path())
	assert.ErrorIs(t, o.Err(), ErrReplaced)
	testtool.MakeFIFO(t, filepath.Join(dir, "fifo"))
	for _, path := range []string{dir, filepath.Join(dir, "fifo")} {
		o = objects.Object(path, nil)
		assert.Empty(t, o.Path())
		assert.EqualError(t, o.Err(), path+": not a regular file")
	}

	elsewhere := objects.At("/lib/inside.so", lib.BuildID, filepath.Join(dir, "root/lib/inside.so"))
	assert.Equal(t, filepath.Join(dir, "root/lib/inside.so"), elsewhere.Path())
	assert.NotSame(t, elsewhere, objects.Object("/lib/inside.so", lib.BuildID))
	assert.Same(t, elsewhere, objects.At("/lib/inside.so", lib.BuildID, filepath.Join(dir, "root/lib/inside.so")))
	o = objects.At("/lib/inside.so", lib.BuildID, filepath.Join(dir, "replaced.so"))
	assert.Empty(t, o.Path())
	assert.ErrorIs(t, o.Err(), ErrReplaced)

	inRoot := NewObjects(Options{Symfs: filepath.Join(dir, "root"), Compile: unwindtest.Compile})
	assert.Equal(t, filepath.Join(dir, "root/lib/inside.so"), inRoot.Object("/lib/inside.so", nil).Path())

	vdso := NewObjects(Options{VDSO: func() ([]byte, error) { return lib.Bytes(), nil }, Compile: unwindtest.Compile})
	o = vdso.Object(VDSOName, nil)
	assert.NoError(t, o.Ready())
	bias, ok := o.Bias(&Mapping{Start: 0x7fff00002000, End: 0x7fff00003000, Offset: 0x2000})
	assert.True(t, ok)
	assert.Equal(t, uint64(0x7fff00002000-0x3000), bias)
	assert.ErrorIs(t, objects.Object(VDSOName, nil).Ready(), fs.ErrNotExist)
}

func TestProcesses(t *testing.T) {
	objects := NewObjects(Options{})
	a, b := objects.Object("/a", nil), objects.Object("/b", nil)
	ps := NewProcesses()
	at := func(pid int32, addr uint64) string {
		if m := ps.Process(pid).Maps().Find(addr); m != nil {
			return fmt.Sprintf("%s+%#x", m.Object.Name, m.FileOffset(addr))
		}
		return "-"
	}
	ps.SetComm(1, 1, "sh", false)
	ps.Map(1, 0x1000, 0x3000, 0, a)
	before := ps.Process(1).Maps()
	ps.Fork(2, 2, 1, 1)
	ps.Map(1, 0x2000, 0x1000, 0x7000, b)
	assert.Equal(t, []string{"/a+0x0", "/b+0x7000", "/a+0x2000", "-"}, []string{at(1, 0x1000), at(1, 0x2000), at(1, 0x3000), at(1, 0x4000)})
	assert.Equal(t, "/a+0x1000", at(2, 0x2000), "the child has the mappings of the fork")
	assert.Equal(t, "/a", before.Find(0x2000).Object.Name, "what was handed out does not change")
	ps.Map(2, 0x1800, 0x100, 0, nil)
	assert.Equal(t, []string{"/a+0x7ff", "-", "/a+0x900"}, []string{at(2, 0x17ff), at(2, 0x1800), at(2, 0x1900)})
	assert.Equal(t, "sh", ps.Comm(2))
	ps.SetComm(2, 2, "prog", true)
	assert.Equal(t, "-", at(2, 0x1000), "exec empties the address space")
	ps.Map(2, 0x9000, 0x1000, 0, b)
	ps.Fork(2, 3, 2, 2)
	assert.Equal(t, "prog", ps.Comm(3))
	assert.Equal(t, "/b+0x0", at(2, 0x9000), "a thread changes nothing")
	ps.Exit(2, 3)
	ps.Exit(2, 2)
	assert.Equal(t, "/b+0x0", at(2, 0x9000), "the last samples may follow the exit")
	for pid := int32(100); pid < 100+keepExited; pid++ {
		ps.Fork(pid, pid, 1, 1)
		ps.Exit(pid, pid)
	}
	assert.NotContains(t, ps.byPID, int32(2))
	assert.Contains(t, ps.byPID, int32(1))
}

// TestInsert compares with an array of a page each.
func TestInsert(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var list []Mapping
	var pages [64]uint64 // file offset + 1, or 0
	o := &Object{}
	for range 2000 {
		start := rng.Uint64N(64)
		end := min(64, start+rng.Uint64N(20))
		var add *Mapping
		if rng.IntN(3) > 0 {
			add = &Mapping{Start: start, End: end, Offset: rng.Uint64N(1000), Object: o}
		}
		list = insert(list, start, end, add)
		for p := start; p < end; p++ {
			pages[p] = 0
			if add != nil {
				pages[p] = add.FileOffset(p) + 1
			}
		}
		maps := Maps{list: list}
		for p, want := range pages {
			got := uint64(0)
			if m := maps.Find(uint64(p)); m != nil {
				got = m.FileOffset(uint64(p)) + 1
			}
			require.Equal(t, want, got)
		}
	}
}

// deepProgram returns a program of a loaded object, and the memory of a stack with depth callers.
func deepProgram(t testing.TB, depth int) (*Maps, *ehelf.Memory) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prog"), prog.Bytes(), 0o666))
	objects := NewObjects(Options{Compile: unwindtest.Compile})
	t.Cleanup(func() { objects.Close() })
	ps := NewProcesses()
	ps.Map(1, 0x401000, 0x1000, 0x1000, objects.Object(filepath.Join(dir, "prog"), nil))
	returns := make([]uint64, depth)
	for i := range returns {
		returns[i] = 0x401050
	}
	returns[depth-1] = 0x401010
	return ps.Process(1).Maps(), stack(returns...)
}

// TestAllocations has what Walk is given on the goroutine's stack.
func TestAllocations(t *testing.T) {
	maps, memory := deepProgram(t, 5)
	var walker Walker
	var pcs [64]uint64
	first := *start(0x401050)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		regs, mem := first, *memory
		if n, cause, _ := walker.Walk(maps, &regs, &mem, pcs[:]); n != 6 || cause != Outermost {
			t.Error(n, cause)
		}
	}))
}

func BenchmarkWalk(b *testing.B) {
	const depth = 30
	maps, memory := deepProgram(b, depth)
	var walker Walker
	var pcs [64]uint64
	first := *start(0x401050)
	for b.Loop() {
		regs, mem := first, *memory
		if n, cause, _ := walker.Walk(maps, &regs, &mem, pcs[:]); n != depth+1 || cause != Outermost {
			b.Fatal(n, cause)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/depth, "ns/step")
}
