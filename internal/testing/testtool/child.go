package testtool

import (
	"os"
	"os/exec"
	"testing"
)

// InChild runs the rest of a test in a child process, where it may change process-wide state: limits, the umask,
// signals. It returns true there. In the test's own process it waits for the child, whose failure is the test's, and
// returns false. t must be a top-level test, not a subtest: the child is this program with -test.run.
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
		t.Errorf("in a separate process: %v\n%s", err, out)
	}
	return false
}
