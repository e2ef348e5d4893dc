package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// fakeBase is where the addresses of objects begin that the driver does not
// really load. Nothing there is ever read.
const fakeBase = 1 << 47

// fakeModule has the driver treat an object as loaded, with its eh_elfs.
func (s *session) fakeModule(path string) (int, error) {
	t, _, o, err := readTable(path)
	if err != nil {
		return 0, err
	}
	sec, err := o.Section(dwarfcfa.SourceAuto)
	if err != nil {
		return 0, err
	}
	i := len(s.Modules)
	m := module{Index: i, Bias: fakeBase + uint64(i)<<36, Path: path}
	m.Start, m.End = m.Bias+uint64(t.Low()), m.Bias+uint64(t.High())
	if _, err := s.command("fake %#x %#x %#x", m.Start, m.End, m.Bias); err != nil {
		return 0, err
	}
	s.Modules = append(s.Modules, m)
	s.tables.modules = s.Modules
	s.tables.table = append(s.tables.table, t)
	s.sections = append(s.sections, sec)
	s.objects = append(s.objects, o)
	return i, s.loadVariants(i, o, t, fmt.Sprintf("fake%d", i))
}

// randomResult is single steps at random pcs of one object.
type randomResult struct {
	object
	Samples map[string][]float64 // ns per step by round
	Absent  map[string]string
}

// randomSubjects are what takes single steps: the driver's words for it.
func randomSubjects() [][2]string {
	list := [][2]string{{"nothing", "nothing 0"}}
	for i, v := range variants() {
		list = append(list, [2]string{"walk1-" + v.Name, fmt.Sprintf("walk %d", i)})
		list = append(list, [2]string{"step-" + v.Name, fmt.Sprintf("step %d", i)})
	}
	return append(list, [2]string{"onetree", "onetree 0"}, [2]string{"original", "original 0"})
}

// measureRandom takes single steps at n uniformly random pcs of a module.
func (s *session) measureRandom(mi, n, rounds int) (r randomResult, err error) {
	m := s.Modules[mi]
	r.object, _ = readObject(m.Path)
	r.Samples, r.Absent = map[string][]float64{}, map[string]string{}
	p, err := newPicker(candidates(s.sections[mi], s.tables.table[mi]), true, 3)
	if err != nil {
		return r, err
	}
	path := filepath.Join(s.dir, fmt.Sprintf("random%d.bin", mi))
	if err := os.WriteFile(path, randomSteps(p, n), 0o666); err != nil {
		return r, err
	}
	rng := rand.New(rand.NewPCG(9, 9))
	list := randomSubjects()
	for range rounds {
		rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		for _, subject := range list {
			got, err := s.measure("random %s %d %s", subject[1], mi, path)
			if errors.Is(err, errRefused) {
				r.Absent[subject[0]] = err.Error()
				continue
			}
			if err != nil {
				return r, err
			}
			r.Samples[subject[0]] = append(r.Samples[subject[0]], got.perFrame())
		}
	}
	return r, nil
}

// randomSteps is the file of the driver's random command.
func randomSteps(p *picker, n int) []byte {
	b := make([]byte, 0, 24*n)
	for range n {
		pc, row := p.pick()
		rsp := uint64(4096 + 8*p.rng.IntN(64))
		rbp := rsp + 512
		if row.CFA.Reg == abi.RBP {
			rbp = rsp + uint64(-lowestSlot(row)) - uint64(row.CFA.Offset) + 8*uint64(p.rng.IntN(16))
		}
		for _, v := range []uint64{uint64(pc), rsp, rbp} {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	return b
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
