package compile

import (
	"errors"

	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
)

// This file decides between the fast form and the small one: a tree, which is code, and packed pages, which are data
// (RATIONALE.md has the measurements).

// Layout says how a table becomes a file.
type Layout struct {
	Dispatch Dispatch       // the tree gives way to packed where the file would exceed Limit
	NoDeref  bool           // see asmgen.Options
	Tables   int64          // bytes of the object's unwind sections
	Calls    dwarfcfa.Calls // of the object
}

// small is the size of tables in bytes up to which files have no section headers, which would be a third of them.
// Section headers and symbols are some 1.2 KB.
const small = 15 << 10

// Bare reports whether the file has no section headers.
func (l Layout) Bare() bool { return l.Tables <= small }

// Limit returns the bytes up to which a file is a tree: a fifth more than the tables, or 8 KB more. The 8 KB are for
// small objects, where the entry code and the ELF headers alone exceed a fifth.
func (l Layout) Limit() int64 { return l.Tables + max(l.Tables/5, 8<<10) }

// Build makes the file that src describes and returns it with its code. It sets src.Bare. The error wraps
// asmgen.ErrTooLarge if packed dispatch was asked for and has no room for the rows or pages.
func (l Layout) Build(t *dwarfcfa.Table, src elfout.Source) (*elfout.Image, *asmgen.Code, error) {
	src.Bare = l.Bare() && !src.Relro
	image, code, err := l.build(t, l.Dispatch, src)
	if err != nil || l.Dispatch == Packed || int64(len(image.Bytes())) <= l.Limit() {
		return image, code, err
	}
	// The tree is too large: the packed form is taken if it fits and is smaller.
	packed, packedCode, err := l.build(t, Packed, src)
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
func (l Layout) build(t *dwarfcfa.Table, dispatch Dispatch, src elfout.Source) (*elfout.Image, *asmgen.Code, error) {
	p, err := plan.Build(t, plan.Options{Dispatch: dispatch, Calls: l.Calls})
	if err != nil {
		return nil, nil, err
	}
	code, err := asmgen.Assemble(p, asmgen.Options{NoDeref: l.NoDeref})
	if err != nil {
		return nil, nil, err
	}
	image, err := elfout.New(code, src)
	return image, code, err
}
