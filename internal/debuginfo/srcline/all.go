package srcline

import (
	"iter"
	"runtime/debug"

	"github.com/ehasm/ehasm/internal/debuginfo/cdecl"
)

// This file reads everything, for 'ehasm dump' and for tests that compare with other readers. Lookup never does.

// Line is a range of code, [Start, End), with its place in the source.
type Line struct {
	Start, End uint64 // link-time addresses
	File       string
	Line       int
}

// Lines iterates over the lines of all units, unit by unit, each ascending. Units that
// cannot be read are left out; Err returns the first error.
func (o *Info) Lines() iter.Seq[Line] {
	return func(yield func(Line) bool) {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		o.note(try(func() error {
			// All units at once: no address is looked for.
			o.whole()
			for _, u := range o.sec.index.units {
				t := o.lines(u)
				for i := 0; i+1 < len(t.rows); i++ {
					r, next := t.rows[i], t.rows[i+1]
					// Rows without a file are the ends of sequences; two rows at one address cover
					// nothing between them.
					if r.file == noFile || r.addr == next.addr {
						continue
					}
					// the next row begins at the same address, or the code ends
					if !yield(Line{r.addr, next.addr, t.file(r.file), int(r.line)}) {
						return nil
					}
				}
			}
			return nil
		}))
	}
}

// Function is a function with its prototype.
type Function struct {
	Addr uint64
	Name string // as Frame has it
	// Parameters and Declaration are as C declares them, or "" if they are not known: Err then
	// says why.
	Parameters, Declaration string
	Err                     error
}

// Functions iterates over the functions of all units that have their own code.
func (o *Info) Functions() iter.Seq[Function] {
	return func(yield func(Function) bool) {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		o.note(try(func() error {
			o.whole()
			for _, u := range o.sec.index.units {
				in, t := o.funcs(u)
				seen := make(map[int32]bool) // functions that were yielded, by index
				for i, n := range t.which {
					// An inlined copy belongs to the function that it is inlined into.
					for n != none && t.funcs[n].parent != none {
						n = t.funcs[n].parent
					}
					// Starts after a gap or an inlined copy repeat the function.
					if n == none || seen[n] {
						continue
					}
					seen[n] = true
					f := Function{Addr: t.starts[i], Name: in.name(t.funcs[n].entry)}
					f.describe(in, t.funcs[n].entry)
					if !yield(f) {
						return nil
					}
				}
				o.note(in.sec.typesError())
			}
			return nil
		}))
	}
}

// describe sets the prototype of the function at r, or Err.
func (f *Function) describe(u *unit, r ref) {
	k := u.sec.key(r)
	f.Err = try(func() error {
		def, e, err := k.definition()
		if err != nil {
			return err
		}
		if f.Parameters, err = k.signature(u.isC()); err != nil {
			return err
		}
		// A definition out of line has its name at its declaration.
		if d, err := e.declared.entry(); err == nil && e.name == "" {
			e.name = d.name
		}
		f.Declaration, err = cdecl.Declare(typeOf, typeKey{entryKey: def, c: u.isC()}, e.name)
		return err
	})
}
