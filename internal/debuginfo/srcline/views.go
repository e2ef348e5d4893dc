package srcline

import (
	"iter"
	"runtime/debug"
)

// View is a row of a line number program. GCC numbers those of one address: the first is view 0.
// What the program is about to execute at an address is of the last.
type View struct {
	Addr uint64 // link-time
	View int    // from 0 on
	File string
	Line int
	// Statement says that a debugger stops here: is_stmt.
	Statement bool
	// Enters are the inlined functions that begin here, by DW_AT_GNU_entry_view: each is
	// inlined into the one before it, or beside it.
	Enters []string
	// End says that the code ends here; there is no line then.
	End bool
}

// view is a View, with the number of its file.
type view struct {
	View
	file uint64
}

// Views iterates over all rows of all units, as the line number programs have them. What cannot be read
// is left out; Err reports it.
func (o *Object) Views() iter.Seq[View] {
	return func(yield func(View) bool) {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		o.note(try(func() error {
			o.whole()
			for _, u := range o.sec.units {
				var list []view
				t := &lineTable{each: func(v view) { list = append(list, v) }}
				o.note(u.parseLines(t))
				in, _ := o.funcs(u)
				entries, err := in.entryPoints()
				o.note(err)
				for _, v := range list {
					if !v.End {
						v.File = t.file(uint32(min(v.file, uint64(noFile))))
						for _, r := range entries[entryPoint{v.Addr, v.View.View}] {
							v.Enters = append(v.Enters, in.name(r))
						}
					}
					if !yield(v.View) {
						return nil
					}
				}
			}
			return nil
		}))
	}
}

// view counts the views of an address, and emits the current row. It is called for each row, also
// those that the table drops.
func (t *lineTable) view(m *machine, end bool) {
	if t.each != nil {
		v := view{View: View{Addr: m.addr, End: end}, file: m.file}
		if !end {
			v.Line, v.View.View, v.Statement = m.line, m.view, m.isStmt
		}
		t.each(v)
	}
	m.view++
}
