//go:build linux && amd64

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/check"
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// Bounds of the runs that decide a finding.
const (
	drawnRuns  = 300
	drawnSteps = 6000 // of a run
	drawnTime  = 5 * time.Second
	drawnRight = 40 // runs in which the row was right, and in none wrong
)

// drawnReport is a finding that was drawn, and what runs to it show.
type drawnReport struct {
	findingReport
	Verdict string `json:"verdict"`
	Reached int    `json:"reached"` // runs
	Path    string `json:"path"`    // of the file
}

// Verdicts about a finding that was drawn.
const (
	confirmed    = "confirmed"            // the row was wrong, and the function returned as it should
	openEnd      = "confirmed, no return" // the row was wrong in a run that did not return
	contradicted = "contradicted"
	notReached   = "not reached" // and why
)

// draw decides errors and warnings that are drawn at random, n of each.
func (f *forced) draw(r *report, n int) error {
	for _, severity := range []check.Severity{check.SeverityError, check.SeverityWarning} {
		var of []*shown
		for i := range f.found {
			if f.found[i].Severity == severity {
				of = append(of, &f.found[i])
			}
		}
		f.rng.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
		for _, x := range of[:min(n, len(of))] {
			d, err := f.decide(x)
			if err != nil {
				return err
			}
			d.Path = f.o.path
			r.Drawn = append(r.Drawn, d)
		}
	}
	return nil
}

// decide starts functions that lead to a finding, and goes there.
func (f *forced) decide(x *shown) (drawnReport, error) {
	d := drawnReport{Verdict: notReached + ": no way from an entry"}
	ways := f.ways(x.PC)
	began, rightly, ends := time.Now(), 0, map[string]int{}
	for n := 0; len(ways) > 0 && n < drawnRuns && rightly < drawnRight && time.Since(began) < drawnTime; n++ {
		if f.c.err != nil || n%freshRun == 0 {
			if err := f.c.start(f.rng); err != nil {
				return d, err
			}
			f.mem.pid = f.c.pid
		}
		q := attempt{forced: f, way: ways[n%len(ways)], finding: x}
		returned, why := q.goTo()
		switch {
		case q.wrongly > 0 && (returned || x.Kind == check.KindRet):
			d.Verdict, rightly = confirmed, drawnRight
		case q.wrongly > 0:
			d.Verdict = openEnd
		case q.rightly > 0:
			rightly++
		default:
			ends[why]++
		}
		x.wrong, x.right = x.wrong+q.wrongly, x.right+q.rightly
		if q.wrongly+q.rightly > 0 {
			d.Reached++
		}
	}
	if rightly > 0 && x.wrong == 0 {
		d.Verdict = contradicted
	}
	if d.Reached == 0 && len(ends) > 0 {
		most := ""
		for why, n := range ends {
			if n > ends[most] || n == ends[most] && why < most {
				most = why
			}
		}
		d.Verdict = notReached + ": " + most
	}
	d.findingReport = f.reportOf(x)
	return d, nil
}

// goTo runs a function to the finding, and from there to its return. It reports whether it returned as it should, and
// else what ended it.
func (q *attempt) goTo() (returned bool, why string) {
	q.begin(q.way.entry)
	for range drawnSteps {
		pc := q.r.Rip - q.c.bias
		in := q.inst(pc)
		if in == nil {
			return false, "no code"
		}
		for len(q.calls) > 1 && q.r.Rsp >= q.calls[len(q.calls)-1].cfa {
			q.calls = q.calls[:len(q.calls)-1] // it has dropped its return address
		}
		if len(q.calls) == 1 && pc >= q.finding.PC && pc < q.finding.End {
			q.look(pc)
			q.arrived = q.arrived || pc == q.finding.PC
			if q.finding.Kind == check.KindRet && q.arrived {
				return false, ""
			}
		}
		if len(q.calls) == 1 && in.Op == x86.OpJMP && len(q.way.next[pc]) == 0 {
			return q.asBefore(), "a jump to another function"
		}
		if !q.execute(pc, in) || q.c.err != nil {
			if top := &q.calls[0]; q.finding.Kind == check.KindClobbered && q.r.Rip == top.ra && q.r.Rsp == top.cfa {
				return true, "" // it returns without having restored it
			}
			return false, "it ends at " + strings.Fields(in.Text(pc))[0]
		}
		if len(q.calls) == 0 {
			return true, "a return"
		}
	}
	return false, fmt.Sprintf("not within %d instructions", drawnSteps)
}

// asBefore reports whether rsp and the registers are as at the entry.
func (q *attempt) asBefore() bool {
	top, now := &q.calls[0], abiRegs(&q.r)
	return q.r.Rsp == top.cfa-8 && newFrame(0, 0, &now).regs == top.regs
}

// look compares the finding's row, as its FDE gives it, with the frame.
func (q *attempt) look(pc uint64) {
	top := &q.calls[0]
	if q.finding.Kind == check.KindRet {
		target, _ := q.mem.ReadWord(q.r.Rsp)
		if q.r.Rsp == top.cfa-8 || q.c.code(target-q.c.bias) != nil { // it returns, or jumps
			q.rightly++
		} else {
			q.wrongly++
		}
		return
	}
	now := abiRegs(&q.r)
	q.mem.at(q.r.Rsp)
	if q.rawRow(pc).Step(&now, &q.mem, q.c.bias) != abi.StatusOK {
		return
	}
	wrong := false
	switch q.finding.Kind {
	case check.KindCFA:
		wrong = now.Reg[abi.RSP] != top.cfa
	case check.KindReturn:
		wrong = now.Reg[abi.RIP] != top.ra
	case check.KindSaved, check.KindClobbered:
		for reg := range abi.RIP {
			said := slices.Contains(strings.Split(q.finding.Register, ", "), abi.RegName(reg))
			wrong = wrong || said && now.Valid>>reg&1 != 0 && now.Reg[reg] != top.all.Reg[reg]
		}
	default:
		return
	}
	if wrong {
		q.wrongly++
	} else if pc == q.finding.PC {
		q.rightly++
	}
}

// rawRow returns the row at pc as its FDE gives it: libgcc, libunwind and gdb do not change it.
func (f *forced) rawRow(pc uint64) *dwarfcfa.Table {
	if t, ok := f.rows[pc]; ok {
		return t
	}
	t, in := &dwarfcfa.Table{Exprs: make([]dwarfcfa.Expr, 1)}, dwarfcfa.NewInterp()
	expr := func(id *dwarfcfa.ExprID) {
		if e, err := in.Decoded(*id); err == nil {
			*id = dwarfcfa.ExprID(len(t.Exprs))
			t.Exprs = append(t.Exprs, e)
		}
	}
	for _, fde := range f.fdes {
		if fde.Start > dwarfcfa.Addr(pc) || fde.End <= dwarfcfa.Addr(pc) {
			continue
		}
		rows, _ := in.Rows(fde)
		for _, r := range rows {
			if r.Start > dwarfcfa.Addr(pc) || r.End <= dwarfcfa.Addr(pc) {
				continue
			}
			row := r.Row
			if row.CFA.Kind == dwarfcfa.CFAExpr {
				expr(&row.CFA.Expr)
			}
			for i := range row.Regs {
				switch rule := &row.Regs[i]; rule.Kind {
				case dwarfcfa.RuleUnspecified:
					rule.Kind = dwarfcfa.RuleSameValue
					if i == abi.RSP {
						rule.Kind = dwarfcfa.RuleValOffset
					}
				case dwarfcfa.RuleExpression, dwarfcfa.RuleValExpression:
					expr(&rule.Expr)
				}
			}
			t.Ranges, t.Rows = []dwarfcfa.Range{{Start: r.Start, End: r.End}}, []dwarfcfa.Row{row}
		}
	}
	f.rows[pc] = t
	return t
}

// drawnText writes a line for each finding that was drawn, then how many had each verdict.
func drawnText(w io.Writer, list []drawnReport) {
	type key struct{ severity, verdict string }
	counts := map[key]int{}
	for _, d := range list {
		fmt.Fprintf(w, "%s: %s %s: %s: %s\n", d.Verdict, d.Severity, d.Kind, d.Place, d.Says)
		counts[key{string(d.Severity), d.Verdict}]++
	}
	var keys []key
	for k := range counts {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int { return strings.Compare(a.severity+a.verdict, b.severity+b.verdict) })
	for _, k := range keys {
		fmt.Fprintf(w, "%ss %s: %d\n", k.severity, k.verdict, counts[k])
	}
}
