package check_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/analysis/check"
	"github.com/ehasm/ehasm/internal/analysis/x86"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// throwers is how many functions of a thrown program throw.
const throwers = 12

// thrown is a program of which one of some functions throws, by the number of its arguments.
type thrown struct {
	t      *testing.T
	path   string
	data   []byte
	hdr    int // offset of .eh_frame_hdr in the file
	addr   uint64
	frame  int                // offset of .eh_frame
	calls  [throwers]uint64   // by function: where it throws
	starts [throwers]uint64   // by function
	main   uint64             // where main begins
	all    map[check.Kind]int // findings seen
}

func newThrown(t *testing.T, linker string) *thrown {
	p := &thrown{t: t, path: filepath.Join(t.TempDir(), "p"), all: map[check.Kind]int{}}
	var source strings.Builder
	source.WriteString("#define F(n) __attribute__((noinline)) void f##n(int k) { if (k == n) throw k + n; }\n")
	for i := range throwers {
		fmt.Fprintf(&source, "F(%d)\n", i)
	}
	source.WriteString("int main(int c, char **) {\n\ttry {\n")
	for i := range throwers {
		fmt.Fprintf(&source, "\t\tf%d(c - 1);\n", i)
	}
	source.WriteString("\t} catch (int x) { return x == 2 * (c - 1) ? 0 : 3; }\n\treturn 4;\n}\n")
	require.NoError(t, os.WriteFile(p.path+".cc", []byte(source.String()), 0o644))
	out, err := exec.Command("g++", "-O1", "-fuse-ld="+linker, "-o", p.path, p.path+".cc").CombinedOutput()
	require.NoError(t, err, "%s", out)
	p.data, err = os.ReadFile(p.path)
	require.NoError(t, err)
	f, err := elf.NewFile(bytes.NewReader(p.data))
	require.NoError(t, err)
	p.hdr, p.addr = int(f.Section(".eh_frame_hdr").Offset), f.Section(".eh_frame_hdr").Addr
	p.frame = int(f.Section(".eh_frame").Offset)
	symbols, err := f.Symbols()
	require.NoError(t, err)
	text := f.Section(".text")
	for _, s := range symbols {
		var n int
		if s.Name == "main" {
			p.main = s.Value
		}
		if _, err := fmt.Sscanf(s.Name, "_Z2f%di", &n); err != nil {
			if _, err := fmt.Sscanf(s.Name, "_Z3f%di", &n); err != nil {
				continue
			}
		}
		p.starts[n] = s.Value
		var in x86.Inst
		for pc := s.Value; pc < s.Value+s.Size; pc += uint64(in.Len) {
			require.NoError(t, x86.Decode(p.data[text.Offset+pc-text.Addr:], &in))
			if in.Op == x86.OpCALL {
				p.calls[n] = pc + uint64(in.Len) - 1
			}
		}
	}
	return p
}

// pair returns the bytes of a function's entry in the table.
func (p *thrown) pair(b []byte, n int) []byte { return p.pairAt(b, p.starts[n]) }

func (p *thrown) pairAt(b []byte, start uint64) []byte {
	for off := p.hdr + 12; ; off += 8 {
		if p.addr+uint64(int32(binary.LittleEndian.Uint32(b[off:]))) == start {
			return b[off : off+8]
		}
	}
}

// judge lets each function of a changed program throw. It fails if one terminates about which check says nothing, or
// does not although it is said to be hidden. The function gone has no FDE left.
func (p *thrown) judge(b []byte, gone int, what string) {
	p.t.Helper()
	path := p.path + ".changed"
	require.NoError(p.t, os.WriteFile(path, b, 0o755))
	r := run(p.t, path)
	for _, f := range r.Findings {
		p.all[f.Kind]++
	}
	for n := range throwers {
		if n == gone {
			continue
		}
		cmd := exec.Command(path, make([]string, n)...)
		caught := cmd.Run() == nil
		said, hidden := "", false
		for _, f := range errorsIn(r) {
			if f.PC <= p.calls[n] && p.calls[n] < f.End || f.PC == p.main {
				said += fmt.Sprintf("%s %#x..%#x %s; ", f.Kind, f.PC, f.End, f.Message())
				hidden = hidden || f.Kind == check.KindHidden || f.Kind == check.KindLSDA
			}
		}
		if caught {
			assert.False(p.t, hidden, "%s: f%d is caught at %#x: %s", what, n, p.calls[n], said)
		} else {
			if !assert.NotEmpty(p.t, said, "%s: f%d at %#x is not caught", what, n, p.calls[n]) {
				for _, f := range r.Findings {
					p.t.Logf("%s %#x..%#x: %s", f.Severity, f.PC, f.End, f.Message())
				}
			}
		}
	}
}

// TestWhole changes .eh_frame_hdr: where a throw terminates, check has an error.
func TestWhole(t *testing.T) {
	testtool.Need(t, "g++", "ld.lld", "ld.gold", "mold")
	for _, linker := range testtool.Sweep([]string{"bfd", "gold", "lld", "mold"}) {
		p := newThrown(t, linker)
		p.judge(p.data, -1, linker)
		require.Empty(t, p.all[check.KindHidden]+p.all[check.KindHeader]+p.all[check.KindOverlap]+p.all[check.KindLSDA],
			linker)
		rng := rand.New(rand.NewPCG(46, uint64(len(linker))))
		mutants := 81
		if testing.Short() {
			mutants = 18 // two of each kind
		}
		for n := range mutants {
			b := bytes.Clone(p.data)
			one, gone := rng.IntN(throwers), -1
			x, y := p.pair(b, one), p.pair(b, rng.IntN(throwers))
			fde := func(pair []byte) []byte {
				f := b[p.hdr+int(int32(binary.LittleEndian.Uint32(pair[4:]))):]
				return f[:4+binary.LittleEndian.Uint32(f)]
			}
			what := ""
			add := func(word []byte, d int) {
				binary.LittleEndian.PutUint32(word, binary.LittleEndian.Uint32(word)+uint32(d))
			}
			switch n % 9 {
			case 0:
				what = "an entry twice"
				copy(x, y)
			case 1:
				what = "entries exchanged"
				old := bytes.Clone(x)
				copy(x, y)
				copy(y, old)
			case 2:
				what = "another FDE"
				copy(x[4:], y[4:])
			case 3:
				what = "another start"
				add(x, rng.IntN(40)-20)
			case 4:
				what = "no FDE"
				add(x[4:], 4*(1+rng.IntN(20)))
			case 5:
				what = "fewer entries"
				count := b[p.hdr+8:]
				add(count, -rng.IntN(throwers))
			case 6:
				what = "no table"
				b[p.hdr+2], b[p.hdr+3] = 0xff, 0xff
			case 7:
				what = "terminators"
				clear(fde(x))
				if n%2 == 0 {
					what, gone = "terminators, no table", one
					b[p.hdr+2], b[p.hdr+3] = 0xff, 0xff
				}
			case 8:
				what = "no LSDA"
				f := fde(p.pairAt(b, p.main))
				binary.LittleEndian.PutUint32(f[17:], 0x7f000000)
			}
			p.judge(b, gone, fmt.Sprintf("%s %d %s", linker, n, what))
			if t.Failed() {
				return
			}
		}
		t.Logf("%s: %v", linker, p.all)
		for _, kind := range []check.Kind{check.KindHidden, check.KindOverlap, check.KindHeader, check.KindTerminator,
			check.KindLSDA} {
			assert.Positive(t, p.all[kind], "%s: %s", linker, kind)
		}
	}
}
