package prove

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/x86"
	"github.com/ehasm/ehasm/internal/testing/rowtest"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/validate/objdumpcmp"
)

// TestDecoder compares the decoder with package x86's, which knows all instructions, at
// every byte of emitted code: what this one takes has the same length, registers, place
// in memory, and constant.
func TestDecoder(t *testing.T) {
	for _, path := range []string{"/bin/ls"} { // /bin/bash has passed, too, in 8 s
		table := tableOf(t, path)
		for _, v := range variants()[:3] {
			im, err := openImage(compile(t, table, v))
			require.NoError(t, err)
			taken, begins := 0, 0
			next := im.exec.Vaddr
			for pc := im.exec.Vaddr; pc < im.exec.Vaddr+im.exec.Filesz; pc++ {
				b := im.text(pc)
				i, ok := decode(b)
				if pc == next { // where code read in order has an instruction
					begins++
					var in x86.Inst
					require.NoError(t, x86.Decode(b, &in), "%#x", pc)
					next += uint64(in.Len)
				}
				if !ok {
					continue
				}
				taken++
				sameInst(t, b, &i)
			}
			t.Logf("%s %s: %d places, %d instructions in order", path, v.name, taken, begins)
			require.Greater(t, taken, begins/2)
		}
	}
}

// TestDecoderObjdump compares the other decoder with objdump at all of emitted code: with
// TestDecoder, so is this one.
func TestDecoderObjdump(t *testing.T) {
	for name, table := range map[string]*dwarfcfa.Table{"ls": tableOf(t, "/bin/ls"), "random": randomTable(9),
		"groups": groups(14, true)} {
		for _, v := range testtool.Sweep(variants()[:4]) { // with section headers, by which objdump goes
			path := filepath.Join(t.TempDir(), "eh_elf")
			require.NoError(t, os.WriteFile(path, compile(t, table, v), 0o644))
			r, err := objdumpcmp.File(path, nil)
			require.NoError(t, err)
			t.Logf("%s %s: %d instructions", name, v.name, r.Instructions)
			require.Greater(t, r.Instructions, 700)
			r.Instructions = 0
			require.Equal(t, &objdumpcmp.Result{}, r)
		}
	}
}

// randomTable has all kinds of rules and operations.
func randomTable(seed uint64) *dwarfcfa.Table {
	rng := rand.New(rand.NewPCG(seed, 9))
	data := make([]byte, 6000)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	return rowtest.Table(data, 250)
}

func sameInst(t *testing.T, b []byte, i *inst) {
	var in x86.Inst
	require.NoError(t, x86.Decode(b, &in), "% x", b[:i.n])
	what := b[:i.n]
	require.Equal(t, int(i.n), int(in.Len), "% x", what)
	switch want := opNames[i.op]; i.op {
	case iMovsx, iMovdq: // they have two names
		require.Equal(t, want, in.Op.String()[:len(want)], "% x", what)
	default:
		require.Equal(t, want, in.Op.String(), "% x", what)
	}
	var mine []operand
	for _, o := range []operand{i.dst, i.src} {
		if o.kind == opReg || o.kind == opXMM || o.kind == opMem || o.kind == opRIP {
			mine = append(mine, o)
		}
	}
	n := 0
	for _, a := range in.Args[:in.NArgs] {
		if a.Kind != x86.KGPR && a.Kind != x86.KVec && a.Kind != x86.KMem {
			continue
		}
		require.Less(t, n, len(mine), "% x", what)
		o := mine[n]
		n++
		switch a.Kind {
		case x86.KGPR:
			require.True(t, o.kind == opReg && o.reg == a.Reg && !a.High, "% x: %+v %+v", what, o, a)
		case x86.KVec:
			require.True(t, o.kind == opXMM && o.reg == a.Reg, "% x: %+v %+v", what, o, a)
		case x86.KMem:
			m := in.Mem
			require.Equal(t, o.disp, m.Disp, "% x", what)
			require.True(t, m.Seg == 0 && !m.Addr32, "% x", what)
			if o.kind == opRIP {
				require.Equal(t, x86.RIP, m.Base, "% x", what)
				continue
			}
			require.Equal(t, x86.Reg(o.reg), m.Base, "% x", what)
			if o.scale == 0 {
				require.Equal(t, x86.None, m.Index, "% x", what)
			} else {
				require.Equal(t, x86.Reg(o.index), m.Index, "% x", what)
				require.Equal(t, o.scale, m.Scale, "% x", what)
			}
		}
	}
	for _, a := range in.Args[:in.NArgs] {
		if a.Kind == x86.KRel {
			require.Equal(t, i.imm, in.Imm, "% x", what)
		}
		if a.Kind == x86.KImm {
			mask := sizeMask(max(i.w, 1))
			require.Equal(t, uint64(i.imm)&mask, uint64(in.Imm)&mask, "% x", what)
		}
	}
	if i.op == iJcc || i.op == iCmov || i.op == iSet {
		require.Equal(t, x86.Cond(i.cc), in.Cond, "% x", what)
	}
}

// opNames are the other decoder's names of operations, or how they begin.
var opNames = map[instOp]string{
	iAdd: x86.OpADD.String(), iOr: x86.OpOR.String(), iSbb: x86.OpSBB.String(), iAnd: x86.OpAND.String(),
	iSub: x86.OpSUB.String(), iXor: x86.OpXOR.String(), iCmp: x86.OpCMP.String(), iTest: x86.OpTEST.String(),
	iMov: x86.OpMOV.String(), iMovzx: x86.OpMOVZX.String(), iLea: x86.OpLEA.String(), iNot: x86.OpNOT.String(),
	iNeg: x86.OpNEG.String(), iInc: x86.OpINC.String(), iDec: x86.OpDEC.String(), iShl: x86.OpSHL.String(),
	iShr: x86.OpSHR.String(), iSar: x86.OpSAR.String(), iMul: x86.OpIMUL.String(), iMul3: x86.OpIMUL.String(),
	iDiv: x86.OpDIV.String(), iIdiv: x86.OpIDIV.String(), iBt: x86.OpBT.String(), iBts: x86.OpBTS.String(),
	iBtr: x86.OpBTR.String(), iBsf: x86.OpBSF.String(), iTzcnt: x86.OpTZCNT.String(), iCmov: x86.OpCMOVCC.String(),
	iSet: x86.OpSETCC.String(), iJcc: x86.OpJCC.String(), iJmp: x86.OpJMP.String(), iJmpTo: x86.OpJMP.String(),
	iCall: x86.OpCALL.String(), iCallTo: x86.OpCALL.String(), iRet: x86.OpRET.String(), iPush: x86.OpPUSH.String(),
	iPop: x86.OpPOP.String(), iClc: x86.OpCLC.String(), iStc: x86.OpSTC.String(), iPminub: x86.OpPMINUB.String(),
	iPcmpeqb: x86.OpPCMPEQB.String(), iMovsx: x86.OpMOVSX.String(), iMovdq: x86.OpMOVDQA.String()[:5],
	iMovlps: x86.OpMOVLPS.String(), iMovhps: x86.OpMOVHPS.String(), iPshufd0: x86.OpPSHUFD.String(),
	iCqo: x86.OpCWD.String(), iPmovmskb: x86.OpPMOVMSKB.String(), iMovups: x86.OpMOVUPS.String(),
	iMovd: x86.OpMOVD.String(),
}

func BenchmarkDecoders(b *testing.B) {
	im, err := openImage(compile(b, tableOf(b, "/bin/ls"), variants()[0]))
	if err != nil {
		b.Fatal(err)
	}
	var places []uint64
	for pc := im.exec.Vaddr; pc < im.exec.Vaddr+im.exec.Filesz; pc++ {
		if _, ok := decode(im.text(pc)); ok {
			places = append(places, pc)
		}
	}
	b.Run("own", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			decode(im.text(places[n%len(places)]))
		}
	})
	b.Run("x86", func(b *testing.B) {
		var in x86.Inst
		for n := 0; b.Loop(); n++ {
			x86.Decode(im.text(places[n%len(places)]), &in)
		}
	})
}
