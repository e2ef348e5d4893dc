package check_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/analysis/check"
)

// matrixCase is a function with right rows, and mostly another with wrong ones.
type matrixCase struct {
	name        string
	kind        check.Kind // of what is wrong; "": nothing
	severity    check.Severity
	right, rows string // of the wrong variant
}

// matrix reads testdata/matrix.txt.
func matrix(t *testing.T) (cases []matrixCase) {
	text, err := os.ReadFile("testdata/matrix.txt")
	require.NoError(t, err)
	for _, part := range strings.Split(string(text), "\n== ")[1:] {
		head, body, _ := strings.Cut(part, "\n")
		f := append(strings.Fields(head), "", "")
		c := matrixCase{name: f[0], kind: check.Kind(f[1]), severity: check.Severity(f[2])}
		for line := range strings.Lines(body) {
			switch {
			case strings.HasPrefix(line, "-"):
				c.right += line[1:]
			case strings.HasPrefix(line, "+"):
				c.rows += line[1:]
			default:
				c.right, c.rows = c.right+line, c.rows+line
			}
		}
		cases = append(cases, c)
	}
	return cases
}

// found returns the findings of a function, as a relocatable file and as a shared object.
func (c *matrixCase) found(t *testing.T, body string) map[string][]check.Finding {
	body = ".text\n.globl NAME\n.type NAME,@function\nNAME: .cfi_startproc\n" + body +
		"\n.cfi_endproc\n.size NAME,.-NAME\n"
	object := assemble(t, "f.s", strings.ReplaceAll(body, "NAME", c.name))
	out, err := exec.Command("ld", "-shared", "-o", object+".so", object).CombinedOutput()
	require.NoError(t, err, "%s: %s", c.name, out)
	found := map[string][]check.Finding{}
	for form, path := range map[string]string{".o": object, ".so": object + ".so"} {
		r := run(t, path)
		assert.Zero(t, r.NotJudged[check.ReasonGuess], "%s, %s", c.name, form)
		found[form] = errorsIn(r)
	}
	return found
}

// TestMatrix has small functions with right and wrong rows, by kind of fault: right ones are quiet, wrong ones are
// found.
func TestMatrix(t *testing.T) {
	type row struct{ quiet, alarms, found, missed int }
	table, functions := map[check.Kind]*row{}, 0
	for _, c := range matrix(t) {
		if table[c.kind] == nil {
			table[c.kind] = &row{}
		}
		tally := table[c.kind]
		functions++
		for form, fs := range c.found(t, c.right) {
			if assert.Empty(t, fs, "%s, right, %s", c.name, form) {
				tally.quiet++
			} else {
				tally.alarms++
			}
		}
		if c.kind == "" {
			continue
		}
		functions++
		for form, fs := range c.found(t, c.rows) {
			ok := false
			for _, f := range fs {
				ok = ok || f.Kind == c.kind && f.Severity == c.severity
			}
			if assert.True(t, ok, "%s, wrong, %s: %v", c.name, form, fs) {
				tally.found++
			} else {
				tally.missed++
			}
		}
	}
	assert.GreaterOrEqual(t, functions, 80)
	for kind, r := range table {
		t.Logf("%-10s right: %d quiet, %d not; wrong: %d found, %d missed", kind, r.quiet, r.alarms, r.found, r.missed)
	}
	t.Logf("%d functions", functions)
}
