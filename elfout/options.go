package elfout

import (
	"errors"

	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// Options say how a table becomes a file.
type Options struct {
	Dispatch plan.Dispatch  // the tree gives way to packed where the file would exceed Limit
	NoDeref  bool           // see asmgen.Options
	Tables   int64          // bytes of the object's unwind sections
	Calls    dwarfcfa.Calls // of the object
}

// small is the size of tables in bytes up to which files have no section headers, which would be a third of them.
const small = 15 << 10

// Bare reports whether the file has no section headers.
func (o Options) Bare() bool { return o.Tables <= small }

// Limit returns the bytes up to which a file is a tree: a fifth more than the tables, or 8 KB more.
func (o Options) Limit() int64 { return o.Tables + max(o.Tables/5, 8<<10) }

// Build makes the file that src describes, and returns the code in it, too. It sets src.Bare. The error wraps
// asmgen.ErrTooLarge if packed dispatch was asked for and has no room for so many rows or pages.
func Build(t *dwarfcfa.Table, opt Options, src Source) (*Image, *asmgen.Code, error) {
	src.Bare = opt.Bare() && !src.Relro
	image, code, err := opt.build(t, opt.Dispatch, src)
	if err != nil || opt.Dispatch == plan.DispatchPacked || int64(len(image.Bytes())) <= opt.Limit() {
		return image, code, err
	}
	// The tree is too large: the packed form is taken if it fits and is smaller.
	packed, packedCode, err := opt.build(t, plan.DispatchPacked, src)
	switch {
	case errors.Is(err, asmgen.ErrTooLarge):
		return image, code, nil
	case err != nil:
		return nil, nil, err
	case len(packed.Bytes()) >= len(image.Bytes()):
		return image, code, nil
	}
	return packed, packedCode, nil
}

// build makes the file with one kind of dispatch.
func (o Options) build(t *dwarfcfa.Table, dispatch plan.Dispatch, src Source) (*Image, *asmgen.Code, error) {
	p, err := plan.Build(t, plan.Options{Dispatch: dispatch, Calls: o.Calls})
	if err != nil {
		return nil, nil, err
	}
	code, err := asmgen.Assemble(p, asmgen.Options{NoDeref: o.NoDeref})
	if err != nil {
		return nil, nil, err
	}
	image, err := New(code, src)
	return image, code, err
}
