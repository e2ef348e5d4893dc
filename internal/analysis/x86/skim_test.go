package x86_test

import (
	"debug/elf"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// sameOutline requires Skim to tell of bytes what Decode does.
func sameOutline(t *testing.T, code []byte) (n int) {
	t.Helper()
	var in x86.Inst
	var o x86.Outline
	err := x86.Decode(code, &in)
	require.Equal(t, err, x86.Skim(code, &o), "% x", code)
	if err != nil {
		return 1
	}
	want := x86.Outline{Len: in.Len}
	switch in.Op {
	case x86.OpJMP, x86.OpJCC, x86.OpCALL, x86.OpLEA, x86.OpRET, x86.OpRETF, x86.OpIRET, x86.OpNOP, x86.OpUD2, x86.OpUD1,
		x86.OpUD0, x86.OpHLT, x86.OpINT3:
		want.Op = in.Op
		if in.NArgs > 0 && in.Args[0].Kind == x86.KRel {
			want.Rel, want.Dist = true, in.Imm
		}
		if in.Op == x86.OpLEA && in.Mem.Base == x86.RIP {
			want.Rel, want.Dist = true, in.Mem.Disp
		}
	}
	if want != o { // require.Equal is slow
		require.Equal(t, want, o, "% x", code)
	}
	return int(in.Len)
}

func TestSkim(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	code := make([]byte, 16)
	prefixes := [][]byte{nil, {0x66}, {0x48}, {0x41}, {0x66, 0x48}, {0xf3}, {0x0f}, {0x66, 0x0f}, {0x48, 0x0f},
		{0x66, 0x41, 0x0f}}
	for range 2 { // every opcode and ModRM after each of these, what follows at random
		for _, p := range prefixes {
			for op := range 256 {
				for modrm := 0; modrm < 256; modrm += sweep() {
					for i := range code {
						code[i] = byte(rng.Uint32())
					}
					n := copy(code, p)
					code[n], code[n+1] = byte(op), byte(modrm)
					sameOutline(t, code)
				}
			}
		}
	}
	for range 200_000 {
		for i := range code {
			code[i] = byte(rng.Uint32())
		}
		sameOutline(t, code)
	}
	f, err := elf.Open("/lib/x86_64-linux-gnu/libc.so.6")
	require.NoError(t, err)
	defer f.Close()
	text, err := f.Section(".text").Data()
	require.NoError(t, err)
	for off := 0; off < len(text); {
		off += sameOutline(t, text[off:])
	}
}

func BenchmarkSkim(b *testing.B) {
	f, err := elf.Open("/lib/x86_64-linux-gnu/libc.so.6")
	require.NoError(b, err)
	defer f.Close()
	text, err := f.Section(".text").Data()
	require.NoError(b, err)
	var o x86.Outline
	n := 0
	for b.Loop() {
		for off := 0; off < len(text); n++ {
			if x86.Skim(text[off:], &o) != nil {
				off++
				continue
			}
			off += int(o.Len)
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Minst/s")
}
