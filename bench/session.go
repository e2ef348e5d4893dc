package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// session is a running driver with everything loaded that contenders need.
type session struct {
	*driver
	dir       string // bench/out
	tables    tables
	sections  []*dwarfcfa.Section // by module
	snapshots []snapshot
	frames    [][]frame            // of each real stack, by the reference evaluator
	want      map[string][][]frame // by set
	sets      map[string][]int     // sets of real stacks
	notes     []string             // what was left out, and why
	fast      int                  // module with the synthetic stacks: libc
}

// note adds a line to what the report says was left out.
func (s *session) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// openSession starts the driver and loads eh_elfs of all its modules.
func openSession(dir string, wrapper []string) (*session, error) {
	lib := filepath.Join(dir, "lib")
	d, err := startDriver(wrapper, filepath.Join(dir, "driver"), filepath.Join(dir, "plugin.so"), lib,
		filepath.Join(lib, "llvm-libunwind.so"))
	if err != nil {
		return nil, err
	}
	s := &session{driver: d, dir: dir, want: map[string][][]frame{}, sets: map[string][]int{}, fast: -1}
	for _, l := range d.Skipped {
		s.note("%s", l)
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	if err := s.reference(); err != nil {
		return nil, err
	}
	return s, s.makeSets()
}

// load compiles and loads the eh_elfs.
func (s *session) load() error {
	s.tables = tables{modules: s.Modules, table: make([]*dwarfcfa.Table, len(s.Modules))}
	s.sections = make([]*dwarfcfa.Section, len(s.Modules))
	for i := range s.Modules {
		m := &s.Modules[i]
		if m.Path == "/proc/self/exe" {
			m.Path = filepath.Join(s.dir, "driver")
		}
		t, r, o, err := readTable(m.Path)
		if errors.Is(err, fs.ErrNotExist) {
			s.note("no eh_elf for %s: it is not a file", m.Path)
			continue
		}
		if err != nil {
			return err
		}
		s.tables.table[i] = t
		if s.sections[i], err = o.Section(dwarfcfa.SourceAuto); err != nil {
			return err
		}
		base := filepath.Base(m.Path)
		if strings.HasPrefix(base, "libc.so") {
			s.fast = i
		}
		if err := s.loadVariants(i, o, t, r, base); err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
	}
	if s.fast < 0 { // synthetic stacks are made of libc's rows
		return errors.New("the driver has no libc")
	}
	_, err := s.command("ehunwind %s", filepath.Join(s.dir, "eh_elfs", variants()[0].Name))
	return err
}

// loadVariants writes and loads the eh_elfs of a module.
func (s *session) loadVariants(i int, o *dwarfcfa.File, t *dwarfcfa.Table, r *dwarfcfa.Report, base string) error {
	for v, variant := range variants() {
		path := filepath.Join(s.dir, "eh_elfs", variant.Name, base+abi.Suffix)
		if err := writeEhElf(t, r, o, variant, base, path); err != nil {
			return err
		}
		if _, err := s.command("load %d %d %s", v, i, path); err != nil {
			return err
		}
	}
	if earlier() == "" {
		return nil
	}
	path, err := writeEarlier(s.Modules[i].Path, filepath.Join(s.dir, "eh_elfs", "earlier"))
	if err == nil {
		_, err = s.command("load %d %d %s", earlierIndex, i, path)
	}
	return err
}

// reference evaluates the real stacks and tells the driver their shapes.
func (s *session) reference() error {
	path := filepath.Join(s.dir, "stacks.bin")
	if _, err := s.command("dump %s", path); err != nil {
		return err
	}
	var err error
	if s.snapshots, err = readDump(path, s.Stacks); err != nil {
		return err
	}
	for i := range s.snapshots {
		frames, status := s.tables.walk(&s.snapshots[i])
		if status != abi.StatusOutermost {
			return fmt.Errorf("stack %d (%s): the reference stops after %d frames: %v", i, s.Stacks[i].Kind, len(frames), status)
		}
		s.frames = append(s.frames, frames)
		var b strings.Builder
		for _, f := range frames {
			fmt.Fprintf(&b, " %x %x", f.CFA, f.PC)
		}
		if _, err := s.command("chain %d%s", i, b.String()); err != nil {
			return err
		}
	}
	return nil
}

// makeSets groups the real stacks.
//
//	all     every stack
//	turn8   8 and
//	turn20  20 stacks spread over all kinds, to be walked in turn
func (s *session) makeSets() error {
	var all []int
	for i := range s.Stacks {
		all = append(all, i)
	}
	for name, ids := range map[string][]int{
		"all": all, "turn8": spread(all, 8), "turn20": spread(all, 20),
	} {
		if err := s.sendSet(name, ids); err != nil {
			return err
		}
		s.sets[name] = ids
		for _, id := range ids {
			s.want[name] = append(s.want[name], s.frames[id])
		}
	}
	return nil
}

// spread picks n of ids at even distances.
func spread(ids []int, n int) []int {
	if len(ids) <= n {
		return ids
	}
	var picked []int
	for i := range n {
		picked = append(picked, ids[i*len(ids)/n])
	}
	return picked
}

// addSynthetic makes synthetic stacks from a module and sends them as a set.
func (s *session) addSynthetic(name string, mi int, opt synthOptions) error {
	_, err := s.addSyntheticRows(name, mi, candidates(s.sections[mi], s.tables.table[mi]), opt)
	return err
}

// addSyntheticRows makes them from some rows of the module.
func (s *session) addSyntheticRows(name string, mi int, rows []candidate, opt synthOptions) (*synthSet, error) {
	m := s.Modules[mi]
	opt.Bias = m.Bias
	bottom := s.snapshots[0]
	frames, _ := s.tables.walk(&bottom)
	opt.Bottom = frames[len(frames)-1].PC
	set, err := synthesize(rows, opt)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	path := filepath.Join(s.dir, name+".synth")
	if err := os.WriteFile(path, set.encode(), 0o666); err != nil {
		return nil, err
	}
	if _, err := s.command("synth %s %s", name, path); err != nil {
		return nil, err
	}
	for _, st := range set.Stacks {
		s.want[name] = append(s.want[name], st.Frames)
	}
	return set, nil
}
