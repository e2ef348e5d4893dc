package main

import "fmt"

// agreement counts samples by how a contender's frames relate to those of the
// first.
type agreement struct {
	Same, Longer, Shorter, Other int
	First                        string `json:",omitempty"` // of the first sample that differs, with both lists
}

// compareFrames compares the pcs of two contenders, sample by sample. It leaves out what is no
// frame: a return address of zero at the end.
func compareFrames(ours, theirs [][]uint64) (a agreement) {
	for i := range ours {
		x, y := trim(ours[i]), []uint64(nil)
		if i < len(theirs) {
			y = trim(theirs[i])
		}
		k := 0
		for k < len(x) && k < len(y) && x[k] == y[k] { // frames from the innermost on that agree
			k++
		}
		switch {
		case k == len(x) && k == len(y):
			a.Same++
			continue
		case k == len(x):
			a.Longer++
		case k == len(y):
			a.Shorter++
		default:
			a.Other++
		}
		if a.First == "" {
			a.First = fmt.Sprintf("sample %d: %#x, ours %#x", i, y, x)
		}
	}
	return a
}

// trim drops zeros at the end, but leaves one pc.
func trim(pcs []uint64) []uint64 {
	for len(pcs) > 1 && pcs[len(pcs)-1] == 0 {
		pcs = pcs[:len(pcs)-1]
	}
	return pcs
}
