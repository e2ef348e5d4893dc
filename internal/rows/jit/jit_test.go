package jit

import (
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/debuginfo/symbols"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const base = 0x10000

// memory is a page of code at base.
type memory []byte

func code(text string) memory {
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		panic(err)
	}
	return append(b, make([]byte, pageSize-len(b))...)
}

func (m memory) read(addr uint64, b []byte) int {
	if addr < base || addr >= base+uint64(len(m)) {
		return 0
	}
	return copy(b, m[addr-base:])
}

// hotspot is a method of HotSpot's second compiler: a stack bang, rbp pushed, 16 bytes, a call, the poll at the return,
// and a stub behind it that never returns.
const hotspot = `89842400c0feff 55 4883ec10 e800000000 90 4883c410 5d 493ba740030000 0f8701000000 c3 e800000000 f4`

// TestFollow: from each instruction of a function, its code leads to its caller.
func TestFollow(t *testing.T) {
	sp, bp := func(n int64) value { return value{slot, 4, n} }, func(n int64) value { return value{slot, 5, n} }
	for name, c := range map[string]struct {
		code   string
		from   uint64
		pc     value
		rbp    value
		proven bool
	}{
		"trampoline":          {`4883ec08 ffd1 4883c408 c3`, 6, sp(8), value{entry, 5, 0}, true},
		"trampoline's start":  {`4883ec08 ffd1 4883c408 c3`, 0, sp(0), value{entry, 5, 0}, true},
		"with frame pointer":  {`f30f1efa 55 4889e5 ffd1 5d c3`, 10, sp(8), sp(0), true},
		"its start":           {`f30f1efa 55 4889e5 ffd1 5d c3`, 0, sp(0), value{entry, 5, 0}, true},
		"leave":               {`ffd1 c9 c3`, 2, bp(8), bp(0), true},
		"method's body":       {hotspot, 17, sp(24), sp(16), false},
		"method's start":      {hotspot, 0, sp(0), value{entry, 5, 0}, false},
		"after push":          {hotspot, 8, sp(8), sp(0), false},
		"after pop":           {hotspot, 23, sp(0), value{entry, 5, 0}, false},
		"register saved":      {`48896c24f8 bd00000000 488b6c24f8 c3`, 0, sp(0), value{entry, 5, 0}, true},
		"register lost":       {`bd00000000 c3`, 0, sp(0), value{}, true},
		"stack pointer lost":  {`4801c4 c3`, 0, value{}, value{}, false},
		"aligned, by rbp":     {`4883e4f0 ffd1 c9 c3`, 0, bp(8), bp(0), true},
		"popped and jumped":   {`c9 59 ffe1`, 0, bp(8), bp(0), false},
		"jump in function":    {`59 ffe1`, 0, value{}, value{}, false},
		"interpreter's entry": {`58 50 55 488bec 4155 41ff24da`, 0, sp(0), value{entry, 5, 0}, false},
		"word pushed":         {`498b9590010000 52 c3`, 0, value{}, value{}, false}, // of r13+0x190
		"word pushed beside":  {`7509 498b9590010000 52 c3 c9 c3`, 0, bp(8), bp(0), false},
		"arguments popped":    {`c9 59 4883c410 51 c3`, 0, bp(8), bp(0), true},
		"below stack pointer": {`4883ec10 c3`, 0, value{}, value{}, false},
		"loop":                {`ebfe`, 0, value{}, value{}, false},
		"loop with a way":     {`75fe 4883c418 c3`, 0, sp(24), value{entry, 5, 0}, true},
		"no code":             {`0f0b`, 0, value{}, value{}, false},
		"long method":         {strings.Repeat("6690", 1900) + "c3", 0, sp(0), value{entry, 5, 0}, true},
		"cut":                 {strings.Repeat("90", pageSize-1) + "48", 0, value{}, value{}, false},
		"ways contradict":     {`7505 4883c408 c3 4883c410 c3`, 0, value{}, value{}, false},
		// jmp *0x40(%rbx)
		"tail call": {`4d85ed 7404 90 ff6340 e800000000 f4`, 0, sp(0), value{entry, 5, 0}, false},
		// push 0x190(%r13)
		"tail call, pushed": {`41ffb590010000 ff6340`, 0, value{}, value{}, false},
		"its slot pushed":   {`498b9590010000 52 ff6340`, 0, value{}, value{}, false},
		"after a pop":       {`58 5d ff6340`, 0, sp(16), sp(8), false},
		"return beside it":  {`7403 ff6340 4883c408 c3`, 0, sp(8), value{entry, 5, 0}, false},
		"jump by a table":   {`ff24c500000000`, 0, value{}, value{}, false},
		"interpreter":       {`488b65f0 488b5dd0 488d24cc 41ff24da`, 0, bp(8), bp(0), false},
		"return with bytes": {`c21000`, 0, sp(0), value{entry, 5, 0}, true},
	} {
		r := follow(base+c.from, code(c.code).read, map[uint64]bool{})
		if c.pc == (value{}) {
			assert.Nil(t, r, name)
			continue
		}
		require.NotNil(t, r, name)
		assert.Equal(t, c.pc, r.pc, name)
		assert.Equal(t, c.rbp, r.regs[5], name)
		assert.Equal(t, c.proven, r.agreed, name)
	}
}

// TestFollowBounded: hostile code takes bounded time, and gives no row that is called proven.
func TestFollowBounded(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("75fc", pageSize/2),   // jumps back
		strings.Repeat("7502", pageSize/2-1), // ways that multiply
		strings.Repeat("50", pageSize),       // pushes
		strings.Repeat("58", pageSize),
		strings.Repeat("90", pageSize),
		strings.Repeat("ebfe", pageSize/2),
		strings.Repeat("48892c24", pageSize/4), // stores
	} {
		f := 0
		r := follow(base, func(addr uint64, b []byte) int { f++; return code(text).read(base+(addr-base)%pageSize, b) },
			map[uint64]bool{})
		assert.True(t, r == nil || !r.agreed)
		assert.LessOrEqual(t, f, mostSteps+1)
	}
}

func FuzzFollow(f *testing.F) {
	for _, text := range []string{hotspot, `c9 c3`, `488b65f0 41ff24da`} {
		f.Add([]byte(code(text)[:64]), uint64(0))
	}
	f.Fuzz(func(t *testing.T, b []byte, from uint64) {
		r := follow(base+from, memory(b).read, map[uint64]bool{})
		if r == nil {
			return
		}
		regs := abi.Regs{Valid: abi.AllRegs}
		for i := range regs.Reg {
			regs.Reg[i] = 0x9000
		}
		before := regs
		if status := r.step(&regs, &ehelf.Memory{Lo: 0x9000, Bytes: make([]byte, 4096)}); status != abi.StatusOK {
			assert.Equal(t, before, regs)
		}
	})
}

// stack returns memory of zeros with a word at an offset.
func stack(offset int, word uint64) *ehelf.Memory {
	b := make([]byte, 256)
	for i := range 8 {
		b[offset+i] = byte(word >> (8 * i))
	}
	return &ehelf.Memory{Lo: 0x9000, Bytes: b}
}

// TestStep: the code of a process is read once while it stays the same, and new code counts once its place is mapped
// again, or after a second.
func TestStep(t *testing.T) {
	m, reads := code(`4883c408 c3`), 0
	c := &Code{Read: func(addr uint64, b []byte) int { reads++; return m.read(addr, b) }}
	step := func() (status abi.Status, sp uint64) {
		regs := abi.Regs{Valid: abi.AllRegs, Exact: 1}
		regs.Reg[abi.RIP], regs.Reg[abi.RSP] = base, 0x9000
		mem := stack(8, 0x1234)
		status, guessed := c.Step(&regs, mem)
		assert.Equal(t, status == abi.StatusNoInfo, regs.Reg[abi.RIP] == base)
		assert.False(t, guessed)
		return status, regs.Reg[abi.RSP]
	}
	for range 3 {
		status, sp := step()
		assert.Equal(t, abi.StatusOK, status)
		assert.Equal(t, uint64(0x9010), sp)
	}
	assert.Equal(t, 1, reads)
	m = code(`c3`)
	c.Changed(base+pageSize, base+2*pageSize)
	_, sp := step()
	assert.Equal(t, uint64(0x9010), sp)
	c.Changed(base, base+1)
	_, sp = step()
	assert.Equal(t, uint64(0x9008), sp)
	m = code(`0f0b`)
	c.pages[base].checked = time.Time{}
	status, _ := step()
	assert.Equal(t, abi.StatusNoInfo, status)
	child := c.Fork(code(`c3`).read)
	c.Close()
	c = child
	_, sp = step()
	assert.Equal(t, uint64(0x9008), sp)
}

// TestLimits: once much code was followed, other code waits.
func TestLimits(t *testing.T) {
	l := NewLimits(1)
	c := &Code{Read: code(`90 c3`).read, Limits: l}
	assert.NotNil(t, c.rowAt(base))
	assert.Equal(t, mostFollowed-2, l.left)
	l.left, l.counted = -10*followedPerSecond, time.Now()
	assert.NotNil(t, c.rowAt(base), "known")
	assert.Nil(t, c.rowAt(base+1))
	l.counted = l.counted.Add(-11 * time.Second)
	assert.NotNil(t, c.rowAt(base+1))
	l.refill(time.Hour)
	assert.Equal(t, mostFollowed, l.left)
	assert.NotNil(t, (&Code{Read: c.Read}).rowAt(base))
}

// TestTables: of the unwind information in a jitdump file only so much is kept.
func TestTables(t *testing.T) {
	const size = 64 << 10
	path := filepath.Join(t.TempDir(), "jit-1.dump")
	file, le := make([]byte, 40), binary.LittleEndian
	le.PutUint32(file, 0x4a695444)
	le.PutUint32(file[8:], 40)
	record := func(id uint32, body []byte) {
		file = le.AppendUint32(le.AppendUint32(file, id), uint32(16+len(body)))
		file = append(append(file, make([]byte, 8)...), body...)
	}
	for i := range uint64(20) {
		rows, load := make([]byte, 24+size), make([]byte, 40+2+1)
		le.PutUint64(rows, size)
		le.PutUint64(load[16:], 0x1000+i)
		le.PutUint64(load[24:], 1)
		record(4, rows)
		record(0, load)
	}
	require.NoError(t, os.WriteFile(path, file, 0o600))
	d := dump{from: symbols.Written{Path: path, PID: 1}}
	defer d.close()
	for i := range uint64(20) {
		c := d.find(0x1000 + i)
		require.NotNil(t, c)
		d.table(c)
		assert.NotEmpty(t, d.tables)
		assert.LessOrEqual(t, len(d.tables)*size, maxTabled)
	}
}

// TestForkDumps: of the dumps of the processes that it comes from, a process has the nearest.
func TestForkDumps(t *testing.T) {
	c := &Code{Limits: NewFileLimits(1)}
	for pid := int32(1); pid < 10; pid++ {
		c.AddDump(symbols.Written{Path: "/tmp/dump", PID: pid})
		c.AddDump(symbols.Written{Path: "/tmp/dump", PID: pid})
		c = c.Fork(nil)
	}
	require.Len(t, c.dumps, mostDumps)
	for i, d := range c.dumps {
		assert.Equal(t, int32(9-i), d.from.PID)
	}
}

// TestReturns: code is returned to after calls, and where HotSpot's interpreter goes on.
func TestReturns(t *testing.T) {
	c := Code{Read: code(`ffd1 90 c3 488b65f0 41ff24da`).read}
	for pc, want := range map[uint64]bool{base: true /* not known what is before */, base + 2: true, base + 3: false,
		base + 4: true, base - 100: true} {
		assert.Equal(t, want, c.Returns(pc), "%#x", pc)
	}
}

// TestThrows: a frame that throws in code of HotSpot's first compiler has the address of the throw, which loads it.
func TestThrows(t *testing.T) {
	for text, want := range map[string]bool{
		`90909090909090 48ba 0700010000000000 e800000000`: true,
		`90909090909090 48ba 0800010000000000 e800000000`: false,
		`90909090909090 48bb 0700010000000000 e800000000`: false,
	} {
		c := Code{Read: code(text).read}
		assert.Equal(t, want, c.Returns(base+7), text)
	}
}

// TestBounds: of code everywhere only so much is remembered.
func TestBounds(t *testing.T) {
	m := code(strings.Repeat("c3", pageSize))
	c := Code{Read: func(addr uint64, b []byte) int { return copy(b, m) }}
	for i := range uint64(3 * maxPages) {
		c.Returns(base + i*pageSize)
		assert.LessOrEqual(t, len(c.pages), maxPages)
	}
	for pc := range uint64(pageSize) {
		c.rowAt(base + pc)
		assert.LessOrEqual(t, len(c.pages[base].rows), maxRows)
	}
}

func TestIsDump(t *testing.T) {
	assert.True(t, IsDump("/tmp/jit-12.dump"))
	for _, name := range []string{"/tmp/jit-1x2.dump", "/tmp/jit-012.dump", "/tmp/jit-.dump", "jit-1.dump/x",
		"/tmp/xjit-1.dump"} {
		assert.False(t, IsDump(name), name)
	}
}

// TestScan: a frame is found by the call of the function that made it.
func TestScan(t *testing.T) {
	const sp, size = 0x9000, 4*8 + 0x28
	entry := `55 53 4157 4156 4883ec28 eb00` // as LuaJIT's lj_vm_call
	weak := `55 53 4883ec38 eb00`            // the same size, but two registers are saved
	for name, c := range map[string]struct {
		code string
		off  int
		want bool
	}{
		"at once":          {entry, size, true},
		"after 3 units":    {entry, size + 48, true},
		"unit is cut":      {entry, size + 8, false},
		"frame is smaller": {entry, size - 16, false},
		"few registers":    {weak, size, false},
		"too far":          {entry, size + scanned, false},
	} {
		regs := abi.Regs{Valid: abi.AllRegs, Exact: 1}
		regs.Reg[abi.RIP], regs.Reg[abi.RSP] = base+0x800, sp
		m := code(c.code)
		copy(m[0x100:], []byte{0xe8, 0xfb, 0xfe, 0xff, 0xff}) // a call of base
		mem := &ehelf.Memory{Lo: sp, Bytes: make([]byte, 2*scanned)}
		put := func(off int, v uint64) {
			for i := range 8 {
				mem.Bytes[off+i] = byte(v >> (8 * i))
			}
		}
		put(c.off, base+0x105)
		put(c.off-8, 0x1111)
		put(c.off-16, 0x2222)
		status := (&Code{Read: m.read}).Scan(&regs, mem, func(addr uint64) bool { return addr >= base && addr < base+pageSize })
		require.Equal(t, c.want, status == abi.StatusOK, name)
		if c.want {
			assert.Equal(t, []uint64{base + 0x105, sp + uint64(c.off) + 8, 0x1111, 0x2222},
				[]uint64{regs.Reg[abi.RIP], regs.Reg[abi.RSP], regs.Reg[abi.RBP], regs.Reg[abi.RBX]}, name)
			assert.Equal(t, uint64(1<<abi.RIP|1<<abi.RSP|1<<abi.RBP|1<<abi.RBX|1<<abi.R12|1<<abi.R13|1<<abi.R14|1<<abi.R15),
				uint64(regs.Valid))
		}
	}
}
