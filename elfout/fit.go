package elfout

import (
	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// Fit says how a table becomes the code of a file, and what size the file is fitted to.
type Fit struct {
	Dispatch plan.Dispatch
	NoDeref  bool           // see asmgen.Options
	Speed    bool           // pages of half the text, and any size
	Tables   int64          // bytes of the object's unwind sections; not used for Speed
	Calls    dwarfcfa.Calls // of the object
}

// small is the size of tables up to which it counts what is the same in every file.
const small = 15 << 10

// Bare reports whether the file is one of those that have no section headers.
func (f Fit) Bare() bool { return f.Tables <= small }

// speedRate is the rate up to which pages are dense for Speed, see plan.DenseRate.
const speedRate = 100

// Limit returns what the file may take beside its sites: a quarter more than the tables, or 3.5 KB more.
func (f Fit) Limit() int64 {
	if f.Bare() {
		return f.Tables + 3584
	}
	return f.Tables + f.Tables/4
}

// Compile makes the code of the file that src describes. The file keeps to the limit if that
// can be done.
func (f Fit) Compile(t *dwarfcfa.Table, src Source) (*asmgen.Code, error) {
	how, opt := plan.Options{Dispatch: f.Dispatch, Calls: f.Calls}, asmgen.Options{NoDeref: f.NoDeref}
	if f.Speed {
		how.PageBits, how.DenseRate, opt.Fast = plan.PageBits-1, speedRate, true
		return asmgen.Fit(t, how, opt, 0, nil)
	}
	src.Bare, src.Relro = f.Bare(), false // the limit is for such files, whatever becomes of this one
	around, err := src.around()
	if err != nil {
		return nil, err
	}
	return asmgen.Fit(t, how, opt, int(f.Limit()), func(c *asmgen.Code) int {
		return around + unwindSize(c.Frames) + len(c.Text) + len(c.Data)
	})
}

// unwindSize returns the size of what unwinds the code itself.
func unwindSize(frames []asmgen.Frame) int {
	e, err := newEhFrame(frames)
	if err != nil {
		return 0 // New will say so
	}
	return len(e.bytes) + int(e.headerSize())
}

// around returns what a file takes at most beside text, data, its own unwind information and
// sites: how text and data are aligned is not known yet.
func (src Source) around() (int, error) {
	src.Sites = nil
	size := uint32(codeAlign)
	if src.Bare {
		size = bareAlign
	}
	code := &asmgen.Code{Text: make([]byte, size), Data: make([]byte, size), Frames: []asmgen.Frame{{End: size, Rows: []asmgen.FrameRow{{CFAOffset: 8}}}}}
	for _, name := range []string{abi.SymbolStep, abi.SymbolChain, abi.SymbolWalk} {
		code.Symbols = append(code.Symbols, asmgen.Symbol{Name: name, End: size, Exported: true})
	}
	image, err := New(code, src)
	if err != nil {
		return 0, err
	}
	return len(image.Bytes()) - unwindSize(code.Frames), nil
}
