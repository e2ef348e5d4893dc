package elfout

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen"
)

// TestAround: no file is larger than what it is fitted by, nor smaller by more than alignment.
func TestAround(t *testing.T) {
	for _, bare := range []bool{false, true} {
		for n := range 100 {
			src := Source{Name: strings.Repeat("n", 1+n%13), BuildID: make([]byte, n%21), Build: []string{"a=" + strings.Repeat("b", n)}, Bare: bare}
			around, err := src.around()
			require.NoError(t, err)
			code := &asmgen.Code{Text: make([]byte, 100+7*n), Data: make([]byte, 1+5*n)}
			end := uint32(len(code.Text))
			for _, name := range []string{abi.SymbolStep, abi.SymbolWalk, abi.SymbolChain} {
				code.Symbols = append(code.Symbols, asmgen.Symbol{Name: name, End: end, Exported: true})
			}
			row := asmgen.FrameRow{CFAOffset: 8}
			code.Frames = []asmgen.Frame{{End: 50, Rows: []asmgen.FrameRow{row, {Off: 9, CFAOffset: 16}}}, {Start: 50, End: end, Rows: []asmgen.FrameRow{{Off: 50, CFAOffset: 8}}}}
			image, err := New(code, src)
			require.NoError(t, err)
			spare := around + unwindSize(code.Frames) + len(code.Text) + len(code.Data) - len(image.Bytes())
			assert.GreaterOrEqual(t, spare, 0)
			assert.LessOrEqual(t, spare, 3*codeAlign)
		}
	}
}
