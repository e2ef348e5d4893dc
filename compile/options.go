package compile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/synth"
)

// Options are what the bytes of an eh_elf depend on, besides the object. The zero value is what ehasm build takes.
type Options struct {
	Source   dwarfcfa.Source // the sections that hold the tables
	Dispatch Dispatch
	Synth    Synth // rows made from code
	// NoDeref gives _eh_elf no deref argument: it reads memory directly.
	NoDeref bool
	// NoExceptions leaves out the tables for C++ exceptions.
	NoExceptions bool
	// Relro makes files for dlopen of glibc before 2.35, which writes to .dynamic.
	Relro bool
}

// Dispatch is the layout of a file: how its code finds the row of a pc.
type Dispatch = plan.Dispatch

// Layouts. Tree is the fast one; large files are packed all the same, see Layout.Limit.
const (
	Tree   = plan.DispatchTree
	Packed = plan.DispatchPacked
)

// ParseDispatch parses the name of a layout: tree or packed.
func ParseDispatch(name string) (Dispatch, error) { return plan.ParseDispatch(name) }

// Synth says for which code rows are made from the code.
type Synth = synth.Mode

// Modes of Options.Synth.
const (
	SynthOff     = synth.Off
	SynthMissing = synth.Missing // for code without rows
	SynthWrong   = synth.Wrong   // also in place of rows that the code contradicts
	SynthAll     = synth.All     // for all code
)

// String returns the options as the build note of a file has them. Equal options have equal text: MadeWith compares it.
func (o Options) String() string {
	words := []string{"source=" + o.Source.String(), "dispatch=" + o.Dispatch.String()}
	if o.NoDeref {
		words = append(words, "no-deref")
	}
	if o.NoExceptions {
		words = append(words, "no-exceptions")
	}
	if o.Relro {
		words = append(words, "relro")
	}
	if o.Synth != synth.Off {
		words = append(words, "synth="+o.Synth.String())
	}
	return strings.Join(words, ",")
}

// OfTable returns, as String does, those options by which the table differs from the zero Options' table; "" if none.
func (o Options) OfTable() string {
	words := strings.Split(Options{Source: o.Source, Synth: o.Synth}.String(), ",")
	usual := strings.Split(Options{}.String(), ",")
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return slices.Contains(usual, w) }), ",")
}

// parseOptions parses, of the lines of a build note, the options that the table depends on: Source and Synth. Lines and
// words of other keys are passed over. The note is the file's own claim: with wrong ones a proof compares with another
// table, and fails.
func parseOptions(lines []string) (o Options, err error) {
	for _, line := range lines {
		options, ok := strings.CutPrefix(line, KeyOptions+"=")
		if !ok {
			continue
		}
		for _, word := range strings.Split(options, ",") {
			key, value, _ := strings.Cut(word, "=")
			switch key {
			case "source":
				o.Source, err = dwarfcfa.ParseSource(value)
			case "synth":
				o.Synth, err = synth.ParseMode(value)
			}
			if err != nil {
				return o, fmt.Errorf("the options in its build note: %w", err)
			}
		}
	}
	return o, nil
}

// flags returns the flags of the identity note that depend on the options alone.
func (o Options) flags() uint32 {
	if o.NoDeref {
		return abi.FlagNoDeref
	}
	return 0
}
