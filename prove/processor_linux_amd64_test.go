package prove

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/x86"
)

// The state of a case in memory: 16 general registers, xmm0 to xmm5, the flags.
const (
	caseXMM   = 16 * 8
	caseFlags = caseXMM + 6*16
	caseSize  = caseFlags + 8
	loadedAt  = 0x400000
)

// TestProcessor compares the meaning of instructions with the processor: each form of
// emitted code without a memory operand, divisions, pushes and jumps aside, behind a
// comparison that sets flags, on random registers. A program without a library, made
// here, runs all cases. Compared are registers and each condition that is taken to be known.
func TestProcessor(t *testing.T) {
	forms := registerForms(t)
	rng := rand.New(rand.NewPCG(1, 2))
	const cases = 10000
	in := make([]byte, cases*caseSize)
	insts := make([][2][]byte, cases)
	for k := range cases {
		c := in[k*caseSize:]
		for at := 0; at < caseFlags; at += 8 {
			v := rng.Uint64()
			switch rng.IntN(4) {
			case 0:
				v = uint64(int64(int8(v)))
			case 1:
				v >>= v & 63
			}
			binary.LittleEndian.PutUint64(c[at:], v)
		}
		// cmp r8, r9 or its half: 45/4d 39 c8
		insts[k] = [2][]byte{{byte(0x45 + 8*rng.IntN(2)), 0x39, 0xc8}, forms[k%len(forms)]}
	}
	out := runCases(t, in, insts)
	seen, conditions, compared := map[instOp]int{}, 0, 0
	for k := range cases {
		tm := newTerms()
		x := &exec{t: tm, pcSlot: noTerm, first: noTerm}
		value := map[term]uint64{}
		was := func(at int) uint64 { return binary.LittleEndian.Uint64(in[k*caseSize+at:]) }
		is := func(at int) uint64 { return binary.LittleEndian.Uint64(out[k*caseSize+at:]) }
		s := &state{}
		x.sp = tm.variable("sp", ^uint64(0))
		for r := range s.reg {
			s.reg[r] = tm.variable("r", ^uint64(0))
			value[s.reg[r]] = was(8 * r)
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
				v, ok := value[z]
				require.True(t, ok, tm.text(z))
				return v
			})
		}
		known := true
		for _, b := range insts[k] {
			i, ok := decode(b)
			require.True(t, ok, "% x", b)
			if i.op == iBsf {
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
			seen[i.op]++
		}
		if !known {
			continue // the prover refuses it, too
		}
		compared++
		for r := range s.reg {
			if r != rSP {
				require.Equal(t, is(8*r), eval(s.reg[r]), "% x: register %d", insts[k][1], r)
			}
		}
		for r := range s.xmm {
			for h := range 2 {
				require.Equal(t, is(caseXMM+16*r+8*h), eval(s.xmm[r][h]), "% x: xmm%d", insts[k][1], r)
			}
		}
		fl := is(caseFlags)
		bit := func(n int) bool { return fl>>n&1 != 0 }
		truths := [8]bool{bit(11), bit(0), bit(6), bit(0) || bit(6), bit(7), bit(2), bit(7) != bit(11), bit(6) || bit(7) != bit(11)}
		for cc := range uint8(16) {
			if l, ok := x.condition(s.fl, cc); ok {
				conditions++
				require.Equal(t, truths[cc>>1] != (cc&1 != 0), (eval(l.t) != 0) != l.neg, "% x: condition %d", insts[k][1], cc)
			}
		}
	}
	t.Logf("%d forms, %d operations, %d states, %d conditions", len(forms), len(seen), compared, conditions)
	require.Greater(t, len(seen), 25)
	require.Greater(t, compared, cases*8/10)
}

// registerForms are the distinct instructions of emitted code whose operands are
// registers and constants.
func registerForms(t *testing.T) (forms [][]byte) {
	seen := map[string]bool{}
	table := tableOf(t, "/bin/ls")
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
			if !ok || seen[form] || (in.Reads|in.Writes)&(1<<rSP) != 0 {
				continue
			}
			seen[form] = true
			switch i.op {
			case iJcc, iJmp, iJmpTo, iCall, iCallTo, iRet, iPush, iPop, iDiv, iIdiv:
				continue
			}
			if i.op != iLea && (i.dst.kind == opMem || i.src.kind == opMem || i.dst.kind == opRIP || i.src.kind == opRIP) || i.src.kind == opRIP {
				continue
			}
			forms = append(forms, slices.Clone(b[:in.Len]))
		}
	}
	return forms
}

// runCases writes a program, runs it, and returns the states it ends with.
func runCases(t *testing.T, in []byte, insts [][2][]byte) []byte {
	var code []byte
	const head = 64 + 56
	length := 0
	build := func(inAt, outAt uint32) []byte {
		c := code[:0]
		abs := func(at uint32, op ...byte) { c = binary.LittleEndian.AppendUint32(append(c, op...), at) }
		for k, list := range insts {
			from, to := inAt+uint32(k*caseSize), outAt+uint32(k*caseSize)
			for r := range uint32(6) {
				abs(from+caseXMM+16*r, 0x0f, 0x10, byte(r<<3|4), 0x25)
			}
			for r := range uint32(16) {
				if r != rSP {
					abs(from+8*r, byte(0x48|r>>3<<2), 0x8b, byte(r&7<<3|4), 0x25)
				}
			}
			c = append(append(c, list[0]...), list[1]...)
			for r := range uint32(16) {
				if r != rSP {
					abs(to+8*r, byte(0x48|r>>3<<2), 0x89, byte(r&7<<3|4), 0x25)
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
	code = build(0, 0)
	length = len(code)
	inAt := uint32(loadedAt + head + length)
	outAt := inAt + uint32(len(in))
	code = build(inAt, outAt)
	require.Len(t, code, length)
	file := make([]byte, head, head+length+2*len(in))
	copy(file, "\x7fELF\x02\x01\x01")
	le.PutUint16(file[16:], 2)
	le.PutUint16(file[18:], 62)
	le.PutUint32(file[20:], 1)
	le.PutUint64(file[24:], loadedAt+head)
	le.PutUint64(file[32:], 64)
	le.PutUint16(file[52:], 64)
	le.PutUint16(file[54:], 56)
	le.PutUint16(file[56:], 1)
	p := file[64:]
	le.PutUint32(p, 1)
	le.PutUint32(p[4:], 7)
	le.PutUint64(p[16:], loadedAt)
	le.PutUint64(p[24:], loadedAt)
	file = append(append(append(file, code...), in...), make([]byte, len(in))...)
	le.PutUint64(file[64+32:], uint64(len(file)))
	le.PutUint64(file[64+40:], uint64(len(file)))
	le.PutUint64(file[64+48:], 4096)
	path := filepath.Join(t.TempDir(), "cases")
	require.NoError(t, os.WriteFile(path, file, 0o755))
	out, err := osexec.Command(path).Output()
	require.NoError(t, err)
	require.Len(t, out, len(in))
	return out
}
