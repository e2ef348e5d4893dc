package bpfunwind

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
)

// TestMain leaves out, and says so, the tests that load programs where this user or this kernel may not.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv("BPFUNWIND_TEST_RIGHTS") == "" {
		u, err := Load(Options{})
		switch {
		case err == nil:
			u.Close()
		case errors.Is(err, ErrRights) || errors.Is(err, ErrKernel):
			fmt.Fprintf(os.Stderr, "bpfunwind: tests that load programs are left out: %v\n", err)
			flag.Set("test.run", "^(TestRandomTables|TestTableMutants|TestBinary|TestRealTables|TestExplain)$")
		}
	}
	os.Exit(m.Run())
}
