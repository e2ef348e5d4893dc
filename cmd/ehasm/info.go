package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/inspect"
	"github.com/spf13/pflag"
)

// This file is info: what an eh_elf says of itself. It is read, not loaded.

const infoHelp = `Show what an eh_elf was made from, what it covers, and its sizes.

Usage:
  ehasm info [flags] FILE.eh_elf.so...
`

const infoMore = `Examples:
  ehasm info libc.so.6.eh_elf.so
  ehasm info --json eh_elfs/*.eh_elf.so
`

// infoVerb is the verb info. A file that cannot be read is a failure; the others are shown.
func infoVerb() verb {
	v := verb{name: "info", brief: "show what an eh_elf was made from and what it covers", help: infoHelp, more: infoMore}
	v.flags = func(fs *pflag.FlagSet) func(context.Context, []string, *console) int {
		asJSON := fs.Bool("json", false, "print JSON, an array with an object for each file")
		return func(_ context.Context, paths []string, c *console) int {
			if len(paths) == 0 {
				return v.misuse(c, errors.New("no file given"))
			}
			infos := []*inspect.Info{}
			for _, path := range paths {
				info, err := inspect.ReadInfo(path)
				if err != nil {
					c.fail(path, err)
					continue
				}
				infos = append(infos, info)
			}
			if *asJSON {
				output.JSON(c.out, infos)
				return exitDone
			}
			for i, info := range infos {
				if i > 0 {
					fmt.Fprintln(c.out)
				}
				info.Print(c.out)
			}
			return exitDone
		}
	}
	return v
}
