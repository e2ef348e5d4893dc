package main

import (
	"fmt"

	"github.com/ehasm/ehasm/dwarfcfa"
)

// fakeBase is where the addresses of objects begin that the driver does not
// really load. Nothing there is ever read.
const fakeBase = 1 << 47

// fakeModule has the driver treat an object as loaded, with its eh_elfs.
// The object is not mapped: the driver only knows its addresses.
func (s *session) fakeModule(path string) (int, error) {
	t, r, o, err := readTable(path)
	if err != nil {
		return 0, err
	}
	sec, err := o.Section(dwarfcfa.SourceAuto)
	if err != nil {
		return 0, err
	}
	i := len(s.Modules)
	m := module{Index: i, Bias: fakeBase + uint64(i)<<36, Path: path} // 64 GB for each
	m.Start, m.End = m.Bias+uint64(t.Low()), m.Bias+uint64(t.High())
	if _, err := s.command("fake %#x %#x %#x", m.Start, m.End, m.Bias); err != nil {
		return 0, err
	}
	s.Modules = append(s.Modules, m)
	s.tables.modules = s.Modules
	s.tables.table = append(s.tables.table, t)
	s.sections = append(s.sections, sec)
	return i, s.loadVariants(i, o, t, r, fmt.Sprintf("fake%d", i))
}

// growthResult is hot walks over synthetic stacks of one object.
type growthResult struct {
	object
	Samples map[string][]float64 // ns per step by contender and round
}

// measureGrowth walks synthetic stacks of each object hot, the objects in turn
// within a round.
func (s *session) measureGrowth(modules []int, rounds int) ([]growthResult, error) {
	var list []growthResult
	// Stacks of each object first, then rounds over all objects.
	for k, mi := range modules {
		r := growthResult{Samples: map[string][]float64{}}
		r.object, _ = readObject(s.Modules[mi].Path)
		list = append(list, r)
		base := uint64(growthBase) + uint64(k)<<32
		opt := synthOptions{Stacks: 20, Frames: 30, Base: base, ByByte: true, Seed: uint64(10 + k)}
		if err := s.addSynthetic(fmt.Sprintf("growth%d", k), mi, opt); err != nil {
			return nil, err
		}
	}
	for range rounds {
		for k := range modules {
			// Both variants of an object, one after the other.
			for _, v := range variants() {
				m, err := s.measure("run walk-%s growth%d hot", v.Name, k)
				if err != nil {
					return nil, err
				}
				list[k].Samples[v.Name] = append(list[k].Samples[v.Name], m.perFrame())
			}
		}
	}
	return list, nil
}
