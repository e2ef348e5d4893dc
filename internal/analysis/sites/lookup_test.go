package sites

import "slices"

// Lookup returns the site of a frame whose lookup pc is pc. f is nil if an
// unwinder passes over the frame because no function holds pc.
func (t *Table) Lookup(pc Addr) (f *Function, s Site) {
	i, _ := slices.BinarySearchFunc(t.Functions, pc, func(f Function, pc Addr) int {
		if f.End <= pc {
			return -1
		}
		return 1
	})
	if i == len(t.Functions) || pc < t.Functions[i].Start {
		return nil, Site{Kind: Skip}
	}
	f = &t.Functions[i]
	if f.Personality < 0 {
		return f, Site{Start: f.Start, End: f.End, Kind: HandOver}
	}
	for _, s := range f.Sites {
		if pc >= s.Start && pc < s.End {
			return f, s
		}
	}
	return f, Site{Kind: Ask}
}
