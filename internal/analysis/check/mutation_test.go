package check

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/codeflow"
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// change is a way to make a row wrong.
type change int

const (
	cfaMoved    change = iota // the CFA's offset, by 8
	cfaRegister               // the CFA's register
	slotMoved                 // the place of a saved register, by 8
	ruleDropped               // a saved register, now said to be unchanged
	borderMoved               // the beginning of a row, by an instruction
	rowRemoved                // the row before holds on, or the one after begins early
	changes
)

func (c change) String() string {
	return [...]string{"CFA offset +-8", "CFA register", "slot moved", "rule dropped", "border moved", "row removed"}[c]
}

// mutator changes rows of a subject, one at a time, and asks the checker.
type mutator struct {
	s     *Subject
	p     *codeflow.Program
	rows  *rows
	first []int // rows before function i's
}

func newMutator(t *testing.T, path string) *mutator {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	s, err := Open(path, f, info.Size())
	require.NoError(t, err)
	m := &mutator{s: s, rows: s.newRows(), first: []int{0}}
	m.p = codeflow.New(s.Image, s.Functions, codeflow.Options{Begin: func() codeflow.Beginner { return s.newRows() }})
	m.p.Run(nil)
	for i := range s.Functions {
		m.rows.load(i)
		n := len(m.rows.rows)
		if m.rows.err != nil || s.Functions[i].Signal {
			n = 0
		}
		m.first = append(m.first, m.first[i]+n)
	}
	return m
}

// answer is what the table says before an instruction, and what the analysis makes of it.
type answer struct {
	row   dwarfcfa.Row
	basis codeflow.Basis
	why   string // not judged
	right bool
	state codeflow.State
	// writes are the registers that the instruction writes
	writes uint16
}

// look checks function i with rows, or with its own if they are nil.
func (m *mutator) look(i int, changed []dwarfcfa.RawRow) (findings []Finding, answers map[uint64]answer) {
	r := &rows{s: m.s, interp: m.rows.interp, i: -1, instead: changed, insteadOf: i}
	answers = map[uint64]answer{}
	m.p.Again(i, r, func(res *codeflow.Result) {
		c := &function{s: m.s, rows: r, r: res, i: i}
		c.compare()
		findings = c.rep.findings
		r.load(i)
		res.Each(func(pc uint64, in *x86.Inst, s *codeflow.State, basis codeflow.Basis) {
			row := r.at(pc)
			if row == nil || codeflow.IsPadding(in) {
				return
			}
			ws, why := c.judge(pc, &row.Row, s, nil)
			if basis == codeflow.Guessed {
				why = ReasonGuess
			}
			answers[pc] = answer{meaning(row.Row), basis, why, len(ws) == 0 && why == "", *s, in.Writes}
		})
		// the rest, in the order of the bytes
		fn := res.Func()
		code := m.s.Image.Code(fn.Lo)
		var in x86.Inst
		for pc := fn.Lo; pc < fn.Hi && pc-fn.Lo < uint64(len(code)); {
			if q := res.Inst(pc); q != nil {
				pc += uint64(q.Len)
				continue
			}
			if x86.Decode(code[pc-fn.Lo:], &in) != nil {
				pc++
				continue
			}
			if row := r.at(pc); row != nil && !codeflow.IsPadding(&in) {
				answers[pc] = answer{row: meaning(row.Row), why: ReasonUnreached, writes: in.Writes}
			}
			pc += uint64(in.Len)
		}
	})
	return findings, answers
}

// meaning makes rows that answer alike equal: a column without a rule is unchanged.
func meaning(r dwarfcfa.Row) dwarfcfa.Row {
	for d := range r.Regs {
		if r.Regs[d].Kind == dwarfcfa.RuleUnspecified {
			r.Regs[d].Kind = dwarfcfa.RuleSameValue
		}
	}
	return r
}

// draw picks a row and a change of it. Rows that a kind of change does not fit are drawn again.
func (m *mutator) draw(rnd *rand.Rand) (i int, what change, out []dwarfcfa.RawRow) {
	for {
		n := rnd.IntN(m.first[len(m.first)-1])
		i = sort.SearchInts(m.first, n+1) - 1
		m.rows.load(i)
		out = slices.Clone(m.rows.rows)
		what = change(rnd.IntN(int(changes)))
		if m.apply(rnd, what, n-m.first[i], &out) {
			return i, what, out
		}
	}
}

func (m *mutator) apply(rnd *rand.Rand, what change, k int, rows *[]dwarfcfa.RawRow) bool {
	row := &(*rows)[k]
	eight := int64(8 - 16*rnd.IntN(2))
	saved := func(also ...int) *dwarfcfa.RegRule {
		var cols []int
		for _, d := range append([]int{3, 6, 12, 13, 14, 15}, also...) {
			if row.Row.Regs[d].Kind == dwarfcfa.RuleOffset {
				cols = append(cols, d)
			}
		}
		if len(cols) == 0 {
			return nil
		}
		return &row.Row.Regs[cols[rnd.IntN(len(cols))]]
	}
	switch what {
	case cfaMoved:
		row.Row.CFA.Offset += eight
		return row.Row.CFA.Kind == dwarfcfa.CFARegOffset
	case cfaRegister:
		row.Row.CFA.Reg = (row.Row.CFA.Reg + 1 + uint16(rnd.IntN(15))) % 16
		return row.Row.CFA.Kind == dwarfcfa.CFARegOffset
	case slotMoved:
		r := saved(16)
		if r == nil {
			return false
		}
		r.Offset += eight
	case ruleDropped:
		r := saved()
		if r == nil {
			return false
		}
		*r = dwarfcfa.RegRule{}
	case borderMoved:
		return k > 0 && m.moveBorder(rnd, k, rows)
	case rowRemoved:
		if len(*rows) < 2 {
			return false
		}
		if k > 0 {
			(*rows)[k-1].End = row.End
		} else {
			(*rows)[1].Start = row.Start
		}
		*rows = slices.Delete(*rows, k, k+1)
	}
	return true
}

// moveBorder moves the border before row k to the instruction after it or before it.
func (m *mutator) moveBorder(rnd *rand.Rand, k int, rows *[]dwarfcfa.RawRow) bool {
	before, row := &(*rows)[k-1], &(*rows)[k]
	step := dwarfcfa.Addr(1)
	if rnd.IntN(2) == 0 {
		step = ^dwarfcfa.Addr(0)
	}
	to := row.Start + step
	for to > before.Start && to < row.End && !m.p.IsBoundary(uint64(to)) {
		to += step
	}
	before.End, row.Start = to, to
	switch {
	case to >= row.End:
		before.End = row.End
		*rows = slices.Delete(*rows, k, k+1)
	case to <= before.Start:
		row.Start = before.Start
		*rows = slices.Delete(*rows, k-1, k)
	}
	return true
}

// Outcomes of a change. The first four do not count.
const (
	outcomeNowhere = "no instruction with another answer"
	// A register said to be saved, or to be unchanged, is both: no instruction at a lower address
	// of the function writes it. This needs the decoder, not the analysis.
	outcomeUnwritten = "register not written yet"
	// Both rows are right, as the analysis has it: a register written between, and given back.
	outcomeSame    = "other rules, same values"
	outcomeWrong   = "the row was wrong before"
	outcomeAssumed = "begun from the row itself"
	outcomeFound   = "found"
)

// try says what the checker makes of rows of function i.
func (m *mutator) try(i int, changed []dwarfcfa.RawRow) (outcome string, sev Severity) {
	base, was := m.look(i, nil)
	found, is := m.look(i, changed)
	var altered []uint64
	for pc, a := range was {
		if b, ok := is[pc]; !ok || a.row != b.row {
			altered = append(altered, pc)
		}
	}
	if len(altered) == 0 {
		return outcomeNowhere, ""
	}
	for _, f := range found {
		if !slices.Contains(base, f) && f.Kind != KindBorder {
			if sev == "" || f.Severity == SeverityError || f.Severity == SeverityWarning && sev == SeverityNote {
				sev = f.Severity
			}
		}
	}
	if sev != "" {
		return outcomeFound, sev
	}
	reason := outcomeUnwritten
	slices.Sort(altered)
	begin, ok := was[m.s.Functions[i].Lo]
	if !ok || !begin.state.IsInitial() {
		reason = outcomeSame
	}
	var first [16]uint64 // address of the first instruction that writes a register
	for h := range first {
		first[h] = ^uint64(0)
		for pc, a := range was {
			if a.writes>>h&1 != 0 {
				first[h] = min(first[h], pc)
			}
		}
	}
	for _, pc := range altered {
		a, b := was[pc], is[pc]
		switch {
		case b.why != "":
			return "not judged: " + b.why, ""
		case a.basis == codeflow.FromEntry && b.basis == codeflow.FromEntry && a.right && b.right:
			if !unwritten(&a.row, &b.row, pc, &first) && reason == outcomeUnwritten {
				reason = outcomeSame
			}
		case !a.right && a.why == "":
			reason = outcomeWrong
		case a.right && b.right && a.basis == codeflow.Assumed && b.basis == codeflow.Assumed && a.state == b.state:
			// the state comes from another row
			if reason == outcomeUnwritten {
				reason = outcomeSame
			}
		default:
			return outcomeAssumed, ""
		}
	}
	return reason, ""
}

// unwritten reports whether the rows differ only in registers that nothing before pc writes.
func unwritten(a, b *dwarfcfa.Row, pc uint64, first *[16]uint64) bool {
	for d := range a.Regs {
		if a.Regs[d] != b.Regs[d] && (d > 15 || first[hardware[d]] < pc) {
			return false
		}
	}
	return a.CFA == b.CFA
}

// counts reports whether an outcome is of a change that makes a true row wrong.
func counts(outcome string) bool {
	switch outcome {
	case outcomeNowhere, outcomeUnwritten, outcomeSame, outcomeWrong:
		return false
	}
	return true
}

// tally counts outcomes by kind of change.
type tally struct {
	outcomes [changes]map[string]int
	severity map[Severity]int
	missed   []string
}

func (t *tally) sum(outcome string) (n int) {
	for k := range t.outcomes {
		n += t.outcomes[k][outcome]
	}
	return n
}

// mutate tries n changes drawn from a seed.
func mutate(t *testing.T, path string, n int, seed uint64) *tally {
	m := newMutator(t, path)
	rnd := rand.New(rand.NewPCG(seed, 0))
	out := &tally{severity: map[Severity]int{}}
	for k := range out.outcomes {
		out.outcomes[k] = map[string]int{}
	}
	for range n {
		i, what, changed := m.draw(rnd)
		outcome, sev := m.try(i, changed)
		out.outcomes[what][outcome]++
		switch {
		case outcome == outcomeFound:
			out.severity[sev]++
		case counts(outcome):
			m.rows.load(i)
			addr := m.s.Functions[i].Lo
			for k := range changed {
				if k >= len(m.rows.rows) || changed[k] != m.rows.rows[k] {
					addr = uint64(changed[k].Start)
					break
				}
			}
			out.missed = append(out.missed, fmt.Sprintf("%v of function %#x near %#x: %s", what, m.s.Functions[i].Lo,
				addr, outcome))
		}
	}
	return out
}

// share returns the part of the changes that count which were found.
func (t *tally) share() (found, counted int) {
	for k := range t.outcomes {
		for o, n := range t.outcomes[k] {
			if counts(o) {
				counted += n
			}
		}
	}
	return t.sum(outcomeFound), counted
}

func (t *tally) String() string {
	var b strings.Builder
	for k := range t.outcomes {
		fmt.Fprintf(&b, "%v:", change(k))
		for _, o := range slices.Sorted(mapKeys(t.outcomes[k])) {
			fmt.Fprintf(&b, " %s %d;", o, t.outcomes[k][o])
		}
		b.WriteByte('\n')
	}
	f, n := t.share()
	fmt.Fprintf(&b, "%d of %d found, %.2f %%: %v\n", f, n, 100*float64(f)/float64(n), t.severity)
	return b.String()
}

func mapKeys(m map[string]int) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

var (
	mutations     = flag.Int("mutations", 400, "changes of rows an object")
	mutationSeed  = flag.Uint64("mutation-seed", 1, "seed of the changes")
	mutationFiles = flag.String("mutation-files", "", "objects, separated by commas, in place of libstdc++")
	mutationList  = flag.Bool("mutation-list", false, "list the changes not found")
)

// TestMutations: a row changed at random is found. make mutations runs more of them, over more objects.
func TestMutations(t *testing.T) {
	files := []string{"/usr/lib/x86_64-linux-gnu/libstdc++.so.6"}
	if *mutationFiles != "" {
		files = strings.Split(*mutationFiles, ",")
	}
	for _, path := range files {
		got := mutate(t, path, *mutations, *mutationSeed)
		t.Logf("%s, %d changes\n%v", path, *mutations, got)
		if *mutationList {
			t.Log(strings.Join(got.missed, "\n"))
		}
		found, counted := got.share()
		assert.GreaterOrEqual(t, found*100, counted*99, "%s", path)
		assert.Greater(t, counted, *mutations/2, "%s: most changes alter an answer", path)
	}
}
