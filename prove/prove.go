// Package prove shows that an eh_elf means its table, for every pc, all registers and
// all memory, from the bytes of the file alone. It runs nothing. PROOF.md describes the
// claim, the assumptions and the method.
//
// The files of the package build on each other. Terms (term.go, compare.go) are values as
// expressions over variables. A machine (exec.go, memory.go, semantics.go) runs
// instructions on them. An invariant says what holds at a place of the code (frame.go).
// Each part of the code is proven from its invariant on, until the code reaches a place
// with another invariant: the calls and the loop of a walk (walk.go), _eh_elf (step.go),
// the slow path (slow.go), expressions (expr.go), rows (rows.go), lookups (lookup.go).
package prove

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// ErrNotProven is wrapped by errors about files whose proof fails. The message names
// the pc or the place, the row, and the difference.
var ErrNotProven = errors.New("not proven")

// Image proves an eh_elf against the table that it was made from. If the proof
// fails, the error wraps ErrNotProven.
func Image(file []byte, table *dwarfcfa.Table) (result Result, err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case tooLong:
			err = fmt.Errorf("%w: a value of the code grows too long to follow", ErrNotProven)
		case runtime.Error: // a fault of this package refuses a file; it never accepts one
			err = fmt.Errorf("%w: internal error: %v", ErrNotProven, e)
		default:
			panic(e)
		}
	}()
	im, err := openImage(file)
	if err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrNotProven, err)
	}
	p := newProver(im, table)
	if err := p.prove(); err != nil {
		return p.result, fmt.Errorf("%w: %w", ErrNotProven, err)
	}
	p.result.Instructions = p.x.steps
	return p.result, nil
}

// Sites returns the table of sites of an eh_elf that has been proven, nil if it has none. has says
// whether the file's note promises what exceptions need. Of the table's content nothing is proven.
func Sites(file []byte) (table []byte, has bool, err error) {
	im, err := openImage(file)
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrNotProven, err)
	}
	return im.notes.sites, im.notes.identity.Flags&abi.FlagSites != 0, nil
}

// prover proves one file.
type prover struct {
	*proof
	frames  ownRows // rows of the file's own code
	step    *stepProof
	walk    *walkProof
	slow    *slowProof
	lookups *lookupProof
}

// newProver joins the proofs of the parts, which share one proof.
func newProver(im *image, table *dwarfcfa.Table) *prover {
	p := &prover{proof: newProof(im, table)}
	p.step = &stepProof{proof: p.proof, noDeref: im.notes.identity.Flags&abi.FlagNoDeref != 0}
	p.walk = &walkProof{proof: p.proof, step: p.step}
	p.slow = &slowProof{proof: p.proof, step: p.step}
	rows := &rowProof{proof: p.proof, compared: map[descKey]bool{}}
	p.lookups = newLookupProof(p.proof, p.walk, rows, im.notes.identity.Flags&abi.FlagPacked != 0)
	p.x.ownRows = p.frames.at
	return p
}

// prove proves the exported functions, and then what is owed until nothing is.
func (p *prover) prove() error {
	if err := p.frames.read(p.im.fdes); err != nil {
		return err
	}
	if err := p.identity(); err != nil {
		return err
	}
	for _, entry := range []struct {
		name  string
		prove func() error
	}{{abi.SymbolWalk, p.walk.entry}, {abi.SymbolChain, p.walk.chainEntry}, {abi.SymbolStep, p.step.entry}} {
		if err := entry.prove(); err != nil {
			return fmt.Errorf("%s: %w", entry.name, err)
		}
	}
	// A part may add debts to parts that have finished: go round until no part makes progress.
	for again := true; again; {
		again = false
		for _, part := range p.parts() {
			progress, err := part.prove()
			if err != nil {
				return fmt.Errorf("%s: %w", part.name, err)
			}
			again = again || progress
		}
	}
	// Code of lookups that pages and segments decoded without running it needs one row as well.
	low, high := p.lookups.code()
	if err := p.frames.single(low, high); err != nil {
		return fmt.Errorf("unwind information of the code: %w", err)
	}
	return nil
}

// part proves what is owed of one kind. progress says that something was.
type part struct {
	name  string
	prove func() (progress bool, err error)
}

// parts returns the parts in the order in which code usually leads from one to the next.
func (p *prover) parts() []part {
	o := p.owed
	return []part{
		{"set-up of the registers", each(&o.loads, p.walk.load)},
		{"lookup", each(&o.lookups, p.lookups.lookup)},
		{"end of a segment", each(&o.segmentEnds, p.walk.segmentEnd)},
		{"slow path of a row that is fast", each(&o.slowFast, p.slow.fromFast)},
		{"slow path", each(&o.slowRow, p.slow.fromRow)},
		{"CFA in the slow path", each(&o.cfas, p.slow.cfa)},
		{"rules in the slow path", each(&o.rules, p.slow.rules)},
		{"end of the slow path", each(&o.copies, p.slow.copies)},
		{"end of the slow path", each(&o.ends, p.slow.end)},
		{"end of a chain", each(&o.leaves, p.walk.chainLeave)},
		{"expressions", each(&o.exprs, p.expression)},
		{"reading of words", each(&o.reads, p.slow.readWord)},
	}
}

// each returns a function that proves the elements of a list, also those that are added meanwhile.
func each[K comparable](w *todo[K], prove func(K) error) func() (bool, error) {
	return func() (progress bool, err error) {
		for ; w.done < len(w.list); w.done++ {
			if err := prove(w.list[w.done]); err != nil {
				return false, err
			}
			progress = true
		}
		return progress, nil
	}
}

// identity checks that the note has the table's lowest and highest pc and its counts: readers
// choose a file by them.
func (p *prover) identity() error {
	n, t := p.im.notes.identity, p.table
	if n.Low != uint64(t.Low()) || n.High != uint64(t.High()) || int64(n.Ranges) != int64(len(t.Ranges)) ||
		int64(n.Rows) != int64(len(t.Rows)) {
		return imageError("the note says %#x..%#x, %d ranges, %d rows; the table has %#x..%#x, %d, %d",
			n.Low, n.High, n.Ranges, n.Rows, uint64(t.Low()), uint64(t.High()), len(t.Ranges), len(t.Rows))
	}
	return nil
}
