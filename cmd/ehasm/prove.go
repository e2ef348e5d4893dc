package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/shown"
	"github.com/ehasm/ehasm/prove"

	"github.com/spf13/pflag"
)

const proveHelp = `Prove that eh_elfs mean the unwind tables of their objects: for every pc, all
registers and all memory, from the bytes of the files. No code is run.

Usage:
  ehasm prove [flags] FILE.eh_elf.so...
  ehasm prove [flags] --all DIR
`

const proveMore = `The object of NAME.eh_elf.so is NAME beside it, unless --object names it. It must be
the one that the file was made from: its build-id, or content, is compared. If the proof
of a file fails, the pc, the row and the difference are printed, and the exit status is 1.

Examples:
  ehasm prove eh_elfs/ls.eh_elf.so --object /bin/ls
  ehasm prove --all /usr/lib/x86_64-linux-gnu
  ehasm prove --json libfoo.so.eh_elf.so
`

func proveVerb() verb {
	v := verb{name: "prove", brief: "prove eh_elfs against the unwind tables of their objects", help: proveHelp, more: proveMore}
	v.flags = func(fs *pflag.FlagSet) func(context.Context, []string, *console) int {
		object := fs.String("object", "", "the `FILE` that the eh_elf was made from")
		all := fs.String("all", "", "prove every *.eh_elf.so in folder `DIR` and below")
		asJSON := fs.Bool("json", false, "print JSON, an array with an object for each file")
		return func(ctx context.Context, paths []string, c *console) int {
			if *all != "" {
				found, err := eHElfsBelow(*all)
				if err != nil {
					c.fail(*all, shown.Bare(err))
					return exitFailed
				}
				paths = append(paths, found...)
			}
			switch {
			case len(paths) == 0 && *all == "":
				return v.misuse(c, errors.New("no file given"))
			case *object != "" && len(paths) != 1:
				return v.misuse(c, errors.New("--object is for one file"))
			}
			return proveFiles(ctx, paths, *object, *asJSON, c)
		}
	}
	return v
}

// eHElfsBelow lists the eh_elfs of a folder.
func eHElfsBelow(folder string) (paths []string, err error) {
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

// proofJSON is the result of prove for a file.
type proofJSON struct {
	File    string  `json:"file"`
	Object  string  `json:"object"`
	Proven  bool    `json:"proven"`
	Error   string  `json:"error,omitempty"`
	Options string  `json:"options,omitempty"` // of build, by which the table is another than without
	Seconds float64 `json:"seconds"`           // of the proof alone
	prove.Result
}

func proveFiles(ctx context.Context, paths []string, object string, asJSON bool, c *console) int {
	if len(paths) > 1 && !asJSON {
		c.newBar(int64(len(paths)), "proving")
	}
	proofs := []proofJSON{}
	proven := 0
	for _, path := range paths {
		if ctx.Err() != nil {
			break
		}
		p := proofJSON{File: path, Object: object}
		if p.Object == "" {
			p.Object = strings.TrimSuffix(path, abi.Suffix)
		}
		if err := p.prove(ctx); err != nil {
			p.Error = err.Error()
			c.fail(path, err)
		} else {
			p.Proven = true
			proven++
		}
		proofs = append(proofs, p)
		c.advanceBy(1)
	}
	c.stopBar()
	if asJSON {
		writeJSON(c.out, proofs)
		return exitDone
	}
	for _, p := range proofs {
		if p.Proven {
			by := ""
			if p.Options != "" {
				by = ", by the table of --" + strings.ReplaceAll(p.Options, ",", " --")
			}
			fmt.Fprintf(c.out, "%s: proven: %d borders, %d rows, %d expressions, %.1f ms%s\n", shown.Name(p.File), p.Borders, p.Rows, p.Expressions, 1e3*p.Seconds, by)
		}
	}
	if len(proofs) != 1 {
		fmt.Fprintf(c.out, "%d of %d files proven\n", proven, len(proofs))
	}
	return exitDone // or failed, if c has a failure
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

// prove proves one file.
func (p *proofJSON) prove(ctx context.Context) error {
	image, err := readInput(p.File)
	if err != nil {
		return shown.Bare(err)
	}
	r, size, done, err := find.OpenFile(p.Object)
	if err != nil {
		return fmt.Errorf("its object %s: %w (--object names it)", p.Object, shown.Bare(err))
	}
	defer done()
	object, err := dwarfcfa.NewObject(p.Object, r, size)
	if err != nil {
		return err
	}
	proof, err := compile.Prove(ctx, image, object)
	p.Result, p.Options, p.Seconds = proof.Result, proof.Options.OfTable(), proof.Time.Seconds()
	return err
}
