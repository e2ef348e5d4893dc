package srcline

import (
	"iter"
	"runtime/debug"
)

// Line is a stretch of code, [Start, End), with its place in the source.
type Line struct {
	Start, End uint64
	File       string
	Line       int
}

// Lines iterates over the lines of all units, unit by unit, each ascending. What cannot be
// read is left out; Err tells of it.
func (o *Object) Lines() iter.Seq[Line] {
	return func(yield func(Line) bool) {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		o.note(try(func() error {
			o.whole()
			for _, u := range o.sec.units {
				t := o.lines(u)
				for i := 0; i+1 < len(t.rows); i++ {
					r, next := t.rows[i], t.rows[i+1]
					if r.file == noFile || r.addr == next.addr {
						continue
					}
					if !yield(Line{r.addr, next.addr, t.file(r.file), int(r.line)}) {
						return nil
					}
				}
			}
			return nil
		}))
	}
}
