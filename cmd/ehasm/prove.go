package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/inspect"

	"github.com/spf13/pflag"
)

// This file is prove: the proof that build makes of each file, again and from the files alone, as for eh_elfs that
// came from elsewhere.

const proveHelp = `Prove that eh_elfs mean the unwind tables of their objects: for every pc, all
registers and all memory, from the bytes of the files. No code is run.

Usage:
  ehasm prove [flags] FILE.eh_elf.so...
  ehasm prove [flags] --all DIR
`

const proveMore = `The object of NAME.eh_elf.so is NAME beside it, unless --object names it. It
must be the one that the file was made from: its build-id, or content, is
compared. If the proof of a file fails, the pc, the row and the difference are
printed, and the exit status is 1.

Examples:
  ehasm prove eh_elfs/ls.eh_elf.so --object /bin/ls
  ehasm prove --all /usr/lib/x86_64-linux-gnu
  ehasm prove --json libfoo.so.eh_elf.so
`

// proveVerb is the verb prove: files, or all below a folder, each against its object.
func proveVerb() verb {
	v := verb{name: "prove", brief: "prove eh_elfs against the unwind tables of their objects", help: proveHelp,
		more: proveMore}
	v.flags = func(fs *pflag.FlagSet) func(context.Context, []string, *console) int {
		object := fs.String("object", "", "the `FILE` that the eh_elf was made from")
		all := fs.String("all", "", "prove every *.eh_elf.so in folder `DIR` and below")
		asJSON := fs.Bool("json", false, "print JSON, an array with an object for each file")
		return func(ctx context.Context, paths []string, c *console) int {
			if *all != "" {
				found, err := inspect.EHElfsBelow(*all)
				if err != nil {
					c.fail(*all, output.BareError(err))
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

// proveFiles proves the files one after the other. Each proof is a line of stdout, each failure one
// of stderr; JSON has both.
func proveFiles(ctx context.Context, paths []string, object string, asJSON bool, c *console) int {
	if len(paths) > 1 && !asJSON {
		c.newBar(int64(len(paths)), "proving")
	}
	proofs := []*inspect.Proof{}
	proven := 0
	for _, path := range paths {
		if ctx.Err() != nil {
			break
		}
		p, err := inspect.Prove(ctx, path, object)
		if err != nil {
			c.fail(path, err)
		} else {
			proven++
		}
		proofs = append(proofs, p)
		c.advanceBy(1)
	}
	c.stopBar()
	if asJSON {
		output.JSON(c.out, proofs)
		return exitDone
	}
	for _, p := range proofs {
		if p.Proven {
			p.Print(c.out)
		}
	}
	if len(proofs) != 1 {
		fmt.Fprintf(c.out, "%d of %d files proven\n", proven, len(proofs))
	}
	return exitDone // or failed, if c has a failure
}
