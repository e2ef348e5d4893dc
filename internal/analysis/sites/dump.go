package sites

import (
	"bufio"
	"fmt"
	"io"
	"iter"
)

// FunctionInfo is a Function for printing as JSON.
// Hexadecimal, as all addresses here; End is exclusive.
type FunctionInfo struct {
	Start       string     `json:"start"`
	End         string     `json:"end"`
	Personality string     `json:"personality,omitempty"` // "": none
	LSDA        string     `json:"lsda,omitempty"`
	Sites       []SiteInfo `json:"sites"`
}

// SiteInfo is a Site for printing as JSON.
type SiteInfo struct {
	Start string `json:"start"`
	End   string `json:"end"`
	Kind  string `json:"kind"`           // kind in words
	Pad   string `json:"pad,omitempty"`  // of sites that have one
	Args  uint64 `json:"args,omitempty"` // bytes
}

// hex is an address as JSON and dumps have it.
func hex(a Addr) string { return fmt.Sprintf("%#x", uint64(a)) }

// personality names a function's personality routine.
func (t *Table) personality(f *Function) string {
	switch p := f.Personality; {
	case p < 0:
		return ""
	case t.Personalities[p].Indirect:
		return "*" + hex(t.Personalities[p].Addr)
	default:
		return hex(t.Personalities[p].Addr)
	}
}

// Describe returns the functions; with a pc, only the one that holds it.
func (t *Table) Describe(pc *Addr) iter.Seq[FunctionInfo] {
	return func(yield func(FunctionInfo) bool) {
		for i := range t.Functions {
			f := &t.Functions[i]
			if pc != nil && (*pc < f.Start || *pc >= f.End) {
				continue
			}
			info := FunctionInfo{Start: hex(f.Start), End: hex(f.End), Personality: t.personality(f), Sites: []SiteInfo{}}
			if f.LSDA != 0 {
				info.LSDA = hex(f.LSDA)
			}
			// A function whose routine cannot be called has no sites: all of it is handed over.
			if f.Personality < 0 {
				info.Sites = append(info.Sites, SiteInfo{Start: info.Start, End: info.End, Kind: HandOver.String()})
			}
			for _, s := range f.Sites {
				si := SiteInfo{Start: hex(s.Start), End: hex(s.End), Kind: s.Kind.String(), Args: s.Args}
				if s.Kind.HasPad() {
					si.Pad = hex(s.Pad)
				}
				info.Sites = append(info.Sites, si)
			}
			if !yield(info) {
				return
			}
		}
	}
}

// Dump writes the functions with their sites; with a pc, only the one that holds
// it.
func (t *Table) Dump(w io.Writer, pc *Addr) error {
	b := bufio.NewWriter(w)
	for f := range t.Describe(pc) {
		fmt.Fprintf(b, "%s..%s", f.Start, f.End)
		if f.LSDA != "" {
			fmt.Fprintf(b, " lsda %s", f.LSDA)
		}
		if f.Personality != "" {
			fmt.Fprintf(b, " personality %s", f.Personality)
		}
		b.WriteByte('\n')
		for _, s := range f.Sites {
			fmt.Fprintf(b, "  %s..%s %s", s.Start, s.End, s.Kind)
			if s.Pad != "" {
				fmt.Fprintf(b, " pad %s", s.Pad)
			}
			if s.Args != 0 {
				fmt.Fprintf(b, " args %d", s.Args)
			}
			b.WriteByte('\n')
		}
	}
	return b.Flush()
}
