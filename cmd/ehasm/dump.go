package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/inspect"

	"github.com/spf13/pflag"
)

const dumpHelp = `Show a stage of compiling an ELF file's unwind tables to machine code.

Usage:
  ehasm dump --stage=STAGE [flags] FILE

A FILE is an executable, a shared object, a separate debug file, or a
relocatable file (.o), whose sections are laid out one after the other.

Stages:
  entries  CIEs and FDEs with their instructions, as readelf -wf prints them
  rows     the rows of each FDE before any normalising, as readelf -wF has them,
           without rows that end where they start
  table    the normalised table of the object: pc ranges, each with its row
  plan     pages, compare trees and row blocks
  asm      the machine code
  sites    what an unwinder does with a frame during an exception, by call, from
           .gcc_except_table
  lines    files and lines of code, from debug information, unit by unit: what
           script --lines reads. Not a stage of compiling
  types    prototypes of functions, from DWARF and .BTF, or from raw BTF: what
           script --signatures reads
`

const dumpMore = `Examples:
  ehasm dump --stage=rows /bin/ls
  diff <(ehasm dump --stage=rows /bin/ls) <(readelf -wF /bin/ls)
  ehasm dump --stage=table --pc 0x4010 libfoo.so
  ehasm dump --stage=asm --pc 0x4010 libfoo.so
  ehasm dump --stage=entries --json libfoo.so
  ehasm dump --stage=types /sys/kernel/btf/vmlinux
`

// dumpVerb is the verb dump: a stage of the compiler as text or JSON. It reads one file and writes nothing else, so
// that the outputs of two releases, or of readelf, can be compared.
func dumpVerb() verb {
	v := verb{name: "dump", brief: "show a stage of compiling: entries, rows, table, plan, asm", help: dumpHelp,
		more: dumpMore}
	v.flags = func(fs *pflag.FlagSet) func(context.Context, []string, *console) int {
		stage := fs.String("stage", "rows", "show `STAGE`: "+strings.Join(inspect.Stages(), ", "))
		pc := fs.String("pc", "", "show only the part for link-time address `ADDR`, such as 0x4010")
		tables := declareTables(fs)
		noDeref := fs.Bool("no-deref", false, "stage asm: _eh_elf without deref argument")
		asJSON := fs.Bool("json", false, "print JSON")
		return func(_ context.Context, paths []string, c *console) int {
			// The stages up to plan depend on --source and --dispatch; --no-deref changes only the
			// code.
			opt := inspect.Dump{Stage: *stage, Code: compile.Options{NoDeref: *noDeref}, JSON: *asJSON}
			if len(paths) != 1 {
				return v.misuse(c, fmt.Errorf("want one file, got %d", len(paths)))
			}
			if !slices.Contains(inspect.Stages(), opt.Stage) {
				return v.misuse(c, fmt.Errorf("--stage: unknown stage %q: want %s", opt.Stage,
					strings.Join(inspect.Stages(), ", ")))
			}
			if err := tables(&opt.Code); err != nil {
				return v.misuse(c, err)
			}
			if fs.Changed("pc") {
				n, err := strconv.ParseUint(*pc, 0, 64)
				if err != nil {
					return v.misuse(c, fmt.Errorf("--pc: %q is not an address such as 0x4010", *pc))
				}
				addr := dwarfcfa.Addr(n)
				opt.PC = &addr
			}
			if err := opt.Write(paths[0], c.out); err != nil && c.out.Flush() == nil { // otherwise run reports it
				c.fail(paths[0], err)
			}
			return exitDone
		}
	}
	return v
}
