package prove

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// decodableForms returns random instructions that the decoder takes, jumps aside, by form: also
// those that no emitter uses, which a file made by hand may have. Some are left out whose operands
// TestProcessor has no place for.
func decodableForms(rng *rand.Rand, tries int) map[string][][]byte {
	forms := map[string][][]byte{}
	fits := func(o operand) bool {
		switch o.kind {
		case opXMM:
			return o.reg < 6
		case opMem:
			return (o.scale == 0 || o.index != o.reg) && (o.reg != rSP || o.disp >= 0 && o.disp <= 256)
		}
		return true
	}
	for range tries {
		b := make([]byte, 0, 18)
		switch rng.IntN(6) {
		case 0:
			b = append(b, 0x66)
		case 1:
			b = append(b, 0xf3)
		}
		if rng.IntN(3) > 0 {
			b = append(b, byte(0x40+rng.IntN(16)))
		}
		if rng.IntN(2) == 0 {
			b = append(b, 0x0f)
		}
		for range 14 {
			b = append(b, byte(rng.Uint32()))
		}
		i, ok := decode(b)
		rcx := i.dst.kind == opReg && i.dst.reg == rCX && i.w == 8
		switch {
		case !ok || isControl(i.op) || !fits(i.dst) || !fits(i.src):
		case (i.op == iDiv || i.op == iIdiv) && !rcx:
		case (i.op == iBsf || i.op == iTzcnt) && i.src.kind != opReg || i.op == iMul3 && i.src.kind == opRIP:
		default:
			kind := fmt.Sprintf("%2d w%d sw%d cc%x %d(%v) %d(%v) %v %v", i.op, i.w, i.sw, i.cc, i.dst.kind,
				i.dst.scale > 0, i.src.kind, i.src.scale > 0, i.dst.high, i.src.high)
			forms[kind] = append(forms[kind], b[:i.n])
		}
	}
	return forms
}

// TestProcessorForms is TestProcessor for all that the decoder takes.
func TestProcessorForms(t *testing.T) {
	testtool.Long(t)
	rng := rand.New(rand.NewPCG(1, 7))
	forms := decodableForms(rng, 1_000_000)
	total := processed{ops: map[instOp]int{}}
	var cases [][]byte
	for _, kind := range slices.Sorted(maps.Keys(forms)) {
		list := forms[kind]
		for k := range 12 {
			cases = append(cases, list[k%len(list)])
		}
	}
	total.run(t, rng, cases)
	t.Logf("%d forms, %d operations, %d states, %d conditions", len(forms), len(total.ops), total.compared,
		total.conditions)
	require.Greater(t, len(forms), 550)
	require.Greater(t, total.compared, len(forms)*12*7/10)
}
