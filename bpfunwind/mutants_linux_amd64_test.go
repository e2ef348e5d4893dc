package bpfunwind

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// mutantsEnv asks for the long run: the number of mutants of the program.
const mutantsEnv = "BPFUNWIND_MUTANTS"

// opposites are operations that are taken for each other.
var opposites = map[asm.JumpOp]asm.JumpOp{asm.JEq: asm.JNE, asm.JNE: asm.JEq, asm.JGT: asm.JGE, asm.JGE: asm.JGT,
	asm.JLT: asm.JLE, asm.JLE: asm.JLT,
	asm.JSLT: asm.JSGE}

// mutate changes an instruction at random. It returns what it did, or "".
func mutate(r *rand.Rand, list asm.Instructions, i int) string {
	ins := &list[i]
	before := fmt.Sprint(*ins)
	class := ins.OpCode.Class()
	switch change := r.IntN(5); {
	case ins.IsFunctionReference() || ins.IsLoadFromMap() || ins.IsBuiltinCall():
		return ""
	case change == 0 && class.IsJump() && opposites[ins.OpCode.JumpOp()] != 0:
		ins.OpCode = ins.OpCode.SetJumpOp(opposites[ins.OpCode.JumpOp()])
	case change == 1 && (class == asm.ALU64Class || class.IsJump() || class == asm.StClass) &&
		ins.OpCode.JumpOp() != asm.Exit:
		ins.Constant += []int64{1, -1, 8, -8, 64}[r.IntN(5)]
	case change == 2 && (class == asm.LdXClass || class == asm.StXClass || class == asm.StClass):
		ins.Offset += []int16{8, -8, 4, -4, 1}[r.IntN(5)]
	case change == 3 && (class == asm.LdXClass || class == asm.StXClass || class == asm.ALU64Class):
		ins.Dst = asm.Register(r.IntN(10))
	case change == 4 && class == asm.ALU64Class:
		ins.OpCode = ins.OpCode.SetALUOp([]asm.ALUOp{asm.Add, asm.Sub, asm.And, asm.Or, asm.Mov, asm.LSh, asm.RSh}[r.IntN(7)])
	case change == 4 && (class == asm.LdXClass || class == asm.StXClass || class == asm.StClass):
		symbol := ins.Symbol()
		*ins = asm.Mov.Reg(asm.R9, asm.R9)
		if symbol != "" {
			*ins = ins.WithSymbol(symbol)
		}
	default:
		return ""
	}
	if after := fmt.Sprint(*ins); after != before {
		return before + " -> " + after
	}
	return ""
}

// TestProgramMutants changes instructions of the program: what the kernel's verifier does not refuse, the walks beside
// Table.Step find, but for changes that do no harm. See noHarm.
func TestProgramMutants(t *testing.T) {
	testtool.Long(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	n, strict := 40, false
	if v := os.Getenv(mutantsEnv); v != "" {
		var err error
		n, err = strconv.Atoi(v)
		require.NoError(t, err)
		strict = true // the short run may miss what few walks show
	}
	r := rand.New(rand.NewPCG(5, 6))
	rigs := []*rig{newRig(t, 9, 1), newRig(t, 10, 12), newRig(t, 11, 100)}
	real := realTables(t, "/lib/x86_64-linux-gnu/libc.so.6")
	refused, found, harmless, walks := 0, 0, 0, 10000
	if strict {
		walks = 60000
	}
	for done := 0; done < n; {
		seed := r.Uint64()
		i := r.IntN(1 << 16)
		what, differs, loaded := "", false, false
		for _, g := range rigs { // of the same mutant
			list := g.program()
			if what = mutate(rand.New(rand.NewPCG(seed, 1)), list, i%len(list)); what == "" || g.load(list) != nil {
				break
			}
			loaded = true
			if g.frames < 100 {
				differs = g.differs(t, real, walks)
			} else {
				differs = g.endsElsewhere(t)
			}
			if differs {
				break
			}
		}
		switch {
		case what == "":
			continue
		case !loaded:
			refused++
		case differs:
			found++
		default:
			harmless++
			list := rigs[0].program()
			what = fmt.Sprintf("%s+%s", where(list, i%len(list)), what)
			t.Log(what)
			assert.True(t, !strict || slices.ContainsFunc(noHarm, func(e *regexp.Regexp) bool { return e.MatchString(what) }),
				"accepted: %s", what)
		}
		done++
	}
	t.Logf("%d mutants: %d refused by the verifier, %d found, %d do no harm", n, refused, found, harmless)
	assert.Greater(t, found, harmless)
}

// where returns an instruction's distance from the last label.
func where(list asm.Instructions, i int) string {
	for k := i; k >= 0; k-- {
		if name := list[k].Symbol(); name != "" {
			return fmt.Sprintf("%s+%d", name, i-k)
		}
	}
	return fmt.Sprintf("start+%d", i)
}

// noHarm are changes that do not change what a walk finds, with the reason.
var noHarm = []*regexp.Regexp{
	// bounds for the verifier: tables that were proven stay within them
	regexp.MustCompile(`<damaged>|<norow>`),
	regexp.MustCompile(`<special>`), // plain records, told by the code for all kinds
	// when and how much of the stack is read: frames need the same words
	regexp.MustCompile(`^(window|refill)\d|<plain>`),
	regexp.MustCompile(`<(regions64|regions512|entries)`), // shortcuts to fewer steps of a search
	regexp.MustCompile(`off: 5160 imm`),                   // Sample.Kept: any value but 0
	regexp.MustCompile(`^found\d\+[0-3]\+|^frame1`),       // the second frame of a call, left to the next call
	regexp.MustCompile(`^(ownframes|intime|hooked)\+`),    // the test's own code
	// where words go that are read only to see whether they can be
	regexp.MustCompile(`^sigfailed\+[345]\+`),
	regexp.MustCompile(`^start\+\d+\+MovImm dst: r1 imm: 1 `), // a state in use: any value but 0
	// what is returned for processes that have not begun: no event is enabled in them
	regexp.MustCompile(`^none\+0\+`),
	regexp.MustCompile(`<late>`),  // a nanosecond more of time
	regexp.MustCompile(`<quiet>`), // a quarter of the ring, a few bytes more or less
}

// endsElsewhere looks whether walks in a circle end at the limits of frames and time, and samples that do not fit into
// the ring count as lost; a quarter of the ring wakes the reader.
func (g *rig) endsElsewhere(t *testing.T) bool {
	for g.u.Read(0, func(*Sample) {}) != nil {
	}
	clear(g.states)
	g.use(t, circleTable())
	circle := func() {
		offset := g.base + 64
		binary.LittleEndian.PutUint64(g.arena[64:], offset)
		binary.LittleEndian.PutUint64(g.arena[72:], g.code+8)
		clear(g.input[:8*(abi.NumRegs+2)])
		binary.LittleEndian.PutUint64(g.input[8*abi.RBP:], offset)
		binary.LittleEndian.PutUint64(g.input[8*abi.RSP:], offset)
		binary.LittleEndian.PutUint64(g.input[8*abi.RIP:], g.code+8)
		binary.LittleEndian.PutUint64(g.input[8*abi.NumRegs:], 1)
	}
	run := func(fate int) {
		binary.LittleEndian.PutUint32(g.input[8*abi.NumRegs+12:], uint32(fate))
		_, err := g.run.Run(&ebpf.RunOptions{})
		require.NoError(t, err)
	}
	woken := func() bool {
		poll := []unix.PollFd{{Fd: int32(g.u.FD()), Events: unix.POLLIN}}
		n, _ := unix.Poll(poll, 0)
		return n > 0
	}
	if g.saves(t) != nil {
		return true
	}
	circle()
	for fate, want := range map[int]struct {
		Outcome
		frames int
	}{0: {FrameLimit, g.frames}, fateLate: {TimeLimit, framesPerCall * (callsPerTime - 1)}} {
		run(fate)
		number, wrong := 0, false
		err := g.u.Read(0, func(s *Sample) {
			number++
			wrong = wrong || s.Outcome != want.Outcome || len(s.User) != want.frames
		})
		if err != nil || number != 1 || wrong {
			return true
		}
	}
	clear(g.states)
	const runs = 1600 // of 872 bytes, into 1 MB
	early := false
	for i := range runs {
		run(0)
		early = early || i < 200 && woken()
	}
	late, number := !woken(), 0
	if g.u.Read(0, func(*Sample) { number++ }) != nil || early || late {
		return true
	}
	stats, err := g.u.Stats()
	require.NoError(t, err)
	return number < 1000 || number+int(stats.Lost) != runs
}

// differs takes a number of walks, and reports whether one does not do what Table.Step does, or whether the counts are
// wrong.
func (g *rig) differs(t *testing.T, real []*dwarfcfa.Table, walks int) bool {
	for g.u.Read(0, func(*Sample) {}) != nil { // what another mutant left
	}
	clear(g.states)
	require.NoError(t, g.u.maps.nested.Put(uint32(0), make([]uint64, ebpf.MustPossibleCPU())))
	g.stats = Stats{}
	for i := 0; i < walks/200; i++ {
		g.use(t, g.tablesFor(t, real, i))
		g.fill()
		for range 200 {
			if g.walk() != nil {
				return true
			}
		}
	}
	stats, err := g.u.Stats()
	require.NoError(t, err)
	stats.Bytes = 0
	return stats != g.stats
}

// saves walks 100 frames that all save each register: both frames of a call are compared.
func (g *rig) saves(t *testing.T) (verdict error) {
	const size = 72
	row := dwarfcfa.Row{CFA: dwarfcfa.CFARule{Kind: dwarfcfa.CFARegOffset, Reg: abi.RSP, Offset: size}}
	for reg := range row.Regs {
		row.Regs[reg].Kind = dwarfcfa.RuleUndefined
	}
	for i, reg := range saved {
		row.Regs[reg] = dwarfcfa.RegRule{Kind: dwarfcfa.RuleOffset, Offset: -16 - 8*int64(i)}
	}
	row.Regs[abi.RSP].Kind = dwarfcfa.RuleValOffset
	row.Regs[abi.RIP] = dwarfcfa.RegRule{Kind: dwarfcfa.RuleOffset, Offset: -8}
	before := circleTable()
	before.Rows = []dwarfcfa.Row{row}
	g.use(t, before)
	defer g.use(t, circleTable())
	g.fill()
	for frame := 1; frame <= g.frames; frame++ {
		binary.LittleEndian.PutUint64(g.arena[size*frame-8:], g.code+8)
	}
	regs := abi.Regs{Valid: abi.AllRegs, Exact: 1}
	for reg := range regs.Reg {
		regs.Reg[reg] = g.base + uint64(reg)
	}
	regs.Reg[abi.RSP], regs.Reg[abi.RIP] = g.base, g.code+8
	for reg, v := range regs.Reg {
		binary.LittleEndian.PutUint64(g.input[8*reg:], v)
	}
	binary.LittleEndian.PutUint32(g.input[8*abi.NumRegs+12:], 0)
	g.fate, g.busy, g.began = 0, 0, monotonic()
	_, err := g.run.Run(&ebpf.RunOptions{})
	require.NoError(t, err)
	number := 0
	err = g.u.Read(0, func(s *Sample) {
		number++
		if verdict = g.compare(&regs, s, 0); verdict == nil && len(s.User) != g.frames {
			verdict = fmt.Errorf("%d frames", len(s.User))
		}
	})
	if err == nil && number != 1 {
		err = fmt.Errorf("%d samples", number)
	}
	return cmp.Or(verdict, err)
}

// TestEndsElsewhere: the program itself does none of what a mutant would be found by.
func TestEndsElsewhere(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g := newRig(t, 11, 100)
	require.NoError(t, g.saves(t))
	assert.False(t, g.endsElsewhere(t))
}
