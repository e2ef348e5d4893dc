package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/ehasm/ehasm/internal/analysis/check"
	"github.com/ehasm/ehasm/internal/files/output"
)

// This file reads and writes baselines: text files with a line for each accepted finding, so that reviews show what is
// accepted. Lines have no addresses: most changes of a program move its code.

// knownFindings are findings that are not new.
type knownFindings struct {
	what string          // what they are, for the summary
	of   map[string]bool // by identity
}

func setOf(list []string) map[string]bool {
	set := map[string]bool{}
	for _, s := range list {
		set[s] = true
	}
	return set
}

// readBaseline reads a file of --write-baseline. A line that no finding has is an error, since a list of another
// release, or of another tool, would accept nothing without a word.
func readBaseline(path string) (knownFindings, error) {
	known := knownFindings{what: "accepted by the baseline", of: map[string]bool{}}
	f, err := os.Open(path)
	if err != nil {
		return known, err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	// a line has the name of a file, at most PATH_MAX (4096), and the names of a member and a place in code
	sc.Buffer(nil, 1<<20)
	n := 0
	for ; sc.Scan(); n++ {
		t := sc.Text()
		if t == "" || t[0] == '#' {
			continue
		}
		if !check.IsIdentity(t) {
			return known, notBaseline(n + 1)
		}
		known.of[t] = true
	}
	if errors.Is(sc.Err(), bufio.ErrTooLong) {
		return known, notBaseline(n + 1)
	}
	return known, sc.Err()
}

// notBaseline returns the error for a line, counted from 1.
func notBaseline(line int) error {
	return fmt.Errorf("line %d: no finding that this release's --write-baseline wrote; write the file again", line)
}

// writeBaseline writes the identities of findings, with a heading that readBaseline skips. An existing file is
// replaced whole or not at all.
func writeBaseline(path string, ids []string) error {
	const head = "# findings of ehasm check that are accepted: file, kind, place, code, register, what the code does, what the table says\n"
	text := head + strings.Join(ids, "\n")
	if len(ids) > 0 {
		text += "\n"
	}
	return output.WriteOutput(path, []byte(text), output.PermText)
}
