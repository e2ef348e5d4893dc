//go:build linux && amd64

package main

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ehasm/ehasm/internal/analysis/check"
)

// shown is what runs show of a finding of check.
type shown struct {
	*check.Finding
	right, wrong int // steps in runs that returned
}

// findingReport is a finding, and what runs show of it.
type findingReport struct {
	Kind     check.Kind     `json:"kind"`
	Severity check.Severity `json:"severity"`
	Class    check.Class    `json:"class"`
	Place    string         `json:"place"`
	Says     string         `json:"says"`
	Start    uint64         `json:"start"` // of the FDE, link-time
	PC       uint64         `json:"pc"`    // link-time
	Right    int            `json:"right"` // steps in runs that returned
	Wrong    int            `json:"wrong"`
}

// check notes the findings of check in the file.
func (f *forced) check(s *check.Subject) {
	r := s.Run(check.Options{Workers: 1})
	for i := range r.Findings {
		f.found = append(f.found, shown{Finding: &r.Findings[i]})
	}
}

// claimed returns the findings about the row at a pc.
func (f *forced) claimed(pc uint64) []*shown {
	list, known := f.about[pc]
	if !known {
		for i := range f.found {
			if x := &f.found[i]; x.PC <= pc && pc < x.End {
				list = append(list, x)
			}
		}
		f.about[pc] = list
	}
	return list
}

// says reports whether a wrong row is what the finding says.
func (x *shown) says(v verdict, text string) bool {
	switch x.Kind {
	case check.KindSaved, check.KindClobbered:
		reg, _, _ := strings.Cut(text, " ")
		return v == wrongReg && strings.Contains(x.Register+",", reg+",")
	}
	return v != wrongReg
}

// note counts a step in a run that returned.
func (f *forced) note(pc uint64, v verdict, text string) {
	for _, x := range f.claimed(pc) {
		if x.says(v, text) {
			x.wrong++
		} else if v == right {
			x.right++
		}
	}
}

// rets counts a ret with the stack pointer elsewhere than at the return address.
func (q *attempt) rets(pc uint64, before *unix.PtraceRegs) {
	top := &q.calls[len(q.calls)-1]
	for _, x := range q.claimed(pc) {
		if x.Kind == check.KindRet && before.Rsp != top.cfa-8 {
			x.wrong++
		}
	}
}

// named reports whether a finding says that the row at pc is wrong.
func (f *forced) named(pc uint64) string {
	for _, x := range f.claimed(pc) {
		return string(x.Severity) + " " + string(x.Class)
	}
	return ""
}

// unrestored counts the claims on registers that a function has not restored when it returns: no store through a wild
// pointer changes what its rows call unchanged.
func (f *forced) unrestored(a *activation) {
	for _, c := range a.claims {
		for _, x := range f.claimed(c.pc) {
			if c.table == 0 && x.Kind == check.KindClobbered && x.says(c.verdict, c.text) {
				x.wrong++
			}
		}
	}
}

// questioned reports whether the code from the entry with an index to the next has an error or a warning.
func (f *forced) questioned(i int) bool {
	lo, hi := f.entries[i], ^uint64(0)
	if i+1 < len(f.entries) {
		hi = f.entries[i+1]
	}
	return slices.ContainsFunc(f.found, func(x shown) bool {
		return x.Severity != check.SeverityNote && (x.PC >= lo && x.PC < hi || x.Start >= lo && x.Start < hi)
	})
}

// judge adds the findings to the report of the file.
func (f *forced) judge(r *report) {
	for i := range r.Objects {
		o := &r.Objects[i]
		if o.Path != f.o.path {
			continue
		}
		for k := range o.Tables[0].Wrong {
			w := &o.Tables[0].Wrong[k]
			w.Finding = f.named(w.PC)
		}
		for k := range f.found {
			o.Findings = append(o.Findings, f.reportOf(&f.found[k]))
		}
	}
}

func (f *forced) reportOf(x *shown) findingReport {
	return findingReport{x.Kind, x.Severity, x.Class, f.o.place(x.PC), x.Message(), x.Start, x.PC, x.right, x.wrong}
}
