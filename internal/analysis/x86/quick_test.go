package x86_test

import (
	"debug/elf"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// sameDecoded requires Decode to give what its general steps give, and returns the length.
func sameDecoded(t *testing.T, code []byte) int {
	t.Helper()
	var got, want x86.Inst
	err := x86.DecodeInSteps(code, &want)
	if got := x86.Decode(code, &got); got != err {
		require.Equal(t, err, got, "% x", code)
	}
	if err != nil {
		return 1
	}
	if want != got { // require.Equal is slow
		require.Equal(t, want, got, "% x", code)
	}
	return int(want.Len)
}

// sweep is the distance between the ModRM bytes that are tried; 7 comes to each register and each form of memory.
func sweep() int {
	if testing.Short() {
		return 7
	}
	return 1
}

func TestQuick(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	code := make([]byte, 16)
	for rex := range 17 { // none and each REX, every opcode, every ModRM; what follows at random
		for _, escape := range [][]byte{nil, {0x0f}} {
			for op := range 256 {
				for modrm := 0; modrm < 256; modrm += sweep() {
					for i := range code {
						code[i] = byte(rng.Uint32())
					}
					n := 0
					if rex < 16 {
						code[0], n = byte(0x40+rex), 1
					}
					n += copy(code[n:], escape)
					code[n], code[n+1] = byte(op), byte(modrm)
					sameDecoded(t, code)
				}
			}
		}
	}
	f, err := elf.Open("/lib/x86_64-linux-gnu/libc.so.6")
	require.NoError(t, err)
	defer f.Close()
	text, err := f.Section(".text").Data()
	require.NoError(t, err)
	for off := 0; off < len(text); {
		off += sameDecoded(t, text[off:min(off+20, len(text))])
	}
}
