//go:build !(linux && amd64)

package recorder

import (
	"context"
	"errors"
)

var errHost = errors.New("needs Linux on x86-64: samples come from perf_event_open(2)")

// Run says that there is nothing to record with.
func Run(context.Context, []string, *Options, Console) (int, error) { return failed, errHost }

// Dump says that there is nothing to record with.
func Dump(int) error { return errHost }

// HeaderVariable holds headers for Push.
const HeaderVariable = "EHASM_PUSH_HEADER"
