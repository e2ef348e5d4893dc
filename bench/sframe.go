package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/convert"
	"github.com/ehasm/ehasm/sframe"
)

// This file compares unwind tables of one object: .eh_frame, SFrame as stored, and eh_elfs made
// from both, by size and by speed over the same stacks.

// formatsResult compares the tables of one object with each other: their bytes, and ns per frame of
// the same stacks, hot, by round.
type formatsResult struct {
	object
	Lines []formatLine
}

// formatLine is a table and who walks by it.
type formatLine struct {
	What    string // of the table: sections, or code and data
	Bytes   int
	Samples []float64

	contender string                      // of the driver, or ""
	measure   func() (measurement, error) // runs one measurement
}

// SFrame variants of the driver follow the others: see walk_2 in driver/ehelf_contenders.c.
const sframeVariants = 2

// formatsBase is where the stacks lie, below those of growth.
const formatsBase = 0x0618_0000_0000

// measureFormats walks synthetic stacks of libc and libstdc++ by each of their tables.
func (s *session) measureFormats(rounds int) ([]formatsResult, error) {
	var list []formatsResult
	for i := range s.Modules {
		// Two objects that each program has: one of C, one of C++.
		base := filepath.Base(s.Modules[i].Path)
		if !strings.HasPrefix(base, "libc.so") && !strings.HasPrefix(base, "libstdc++.so") {
			continue
		}
		r, err := s.formats(i, fmt.Sprintf("formats%d", len(list)), uint64(formatsBase)+uint64(len(list))<<32)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", base, err)
		}
		list = append(list, *r)
	}
	rng := rand.New(rand.NewPCG(3, 9)) // fixed, so that runs are comparable
	for range rounds {
		for k := range list {
			// The order changes from round to round, so that none is always measured after the same
			// one.
			for _, i := range rng.Perm(len(list[k].Lines)) {
				l := &list[k].Lines[i]
				m, err := l.measure()
				if err != nil {
					return nil, fmt.Errorf("%s: %w", l.What, err)
				}
				l.Samples = append(l.Samples, m.perFrame())
			}
		}
	}
	return list, nil
}

// formats makes the tables of a module and stacks of it, and has each find what the stacks were made from.
func (s *session) formats(mi int, set string, base uint64) (*formatsResult, error) {
	path := s.Modules[mi].Path
	r := &formatsResult{}
	r.object, _ = readObject(path)
	t, rep, o, err := readTable(path)
	if err != nil {
		return nil, err
	}
	starts, err := o.FunctionStarts(dwarfcfa.SourceAuto)
	if err != nil {
		return nil, err
	}
	// Each version is written, and read by what walks with it.
	var stored []*sframe.Section
	var files []string
	for version := uint8(1); version <= 3; version++ {
		entries, _ := convert.ToSFrame(t, version, starts)
		// Version 3 is written with pc-relative starts.
		data, err := sframe.Encode(sframe.Options{Version: version, PCRel: version == 3}, entries)
		if err != nil {
			return nil, err
		}
		sec, err := sframe.Parse(0, data)
		if err != nil {
			return nil, err
		}
		file := filepath.Join(s.dir, fmt.Sprintf("%s-%d.sframe", set, version))
		if err := os.WriteFile(file, data, 0o666); err != nil {
			return nil, err
		}
		stored, files = append(stored, sec), append(files, file)
	}
	// Only rows that version 1 has, so that all walk the same stacks.
	made, err := s.formatStacks(mi, set, base, stored[0])
	if err != nil {
		return nil, err
	}
	// driver adds a line that the driver measures.
	driver := func(what, contender string, bytes int) {
		run := func() (measurement, error) { return s.measure("run %s %s hot", contender, set) }
		r.Lines = append(r.Lines, formatLine{What: what, Bytes: bytes, contender: contender, measure: run})
	}
	tables := int(r.EHFrame + r.Hdr)
	driver("`.eh_frame` and header, libunwind `unw_step`, global cache", "unw-step-global", tables)
	driver("the same, no cache", "unw-step-none", tables)
	if _, err := s.command("sframe %d 0 %s", mi, files[0]); err != nil {
		s.note("libsframe: %v", err)
	} else {
		driver("`.sframe` version 1 as stored, libsframe of binutils", "libsframe", stored[0].Size())
	}
	// The harness walks by SFrame itself, as a reader without code would.
	for i, sec := range stored {
		w := &storedWalk{sec, made, s.Modules[mi].Bias}
		if err := w.check(); err != nil {
			return nil, fmt.Errorf("version %d: %w", i+1, err)
		}
		r.Lines = append(r.Lines, formatLine{What: fmt.Sprintf("`.sframe` version %d as stored, package sframe (Go)", i+1),
			Bytes: sec.Size(), measure: w.measure})
	}
	if err := s.fromSFrame(mi, path, files[2], func(v variant, bytes [2]int) {
		driver("eh_elf from `.eh_frame`, "+v.Name, "walk-"+v.Name, bytes[0])
		// Bytes are of code and data.
		driver("eh_elf from `.sframe` version 3, "+v.Name, "walk-sframe-"+v.Name, bytes[1])
	}, t, rep, o); err != nil {
		return nil, err
	}
	return r, s.checkFormats(r, set)
}

// checkFormats compares what the driver's contenders find with what the stacks were made from.
func (s *session) checkFormats(r *formatsResult, set string) error {
	for _, l := range r.Lines {
		c := l.contender
		if c == "" {
			continue // the harness has checked its own
		}
		got, err := s.pcs(c, set)
		if err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
		for i := range got {
			if err := agree(got[i], s.want[set][i]); err != nil {
				return fmt.Errorf("%s, stack %d: %w", c, i, err)
			}
		}
	}
	return nil
}

// formatStacks makes 20 stacks of rows that version 1 of .sframe has, too.
func (s *session) formatStacks(mi int, set string, base uint64, first *sframe.Section) (*synthSet, error) {
	// Rows at whose first or last byte version 1 finds nothing are left out.
	rows := slices.DeleteFunc(candidates(s.sections[mi], s.tables.table[mi]), func(c candidate) bool {
		_, a, _ := first.Find(uint64(c.start))
		_, b, _ := first.Find(uint64(c.end - 1))
		return !a || !b
	})
	opt := synthOptions{Stacks: 20, Frames: 30, Base: base, ByByte: true, Seed: 77}
	return s.addSyntheticRows(set, mi, rows, opt)
}

// fromSFrame builds and loads the eh_elfs of an object with an added section, and hands over the
// bytes of those from .eh_frame and from .sframe.
func (s *session) fromSFrame(mi int, path, section string, each func(variant, [2]int), t *dwarfcfa.Table,
	rep *dwarfcfa.Report, o *dwarfcfa.File) error {
	with := section + ".so"
	// objcopy makes an object that has both sections.
	if out, err := exec.Command("objcopy", "--add-section", dwarfcfa.SFrameName+"="+section, path,
		with).CombinedOutput(); err != nil {
		return fmt.Errorf("objcopy: %w: %s", err, out)
	}
	wo, err := dwarfcfa.Open(with)
	if err != nil {
		return err
	}
	defer wo.Close()
	wt, wrep, err := dwarfcfa.BuildTable(wo, dwarfcfa.BuildOptions{Source: dwarfcfa.SourceSFrame})
	if err != nil {
		return err
	}
	for v, variant := range variants() {
		_, plain, err := compileTable(t, rep, o, variant, filepath.Base(path))
		if err != nil {
			return err
		}
		_, code, err := compileTable(wt, wrep, wo, variant, filepath.Base(path))
		if err != nil {
			return err
		}
		out := filepath.Join(s.dir, "eh_elfs", "sframe-"+variant.Name, filepath.Base(path)+abi.Suffix)
		if err := writeEhElf(wt, wrep, wo, variant, filepath.Base(path), out); err != nil {
			return err
		}
		// The driver loads it beside the eh_elfs from .eh_frame.
		if _, err := s.command("load %d %d %s", sframeVariants+v, mi, out); err != nil {
			return err
		}
		each(variant, [2]int{len(plain.Text) + len(plain.Data), len(code.Text) + len(code.Data)})
	}
	return nil
}

// storedWalk walks stacks by a section as it is stored.
type storedWalk struct {
	section *sframe.Section
	set     *synthSet
	bias    uint64
}

// one walks a stack, and returns the number of frames in pcs.
func (w *storedWalk) one(st *synthStack, pcs []uint64) int {
	pc, rsp, rbp := st.Regs.Reg[abi.RIP], st.Regs.Reg[abi.RSP], st.Regs.Reg[abi.RBP]
	n := 0
	for n < len(pcs) {
		row, ok, err := w.section.Find(pc - 1 - w.bias) // all frames are behind a call: the byte before the return address
		if !ok || err != nil || row.Outermost {
			break
		}
		// SFrame's CFA is on rsp or rbp.
		base := rsp
		if row.CFA.Reg == abi.RBP {
			base = rbp
		}
		cfa := base + uint64(int64(row.CFA.Offset))
		// A CFA that does not grow would never end.
		ra, ok := w.set.ReadWord(cfa + uint64(int64(row.RA.Offset)))
		if !ok || cfa <= rsp {
			break
		}
		if row.FP.Base == sframe.OnCFA {
			if rbp, ok = w.set.ReadWord(cfa + uint64(int64(row.FP.Offset))); !ok {
				break
			}
		}
		pcs[n] = ra
		n++
		pc, rsp = ra, cfa
	}
	return n
}

// check compares the frames of all stacks with what they were made from.
func (w *storedWalk) check() error {
	pcs := make([]uint64, 100)
	for i := range w.set.Stacks {
		st := &w.set.Stacks[i]
		if err := agree(pcs[:w.one(st, pcs)], st.Frames); err != nil {
			return fmt.Errorf("stack %d: %w", i, err)
		}
	}
	return nil
}

// measure walks each stack again and again, as the driver's hot mode does.
func (w *storedWalk) measure() (m measurement, err error) {
	const batches, batchNS = 5, 20000
	pcs := make([]uint64, 100)
	for i := range w.set.Stacks {
		st := &w.set.Stacks[i]
		m.Frames += uint64(w.one(st, pcs))
		m.NS += timeBatches(batches, batchNS, func() { w.one(st, pcs) })
	}
	// The median of batches, as in the driver.
	return m, nil
}

// formatsText writes the part about the tables of one object.
func (r *results) formatsText(b *strings.Builder) {
	if len(r.Formats) == 0 {
		return
	}
	b.WriteString("\n## Tables of one object\n\nCode and data of eh_elfs, without what exceptions need. The steps are those of the same 20 synthetic stacks of 30 frames, " +
		"whose pcs are uniform over the object's code, each walked again and again; nanoseconds per frame. " +
		"`.sframe` is what `ehasm convert` makes: no library here comes with one.\n")
	for _, f := range r.Formats {
		fmt.Fprintf(b, "\n%s:\n\n| | bytes | over .eh_frame + hdr | hot step, ns |\n| --- | --- | --- | --- |\n", f.Path)
		for _, l := range f.Lines {
			fmt.Fprintf(b, "| %s | %d | %.3f | %v |\n", l.What, l.Bytes, float64(l.Bytes)/float64(f.EHFrame+f.Hdr),
				newSpread(l.Samples))
		}
	}
}
