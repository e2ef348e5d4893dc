// Command agree compares the rows of package synth with the tables that compilers made for the same code: the places of
// the CFA and of the caller's registers at each instruction that an FDE covers, without padding. synth uses no row of
// the file. It is run once with the FDEs' bounds and landing pads, and once with the code alone:
//
//	go run ./validate/agree FILE...
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/ehasm/ehasm/internal/analysis/check"
	"github.com/ehasm/ehasm/internal/analysis/codeflow"
	"github.com/ehasm/ehasm/internal/analysis/synth"
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

func main() {
	code := 0
	fmt.Println("| file | starts | instructions | answered | as the table | other CFA | other register | not comparable |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, path := range os.Args[1:] {
		if err := compare(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// counts are instructions.
type counts struct {
	// instructions covered; with an answer of synth; as the table; other CFA; other register
	all, answered, agree, cfa, register int
	// answered, and the table gives the CFA by an rbp that the state does not know
	open int
}

// print writes a line of the table, with shares of all instructions and of the comparable ones.
func (c *counts) print(path, starts string) {
	pct := func(n, of int) float64 { return 100 * float64(n) / float64(max(of, 1)) }
	fmt.Printf("| %s | %s | %d | %.2f %% | %.4f %% | %d | %d | %d |\n", filepath.Base(path), starts, c.all,
		pct(c.answered, c.all), pct(c.agree, c.answered-c.open), c.cfa, c.register, c.open)
}

// compare writes both lines of a file.
func compare(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	s, err := check.Open(path, f, info.Size())
	if err != nil {
		return err
	}
	all := instructions(s)
	for _, known := range []bool{true, false} {
		fns, starts := s.Functions, "known"
		if !known {
			fns, starts = synth.Undescribed(s.Image, nil), "unknown"
		}
		c := run(s, fns)
		c.all = all
		c.print(path, starts)
	}
	return nil
}

// instructions counts the instructions that FDEs cover, without padding.
func instructions(s *check.Subject) (n int) {
	var in x86.Inst
	for i := range s.Functions {
		fn := &s.Functions[i]
		code := s.Image.Code(fn.Lo)
		code = code[:min(uint64(len(code)), fn.Hi-fn.Lo)] // the section may end within the FDE
		for len(code) > 0 {
			if x86.Decode(code, &in) != nil { // no instruction: data in code
				code = code[1:]
				continue
			}
			if !codeflow.IsPadding(&in) {
				n++
			}
			code = code[in.Len:]
		}
	}
	return n
}

// run interprets functions without a row, and compares.
func run(s *check.Subject, fns []codeflow.Function) (sum counts) {
	parts := make([]counts, len(fns))
	judges := sync.Pool{New: func() any { return s.NewJudge() }}
	codeflow.New(s.Image, fns, codeflow.Options{}).Run(func(i int, r *codeflow.Result) {
		j := judges.Get().(*check.Judge)
		defer judges.Put(j)
		c := counts{}
		r.Each(func(pc uint64, in *x86.Inst, state *codeflow.State, how codeflow.Basis) {
			if codeflow.IsPadding(in) || !synth.Answers(state, how) {
				return
			}
			kinds, ok := j.At(pc, state)
			if !ok {
				return
			}
			c.answered++
			switch {
			case len(kinds) == 0:
				c.agree++
			case kinds[0] == check.KindCFA && byUnknownRBP(j, pc, state):
				c.open++
			case kinds[0] == check.KindCFA:
				c.cfa++
			default:
				c.register++
			}
		})
		parts[i] = c
	})
	for i := range parts {
		sum.answered += parts[i].answered
		sum.agree += parts[i].agree
		sum.cfa += parts[i].cfa
		sum.register += parts[i].register
		sum.open += parts[i].open
	}
	return sum
}

// byUnknownRBP reports whether the table gives the CFA by rbp, of which the state knows nothing:
// with the value that the table asks for, the CFAs agree.
func byUnknownRBP(j *check.Judge, pc uint64, state *codeflow.State) bool {
	if state.Regs[x86.RBP].Kind != codeflow.Unknown {
		return false
	}
	s := *state
	s.Regs[x86.RBP] = codeflow.Value{Kind: codeflow.Base, Off: -16}
	kinds, ok := j.At(pc, &s)
	return ok && (len(kinds) == 0 || kinds[0] != check.KindCFA)
}
