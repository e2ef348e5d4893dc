package check

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/codeflow"
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// This file mends tables at their source: it makes patches that add and remove .cfi directives in assembly. A patch is
// made only if the source is understood exactly. The directives in the text must make the rows that the table has now,
// at every instruction; then the same model, with changes, tells which rows the mended text will make. Everything else,
// such as a macro that holds a push, is refused with the reason.

// Patch is a change of the directives in a source of assembly.
type Patch struct {
	Start  uint64 // address of the function
	Name   string
	File   string
	Before map[int][]string // by line, from 1: lines to add before it
	Drop   map[int]bool     // lines to remove
	Err    error            // why the function is not mended; the rest is empty then
}

// Fix is what patches are made from, and the patches.
type Fix struct {
	// Line returns the source's file and line of an instruction; 0 if they are not known.
	Line func(pc uint64) (file string, line int)
	// Read returns the lines of a source of assembly.
	Read    func(file string) ([]string, error)
	Patches []Patch
}

// fixStep is an instruction of a function whose table is to be mended.
type fixStep struct {
	pc       uint64
	size     int // bytes
	line     int
	mnemonic string
	state    codeflow.State
	row      dwarfcfa.Row // what the table says now
}

// fix makes the patch of one function.
func (s *Subject) fix(p *codeflow.Program, i int, from *Fix) (patch Patch) {
	fn := &s.Functions[i]
	patch = Patch{Start: fn.Lo}
	if sym, ok := s.Image.Symbol(fn.Lo); ok {
		patch.Name = sym.Name
	}
	if fde := s.FDEs[i]; uint64(fde.Start) != fn.Lo || uint64(fde.End) != fn.Hi {
		patch.Err = errors.New("another function begins inside it")
		return patch
	}
	p.Again(i, s.newRows(), func(r *codeflow.Result) {
		c := &function{s: s, rows: r.Beginner().(*rows), r: r, i: i}
		var steps []fixStep
		if patch.File, steps, patch.Err = c.steps(from); patch.Err != nil {
			return
		}
		text, err := from.Read(patch.File)
		if err != nil {
			patch.Err = err
			return
		}
		m := mender{c: c, text: text, patch: &patch}
		patch.Err = m.mend(steps)
	})
	if patch.Err != nil {
		patch.Before, patch.Drop = nil, nil
	}
	return patch
}

// errUncertain also covers functions that begin from a row: the row itself is in question.
var errUncertain = errors.New("its code is not followed wholly")

// steps returns the function's instructions, apart from padding, if it is certain what each of them does and in which
// line of which source it is. The error says which of these fails, for the user.
func (c *function) steps(from *Fix) (file string, steps []fixStep, err error) {
	n, _ := c.gaps()
	if c.rows.load(c.i); c.rows.err != nil || c.r.Func().Signal || c.r.TooLarge() || n > 0 {
		return "", nil, errUncertain
	}
	c.r.Each(func(pc uint64, in *x86.Inst, s *codeflow.State, basis codeflow.Basis) {
		if err != nil || isFiller(in) {
			return
		}
		row := c.rows.at(pc)
		name, line := from.Line(pc)
		switch {
		case basis != codeflow.FromEntry || row == nil:
			err = errUncertain
		case in.Op == x86.OpRET && s.Regs[x86.RSP] != codeflow.Initial().Regs[x86.RSP]:
			err = fmt.Errorf("at %#x it returns with rsp elsewhere than at the return address", pc)
		case file != "" && name != file:
			err = fmt.Errorf("it comes from several files, %s and %s", file, name)
		// Directives before an instruction are those in the lines above it, which holds only while lines ascend.
		case len(steps) > 0 && line < steps[len(steps)-1].line:
			err = fmt.Errorf("line %d comes after line %d: a macro or another section", line, steps[len(steps)-1].line)
		default:
			file = name // "" only of the first one, if the source has it as bytes
			steps = append(steps, fixStep{pc, int(in.Len), line, in.Mnemonic(), *s, row.Row})
		}
	})
	if err == nil && len(steps) == 0 {
		err = errUncertain
	}
	return file, steps, err
}

// isFiller reports whether an instruction fills a gap and is not run, so that its row does not count.
func isFiller(in *x86.Inst) bool { return codeflow.IsPadding(in) && in.Op != x86.OpNOP }

// mender goes through the source of a function with two rows: the one that its directives make now, which shows that
// they are understood, and the one that the mended directives make.
type mender struct {
	c          *function
	text       []string
	patch      *Patch
	now, fresh cfiState
}

// mend finds the lines to add and to remove. Each step first follows the text as it is, then mends.
func (m *mender) mend(steps []fixStep) error {
	m.patch.Before, m.patch.Drop = map[int][]string{}, map[int]bool{}
	m.now, m.fresh = newCFIState(), newCFIState()
	m.data(steps)
	line := m.start(steps[0].line)
	for k := range steps {
		s := &steps[k]
		if s.line < 1 || s.line > len(m.text) {
			return fmt.Errorf("the source has no line %d, for the instruction at %#x", s.line, s.pc)
		}
		if text := m.text[s.line-1]; bytesIn(text) != s.size && !hasInstruction(text, s.mnemonic) {
			return fmt.Errorf("line %d is not the instruction at %#x, %s: a macro, or another source", s.line, s.pc, s.mnemonic)
		}
		group, err := m.directives(line, s.line)
		if err != nil {
			return err
		}
		for _, d := range group {
			if err := m.now.apply(d); err != nil {
				return fmt.Errorf("line %d: %w", d.line, err)
			}
		}
		if !sameRow(&m.now.row, &s.row) {
			return fmt.Errorf("line %d: its directives are not those of the table there: macros, or another source", s.line)
		}
		if err := m.settle(s, group, k > 0 && s.line <= line); err != nil {
			return err
		}
		line = max(line, s.line)
	}
	return nil
}

// data gives instructions that the source has as bytes, such as .byte 0xf3,0xc3 (rep ret, which OpenSSL's perlasm
// emits), the lines of these. The assembler gives line numbers to instructions only, so that each has the line of the
// instruction before it.
func (m *mender) data(steps []fixStep) {
	find := func(line, step, size int) int {
		for n := line + step; n >= 1 && n <= len(m.text); n += step {
			if bytesIn(m.text[n-1]) == size {
				return n
			}
			if bytesIn(m.text[n-1]) > 0 || kindOfLine(m.text[n-1]) != lineOther {
				break
			}
		}
		return 0
	}
	for k := 1; k < len(steps); k++ {
		if s, last := &steps[k], &steps[k-1]; s.line == last.line || k > 1 && s.line < last.line {
			if n := find(last.line, 1, s.size); n > 0 {
				s.line = n
			}
		}
	}
	if len(steps) > 1 {
		if n := find(steps[1].line, -1, steps[0].size); n > 0 {
			steps[0].line = n
		}
	}
}

// start returns the line after which the directives before the function's first instruction, in the given line, begin.
// It is 0 if the text has none of them.
func (m *mender) start(line int) int {
	for k := line - 1; k >= 1 && k <= len(m.text); k-- {
		switch kindOfLine(m.text[k-1]) {
		case lineStart, lineCode:
			return k
		}
	}
	return 0
}

// directives returns the directives in the lines between two instructions. If both are in one line, there are none.
func (m *mender) directives(from, to int) (ds []cfiDirective, err error) {
	for n := from + 1; n < to; n++ {
		more, err := parseCFI(m.text[n-1])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		for _, d := range more {
			d.line = n
			ds = append(ds, d)
		}
	}
	return ds, nil
}

// settle makes the row right at an instruction. within says that its line has begun with another instruction.
func (m *mender) settle(s *fixStep, group []cfiDirective, within bool) error {
	next, ws, err := m.keep(s, group)
	if err != nil {
		return err
	}
	// Each round mends one rule. There are at most as many as columns, so a directive that mends nothing ends the loop.
	for range next.row.Regs {
		if len(ws) == 0 {
			m.fresh = next
			return nil
		}
		w := &ws[0]
		text := directive(w, &next.row, &s.state)
		switch {
		case within:
			return fmt.Errorf("line %d has several instructions", s.line)
		case inComment(m.text[:s.line-1]):
			return fmt.Errorf("line %d begins within a comment", s.line)
		case text == "", w.class != "", w.kind != KindCFA && s.state.Saved(w.reg).Kind == codeflow.Lost:
			return fmt.Errorf("line %d: no directive is certain", s.line)
		}
		add, err := parseCFI(text)
		if err != nil {
			return err
		}
		if err := next.apply(add[0]); err != nil {
			return err
		}
		m.patch.Before[s.line] = append(m.patch.Before[s.line], indent(m.text[s.line-1])+text)
		if ws, err = m.judge(s, &next.row); err != nil {
			return err
		}
	}
	return fmt.Errorf("line %d: no directive is certain", s.line)
}

// keep applies the directives before an instruction, without those that state what is wrong there. It returns what is
// wrong nevertheless. Dropping one directive may make another one wrong, such as an adjust_cfa_offset, so it repeats
// until no more are dropped.
func (m *mender) keep(s *fixStep, group []cfiDirective) (next cfiState, ws []wrong, err error) {
	drop := map[string]bool{}
	for more := true; more; {
		next, more = m.fresh.clone(), false
		for _, d := range group {
			if drop[d.about] {
				continue
			}
			if err := next.apply(d); err != nil {
				return next, nil, fmt.Errorf("line %d: %w", d.line, err)
			}
		}
		if ws, err = m.judge(s, &next.row); err != nil {
			return next, nil, err
		}
		for k := range ws {
			about := ws[k].about()
			stated := slices.ContainsFunc(group, func(d cfiDirective) bool { return d.about == about })
			if stated && !drop[about] {
				drop[about], more = true, true
			}
		}
	}
	for _, d := range group {
		if !drop[d.about] {
			continue
		}
		if !onlyDirective(m.text[d.line-1]) {
			return next, nil, fmt.Errorf("line %d has more than the directive that is wrong", d.line)
		}
		m.patch.Drop[d.line] = true
	}
	return next, ws, nil
}

// judge compares a row with what the code did before an instruction.
func (m *mender) judge(s *fixStep, row *dwarfcfa.Row) ([]wrong, error) {
	ws, why := m.c.judge(s.pc, row, &s.state, nil)
	if why != "" {
		return nil, fmt.Errorf("line %d: %s", s.line, why)
	}
	return ws, nil
}

// about says what a mismatch is about, as cfiDirective.about does.
func (w *wrong) about() string {
	if w.kind == KindCFA {
		return aboutCFA
	}
	return regName(w.reg)
}

// fixes makes patches for the functions with errors and warnings. Notes are left alone: they rest on assumptions, and
// the row may be right.
func (s *Subject) fixes(p *codeflow.Program, fs []Finding, from *Fix) (out []Patch) {
	done := map[uint64]bool{}
	byStart := map[uint64]int{}
	for i := range s.Functions {
		byStart[s.Functions[i].Lo] = i
	}
	for k := range fs {
		if f := &fs[k]; f.Severity != SeverityNote && !done[f.Start] {
			done[f.Start] = true
			out = append(out, s.fix(p, byStart[f.Start], from))
		}
	}
	return out
}
