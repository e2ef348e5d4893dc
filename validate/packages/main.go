//go:build linux

// Command packages measures builds over packages of a Debian release. --select N prints the names of N packages, by
// section and size. Without it the command reads names from standard input, and downloads and unpacks one package at a
// time. Each ELF file is built in three forms by processes of their own, and the first is proven again from its file;
// one file in ten also goes through validate/corpus: rows beside readelf's, and code that is run. Each step gives a
// line of standard output. --sum FILES prints the tables of such lines.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/pflag"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run returns the exit status.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	fs := pflag.NewFlagSet("packages", pflag.ContinueOnError)
	fs.SetOutput(stderr)
	n := fs.Int("select", 0, "print the names of N packages of the local lists of apt")
	sum := fs.StringSlice("sum", nil, "print the tables of the lines in `FILES`")
	var s sweep
	fs.StringVar(&s.ehasm, "ehasm", "./ehasm", "the command to measure")
	fs.StringVar(&s.corpus, "corpus", "", "validate/corpus, built; without it nothing is compared with readelf")
	fs.StringVar(&s.folder, "folder", "build/unpacked", "where packages are unpacked, one at a time")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return 0
		}
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	out := bufio.NewWriter(stdout)
	defer out.Flush()
	s.out = out
	var err error
	switch {
	case *n > 0:
		err = choose(ctx, *n, out)
	case len(*sum) > 0:
		err = printSums(*sum, out)
	default:
		err = s.packages(ctx, stdin)
	}
	if err != nil {
		fmt.Fprintln(stderr, "packages:", err)
		return 1
	}
	return 0
}
