package testtool

import (
	"os"
	"os/exec"
	"testing"
)

// InChild has the rest of a test run in a process of its own, where it may set what
// holds for a whole process: limits, the umask, signals. It returns true there; in
// the test's own process it waits for the other one, whose failure is the test's, and
// returns false. t is a test at the top, no subtest.
func InChild(t *testing.T) bool {
	t.Helper()
	const variable = "EHASM_TEST_IN_CHILD"
	if os.Getenv(variable) == t.Name() {
		return true
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), variable+"="+t.Name())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("in a process of its own: %v\n%s", err, out)
	}
	return false
}
