package unwindtest

import (
	"io"
	"sync/atomic"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/ehelf"
)

// Stepper takes steps by an object's rows on demand.
type Stepper struct {
	rows  *dwarfcfa.LazyTable
	worth int64
	taken atomic.Int64
}

// NewStepper opens an object; worth is after how many steps it should be compiled.
func NewStepper(name string, file io.ReaderAt, size, worth int64) (*Stepper, error) {
	o, err := dwarfcfa.NewFile(name, file, size)
	if err != nil {
		return nil, err
	}
	rows, err := dwarfcfa.NewLazyTable(o, dwarfcfa.SourceAuto)
	if err != nil {
		return nil, err
	}
	return &Stepper{rows: rows, worth: worth}, nil
}

// Step takes a step.
func (s *Stepper) Step(regs *abi.Regs, mem *ehelf.Memory, bias uint64) abi.Status {
	return s.rows.Step(regs, mem, bias)
}

// Took counts steps.
func (s *Stepper) Took(steps int) bool {
	n := s.taken.Add(int64(steps))
	return n >= s.worth && n-int64(steps) < s.worth
}
