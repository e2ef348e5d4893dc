package prove

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
)

// TestNoRows: a file without rows takes no decision on the pc, and reads nothing for that.
func TestNoRows(t *testing.T) {
	table := &dwarfcfa.Table{Exprs: make([]dwarfcfa.Expr, 1)}
	for _, v := range variants() {
		image := compile(t, table, v)
		_, err := Image(image, table)
		require.NoError(t, err, v.name)
		at := bytes.Index(image, []byte{0x48, 0x83, 0xf8, 0, 0x0f, 0x83}) // cmp $0, %rax; jae
		require.GreaterOrEqual(t, at, 0, v.name)
		rel := le.Uint32(image[at+6:])
		copy(image[at+4:], le.AppendUint32([]byte{0x48, 0x8b, 0x38, 0xe9}, rel-2)) // mov (%rax), %rdi; jmp
		_, err = Image(image, table)
		assert.ErrorContains(t, err, "an access before the lookup", v.name)
	}
}

// TestOwnRows: what the file's own .eh_frame says is taken as unwinders take it. The row of
// the walk's third instruction has rbx where nothing was saved, below rsp; the rule was set in a
// row at which no instruction begins, with a CFA for which the place is above rsp, so that
// package dwarfcfa takes rbx for popped.
func TestOwnRows(t *testing.T) {
	table := small()
	p, err := plan.Build(table, plan.Options{})
	require.NoError(t, err)
	image := func(change func(f *asmgen.Frame)) []byte {
		code, err := asmgen.Assemble(p, asmgen.Options{})
		require.NoError(t, err)
		for _, s := range code.Symbols {
			if s.Name != abi.SymbolWalk {
				continue
			}
			i := slices.IndexFunc(code.Frames, func(f asmgen.Frame) bool { return f.Start <= s.Start && s.Start < f.End })
			change(&code.Frames[i])
		}
		im, err := elfout.New(code, elfout.Source{Name: "test"})
		require.NoError(t, err)
		return im.Bytes()
	}
	_, err = Image(image(func(*asmgen.Frame) {}), table)
	require.NoError(t, err)
	const place = -40
	popped := image(func(f *asmgen.Frame) {
		require.Equal(t, []int32{8, 16, 24}, []int32{f.Rows[0].CFAOffset, f.Rows[1].CFAOffset, f.Rows[2].CFAOffset}) // push %rbp; push $0
		saved := append(slices.Clone(f.Rows[2].Saved), asmgen.FrameSave{Reg: abi.RBX, Off: place})
		f.Rows[2].Saved = saved
		f.Rows = slices.Insert(f.Rows, 2, asmgen.FrameRow{Off: f.Rows[2].Off - 1, CFAOffset: -place, Saved: saved})
	})
	object, err := dwarfcfa.NewObject("test", bytes.NewReader(popped), int64(len(popped)))
	require.NoError(t, err)
	_, found, err := dwarfcfa.BuildTable(object, dwarfcfa.BuildOptions{Source: dwarfcfa.SourceEHFrame, Strict: true})
	require.NoError(t, err)
	assert.Positive(t, found.PoppedRules)
	_, err = Image(popped, table)
	assert.ErrorContains(t, err, "its own row does not have the caller's register 3")
}
