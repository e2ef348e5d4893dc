package main

import (
	"fmt"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/prove"
	"github.com/ehasm/ehasm/verify"
)

// Ways to check code against the tables, as --verify names them. The empty name means
// the first.
const (
	verifyProve = "prove"
	verifyRun   = "run"
	verifyBoth  = "both"
)

// verifyImage checks a finished file against the table it was made from.
func verifyImage(image []byte, table *dwarfcfa.Table, how string) error {
	if how != verifyRun {
		if _, err := prove.Image(image, table); err != nil {
			return fmt.Errorf("verification: %w", err)
		}
	}
	if how == verifyRun || how == verifyBoth {
		if _, err := verify.Image(image, table); err != nil {
			return fmt.Errorf("verification: %w", err)
		}
	}
	return nil
}
