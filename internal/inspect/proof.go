package inspect

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/prove"
)

// This file proves files for ehasm prove, and puts the results into words and JSON.

// EHElfsBelow lists the eh_elfs of a folder. It goes into folders below; links are not followed. The error is the first
// folder that can't be read.
func EHElfsBelow(folder string) (paths []string, err error) {
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Type().IsRegular() && strings.HasSuffix(path, abi.Suffix) {
			paths = append(paths, path)
		}
		return nil
	})
	return paths, err
}

// Proof is the result of the proof of a file.
type Proof struct {
	File    string  `json:"file"` // object is what the table was read from
	Object  string  `json:"object"`
	Proven  bool    `json:"proven"`
	Error   string  `json:"error,omitempty"`   // why there is no proof; "" if proven
	Options string  `json:"options,omitempty"` // of build, by which the table is another than without
	Seconds float64 `json:"seconds"`           // of the proof alone
	prove.Result
}

// readInput reads a regular file.
func readInput(path string) ([]byte, error) {
	r, size, done, err := find.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer done()
	return io.ReadAll(io.NewSectionReader(r, 0, size))
}

// Prove proves an eh_elf against the unwind tables of an object, NAME beside NAME.eh_elf.so if object is empty. The
// result is never nil: --json prints failures, too. ctx ends a proof early, which takes seconds for large objects.
func Prove(ctx context.Context, path, object string) (*Proof, error) {
	p := &Proof{File: path, Object: object}
	if object == "" {
		p.Object = strings.TrimSuffix(path, abi.Suffix)
	}
	err := p.prove(ctx)
	if p.Proven = err == nil; err != nil {
		// The result goes into JSON even if it is an error.
		p.Error = err.Error()
	}
	return p, err
}

// prove reads both files and proves one against the other.
func (p *Proof) prove(ctx context.Context) error {
	image, err := readInput(p.File)
	if err != nil {
		return output.BareError(err)
	}
	r, size, done, err := find.OpenFile(p.Object)
	if err != nil {
		return fmt.Errorf("its object %s: %w (--object names it)", p.Object, output.BareError(err))
	}
	defer done()
	object, err := dwarfcfa.NewFile(p.Object, r, size)
	if err != nil {
		return err
	}
	// The table is made again from the object, by the options that the eh_elf records.
	proof, err := compile.Prove(ctx, image, object)
	p.Result, p.Options, p.Seconds = proof.Result, proof.Options.OfTable(), proof.Time.Seconds()
	return err
}

// Print writes the figures of a proof as a line, for people.
func (p *Proof) Print(w io.Writer) {
	by := ""
	if p.Options != "" {
		by = ", by the table of --" + strings.ReplaceAll(p.Options, ",", " --")
	}
	fmt.Fprintf(w, "%s: proven: %d borders, %d rows, %d expressions, %.1f ms%s\n",
		output.Name(p.File), p.Borders, p.Rows, p.Expressions, 1e3*p.Seconds, by)
}
