package prove

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// The state of a case in memory: 16 general registers, xmm0 to xmm5, the flags.
const (
	caseXMM   = 16 * 8
	caseFlags = caseXMM + 6*16
	caseMark  = caseFlags + 8 // where the code went on: markNext, markTarget
	caseStack = caseMark + 8  // memory of the case: stackLimit below sp to stackArgs above
	caseSize  = caseStack + stackSize
	stackSize = stackLimit + stackArgs
	loadedAt  = 0x400000
	dataAt    = 0x40000000      // what the cases end with, then what they begin with
	depth     = stackLimit - 16 // of rsp below sp
	ownStack  = 8192            // bytes of the program's stack, behind the data
)

// spOf returns what sp is in a case.
func spOf(k int) uint64 { return dataAt + uint64(k*caseSize+caseStack+stackLimit) }

// TestProcessor compares the meaning of instructions with the processor: each form of
// emitted code, after a comparison that sets flags, on random registers and memory. A
// program without a library, made here, runs all cases. Compared are registers, memory,
// where the code goes on, and each condition that is taken to be known. Places relative
// to rip and where jumps lead to are made again. PROVE_STATES is the number of states of each form,
// where a form is an operation with its sizes, condition and kinds of operands.
func TestProcessor(t *testing.T) {
	forms := processorForms(t)
	each := 40
	if testing.Short() {
		each = 10
	}
	if n := os.Getenv("PROVE_STATES"); n != "" {
		var err error
		each, err = strconv.Atoi(n)
		require.NoError(t, err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	total := processed{ops: map[instOp]int{}}
	var cases [][]byte
	for _, kind := range slices.Sorted(maps.Keys(forms)) {
		for k := range each {
			cases = append(cases, forms[kind][k%len(forms[kind])])
			if len(cases) == 8000 {
				total.run(t, rng, cases)
				cases = cases[:0]
			}
		}
	}
	total.run(t, rng, cases)
	for _, op := range []instOp{iJcc, iJmp, iJmpTo, iCall, iCallTo, iRet} {
		require.NotZero(t, total.ops[op], op)
	}
	t.Logf("%d forms, %d operations, %d states, %d conditions", len(forms), len(total.ops), total.compared,
		total.conditions)
	require.Greater(t, len(total.ops), 30)
	require.Greater(t, total.compared, len(forms)*each*7/10)
}

// processed counts what was compared.
type processed struct {
	ops                  map[instOp]int
	compared, conditions int
}

// operands makes the place in memory of an instruction lie in the case's memory: it sets
// the registers of the address to constants and to what is relative to sp.
func operands(rng *rand.Rand, i *inst, regs *[16]uint64, offs *[16]int64, sp uint64) {
	size := max(int64(i.w), int64(i.sw))
	for _, o := range []operand{i.dst, i.src} {
		if o.kind != opMem {
			continue
		}
		index := int64(0)
		if o.scale > 0 && o.index != o.reg {
			index = rng.Int64N(9)
			regs[o.index], offs[o.index] = uint64(index), 0
		}
		if o.reg == rSP {
			continue
		}
		place := -depth + 8*rng.Int64N((depth-16)/8)
		if size < 8 {
			place += rng.Int64N(8 - size + 1)
		}
		off := place - o.disp - index*int64(o.scale)
		regs[o.reg], offs[o.reg] = sp+uint64(off), off
	}
}

// run runs cases, an instruction each.
func (p *processed) run(t *testing.T, rng *rand.Rand, list [][]byte) {
	in := make([]byte, len(list)*caseSize)
	codes := make([]caseCode, len(list))
	starts := make([][16]int64, len(list)) // of registers relative to sp; 0: not
	fixed := make([]uint32, len(list))     // registers whose value is a constant
	addr := uint64(loadedAt + headSize)
	for k := range list {
		c := in[k*caseSize:]
		random := func() uint64 {
			v := rng.Uint64()
			switch rng.IntN(4) {
			case 0:
				v = uint64(int64(int8(v)))
			case 1:
				v >>= v & 63
			}
			return v
		}
		for pos := 0; pos < caseSize; pos += 8 {
			le.PutUint64(c[pos:], random())
		}
		le.PutUint64(c[caseMark:], 0)
		i, ok := decode(list[k])
		require.True(t, ok)
		codes[k] = newCaseCode(rng, addr, &i, list[k], k)
		addr = codes[k].end
		var regs [16]uint64
		for r := range regs {
			regs[r] = le.Uint64(c[8*r:])
		}
		before := regs
		regs[rSP], starts[k][rSP] = spOf(k)-depth, -depth
		operands(rng, &i, &regs, &starts[k], spOf(k))
		switch i.op { // what leads to the target
		case iRet:
			le.PutUint64(c[caseStack+stackLimit-depth:], codes[k].target)
		case iJmpTo, iCallTo:
			if i.dst.kind == opReg {
				regs[i.dst.reg] = codes[k].target
				break
			}
			mem := regs[i.dst.reg] + uint64(i.dst.disp)
			if i.dst.scale > 0 {
				mem += regs[i.dst.index] * uint64(i.dst.scale)
			}
			le.PutUint64(in[mem-dataAt:], codes[k].target)
		}
		switch i.op {
		case iDiv:
			regs[rDX], fixed[k] = 0, 1<<rDX
		case iIdiv:
			regs[rDX] = uint64(int64(regs[rAX]) >> 63)
		}
		if i.op == iDiv || i.op == iIdiv { // of rcx: neither 0 nor -1
			regs[rCX] = regs[rCX]>>2 + 1
		}
		for r := range regs {
			if regs[r] != before[r] && starts[k][r] == 0 && i.op != iIdiv && i.op != iDiv && codes[k].target == 0 {
				fixed[k] |= 1 << r // an index
			}
			le.PutUint64(c[8*r:], regs[r])
		}
	}
	out := runCases(t, in, codes)
	for k := range list {
		tm := newTerms()
		x := &exec{t: tm, may: permit{pcSlot: noTerm, first: noTerm}}
		value := map[term]uint64{}
		was := func(pos int) uint64 { return binary.LittleEndian.Uint64(in[k*caseSize+pos:]) }
		is := func(pos int) uint64 { return binary.LittleEndian.Uint64(out[k*caseSize+pos:]) }
		s := &state{}
		x.sp = tm.variable("sp", ^uint64(0))
		x.image = tm.variable("image", ^uint64(0))
		x.may.limit, x.may.args = stackLimit, stackArgs
		value[x.sp], value[x.image] = spOf(k), 0
		x.data = func(a uint64, n int) []byte { return in[a-dataAt:][:n] }
		for r := range s.reg {
			switch {
			case starts[k][r] != 0:
				s.reg[r] = tm.plus(x.sp, starts[k][r])
			case fixed[k]>>r&1 != 0:
				s.reg[r] = tm.con(was(8 * r))
			default:
				s.reg[r] = tm.variable("r", ^uint64(0))
				value[s.reg[r]] = was(8 * r)
			}
		}
		for off := int64(-stackLimit); off < stackArgs; off += 8 {
			v := tm.variable("m", ^uint64(0))
			value[v] = was(caseStack + stackLimit + int(off))
			if codes[k].returns && off == -depth {
				v = x.mapped(codes[k].target)
			}
			s.stack = append(s.stack, cell{off, 8, v})
		}
		for r := range s.xmm {
			for h := range 2 {
				s.xmm[r][h] = tm.variable("x", ^uint64(0))
				value[s.xmm[r][h]] = was(caseXMM + 16*r + 8*h)
			}
		}
		var eval func(y term) uint64
		eval = func(y term) uint64 {
			return tm.eval(y, func(z term) uint64 {
				if n := tm.nodes[z]; n.op == tVec {
					b := uint64(0)
					if instOp(n.k) != iPmovmskb {
						b = eval(n.b)
					}
					return bytes8(instOp(n.k), eval(n.a), b)
				}
				if n := tm.nodes[z]; n.op == tLoad { // what movdqu reads
					return was(int(eval(n.a)-dataAt)-k*caseSize) & sizeMask(uint8(n.k))
				}
				v, ok := value[z]
				require.True(t, ok, tm.text(z))
				return v
			})
		}
		known := true
		for _, b := range [][]byte{codes[k].compare, codes[k].inst} {
			i, ok := decode(b)
			require.True(t, ok, "% x", b)
			if codes[k].target != 0 && &b[0] == &codes[k].inst[0] {
				s = codes[k].goOn(t, x, s, eval, is(caseMark))
				known = s != nil
				break
			}
			s.pc = codes[k].next
			switch i.op {
			case iDiv, iIdiv:
				s.assume(tm.eq(s.reg[rCX], tm.con(0)), true)
				if i.op == iIdiv { // never -1: a word without its top bit, plus 1
					v := tm.variable("divisor", ^uint64(0)>>1)
					value[v] = was(8*rCX) - 1
					s.reg[rCX] = tm.plus(tm.and(v, tm.con(1<<62-1)), 1)
					value[v] &= 1<<62 - 1
					s.reg[rDX] = tm.shift(tSar, s.reg[rAX], tm.con(63))
					s.assume(tm.eq(s.reg[rCX], tm.con(0)), true)
				}
			}
			if i.op == iBsf || i.op == iTzcnt {
				if eval(s.reg[i.src.reg])&sizeMask(i.w) == 0 {
					known = false
					break
				}
				zero := tm.eq(tm.low(s.reg[i.src.reg], i.w), tm.con(0))
				s.assume(zero, true)
			}
			if x.effect(s, &i) != nil {
				known = false
				break
			}
		}
		if !known {
			continue // the prover refuses it, too
		}
		i, _ := decode(codes[k].inst)
		p.ops[i.op]++
		p.compared++
		for r := range s.reg {
			if n := tm.nodes[s.reg[r]]; n.op == tVar && (tm.names[n.k] == "quotient" || tm.names[n.k] == "remainder") {
				continue // not said
			}
			require.Equal(t, is(8*r), eval(s.reg[r]), "% x: register %d", codes[k].inst, r)
		}
		for _, c := range s.stack {
			pos := caseStack + stackLimit + int(c.off)
			require.Equal(t, is(pos)&sizeMask(c.size), eval(c.v), "% x: memory at %+d", codes[k].inst, c.off)
		}
		for r := range s.xmm {
			for h := range 2 {
				require.Equal(t, is(caseXMM+16*r+8*h), eval(s.xmm[r][h]), "% x: xmm%d", codes[k].inst, r)
			}
		}
		fl := is(caseFlags)
		bit := func(n int) bool { return fl>>n&1 != 0 }
		truths := [8]bool{bit(11), bit(0), bit(6), bit(0) || bit(6), bit(7), bit(2), bit(7) != bit(11), bit(6) ||
			bit(7) != bit(11)}
		for cc := range uint8(16) {
			if l, ok := s.fl.condition(x.t, cc); ok {
				p.conditions++
				require.Equal(t, truths[cc>>1] != (cc&1 != 0), (eval(l.t) != 0) != l.neg, "% x: condition %d",
					codes[k].inst, cc)
			}
		}
	}
}

// processorForms returns the distinct instructions of emitted code, by form.
func processorForms(t *testing.T) map[string][][]byte {
	forms, seen := map[string][][]byte{}, map[string]bool{}
	for _, table := range []*dwarfcfa.Table{tableOf(t, "/bin/ls"), randomTable(9), groups(14, true)} {
		for _, v := range variants() {
			im, err := openImage(compile(t, table, v))
			require.NoError(t, err)
			for pc := im.exec.Vaddr; pc < im.exec.Vaddr+im.exec.Filesz; {
				b := im.text(pc)
				var in x86.Inst
				require.NoError(t, x86.Decode(b, &in))
				pc += uint64(in.Len)
				i, ok := decode(b)
				form := string(b[:in.Len])
				if !ok || seen[form] {
					continue
				}
				seen[form] = true
				kind := fmt.Sprintf("%2d w%d sw%d cc%x %d(%v) %d(%v)", i.op, i.w, i.sw, i.cc, i.dst.kind, i.dst.scale,
					i.src.kind, i.src.scale)
				if isControl(i.op) {
					kind += fmt.Sprint(i.n) // a distance of one byte, or four
				}
				forms[kind] = append(forms[kind], slices.Clone(b[:in.Len]))
			}
		}
	}
	return forms
}

// rspLast and rspFirst are the orders in which a case's registers are loaded and stored: rsp, which may hold anything,
// is set for as short as possible. In virtual machines of the kind PVM, a return from the kernel faults while rsp is
// not canonical.
var (
	rspLast  = []uint32{0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 4}
	rspFirst = []uint32{4, 0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
)

// populate returns the beginning of a program, which lies behind the bytes of cases: all memory is mapped, so that no
// case meets a page fault. Then it jumps to the cases.
func populate(cases, data int) (c []byte) {
	const populateRead, populateWrite = 22, 23 // linux/mman.h: MADV_POPULATE_READ, MADV_POPULATE_WRITE
	for _, seg := range [][3]int{{loadedAt, headSize + cases, populateRead}, {dataAt, data, populateWrite}} {
		for i, op := range []byte{0xbf, 0xbe, 0xba} { // mov to edi, esi, edx
			c = le.AppendUint32(append(c, op), uint32(seg[i]))
		}
		c = append(c, 0xb8, 28, 0, 0, 0, 0x0f, 0x05)      // madvise
		c = append(c, 0x85, 0xc0, 0x74, 0x02, 0x0f, 0x0b) // ud2 unless eax is 0
	}
	c = append(c, 0xe9) // jmp
	return le.AppendUint32(c, uint32(-(cases + len(c) + 4)))
}

// runCases writes a program, runs it, and returns the states it ends with.
func runCases(t *testing.T, in []byte, codes []caseCode) []byte {
	var code []byte
	outAt := uint32(dataAt)
	inAt := outAt + uint32(len(in))
	build := func() []byte {
		c := code[:0]
		abs := func(off uint32, op ...byte) { c = binary.LittleEndian.AppendUint32(append(c, op...), off) }
		for k, list := range codes {
			from, to := inAt+uint32(k*caseSize), outAt+uint32(k*caseSize)
			for r := range uint32(6) {
				abs(from+caseXMM+16*r, 0x0f, 0x10, byte(r<<3|4), 0x25)
			}
			for _, r := range rspLast {
				abs(from+8*r, byte(0x48|r>>3<<2), 0x8b, byte(r&7<<3|4), 0x25)
			}
			for _, b := range [][]byte{list.before, list.compare, list.inst, list.after} {
				c = append(c, b...)
			}
			for _, r := range rspFirst {
				abs(to+8*r, byte(0x48|r>>3<<2), 0x89, byte(r&7<<3|4), 0x25)
				if r == rspFirst[0] {
					abs(outAt+uint32(len(in))*2+4096, 0xbc) // mov $stack, %esp
				}
			}
			abs(to+caseFlags, 0x9c, 0x8f, 0x04, 0x25)
			for r := range uint32(6) {
				abs(to+caseXMM+16*r, 0x0f, 0x11, byte(r<<3|4), 0x25)
			}
		}
		// write(1, out, len): until all is written; exit(0)
		abs(outAt, 0xbe)
		abs(uint32(len(in)), 0xba)
		c = append(c, 0xbf, 1, 0, 0, 0)                                     // again: edi = 1
		c = append(c, 0xb8, 1, 0, 0, 0, 0x0f, 0x05)                         // write
		c = append(c, 0x85, 0xc0, 0x7e, 0x08, 0x48, 0x01, 0xc6, 0x29, 0xc2) // none: leave; rsi += eax; edx -= eax
		c = append(c, 0x75, byte(256-23), 0x90)                             // more: again
		c = append(c, 0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 0x05)            // exit
		return c
	}
	code = build()
	entry := len(code)
	code = append(code, populate(len(code), 2*len(in)+ownStack)...)
	// Two segments: the code, and the data with room for a stack after.
	const head = headSize
	dataOff := (head + len(code) + 4095) &^ 4095
	file := make([]byte, dataOff, dataOff+2*len(in))
	copy(file, "\x7fELF\x02\x01\x01")
	le.PutUint16(file[16:], 2)
	le.PutUint16(file[18:], 62)
	le.PutUint32(file[20:], 1)
	le.PutUint64(file[24:], uint64(loadedAt+head+entry))
	le.PutUint64(file[32:], 64)
	le.PutUint16(file[52:], 64)
	le.PutUint16(file[54:], 56)
	le.PutUint16(file[56:], 2)
	copy(file[head:], code)
	for k, seg := range [][4]int{{0, loadedAt, head + len(code), head + len(code)},
		{dataOff, dataAt, 2 * len(in), 2*len(in) + ownStack}} {
		p := file[64+56*k:]
		le.PutUint32(p, 1)
		le.PutUint32(p[4:], uint32(5+k)) // R+X, then R+W
		le.PutUint64(p[8:], uint64(seg[0]))
		le.PutUint64(p[16:], uint64(seg[1]))
		le.PutUint64(p[24:], uint64(seg[1]))
		le.PutUint64(p[32:], uint64(seg[2]))
		le.PutUint64(p[40:], uint64(seg[3]))
		le.PutUint64(p[48:], 4096)
	}
	file = append(append(file, in...), in...) // memory changes where it lies
	path := filepath.Join(t.TempDir(), "cases")
	require.NoError(t, os.WriteFile(path, file, 0o755))
	var out []byte
	var err error
	for range 10 { // a timer may interrupt a case; a fault of a case comes each time
		cmd := osexec.Command(path)
		out, err = cmd.Output()
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGSEGV {
			break
		}
	}
	require.NoError(t, err)
	require.Len(t, out, len(in))
	return out
}
