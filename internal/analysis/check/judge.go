package check

import (
	"sort"

	"github.com/ehasm/ehasm/internal/analysis/codeflow"
)

// This file lets validate/agree ask for the verdict on single instructions, with states that it has from elsewhere.

// Judge compares states from another source with an object's rows. It may be used by one
// goroutine at a time.
type Judge struct {
	c function
}

// NewJudge returns a judge of the object's rows.
func (s *Subject) NewJudge() *Judge { return &Judge{function{s: s, rows: s.newRows()}} }

// At compares the row at the link-time address pc with a state, and returns the kinds of mismatch, none if they agree.
// ok is false if the row cannot be judged or there is none.
func (j *Judge) At(pc uint64, state *codeflow.State) (kinds []Kind, ok bool) {
	fns := j.c.s.Functions
	i := sort.Search(len(fns), func(i int) bool { return fns[i].Hi > pc })
	if i == len(fns) || fns[i].Lo > pc || fns[i].Signal {
		return nil, false
	}
	j.c.rows.load(i)
	row := j.c.rows.at(pc)
	if row == nil {
		return nil, false
	}
	var buf [8]wrong
	ws, reason := j.c.judge(pc, &row.Row, state, buf[:0])
	for k := range ws {
		kinds = append(kinds, ws[k].kind)
	}
	return kinds, reason == ""
}
